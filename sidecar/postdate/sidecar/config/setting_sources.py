"""The sources of settings: a TOML file, the environment, a librdkafka properties file.

Each reader returns `Setting`s and a list of problems, so that all mistakes of a file are visible at once. An unknown
key is a problem, reported with the nearest known name or with all names, so that a typo cannot silently keep a default.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postdate.kafka.secrets import SecretFile
from postdate.sidecar.config import limits
from postdate.sidecar.config.schema import (
    ENVIRONMENT_PREFIX,
    REQUEST_TOPICS,
    Leaf,
    environment_name,
    leaves,
    sections,
    topic_leaves,
)
from postdate.sidecar.config.values import is_secret
from postdate.sidecar.errors import ConfigError

# Variables of tests and development tools, not options.
_FOREIGN_PREFIXES = (
    "POSTDATE_TEST_",
    "POSTDATE_FAILPOINTS",
    "POSTDATE_FORBID_SKIPS",
    "POSTDATE_KAFKA_LIBS",
    "POSTDATE_KAFKA_IMAGE",
    "POSTDATE_PYTHON_IMAGE",
    "POSTDATE_IVY_SETTINGS",
)
CONFIG_FILE_VARIABLE = "POSTDATE_CONFIG"
# Kubernetes adds these to every pod for each Service called postdate or postdate-...
_SERVICE_LINK = re.compile(r"POSTDATE_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the option `path`, or of the librdkafka property `name` of the table `path`."""

    path: str
    value: Any
    source: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """The settings from one source, in order, and its problems."""

    settings: list[Setting]
    problems: list[str]


def nearest(name: str, known: Iterable[str], section: str = "") -> str:
    """Returns a clause with the known name closest to `name`, or with all known names; it starts with a semicolon.
    `section`: the section of all these names, if they have one."""
    names = list(known)
    by_end = [path for path in names if path.rpartition(".")[2] == name]
    close = by_end or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not close:
        return f"; known: {', '.join(names)}"
    return f"; did you mean {section}.{close[0]}?" if section else f"; did you mean {close[0]}?"


def read_text(path: Path) -> str:
    """Returns the text of a configuration or secret file. Raises ConfigError if it is missing, not readable, too large
    or not UTF-8."""
    try:
        if path.stat().st_size > limits.CONFIG_FILE_SIZE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {limits.CONFIG_FILE_SIZE_BYTES_MAX} bytes; is it the right file?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def read_secret(path: Path) -> str:
    """Returns the secret in a file, without the line break at its end. Raises ConfigError as `read_text`."""
    return read_text(path).rstrip("\r\n")


def read_toml(path: Path) -> Read:
    """Returns the settings of a TOML file. Raises ConfigError if the file is not TOML, or if it cannot be read, or a
    secret file that it names."""
    try:
        tree = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    read = Read([], [])
    for key, value in tree.items():
        if key == REQUEST_TOPICS:
            _toml_request_topics(read, value, str(path))
        elif key in sections() and isinstance(value, dict):
            _toml_section(read, key, value, str(path))
        elif key in leaves():
            read.settings.append(Setting(key, value, str(path)))
        elif key in sections():
            read.problems.append(f"{path}: {key} is a section: write [{key}]")
        else:
            read.problems.append(f"{path}: unknown key {key}{nearest(key, [*_top_names(), *leaves()])}")
    return read


def _top_names() -> list[str]:
    return [name for name in sections() if name] + [leaf.path for leaf in leaves().values() if not leaf.section]


def _toml_section(read: Read, section: str, table: Mapping[str, Any], source: str) -> None:
    known = {leaf.name: leaf for leaf in leaves().values() if leaf.section == section}
    for key, value in table.items():
        leaf = known.get(key)
        if leaf is None:
            read.problems.append(f"{source}: unknown key {section}.{key}{nearest(key, known, section)}")
        elif not leaf.is_properties:
            read.settings.append(Setting(leaf.path, value, source))
        elif isinstance(value, dict):
            for name, inner in _dotted(value):
                _property(read, leaf, name, inner, source)
        else:
            read.problems.append(f'{source}: {leaf.path} is a table of librdkafka properties: "name" = "value"')


def _dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested tables under dotted names: TOML reads `sasl.password = "x"` as a table `sasl`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _property(read: Read, leaf: Leaf, name: str, value: Any, source: str) -> None:
    """Adds one librdkafka property. `sasl.password.file` names the file that contains the secret; raises ConfigError as
    `read_text` if this file cannot be read."""
    stem = name.removesuffix(".file")
    if stem != name and is_secret(stem):
        path = Path(str(value))
        value, name, source = SecretFile(read_secret(path), path), stem, f"{value} (named by {source})"
    read.settings.append(Setting(leaf.path, value, source, name))


def _toml_request_topics(read: Read, value: object, source: str) -> None:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        read.settings.append(Setting(REQUEST_TOPICS, [{"name": name} for name in value], source))
        return
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        read.problems.append(f"{source}: {REQUEST_TOPICS} is a list of tables: write [[{REQUEST_TOPICS}]]")
        return
    for table in value:
        for key in table.keys() - topic_leaves().keys():
            hint = nearest(key, topic_leaves(), REQUEST_TOPICS)
            read.problems.append(f"{source}: unknown key {REQUEST_TOPICS}.{key}{hint}")
        if "name" not in table:
            read.problems.append(f"{source}: a table of {REQUEST_TOPICS} has no name")
    read.settings.append(Setting(REQUEST_TOPICS, value, source))


def read_environment(environ: Mapping[str, str]) -> Read:
    """Returns the settings of the variables `POSTDATE_...`. Skips those that Kubernetes adds for Services, those of
    tests and development tools, and the one that names the configuration file. Raises ConfigError as `read_text` for a
    secret file."""
    read = Read([], [])
    known = {environment_name(leaf.path): leaf for leaf in leaves().values()}
    tables = {name: leaf for name, leaf in known.items() if leaf.is_properties}
    for variable in sorted(environ):
        value = environ[variable]
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_FILE_VARIABLE:
            continue
        if variable.startswith(_FOREIGN_PREFIXES) or value.startswith(("tcp://", "udp://")):
            continue
        table = next((name for name in tables if variable.startswith(f"{name}_")), "")
        if table:
            name = variable.removeprefix(f"{table}_").lower().replace("_", ".")
            _property(read, tables[table], name, value, variable)
        elif variable in known and not known[variable].is_properties:
            read.settings.append(Setting(known[variable].path, value, variable))
        elif not _SERVICE_LINK.fullmatch(variable):
            read.problems.append(f"unknown environment variable {variable}{nearest(variable, known)}")
    return read


def read_properties(path: Path) -> Read:
    """Returns the settings of a librdkafka properties file (`name=value` lines, `#` comments). Raises ConfigError as
    `read_text`."""
    read = Read([], [])
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            read.problems.append(f"{path}, line {number}: not name=value: {text.split()[0]}")
        elif name.strip() == "bootstrap.servers":
            read.settings.append(Setting("kafka.bootstrap_servers", value.strip(), str(path)))
        else:
            _property(read, leaves()["kafka.common"], name.strip(), value.strip(), str(path))
    return read
