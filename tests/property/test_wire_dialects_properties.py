"""Goal: a request topic that accepts every dialect turns any record into a request or a reason.

Method: hypothesis mixes names of all dialects, names of Postdate and unknown names with valid and arbitrary values. An
accepted record keeps every promise to the message and can be restored exactly. The order of headers changes nothing.
Headers of no dialect have the same meaning on a topic without dialects.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from postdate.wire.dialects.table import DIALECTS
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers, is_postdate_header
from postdate.wire.limits import ID_BYTES_MAX, INTEGER_END, PARTITION_END
from postdate.wire.requests.parser import parse_request, restore_headers
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.rules import RequestRules
from support.clients.dialect_examples import DEFAULT_TARGET, EXAMPLES, Example

HORIZON_MS = 3_660 * 86_400_000
NOW_MS = 1_795_258_284_000
SPOKEN = RequestRules(
    topic="R", horizon_ms=HORIZON_MS, dialects=tuple(DIALECTS), default_target=DEFAULT_TARGET, format_version=3
)
OFF = RequestRules(topic="R", horizon_ms=HORIZON_MS, format_version=3)

FOREIGN = sorted({name for dialect in DIALECTS.values() for name in dialect.read | dialect.left_over})
OWN = [
    *("postdate-topic", "postdate-at", "postdate-delay", "postdate-id", "postdate-action"),
    *("postdate-origin", "postdate-due", "postdate-dead-reason", "Postdate-Topic", "postdate-x"),
]
MARKS = frozenset(name for dialect in DIALECTS.values() for name in dialect.marks)

plausible = st.sampled_from(
    [
        *(b"orders", b"__x", b"0", b"3", b"-5", b"5000", b"9" * 30, b"1893456000", b"1795258290000", b""),
        *(b"2026-11-21T10:51:24Z", b"2022-12-01T11:09:01.123", b"@at 2026-11-21T10:51:24Z", b"@hourly", b"purge"),
        *(b"@every 5m", b"0 30 2 * * *", b"30 2 * * *", b"Europe/Berlin", b"skip"),
        *(b"CRON_ADD", b"CRON_CANCEL", b"CRON_PAUSE", b"CRON_RESUME"),
        *(b"ADD", b"REPLACE", b"CANCEL", b"schedule", b"cancel", b"tombstone", b"1.0.0", b"orders+u", b"R/3/17"),
    ]
)
values = st.one_of(plausible, st.none(), st.binary(max_size=12))
keys = st.one_of(st.none(), st.binary(max_size=4), st.just(b"k" * 300))
data_names = st.text(max_size=8).filter(lambda name: name not in FOREIGN and not is_postdate_header(name))
data_headers = st.lists(st.tuples(data_names, values), max_size=4)


@st.composite
def of_one_dialect(draw: st.DrawFn) -> Headers:
    """Draws headers of one dialect in any order that are likely to be accepted."""
    example = draw(st.sampled_from(EXAMPLES))
    names = sorted(DIALECTS[example.dialect].read | DIALECTS[example.dialect].left_over)
    more = draw(st.lists(st.tuples(st.sampled_from(names), values), max_size=2))
    return draw(st.permutations([*example.headers, *more, *draw(data_headers)]))


anything = st.lists(st.tuples(st.one_of(st.sampled_from([*FOREIGN, *OWN]), data_names), values), max_size=7)


def outcome(
    rules: RequestRules, headers: Headers, key: bytes | None, is_tombstone: bool, timestamp_ms: int = NOW_MS
) -> Request | tuple[str, str]:
    try:
        return parse_request(rules, 3, timestamp_ms, key, headers, is_tombstone)
    except RequestRefused as refused:
        return refused.reason, refused.detail


@settings(max_examples=600)
@given(
    st.one_of(anything, of_one_dialect()),
    keys,
    st.booleans(),
    st.one_of(st.just(NOW_MS), st.integers(-1, INTEGER_END - 1)),
)
def test_any_record_is_a_request_or_a_reason(
    headers: Headers, key: bytes | None, is_tombstone: bool, timestamp_ms: int
) -> None:
    sent = list(headers)
    request = outcome(SPOKEN, headers, key, is_tombstone, timestamp_ms)
    assert headers == sent
    fresh = replace(SPOKEN)
    assert outcome(fresh, headers, key, is_tombstone, timestamp_ms) == request, "what rules remember changes an answer"
    if not isinstance(request, Request):
        assert request[1]
        return
    restored = restore_headers(request.headers, request.stripped)
    if request.schedule is None:
        assert restored == sent
    else:  # a schedule keeps Postdate's own headers
        assert outcome(SPOKEN, restored, key, is_tombstone, timestamp_ms) == request
    assert not any(is_postdate_header(name) or name in MARKS for name, _ in request.headers)
    assert [name for name, _ in request.headers if name not in FOREIGN] == [
        name for name, _ in sent if name not in FOREIGN and not is_postdate_header(name)
    ]
    assert -1 <= request.partition < PARTITION_END
    assert len(request.id) <= ID_BYTES_MAX
    if request.action in (Action.SCHEDULE, Action.RESCHEDULE):
        assert 1 <= request.due_ms < INTEGER_END
    if request.action == Action.SCHEDULE:
        assert SPOKEN.permits(request.target)
    else:
        assert bool(request.id) != (request.acts_on >= 0)


@given(st.sampled_from(EXAMPLES), st.data())
def test_the_order_of_headers_and_headers_between_them_change_nothing(example: Example, data: st.DataObject) -> None:
    more = data.draw(data_headers)
    headers = data.draw(st.permutations([*example.headers, *more]))
    request = outcome(SPOKEN, headers, example.key, False)
    plain = outcome(SPOKEN, example.headers, example.key, False)
    assert isinstance(request, Request)
    assert isinstance(plain, Request)
    assert (request.target, request.due_ms, request.key, request.id) == (
        *(plain.target, plain.due_ms, plain.key, plain.id),
    )
    assert request.headers == [header for header in headers if header in more or header in example.delivered]


@given(anything, keys)
def test_headers_of_no_dialect_have_the_meaning_of_a_topic_without_dialects(
    headers: Headers, key: bytes | None
) -> None:
    own = [header for header in headers if header[0] not in MARKS]
    assert outcome(SPOKEN, own, key, False) == outcome(OFF, own, key, False)
