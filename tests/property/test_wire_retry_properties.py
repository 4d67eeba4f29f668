"""Goal: every policy reads back from its text, its backoff is bounded and never shrinks, and dropping unneeded rows of
named policies changes no result.

Method: hypothesis generates policies, texts and rows. A plain search over the rows is the reference for the policy of
each offset.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from postdate.wire.requests.retry_policies import NamedPolicies, RetryPolicy, delay_ms, jitter_ms, parse_policy

policies = st.builds(
    lambda base, more, factor, attempts, jitter: RetryPolicy(base, factor, base + more, attempts, jitter),
    st.integers(1, 10**9),
    st.integers(0, 10**9),
    st.integers(100, 10_000),
    st.integers(1, 1_000),
    st.integers(0, 100),
)
texts = st.sampled_from(["", "base=1s", "base=2s, max=9s", "base=5ms, jitter=3%"])
rows = st.lists(st.tuples(st.integers(0, 20), st.sampled_from("ab"), texts), max_size=8)


@given(policies, st.integers(1, 1_000), st.binary(max_size=40))
def test_a_policy_reads_back_and_its_backoff_is_bounded(policy: RetryPolicy, attempt: int, origin: bytes) -> None:
    assert parse_policy(policy.text()) == policy
    delay = delay_ms(policy, attempt)
    assert policy.base_ms <= delay <= policy.max_ms
    assert delay <= delay_ms(policy, attempt + 1)
    assert 0 <= jitter_ms(policy, delay, origin) * 100 <= delay * policy.jitter_percent


@given(st.text(st.sampled_from("base=factormxjit123.,% hsd"), max_size=60))
def test_any_text_is_a_policy_or_none(text: str) -> None:
    with suppress(ValueError):
        policy = parse_policy(text)
        assert parse_policy(policy.text()) == policy


@given(rows, st.integers(0, 20))
def test_rows_that_no_request_needs_change_nothing(written: list[tuple[int, str, str]], low_water: int) -> None:
    whole = NamedPolicies().with_rows(written)
    needed = whole.needed_from(low_water)
    last = {(first, name): text for first, name, text in written}
    for name in "ab":
        for offset in range(low_water, 22):
            valid = [first for first, other in last if other == name and first <= offset]
            text = last[max(valid), name] if valid else ""
            assert needed.find(name, offset) == whole.find(name, offset) == (parse_policy(text) if text else None)
    assert sum(first <= low_water for first, _, _ in needed.rows) <= 2
