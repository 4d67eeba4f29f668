"""Goal: parsing a request with any headers returns a request or a reason, and nothing else.

Method: hypothesis mixes real names, similar names, valid values and arbitrary bytes, so that both outcomes are
frequent. An accepted request must keep every promise to the message: its headers in order, and all headers restorable.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers, StrippedHeaders, is_dropped, is_postdate_header
from postdate.wire.limits import ID_BYTES_MAX, INTEGER_END, PARTITION_END
from postdate.wire.requests.parser import parse_request, restore_headers
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import is_topic_name

KNOWN = [
    *("topic", "at", "delay", "level", "key", "partition", "id", "action", "origin", "grace", "due", "moved"),
    *("dead-reason", "dead-detail", "dead-x", "dead-", "", "cron"),
]
SHARED = RequestRules(topic="R", forbidden=frozenset({"S"}), allow=("[a-z]*",))

prefixed = st.sampled_from(["postdate-", "postdate-", "postdate-", "Postdate-", "POSTDATE-", "postdat\u0435-"])
names = st.one_of(st.builds("".join, st.tuples(prefixed, st.sampled_from(KNOWN))), st.text(max_size=12))
plausible = st.sampled_from(
    [
        *(b"orders", b"R", b"__x", b"0", b"1", b"18", b"5s", b"PT5M", b"1500", b"9" * 30, b"2026-11-21T10:51:24Z"),
        *(b"cancel", b"schedule", b"reschedule", b"pause", b"R/3/17", b"R/4/17", b"-1", b"", b"1.5s", b"1767225600000"),
    ]
)
values = st.one_of(plausible, st.none(), st.binary(max_size=40))
arbitrary = st.lists(st.tuples(names, values), max_size=8)

data_headers = st.lists(
    st.tuples(st.text(max_size=8).filter(lambda name: not is_postdate_header(name)), values), max_size=4
)
times = st.sampled_from(
    [("postdate-delay", b"5s"), ("postdate-delay", b"0"), ("postdate-at", b"5"), ("postdate-level", b"3")]
)
options = st.dictionaries(st.sampled_from(["postdate-key", "postdate-id", "postdate-due", "postdate-origin"]), values)


@st.composite
def likely(draw: st.DrawFn) -> Headers:
    """Draws headers of a request in any order that are nearly always accepted."""
    headers: Headers = [("postdate-topic", b"orders"), draw(times), *draw(options).items(), *draw(data_headers)]
    return draw(st.permutations(headers))


def outcome(rules: RequestRules, timestamp_ms: int, key: bytes | None, headers: Headers) -> Request | tuple[str, str]:
    try:
        return parse_request(rules, 3, timestamp_ms, key, headers)
    except RequestRefused as refused:
        return refused.reason, refused.detail


@settings(max_examples=400)
@given(
    st.one_of(arbitrary, likely()),
    st.one_of(st.integers(-1, INTEGER_END - 1), st.integers(1_767_225_600_000, 1_800_000_000_000)),
    st.one_of(st.none(), st.binary(max_size=4)),
)
def test_any_record_is_a_request_or_a_reason(headers: Headers, timestamp_ms: int, key: bytes | None) -> None:
    sent = list(headers)
    request = outcome(SHARED, timestamp_ms, key, headers)
    assert headers == sent
    fresh = RequestRules(topic="R", forbidden=frozenset({"S"}), allow=("[a-z]*",))
    assert outcome(fresh, timestamp_ms, key, headers) == request, "what rules remember changes an answer"
    if not isinstance(request, Request):
        return
    assert restore_headers(request.headers, request.stripped) == sent
    assert request.headers == [header for header in sent if not is_postdate_header(header[0])]
    assert all(sent[index] == (name, value) for index, name, value in request.stripped)
    assert -1 <= request.partition < PARTITION_END
    assert -1 <= request.grace_ms < INTEGER_END
    assert -1 <= request.acts_on < INTEGER_END
    assert len(request.id) <= ID_BYTES_MAX
    if request.action != Action.CANCEL:
        assert 1 <= request.due_ms < INTEGER_END
        assert request.due_ms - timestamp_ms <= SHARED.horizon_ms or request.due_ms == 1
    if request.action == Action.SCHEDULE:
        assert is_topic_name(request.target)
        assert SHARED.permits(request.target)
        assert (request.acts_on, request.key) == (-1, dict(sent).get("postdate-key", key))
    else:
        assert (request.target, request.partition) == ("", -1)
        assert bool(request.id) != (request.acts_on >= 0)


@given(likely())
def test_left_over_headers_never_change_the_request(headers: Headers) -> None:
    request = outcome(SHARED, 1_795_258_284_000, b"k", headers)
    bare = outcome(SHARED, 1_795_258_284_000, b"k", [header for header in headers if not is_dropped(header[0])])
    if isinstance(request, Request):
        assert isinstance(bare, Request)
        assert (request.due_ms, request.key, request.id, request.headers) == (
            *(bare.due_ms, bare.key, bare.id, bare.headers),
        )
    else:
        assert request == bare


@given(st.lists(st.tuples(st.text(max_size=3), st.none(), st.booleans()), max_size=12))
def test_headers_removed_at_any_place_are_restored(marked: list[tuple[str, None, bool]]) -> None:
    sent: Headers = [(name, value) for name, value, _ in marked]
    control: StrippedHeaders = [(index, name, value) for index, (name, value, taken) in enumerate(marked) if taken]
    assert restore_headers([(name, value) for name, value, taken in marked if not taken], control) == sent
