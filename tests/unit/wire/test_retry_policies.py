"""Goal: a text is exactly one policy or none, and its backoff follows the documented formula.

Method: tables of texts; the backoff is computed a second time with fractions.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from zlib import crc32

import pytest

from postdate.wire.requests.retry_policies import (
    NamedPolicies,
    RetryPolicy,
    delay_ms,
    is_policy_name,
    jitter_ms,
    parse_named,
    parse_policy,
)

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("base=1s", RetryPolicy(1_000, 200, HOUR_MS, 12, 0)),
        ("base=1s, factor=2, max=1h, attempts=12, jitter=20%", RetryPolicy(1_000, 200, HOUR_MS, 12, 20)),
        (
            "jitter = 100% ,attempts=1000,  max=PT2H , factor=1.5,base=250",
            RetryPolicy(250, 150, 2 * HOUR_MS, 1_000, 100),
        ),
        ("base=1ms,factor=1,max=1ms,attempts=1,jitter=0%", RetryPolicy(1, 100, 1, 1, 0)),
        ("base=1h,factor=100.00", RetryPolicy(HOUR_MS, 10_000, HOUR_MS, 12, 0)),
        (" base=1s,factor=1.05 ", RetryPolicy(1_000, 105, HOUR_MS, 12, 0)),
    ],
)
def test_a_policy_is_read_and_written(text: str, policy: RetryPolicy) -> None:
    assert parse_policy(text) == policy
    assert parse_policy(policy.text()) == policy


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "base", "base=", "=1s", "base=1s,", ",base=1s", "base=1s;factor=2", "base=1s factor=2"),
        *("factor=2", "base=0", "base=0s", "base=-1s", "base=1s,base=2s", "base=2h", "base=2s,max=1s", "Base=1s"),
        *("base=1s,factor=0.99", "base=1s,factor=100.01", "base=1s,factor=2.125", "base=1s,factor=1e1"),
        *("base=1s,factor=.5", "base=1s,factor=2.", "base=1s,factor=0", "base=1s,factor=+2", "base=1s,factor=٢"),
        *("base=1s,attempts=0", "base=1s,attempts=1001", "base=1s,attempts=1.5", "base=1s,attempts=99999"),
        *("base=1s,jitter=20", "base=1s,jitter=101%", "base=1s,jitter=1.5%", "base=1s,jitter=-1%", "base=1s,jitter=%"),
        *("base=1s,colour=red", "base=1s,max=forever", "base=1s\t", "base=1s" + " " * 250),
    ],
)
def test_any_other_text_is_not_a_policy(text: str) -> None:
    with pytest.raises(ValueError, match=r"has a|lacks|gives|is too long"):
        parse_policy(text)


@pytest.mark.parametrize("factor", ["1", "2", "10", "1.5", "1.01", "1.33", "100"])
@pytest.mark.parametrize("base", [1, 3, 1_000, 99_999])
def test_the_backoff_grows_by_the_factor_and_never_less(base: int, factor: str) -> None:
    policy = parse_policy(f"base={base},factor={factor},attempts=60")
    exact = Fraction(base)
    expected = base
    for attempt in range(1, 61):
        assert delay_ms(policy, attempt) == expected
        assert expected >= min(exact, Fraction(HOUR_MS))
        exact *= Fraction(factor)
        expected = min(HOUR_MS, ceil(expected * Fraction(factor)))


def test_the_jitter_depends_on_the_origin_and_stays_in_its_range() -> None:
    policy = parse_policy("base=1s,jitter=20%")
    extras = [jitter_ms(policy, 10_000, b"R/0/%d" % offset) for offset in range(2_000)]
    assert extras[7] == 10_000 * 20 * (crc32(b"R/0/7") // 65_536) // (100 * 65_536)
    assert 0 <= min(extras) < 50
    assert 1_950 < max(extras) <= 2_000
    assert jitter_ms(parse_policy("base=1s"), 10_000, b"R/0/7") == 0


def test_named_policies_are_texts_with_a_name() -> None:
    named = parse_named(["orders: base=1s", " a.b-c_9 :base=5s,factor=3"])
    assert named == {"orders": parse_policy("base=1s"), "a.b-c_9": parse_policy("base=5s, factor=3")}
    assert is_policy_name("n" * 64)
    assert not is_policy_name("n" * 65)
    for texts in (
        ["base=1s"],
        ["x=y: base=1s"],
        [": base=1s"],
        ["a: base=1s", "a: base=2s"],
        ["a: factor=2"],
        ["a b: base=1s"],
    ):
        with pytest.raises(ValueError, match=r"NAME|twice|lacks"):
            parse_named(texts)


def test_a_return_uses_the_last_row_of_its_name_at_or_below_it() -> None:
    policies = NamedPolicies([(20, "a", "base=3s"), (5, "a", "base=1s"), (30, "a", ""), (7, "b", "base=7s")])
    by_offset = {offset: policies.find("a", offset) for offset in (4, 5, 19, 20, 29, 30, 99)}
    one, three = parse_policy("base=1s"), parse_policy("base=3s")
    assert by_offset == {4: None, 5: one, 19: one, 20: three, 29: three, 30: None, 99: None}
    assert policies.find("c", 99) is None


def test_only_rows_that_requests_need_are_kept() -> None:
    policies = NamedPolicies([(5, "a", "base=1s"), (20, "a", "base=3s"), (30, "a", ""), (7, "b", "base=7s")])
    assert policies.needed_from(19) is policies
    assert policies.needed_from(20).rows == ((7, "b", "base=7s"), (20, "a", "base=3s"), (30, "a", ""))
    assert policies.needed_from(99).rows == ((7, "b", "base=7s"), (30, "a", ""))


def test_changed_settings_become_rows_behind_the_requests_that_may_have_been_accepted() -> None:
    texts = {name: parse_policy(text).text() for name, text in (("a", "base=1s"), ("b", "base=2s"), ("d", "base=9s"))}
    policies = NamedPolicies([*((5, name, text) for name, text in texts.items()), (55, "d", ""), (60, "e", "base=1s")])
    wanted = parse_named(["a: base=1s, factor=2", "c: base=4s", "d: base=9s", "e: base=2s"])
    changed = policies.changed(wanted, 40, 50)
    new = [(40, "c", parse_policy("base=4s").text()), (55, "d", texts["d"]), (60, "e", parse_policy("base=2s").text())]
    assert changed == [(50, "b", ""), *new]
    after = policies.with_rows(changed)
    assert after.changed(wanted, 50, 50) == []
    assert after.with_rows([(40, "c", "")]).find("c", 41) is None, "a row replaces one of the same request"
