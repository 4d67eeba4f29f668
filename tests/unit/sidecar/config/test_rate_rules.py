"""Goal: rules of rate limits are read as written, and a rule that no target can match is found.

Method: the tests call only the parser and the comparison of patterns.
"""

from __future__ import annotations

import pytest

from postdate.sidecar.config.rate_rules import RateRules, shadowed


def test_the_first_matching_rule_applies_to_each_target_separately() -> None:
    rules = RateRules.of(("mails=20", "sms-*=0.5", " * = 1000 "))
    assert [rules.per_second(name) for name in ("mails", "sms-de", "mails2")] == [20, 0.5, 1000]
    assert RateRules.of(("mails=20",)).per_second("orders") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mails", "'mails' is not a rule: write TARGET=NUMBER, such as mails=20"),
        ("=5", "'=5' is not a rule: write TARGET=NUMBER"),
        ("ma ils=5", "is not a rule: write TARGET=NUMBER"),
        (
            "mails=0",
            "give a number of messages per second from 0.001 to 1,000,000; to send nothing at all, hold the target",
        ),
        ("mails=-3", "give a number of messages per second"),
        ("mails=", "'mails=': give a number of messages per second"),
        ("mails=1e3", "give a number of messages per second"),
        ("mails=2000000", "give a number of messages per second"),
    ],
)
def test_a_malformed_rule_is_refused_with_an_example(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"not a rule|give a number") as refused:
        RateRules.of(("orders=5", text))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "pair",
    [
        "* a",
        "* *",
        "a a",
        "a* ab*",
        "a?c abc",
        "?* a*",
        "*a* ba",
        "a* a?[bc]",
        "[ab]c ac",
        "[!x] b",
        "[ab] [ab]",
        "*-* sms-*-de",
        "???* a??*b",
        "[ [",
    ],
)
def test_a_rule_behind_a_wider_one_is_found(pair: str) -> None:
    wide, narrow = pair.split()
    assert shadowed(("other=1", f"{wide}=1", f" {narrow} = 2")) == [(f" {narrow} = 2", f"{wide}=1")]


@pytest.mark.parametrize(
    "pair",
    [
        "a *",
        "ab* a*",
        "a?c a*c",
        "? *",
        "?* *",
        "a ab",
        "[ab] ?",
        "[ab] [abc]",
        "[!x] ?",
        "[!x] x",
        "*a *",
        "a* ?*",
        "a*b a*",
        "?? ?*",
        "*?? ?",
        "[*] *",
    ],
)
def test_a_rule_that_a_target_can_match_causes_no_warning(pair: str) -> None:
    before, rule = pair.split()
    assert shadowed((f"{before}=1", f"{rule}=2")) == []
