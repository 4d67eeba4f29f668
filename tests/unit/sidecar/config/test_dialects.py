"""Goal: the table of a request topic switches dialects on, and every error in it is reported.

Method: each test loads literal TOML. It compares the resulting rules, or searches the reported problem for a clause.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from postdate.sidecar.config.loader import Flags, Loaded, load
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.wire.dialects.table import DIALECTS


def loaded(tmp_path: Path, lines: str) -> Loaded:
    file = tmp_path / "postdate.toml"
    file.write_text(f"[[request_topics]]\nname = 'a'\n{lines}\n[[request_topics]]\nname = 'b'\n")
    return load(Flags(config_file=file), {})


def test_dialects_are_off_by_default(tmp_path: Path) -> None:
    rules = rules_of(loaded(tmp_path, "").config, "a")
    assert (rules.dialects, rules.default_target, rules.vocabulary) == ((), "", None)


def test_dialects_are_accepted_on_their_topic_only(tmp_path: Path) -> None:
    config = loaded(tmp_path, f"dialects = {list(DIALECTS)}\ndefault_target = 'orders'").config
    rules = rules_of(config, "a")
    assert rules.dialects == tuple(DIALECTS)
    assert rules.vocabulary is not None
    assert rules.vocabulary.default_target == "orders"
    assert rules_of(config, "b").vocabulary is None


@pytest.mark.parametrize("lines", ["dialects = ['etf1']", "dialects = ['rocketmq']", "dialects = 'kaspr, nats'"])
def test_a_default_target_is_needed_only_by_dialects_without_targets(tmp_path: Path, lines: str) -> None:
    assert loaded(tmp_path, lines).config.request_topic("a").default_target == ""


@pytest.mark.parametrize(
    ("lines", "clause"),
    [
        ("dialects = ['karafak']", "request topic a: unknown dialect karafak; did you mean karafka?"),
        ("dialects = ['zzz']", "unknown dialect zzz; known: etf1, karafka,"),
        ("dialects = [1]", "takes a list of texts"),
        ("dialect = ['etf1']", "did you mean request_topics.dialects?"),
        ("dialects = ['etf1', 'rabbitmq']", "a request of rabbitmq names no target: set default_target"),
        ("dialects = ['chronos']", "a request of chronos names no target: set default_target"),
        ("default_target = 'orders'", "default_target is for dialects that name no target, and none is spoken"),
        ("dialects = ['etf1']\ndefault_target = 'orders'", "default_target is for dialects that name no target"),
        ("dialects = ['rabbitmq']\ndefault_target = 'a b'", "default_target 'a b' is not a topic name"),
        ("dialects = ['rabbitmq']\ndefault_target = '__x'", "default_target __x is not allowed as a target"),
        ("dialects = ['rabbitmq']\ndefault_target = 'b.store'", "default_target b.store is not allowed as a target"),
        ("dialects = ['rabbitmq']\ndefault_target = 'x'\nallow = ['y']", "default_target x is not allowed"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, lines: str, clause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, lines)
    assert clause in str(caught.value)
