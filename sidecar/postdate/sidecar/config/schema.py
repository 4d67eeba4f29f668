"""The options of `Config`, as a flat table for the loader, `config show` and `config docs`.

An option's path is its place in the TOML file (`dispatch.pace_ms`); its environment variable follows from the path
(`POSTDATE_DISPATCH_PACE_MS`). Options of a request topic have paths relative to their table. Thread rule: immutable
after import.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from postdate.sidecar.config.settings import Config, Option, RequestTopicConfig

ENVIRONMENT_PREFIX = "POSTDATE_"
REQUEST_TOPICS = "request_topics"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One option: `path` in the file, `hint` its bare type, `option` its text and bounds, `default` its default
    value."""

    path: str
    hint: Any
    option: Option
    default: Any

    @property
    def name(self) -> str:
        """The last part of the path: the field's name."""
        return self.path.rpartition(".")[2]

    @property
    def section(self) -> str:
        """The path of the table that contains the option; empty for an option at the top level of the file, or of a
        request topic."""
        return self.path.rpartition(".")[0]

    @property
    def is_properties(self) -> bool:
        """True for a table of librdkafka properties, whose keys are not options of Postdate."""
        return get_origin(self.hint) is Mapping

    @property
    def choices(self) -> tuple[str, ...]:
        """The closed set of values of the option; empty if it accepts others."""
        return get_args(self.hint) if get_origin(self.hint) is Literal else ()


def bare(hint: Any) -> Any:
    """Returns the type without None: `Path | None` gives Path."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _leaves_of(owner: type[Any], prefix: str) -> list[Leaf]:
    found: list[Leaf] = []
    hints = get_type_hints(owner, include_extras=True)
    blank = owner()
    for field in dataclasses.fields(owner):
        hint = hints[field.name]
        path = f"{prefix}{field.name}"
        if isinstance(hint, type):
            found += _leaves_of(hint, f"{path}.")
            continue
        if get_origin(hint) is not Annotated:
            raise TypeError(f"{owner.__name__}.{field.name} has no Option")
        inner, option = get_args(hint)[:2]
        found.append(Leaf(path, bare(inner), option, getattr(blank, field.name)))
    return found


@cache
def leaves() -> dict[str, Leaf]:
    """Returns every option by path, in the order of the tree. `request_topics` is one option here; `topic_leaves`
    returns those of a request topic."""
    return {leaf.path: leaf for leaf in _leaves_of(Config, "")}


@cache
def topic_leaves() -> dict[str, Leaf]:
    """Returns the options of one request topic, by name."""
    return {leaf.path: leaf for leaf in _leaves_of(RequestTopicConfig, "")}


@cache
def sections() -> dict[str, type[Any]]:
    """Returns the dataclass of each section by its name; the top is the empty name."""
    found: dict[str, type[Any]] = {"": Config}
    for name, hint in get_type_hints(Config).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found[name] = hint
    return found


def environment_name(path: str) -> str:
    """Returns the environment variable of an option: `kafka.common` gives `POSTDATE_KAFKA_COMMON`, to which a
    property's name is appended."""
    return ENVIRONMENT_PREFIX + path.upper().replace(".", "_")
