"""Generates parts of two files of charts/postdate: the tables of values in README.md, and the schema of the options.

`make chart` (or `python -m support.tidiness.chart_documents`) writes them; tests/chart compares the files with its
output. The tables come from the comments of values.yaml that begin with `# --`. The schema of `config` and
`requestTopics` comes from the program's options, so `make chart` adds new options to it. The property names below
`kafka.common|consumer|producer|admin` come from the installed client library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import yaml

from postdate.sidecar.config.schema import REQUEST_TOPICS, Leaf, leaves, topic_leaves
from postdate.wire.dialects.table import DIALECTS
from support.brokers.librdkafka_names import librdkafka_names
from support.repository import ROOT

CHART = ROOT / "charts" / "postdate"
#: Options that the chart sets from the pod or from separate values.
OWNED = frozenset({"data_dir", "group_instance_id", "instance", "workers", REQUEST_TOPICS})
OWNED_SECTIONS = frozenset({"http", "kafka"})

_KEY = re.compile(r"^( *)([\w.-]+):( .*|)$")
_DURATION = r"^([0-9]+(ms|s|m|h|d)?)+$|^P[0-9DTHMS.]+$"
_SIZE = r"^[0-9]+ *(B|KiB|MiB|GiB)?$"
#: A rate in a list of texts: from 0.001 to 1,000,000 a second, as RateRules accepts it.
_RATE = r"0*(1000000(\.0*)?|[1-9][0-9]{0,5}(\.[0-9]+)?)|0+\.(00[1-9]|0[1-9]|[1-9])[0-9]*"
_LISTED: Mapping[str, dict[str, Any]] = {
    "messages_per_second_max": {"type": "string", "pattern": rf"^ *[A-Za-z0-9._*?\[\]!-]+ *= *({_RATE}) *$"},
    "dialects": {"enum": list(DIALECTS)},
}

#: The last handwritten line of the README: everything below this heading is generated.
_VALUES = "## Values\n"
_HEAD = f"{_VALUES}\n`make chart` generates these tables from values.yaml.\n"


@dataclass(frozen=True)
class Value:
    """One row: the path of a value, its default, and its comment."""

    path: str
    default: Any
    text: str


def described(text: str) -> Iterator[Value]:
    """Yields the values of a values.yaml in order. Raises ValueError if a value has no description and is not a
    section."""
    tree = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    skipped_below = 99
    for line in text.splitlines():
        found = _KEY.match(line)
        if line.lstrip().startswith("#"):
            words = line.lstrip().removeprefix("#").strip()
            comment = [words.removeprefix("--").strip()] if words.startswith("--") else [*comment, words]
            if not comment[0]:
                comment = []
            continue
        if found is None or (depth := len(found[1]) // 2) > skipped_below:
            comment = comment if line.strip() else []
            continue
        path = [*path[:depth], found[2]]
        value = _at(tree, path)
        if comment or not isinstance(value, Mapping):
            if not comment:
                raise ValueError(f"{'.'.join(path)} has no description")
            yield Value(".".join(path), value, " ".join(comment))
            skipped_below = depth
        else:
            skipped_below = 99
        comment = []


def _at(tree: Any, path: list[str]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def readme(present: str, values: str) -> str:
    """Returns the chart's README: the text above `## Values` unchanged, and below it the tables of its values.yaml."""
    sections: dict[str, list[str]] = {}
    for value in described(values):
        default = json.dumps(value.default, ensure_ascii=False).replace("|", "\\|")
        section = value.path.partition(".")[0] if "." in value.path else "The release and its pods"
        sections.setdefault(section, []).append(f"| `{value.path}` | `{default}` | {value.text} |")
    text = present.partition(_VALUES)[0] + _HEAD
    for section, rows in sections.items():
        text += "\n".join([f"\n### {section}\n", "| value | default | |", "| --- | --- | --- |", *rows]) + "\n"
    return text


def config_schema() -> dict[str, Any]:
    """Returns the schema of `config`: every option that the chart does not set itself, in the tables of the file."""
    top = _closed({})
    for leaf in leaves().values():
        if leaf.path in OWNED or leaf.section in OWNED_SECTIONS:
            continue
        table = top
        if leaf.section:
            table = top["properties"].setdefault(leaf.section, _closed({}))
        table["properties"][leaf.name] = option_schema(leaf)
    return top


def request_topic_schema() -> dict[str, Any]:
    """Returns the schema of an item of `requestTopics`. The template checks `allow`, with a helpful message."""
    return _closed({leaf.name: option_schema(leaf) for leaf in topic_leaves().values()}) | {"required": ["name"]}


def properties_schema() -> dict[str, Any]:
    """Returns the schema of a table of librdkafka properties: it restricts their names, but not their values."""
    return _closed({name: {"$ref": "#/definitions/property"} for name in librdkafka_names()})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def option_schema(leaf: Leaf) -> dict[str, Any]:
    """Returns the values that the loader accepts for an option. Durations and sizes may have units."""
    described = {"description": leaf.option.doc}
    if leaf.choices:
        return {"enum": list(leaf.choices), **described}
    if get_origin(leaf.hint) is tuple:
        return {"type": "array", "items": _LISTED.get(leaf.name) or _item(leaf, get_args(leaf.hint)[0]), **described}
    return {**_item(leaf, leaf.hint), **described}


def _item(leaf: Leaf, hint: Any) -> dict[str, Any]:
    if hint is bool:
        return {"type": "boolean"}
    if hint is not int:
        return {"type": "string"}
    bounds = {"minimum": leaf.option.low, "maximum": leaf.option.high}
    number = {name: bound for name, bound in bounds.items() if bound is not None}
    if leaf.name.endswith("_ms"):
        return {"type": ["integer", "string"], "pattern": _DURATION, **number}
    if "_bytes" in leaf.name:
        return {"type": ["integer", "string"], "pattern": _SIZE, **number}
    return {"type": "integer", **number}


def schema(present: str) -> str:
    """Returns the text of the schema with its generated parts replaced and the rest unchanged."""
    tree = json.loads(present)
    tree["properties"]["config"] = config_schema()
    tree["properties"]["requestTopics"]["items"] = request_topic_schema()
    simple = {"type": ["string", "number", "boolean"]}
    tree["definitions"] = {"property": simple, "librdkafka": properties_schema()}
    for table in ("common", "consumer", "producer", "admin"):
        tree["properties"]["kafka"]["properties"][table] = {"$ref": "#/definitions/librdkafka"}
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def write() -> None:
    """Writes the generated parts of both files."""
    path = CHART / "values.schema.json"
    path.write_text(schema(path.read_text(encoding="utf-8")), encoding="utf-8")
    path = CHART / "README.md"
    text = readme(path.read_text(encoding="utf-8"), (CHART / "values.yaml").read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
