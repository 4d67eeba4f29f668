"""The configuration as text: the effective values (`config show`) and the reference of all options (`config docs`).

Secrets appear as `***`. `config show` prints TOML that can be loaded again, except for the secrets. The functions are
pure: they depend only on `loader.Loaded`, the schema and the bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from postdate.kafka.secrets import MASK
from postdate.sidecar.config.loader import Loaded
from postdate.sidecar.config.schema import (
    REQUEST_TOPICS,
    Leaf,
    environment_name,
    leaves,
    sections,
    topic_leaves,
)
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.config.values import duration_text, may_be_secret, without_secrets

BOUNDED: dict[str, ModuleType] = {
    package: import_module(f"postdate.{package}.limits")
    for package in (
        "sidecar",
        "sidecar.config",
        "sidecar.context",
        "sidecar.operation",
        "sidecar.transaction",
        "sidecar.index",
        "sidecar.ingest",
        "sidecar.takeover",
        "sidecar.dispatch",
        "sidecar.shard",
        "sidecar.group",
        "sidecar.cluster",
        "sidecar.dead_letters",
        "sidecar.http",
        "sidecar.process",
        "cli",
        "wheel",
        "wire",
        "kafka",
    )
}
"""The module of bounds of each package."""


def bounds_of(module: ModuleType) -> dict[str, int | float]:
    """Returns the bounds that a `limits` module declares, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, (int, float))
    }


def _value(config: Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _masked(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if may_be_secret(name) else without_secrets(str(value)) for name, value in properties.items()}


def _plain(leaf: Leaf, value: Any) -> Any:
    """Returns the value in a form that JSON and TOML can represent, with secrets masked."""
    if leaf.is_properties:
        return _masked(value)
    if isinstance(value, tuple):
        return [without_secrets(item) if isinstance(item, str) else item for item in value]
    if leaf.hint is Path:
        return "" if value is None else str(value)
    return without_secrets(value) if isinstance(value, str) else value


def _topic_table(topic: RequestTopicConfig) -> dict[str, Any]:
    return {name: _plain(leaf, getattr(topic, name)) for name, leaf in topic_leaves().items()}


def as_json_tree(config: Config, *, with_bounds: bool = False) -> dict[str, Any]:
    """Returns the configuration as one tree of plain values, with secrets masked and derived values (instance,
    data_dir) filled in. `with_bounds`: the tree also contains the bounds, under `limits`."""
    tree: dict[str, Any] = {}
    for path, leaf in leaves().items():
        if path == REQUEST_TOPICS:
            tree[path] = [_topic_table(topic) for topic in config.request_topics]
            continue
        node = tree.setdefault(leaf.section, {}) if leaf.section else tree
        node[leaf.name] = _plain(leaf, _value(config, path))
    tree["instance"] = config.instance_name
    tree["data_dir"] = str(config.data_path)
    if with_bounds:
        tree["limits"] = {package: bounds_of(module) for package, module in BOUNDED.items()}
    return tree


def as_toml(loaded: Loaded, *, with_bounds: bool = False) -> str:
    """Returns the effective configuration as TOML, with the source of each setting. The first line of a request topic's
    table has the source that names the topic; its settings may be from the file or defaults. `with_bounds`: the bounds
    follow as comments."""
    lines = [*_toml_lines(loaded), *(_bound_lines() if with_bounds else ())]
    return "\n".join(lines) + "\n"


def _toml_lines(loaded: Loaded) -> Iterator[str]:
    config = loaded.config
    derived = {"instance": config.instance_name, "data_dir": str(config.data_path)}
    plain = {section: [leaf for leaf in leaves().values() if leaf.section == section] for section in sections()}
    for leaf in plain[""]:
        if leaf.path != REQUEST_TOPICS:
            yield _line(leaf.name, derived.get(leaf.path, _plain(leaf, _value(config, leaf.path))), loaded, leaf.path)
    for section in [name for name in sections() if name]:
        yield from ("", f"[{section}]")
        for leaf in plain[section]:
            if not leaf.is_properties:
                yield _line(leaf.name, _plain(leaf, _value(config, leaf.path)), loaded, leaf.path)
        for leaf in plain[section]:
            properties = _value(config, leaf.path) if leaf.is_properties else {}
            if properties:
                yield from ("", f"[{leaf.path}]")
            for name, value in _masked(properties).items():
                yield _line(json.dumps(name), value, loaded, f"{leaf.path}/{name}")
    for topic in config.request_topics:
        yield from ("", f"[[{REQUEST_TOPICS}]]  # {loaded.source(REQUEST_TOPICS)}")
        for name, value in _topic_table(topic).items():
            duration = duration_text(name, value)
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}" + (f"  # {duration}" if duration else "")


def _bound_lines() -> Iterator[str]:
    for package, module in BOUNDED.items():
        yield from ("", f"# Bounds of {package}. They cannot be set; the code gives the reason of each.")
        yield from (f"# {name} = {value}" for name, value in bounds_of(module).items())


def _line(key: str, value: Any, loaded: Loaded, path: str) -> str:
    duration = duration_text(key, value)
    source = loaded.source(path)
    return f"{key} = {json.dumps(value, ensure_ascii=False)}  # {f'{duration}; {source}' if duration else source}"


def as_markdown() -> str:
    """Returns the reference as Markdown: key, environment variable, default, range and meaning of every option, and the
    bounds."""
    lines = [
        "# Configuration",
        "",
        "Settings come from flags, environment variables, a file of librdkafka properties (`-F FILE`) and a TOML file",
        "(`--config FILE` or `POSTDATE_CONFIG`); each source overrides those after it. `postdate config show` prints",
        "the effective values and their sources. An unknown key is an error. Settings whose names end in `_ms` take",
        "milliseconds or a duration such as `90s`, `2h30m`, `7d`; sizes take bytes or `512KiB`, `16MiB`.",
    ]
    for section, owner in sections().items():
        shown = [leaf for leaf in leaves().values() if leaf.section == section and leaf.path != REQUEST_TOPICS]
        title = f"`[{section}]`" if section else "Top level"
        lines += ["", f"## {title}", "", _sentence(owner) if section else "Before the first section of the file.", ""]
        lines += _table(shown, with_environment=True)
    lines += ["", f"## `[[{REQUEST_TOPICS}]]`", "", _sentence(RequestTopicConfig)]
    lines += [
        f"One table for each topic. `{environment_name(REQUEST_TOPICS)}` and `--requests` take only names: each name",
        "selects a table of the file, or adds a topic with the defaults.",
        "",
        *_table(list(topic_leaves().values()), with_environment=False),
    ]
    lines += ["", *_SECRETS_TEXT]
    lines += ["", "## Bounds", "", "These cannot be set. The code gives the reason beside each of them."]
    for package, module in BOUNDED.items():
        lines += ["", f"### {package}", "", "| bound | value |", "| --- | --- |"]
        lines += [f"| `{name}` | {value:,} |" for name, value in bounds_of(module).items()]
    return "\n".join(lines) + "\n"


_SECRETS_TEXT = (
    "## librdkafka properties and secrets",
    "",
    "A property such as `security.protocol` is a key of `[kafka.common]` (or `consumer`, `producer`, `admin`), the",
    "variable `POSTDATE_KAFKA_COMMON_SECURITY_PROTOCOL`, a line of the `-F` file, or `-X security.protocol=SSL`.",
    "`-X` refuses secrets (`sasl.password`, `ssl.key.password`, ...), because every user of the machine could read",
    "them there. `POSTDATE_KAFKA_COMMON_SASL_PASSWORD_FILE`, or `sasl.password.file` in a file, names a file with the",
    "secret. Secrets print as `***`. Properties that would break the protocol, such as `transactional.id`,",
    "`isolation.level` or `partitioner`, are refused with the reason.",
)


def _sentence(owner: type) -> str:
    return (owner.__doc__ or "").strip().splitlines()[0]


def _table(shown: list[Leaf], *, with_environment: bool) -> list[str]:
    head = ["key", *(["environment"] if with_environment else []), "default", "range", "meaning"]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    for leaf in shown:
        variable = environment_name(leaf.path) + ("_<PROPERTY>" if leaf.is_properties else "")
        default = (
            "" if leaf.default in (None, "") or leaf.is_properties else f"`{json.dumps(_plain(leaf, leaf.default))}`"
        )
        cells = [f"`{leaf.name}`", *([f"`{variable}`"] if with_environment else []), default, _range(leaf)]
        lines.append(f"| {' | '.join([*cells, leaf.option.doc])} |")
    return lines


def _range(leaf: Leaf) -> str:
    if leaf.choices:
        return ", ".join(f"`{choice}`" for choice in leaf.choices)
    low, high = leaf.option.low, leaf.option.high
    if high is None:
        return "" if low is None else f"≥ {low:,}"
    return f"{low or 0:,}-{high:,}"
