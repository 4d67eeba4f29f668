"""Goal: the sidecar's parser accepts every request that `postdate.client` builds, with the meaning of the call. The
client refuses every other call.

Method: hypothesis generates valid and invalid calls of every kind. Each record is parsed under the rules of its topic
at a time of the broker's clock. Keys, headers and times must be those of the call, and all requests for one id must
have one partition.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from postdate.client import RequestInvalid, RequestRecord, RequestTopic
from postdate.wire.headers import is_postdate_header
from postdate.wire.limits import PARTITION_END
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.values.murmur2 import partition_for

NOW_MS = time.time_ns() // 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
contents = st.one_of(texts, st.binary(max_size=12))
header_names = st.one_of(texts, st.sampled_from(["postdate-origin", "postdate-due", "postdate-id", "postdate-dely"]))
header_sets = st.one_of(
    st.lists(st.tuples(header_names, contents | st.none())), st.dictionaries(header_names, contents | st.none())
)
ids = st.one_of(st.text(st.characters(codec="utf-8"), max_size=90), st.binary(max_size=260))
spans = st.timedeltas(timedelta(seconds=-1), timedelta(days=500))
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
instants = st.one_of(
    st.datetimes(datetime(1971, 1, 1), datetime(2027, 1, 1), timezones=zones),
    st.datetimes(timezones=st.one_of(st.none(), zones)),
)
times: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"delay": spans}),
    st.fixed_dictionaries({"at": instants}),
    st.fixed_dictionaries({"level": st.integers(-1, 30)}),
    st.just({}),
)
partitions = st.integers(1, 300)


def bytes_of(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def read(record: RequestRecord) -> Request:
    return parse_request(
        RequestRules(topic=record.topic), record.partition or 0, NOW_MS, record.key, list(record.headers)
    )


def exact_due(when: dict[str, Any], request: Request) -> None:
    """Checks that the due time is the first whole millisecond at or after the requested time."""
    if "level" in when:
        return
    wanted = when["at"] - EPOCH if "at" in when else timedelta(milliseconds=NOW_MS) + when["delay"]
    late = timedelta(milliseconds=request.due_ms) - wanted
    assert timedelta() <= late < timedelta(milliseconds=1) or request.due_ms == 1


@settings(max_examples=300)
@given(
    partitions,
    st.one_of(st.just("orders"), texts),
    st.one_of(st.none(), contents),
    st.one_of(st.none(), contents),
    header_sets,
    times,
    st.one_of(st.none(), ids),
    st.one_of(st.none(), spans),
    st.one_of(st.none(), st.integers(-1, PARTITION_END)),
)
def test_a_schedule_is_accepted_and_means_the_call(
    count: int,
    target: str,
    value: str | bytes | None,
    key: str | bytes | None,
    headers: list[tuple[str, Any]] | dict[str, Any],
    when: dict[str, Any],
    id: str | bytes | None,
    grace: timedelta | None,
    target_partition: int | None,
) -> None:
    topic = RequestTopic("R", count)
    try:
        record = topic.schedule(
            target, value, key=key, headers=headers, id=id, grace=grace, target_partition=target_partition, **when
        )
    except RequestInvalid:
        return
    request = read(record)
    assert (request.action, request.target, record.value) == (Action.SCHEDULE, target, bytes_of(value))
    assert request.key == bytes_of(key)
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    assert request.headers == [(name, bytes_of(content)) for name, content in pairs if not is_postdate_header(name)]
    assert request.id == (bytes_of(id) or b"")
    assert request.partition == (-1 if target_partition is None else target_partition)
    assert (request.grace_ms >= 0) == (grace is not None)
    exact_due(when, request)
    if id is not None:
        assert record.key == bytes_of(id)
        assert record.partition == partition_for(record.key or b"", count)
        assert {topic.cancel(id=id).partition, topic.reschedule(id=id, level=0).partition} == {record.partition}


@settings(max_examples=200)
@given(
    partitions,
    st.booleans(),
    times,
    st.one_of(st.none(), ids),
    st.one_of(st.none(), contents, st.builds("R/{}/{}".format, st.integers(0, 300), st.integers(0, 2**63))),
    st.one_of(st.none(), spans),
)
def test_a_control_is_accepted_and_means_the_call(
    count: int,
    cancels: bool,
    when: dict[str, Any],
    id: str | bytes | None,
    origin: str | bytes | None,
    grace: timedelta | None,
) -> None:
    topic = RequestTopic("R", count)
    try:
        if cancels:
            record = topic.cancel(id=id, origin=origin)
        else:
            record = topic.reschedule(id=id, origin=origin, grace=grace, **when)
    except RequestInvalid:
        return
    request = read(record)
    assert request.action == (Action.CANCEL if cancels else Action.RESCHEDULE)
    assert record.value is None
    assert (request.id, request.acts_on >= 0) == (bytes_of(id) or b"", origin is not None)
    if origin is not None:
        assert topic.origin(record.partition or 0, request.acts_on).encode() == bytes_of(origin)
    if not cancels:
        exact_due(when, request)


@given(spans, ids)
def test_an_ordinary_call_is_never_refused(delay: timedelta, id: str | bytes) -> None:
    """Without this test, the other two would pass if the client refused every call."""
    assume(timedelta() <= delay <= timedelta(days=400))
    named = (bytes_of(id) or b"x")[:200].decode("utf-8", "ignore") or "x"
    assert read(RequestTopic("R", 3).schedule("t", b"", delay=delay, id=named)).id == named.encode()
