"""Goal: a request that `postdate.client` builds contains what the caller passed, goes to the partition of its controls,
and is never refused by the sidecar.

Method: literal expectations on the records, which the sidecar's parser reads as well. Each invalid call raises
RequestInvalid with the reason that the dead letter would have. The records are bound as arguments to the signatures of
real clients.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from postdate.client import Reason, RequestInvalid, RequestRecord, RequestTopic, read_delivered
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import OF_SCHEDULES, Action, Request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.requests.selection import Selection
from postdate.wire.schedules.schedule import Fold, Gap, Missed, Schedule
from postdate.wire.values.murmur2 import partition_for
from support.repository import ROOT

TOPIC = RequestTopic("postdate.requests", partitions=4)
NOW_MS = 1_795_258_284_000
SECOND = timedelta(seconds=1)
EARLIER = datetime(2026, 1, 1, tzinfo=UTC)


def read(record: RequestRecord) -> Request:
    """Returns the request as the sidecar reads it."""
    rules = RequestRules(topic=record.topic, format_version=3)
    return parse_request(rules, record.partition or 0, NOW_MS, record.key, list(record.headers))


def test_a_schedule_needs_a_target_and_a_time() -> None:
    record = TOPIC.schedule("reminders", "pay!", key="order-9", headers=[("a", "1"), ("a", None)], delay=5 * SECOND)
    assert (record.topic, record.key, record.value) == ("postdate.requests", b"order-9", b"pay!")
    assert record.headers == (("a", b"1"), ("a", None), ("postdate-topic", b"reminders"), ("postdate-delay", b"5000"))
    assert record.partition == partition_for(b"order-9", 4)
    request = read(record)
    assert (request.target, request.due_ms, request.key) == ("reminders", NOW_MS + 5000, b"order-9")


def test_every_option_reaches_the_request() -> None:
    at = datetime(2026, 11, 21, 10, 51, 24, 500_001, tzinfo=timezone(timedelta(hours=-3)))
    record = TOPIC.schedule("t", None, key=b"k", at=at, grace=timedelta(minutes=1), target_partition=7, id="i")
    request = read(record)
    assert (request.action, request.target, request.partition, request.grace_ms) == (Action.SCHEDULE, "t", 7, 60_000)
    assert (request.due_ms, request.id, request.key) == (1_795_269_084_501, b"i", b"k")
    assert read(TOPIC.schedule("t", b"", level=3)).due_ms == NOW_MS + 10_000
    assert read(TOPIC.schedule("t", b"", delay=timedelta(microseconds=1))).due_ms == NOW_MS + 1, "never early"


def test_a_consumed_message_becomes_its_return() -> None:
    consumed: list[tuple[str, bytes | None]] = [
        *(("a", b"1"), ("postdate-origin", b"R/3/9"), ("postdate-due", b"77"), ("postdate-id", b"i")),
        *(("postdate-attempt", b"2"), ("postdate-first-origin", b"R/3/1"), ("postdate-first-due", b"5")),
        *(("postdate-error", b"before"), ("postdate-dead-reason", b"expired")),
    ]
    record = TOPIC.retry("orders", b"v", "base=1s, attempts=3", key="k", headers=consumed, error="boom")
    assert record.headers == (
        *consumed[:7],
        *(("postdate-topic", b"orders"), ("postdate-retry", b"base=1s, attempts=3"), ("postdate-error", b"boom")),
    )
    assert (record.key, record.value, record.partition) == (b"k", b"v", partition_for(b"k", 4))
    assert [name for name, _ in TOPIC.retry("t", None, "slow", headers={"b": "2"}).headers] == [
        "b",
        "postdate-topic",
        "postdate-retry",
    ]
    scheduled = TOPIC.schedule("orders", b"v", level=1, headers=consumed)
    assert scheduled.headers[:2] == (("a", b"1"), ("postdate-topic", b"orders")), "a new message has no attempts"
    for policy in ("", "factor=2", "a b"):
        with pytest.raises(RequestInvalid) as refused:
            TOPIC.retry("orders", b"v", policy)
        assert refused.value.reason == Reason.BAD_RETRY
    with pytest.raises(RequestInvalid, match="Postdate's"):
        TOPIC.retry("orders", b"v", "slow", headers={"postdate-delay": b"5s"})


def test_all_requests_that_name_an_id_have_one_partition_for_any_keys() -> None:
    topic = RequestTopic("R", partitions=31)
    scheduled = topic.schedule("t", b"", key=b"customer-7", level=1, id="order-9")
    again = topic.schedule("t", b"", key=b"customer-8", level=1, id=b"order-9")
    moved = topic.reschedule(id="order-9", level=2)
    cancelled = topic.cancel(id="order-9")
    partitions = {record.partition for record in (scheduled, again, moved, cancelled)}
    assert partitions == {topic.partition_of("order-9")} == {partition_for(b"order-9", 31)}
    assert {record.key for record in (scheduled, again, moved, cancelled)} == {b"order-9"}, "other clients may follow"
    assert (read(scheduled).key, read(again).key) == (b"customer-7", b"customer-8")


def test_a_null_key_stays_null_with_an_id_and_may_lie_anywhere_without() -> None:
    assert read(TOPIC.schedule("t", b"", level=1, id="i")).key is None
    assert TOPIC.schedule("t", b"", level=1).partition is None
    assert TOPIC.schedule("t", b"", key=b"", level=1).partition == partition_for(b"", 4)


@pytest.mark.parametrize("partition", range(4))
def test_a_control_by_origin_goes_to_the_partition_of_the_origin(partition: int) -> None:
    origin = TOPIC.origin(partition, 1017)
    assert origin == f"postdate.requests/{partition}/1017"
    for record in (TOPIC.cancel(origin=origin), TOPIC.reschedule(origin=origin.encode(), delay=SECOND)):
        assert (record.partition, record.key, record.value) == (partition, None, None)
        assert read(record).acts_on == 1017


def test_deliver_reschedules_to_the_time_of_the_record() -> None:
    by_id, by_origin = TOPIC.deliver(id="i"), TOPIC.deliver(origin=TOPIC.origin(3, 1017))
    assert by_id.partition == TOPIC.partition_of("i")
    assert (by_origin.partition, read(by_origin).acts_on) == (3, 1017)
    for record in (by_id, by_origin):
        assert (read(record).action, read(record).due_ms) == (Action.RESCHEDULE, NOW_MS)


@pytest.mark.parametrize(("call", "action"), [(action.name.lower(), action) for action in OF_SCHEDULES])
def test_a_schedule_is_controlled(call: str, action: Action) -> None:
    times = (EARLIER, EARLIER + SECOND) if action == Action.BACKFILL else ()
    build = partial(getattr(TOPIC, call), *times)
    by_id, by_origin = build(id="i"), build(origin=TOPIC.origin(3, 1017))
    assert (by_id.partition, by_id.key, read(by_id).id) == (TOPIC.partition_of("i"), b"i", b"i")
    assert (by_origin.partition, read(by_origin).acts_on) == (3, 1017)
    assert [read(record).action for record in (by_id, by_origin)] == [action, action]
    with pytest.raises(RequestInvalid, match="give id or origin"):
        build()


def test_a_backfill_requests_times_that_have_passed() -> None:
    request = read(TOPIC.backfill(EARLIER, EARLIER + SECOND, id="i"))
    first_ms = round(EARLIER.timestamp() * 1_000)
    assert request.times_ms == (first_ms, first_ms + 1_000)
    for start, end in ((EARLIER, EARLIER - SECOND), (EARLIER, datetime.now(UTC) + 60 * SECOND)):
        with pytest.raises(RequestInvalid) as refused:
            TOPIC.backfill(start, end, id="i")
        assert refused.value.reason == Reason.BAD_TIME


def test_a_bulk_cancel_goes_to_every_partition() -> None:
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    records = TOPIC.cancel_selected(target="t", id_prefix="c-", key=b"k", due_from=at, due_until=at + SECOND)
    assert [record.partition for record in records] == list(range(TOPIC.partitions))
    for record in records:
        request = read(record)
        assert (request.action, request.id, request.acts_on) == (Action.CANCEL, b"", -1)
        assert request.selection == Selection("t", b"c-", b"k", NOW_MS, NOW_MS + 1_000)
    for by_ms in (7_200_000, -7_200_000):
        for record in TOPIC.reschedule_selected(timedelta(milliseconds=by_ms), target="t"):
            moved = read(record)
            assert (moved.action, moved.due_ms, moved.by_ms) == (Action.RESCHEDULE, -1, by_ms)
    for record in TOPIC.deliver_selected(key="k"):
        now = read(record)
        assert (now.action, now.due_ms, now.selection) == (Action.RESCHEDULE, NOW_MS, Selection(key=b"k"))
    with pytest.raises(RequestInvalid) as refused:
        TOPIC.cancel_selected()
    assert refused.value.reason == Reason.BAD_SELECTION
    with pytest.raises(RequestInvalid):
        TOPIC.cancel_selected(due_from=at, due_until=at)


def test_a_message_carries_its_window() -> None:
    request = read(TOPIC.schedule("t", b"", delay=SECOND, window=timedelta(minutes=15)))
    assert (request.due_ms, request.window_ms, request.is_even) == (NOW_MS + 1_000, 900_000, False)
    assert read(TOPIC.schedule("t", b"", delay=SECOND, window=SECOND, spread="even")).is_even
    with pytest.raises(RequestInvalid) as no_window:
        TOPIC.schedule("t", b"", delay=SECOND, spread="even")
    assert no_window.value.reason == Reason.BAD_SPREAD
    for window, reason in ((timedelta(0), Reason.BAD_WINDOW), (timedelta(days=400), Reason.BEYOND_HORIZON)):
        with pytest.raises(RequestInvalid) as refused:
            TOPIC.schedule("t", b"", delay=SECOND, window=window)
        assert refused.value.reason == reason


def test_a_message_carries_the_policies_of_its_id() -> None:
    request = read(TOPIC.schedule("t", b"", delay=SECOND, id="i", if_pending="replace", latest=timedelta(seconds=30)))
    assert (request.id, request.keeps, request.latest_ms) == (b"i", False, 30_000)
    assert read(TOPIC.schedule("t", b"", delay=SECOND, id="i", if_pending="keep")).keeps
    assert read(TOPIC.schedule("t", b"", delay=SECOND, id="i", if_ended="drop")).drops
    for more, reason in (
        ({"if_pending": "drop", "id": "i"}, Reason.BAD_IF_PENDING),
        ({"if_pending": "keep"}, Reason.MISSING_ID),
        ({"if_ended": "keep", "id": "i"}, Reason.BAD_IF_ENDED),
        ({"if_ended": "drop"}, Reason.MISSING_ID),
        ({"latest": timedelta(0), "id": "i"}, Reason.BAD_LATEST),
        ({"latest": SECOND, "if_pending": "keep", "id": "i"}, Reason.BAD_LATEST),
    ):
        with pytest.raises(RequestInvalid) as refused:
            TOPIC.schedule("t", b"", delay=SECOND, **more)
        assert refused.value.reason == reason


def test_a_reschedule_carries_a_time_and_a_grace() -> None:
    request = read(TOPIC.reschedule(id="i", delay=timedelta(hours=2), grace=timedelta(0)))
    assert (request.action, request.due_ms, request.grace_ms) == (Action.RESCHEDULE, NOW_MS + 7_200_000, 0)


def test_the_headers_of_a_delivered_record_can_be_given_as_they_are() -> None:
    delivered = [("traceparent", b"00-1"), ("postdate-origin", b"R/0/1"), ("postdate-due", b"5"), ("postdate-id", b"i")]
    record = TOPIC.schedule("t", b"", headers=delivered, delay=SECOND)
    assert read(record).headers == [("traceparent", b"00-1")]
    assert (read(record).id, record.partition) == (b"", None), "an id is only what the call says"
    assert read(TOPIC.schedule("t", b"", headers=None, delay=SECOND)).headers == [], "clients say None for no headers"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"ab": "x"}, [("ab", b"x")]),
        ({"a": "b", "b": b"\xff", "c": None, "d": ""}, [("a", b"b"), ("b", b"\xff"), ("c", None), ("d", b"")]),
        (MappingProxyType({"ab": b"x"}), [("ab", b"x")]),
        ([("ab", "x"), ("ab", None)], [("ab", b"x"), ("ab", None)]),
        ((["ab", "x"],), [("ab", b"x")]),
        ({"ab": "x"}.items(), [("ab", b"x")]),
        (iter([("b", b""), ("a", b"1")]), [("b", b""), ("a", b"1")]),
        ({}, []),
        ([], []),
    ],
    ids=str,
)
def test_headers_are_a_mapping_or_pairs(given: Any, kept: list[tuple[str, bytes | None]]) -> None:
    record = TOPIC.schedule("t", b"", headers=given, delay=SECOND)
    assert list(record.headers[: len(kept)]) == kept
    assert read(record).headers == kept


@pytest.mark.parametrize(
    "given",
    [
        *("", "ab", b"", b"ab", 0, 5),
        *(["ab"], {"ab"}, [{"a", "b"}], [{"a": 1, "b": 2}], [b"ab"], ("a", "b")),
        *([("a",)], [("a", "b", "c")], [("a", "b"), "cd"], [("a", 1)], [("a", True)], [("a", ["b"])], {"a": 1}),
        *([(1, "b")], [(b"a", b"b")], {1: "b"}, {None: "b"}, [(None, None)]),
    ],
    ids=repr,
)
def test_other_headers_are_a_type_error_with_a_remedy(given: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a mapping|must be bytes, str or None"):
        TOPIC.schedule("t", b"", headers=given, delay=SECOND)


MISTAKES: list[tuple[Reason, str, Callable[[], object]]] = [
    (Reason.BAD_TIME, "naive", lambda: TOPIC.schedule("t", b"", at=datetime(2030, 1, 1))),
    (Reason.BAD_TIME, "naive", lambda: TOPIC.reschedule(id="i", at=datetime(2030, 1, 1))),
    (Reason.BAD_TIME, "before 1970", lambda: TOPIC.schedule("t", b"", at=datetime(1969, 1, 1, tzinfo=UTC))),
    (Reason.BAD_TIME, "negative", lambda: TOPIC.schedule("t", b"", delay=-SECOND)),
    (Reason.BAD_TIME, "negative", lambda: TOPIC.schedule("t", b"", delay=SECOND, grace=-SECOND)),
    (Reason.MISSING_TIME, "one of at, delay and level", lambda: TOPIC.schedule("t", b"")),
    (Reason.MISSING_TIME, "one of at, delay and level", lambda: TOPIC.reschedule(id="i")),
    (Reason.CONFLICTING_TIME, "only one of delay and level", lambda: TOPIC.schedule("t", b"", delay=SECOND, level=1)),
    (Reason.BAD_LEVEL, "postdate-level", lambda: TOPIC.schedule("t", b"", level=-1)),
    (Reason.BEYOND_HORIZON, "horizon", lambda: TOPIC.schedule("t", b"", delay=timedelta(days=401))),
    (Reason.BEYOND_HORIZON, "horizon", lambda: TOPIC.schedule("t", b"", at=datetime(9999, 1, 1, tzinfo=UTC))),
    (Reason.BAD_TARGET, "not a topic name", lambda: TOPIC.schedule("a b", b"", level=1)),
    (Reason.FORBIDDEN_TARGET, "do not allow", lambda: TOPIC.schedule("postdate.requests.store", b"", level=1)),
    (Reason.BAD_PARTITION, "partition", lambda: TOPIC.schedule("t", b"", level=1, target_partition=-1)),
    (Reason.BAD_ID, "1 to 256 bytes", lambda: TOPIC.schedule("t", b"", level=1, id="")),
    (Reason.BAD_ID, "1 to 256 bytes", lambda: TOPIC.cancel(id="x" * 257)),
    (Reason.BAD_ID, "not UTF-8", lambda: TOPIC.cancel(id=b"\xff")),
    (Reason.MISSING_ID, "id or origin", lambda: TOPIC.cancel()),
    (Reason.BAD_ACTION, "not both", lambda: TOPIC.cancel(id="i", origin="postdate.requests/0/1")),
    (Reason.BAD_ID, "not an origin", lambda: TOPIC.cancel(origin="postdate.requests/0")),
    (Reason.BAD_ID, "not on postdate.requests", lambda: TOPIC.cancel(origin="other/0/1")),
    (Reason.BAD_ID, "ask the cluster", lambda: TOPIC.cancel(origin="postdate.requests/4/1")),
    (
        Reason.UNKNOWN_HEADER,
        "with an argument",
        lambda: TOPIC.schedule("t", b"", headers=[("Postdate-delay", "1")], level=1),
    ),
    (
        Reason.UNKNOWN_HEADER,
        "with an argument",
        lambda: TOPIC.schedule("t", b"", headers=[("postdate-key", "k")], level=1),
    ),
    (
        Reason.UNKNOWN_HEADER,
        "with an argument",
        lambda: TOPIC.schedule("t", b"", headers={"postdate-id": "order-9"}, level=1),
    ),
    (Reason.BAD_ID, "4 partitions", lambda: TOPIC.origin(4, 1)),
    (Reason.BAD_ID, "4 partitions", lambda: TOPIC.origin(-1, 1)),
    (Reason.BAD_ID, "acknowledgement", lambda: TOPIC.origin(0, -1001)),
    (Reason.BAD_HEADERS, "NUL", lambda: TOPIC.schedule("t", b"", headers=[("a\0b", "1")], level=1)),
]


@pytest.mark.parametrize(("reason", "said", "call"), MISTAKES)
def test_an_invalid_option_is_reported_before_anything_is_sent(
    reason: Reason, said: str, call: Callable[[], object]
) -> None:
    with pytest.raises(RequestInvalid) as caught:
        call()
    assert (caught.value.reason, isinstance(caught.value, ValueError)) == (reason, True)
    assert said in caught.value.detail


def loose(**arguments: Any) -> RequestRecord:
    """Returns the result of a call without static types."""
    return TOPIC.schedule("t", **{"value": b"", **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"delay": 5},
        {"at": 1_795_258_284_000},
        {"at": date(2030, 1, 1)},
        {"level": "3"},
        {"level": True},
        {"level": 1.0},
        {"delay": SECOND, "id": 9},
        {"delay": SECOND, "key": 9},
        {"delay": SECOND, "key": bytearray(b"k")},
        {"delay": SECOND, "value": {"a": 1}},
        {"delay": SECOND, "value": memoryview(b"v")},
        {"delay": SECOND, "grace": 0},
        {"delay": SECOND, "target_partition": 1.9},
        {"delay": SECOND, "target_partition": Decimal("1.9")},
        {"delay": SECOND, "target_partition": True},
        {"delay": SECOND, "target_partition": "1"},
    ],
    ids=str,
)
def test_a_wrong_type_is_a_type_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"must be|must not"):
        loose(**arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda topics, _: topics(b"R", 1),
        lambda topics, _: topics("R", 4.0),
        lambda topics, _: topics("R", True),
        lambda topics, _: topics("R", "4"),
        lambda topics, _: topics("R", 1, horizon=5),
        lambda _, topic: topic.origin(1.5, 2),
        lambda _, topic: topic.origin(1, 2.7),
        lambda _, topic: topic.origin(1, None),
        lambda _, topic: topic.origin(True, 2),
        lambda _, topic: topic.partition_of(7),
        lambda _, topic: topic.cancel(origin=7),
        lambda _, topic: topic.cancel(id=7),
    ],
)
def test_a_wrong_type_is_a_type_error_in_every_call(call: Callable[[Any, Any], object]) -> None:
    with pytest.raises(TypeError, match="must be"):
        call(RequestTopic, TOPIC)


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_a_request_topic_has_partitions(partitions: int) -> None:
    with pytest.raises(ValueError, match="partitions"):
        RequestTopic("R", partitions)
    with pytest.raises(ValueError, match="not a name"):
        RequestTopic("a b", 1)


def test_a_given_horizon_is_kept() -> None:
    short = RequestTopic("R", 1, horizon=timedelta(days=3))
    with pytest.raises(RequestInvalid, match="beyond-horizon"):
        short.reschedule(id="i", delay=timedelta(days=4))


def confluent(
    topic: str,
    value: bytes | None = None,
    key: bytes | None = None,
    partition: int = -1,
    on_delivery: object = None,
    timestamp: int = 0,
    headers: list[tuple[str, bytes | None]] | None = None,
) -> tuple[object, ...]:
    return topic, key, value, headers, partition


def kafka_python(
    topic: str,
    value: bytes | None = None,
    key: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    partition: int | None = None,
    timestamp_ms: int | None = None,
) -> tuple[object, ...]:
    return topic, key, value, headers, partition


def test_a_record_unpacks_into_the_call_of_a_producer() -> None:
    anywhere, placed = TOPIC.schedule("t", b"v", level=1), TOPIC.cancel(id="i")
    assert confluent(**anywhere) == ("postdate.requests", None, b"v", list(anywhere.headers), -1)
    assert kafka_python(**anywhere) == ("postdate.requests", None, b"v", list(anywhere.headers), None)
    for call in (confluent, kafka_python):
        assert call(**placed) == ("postdate.requests", b"i", None, list(placed.headers), TOPIC.partition_of("i"))
    with pytest.raises(KeyError):
        anywhere["partition"]


def test_the_real_producer_takes_a_record() -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": ""})  # no broker: the test concerns only the call
    producer.produce(**TOPIC.schedule("t", b"v", key="k", headers=[("a", None)], level=1, id="i"))
    producer.produce(**TOPIC.schedule("t", None, level=1))
    assert len(producer) == 2
    producer.purge(blocking=False)
    assert producer.flush(5) == 0


_PROBE = """
import json, sys
before = set(sys.modules)
import postdate.client
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_client_needs_no_kafka_client() -> None:
    path = os.pathsep.join(str(ROOT / root) for root in ("sidecar", "wheel", "connectors"))
    environ = {**os.environ, "PYTHONPATH": path}
    process = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, env=environ)
    loaded = json.loads(process.stdout)
    # Two modules do not count: msgspec imports typing_extensions only if it is installed, and _sysconfigdata... belongs
    # to Python, but stdlib_module_names does not list it since its name depends on the machine.
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"typing_extensions"}
    foreign = {name for name in foreign if not name.startswith("_sysconfigdata")}
    assert foreign == {"postdate", "msgspec", "cronsim", "tzdata"}
    ours = {name.split(".")[1] for name in loaded if name.startswith("postdate.")}
    assert ours == {"client", "wire"}


def test_a_cron_schedule_has_its_expression_and_its_zone() -> None:
    record = TOPIC.repeat(
        "reports", b"{}", id="nightly", key="k", headers={"a": "1"}, cron="30 2 * * MON-FRI", zone="Europe/Berlin"
    )
    assert (record.key, record.value, record.partition) == (b"nightly", b"{}", TOPIC.partition_of("nightly"))
    assert dict(record.headers) == {
        "a": b"1",
        "postdate-topic": b"reports",
        "postdate-cron": b"30 2 * * MON-FRI",
        "postdate-zone": b"Europe/Berlin",
        "postdate-id": b"nightly",
        "postdate-key": b"k",
    }
    request = read(record)
    assert (request.target, request.id, request.key) == ("reports", b"nightly", b"k")
    assert request.schedule == Schedule(cron="30 2 * * MON-FRI", zone="Europe/Berlin")


def test_every_option_of_a_recurring_schedule_reaches_the_request() -> None:
    start = datetime(2027, 1, 1, tzinfo=UTC)
    in_berlin = read(
        TOPIC.repeat("t", None, id="i", cron="@daily", zone="Europe/Berlin", gap="skip", fold="both", missed="last")
    )
    assert in_berlin.schedule == Schedule(
        cron="@daily", zone="Europe/Berlin", gap=Gap.SKIP, fold=Fold.BOTH, missed=Missed.LAST
    )
    request = read(
        TOPIC.repeat(
            "t",
            None,
            id=b"i",
            every=900 * SECOND,
            phase=300 * SECOND,
            start=start,
            end=start + timedelta(days=1),
            count=12,
            catch_up=timedelta(hours=1),
            window=SECOND,
            grace=2 * SECOND,
            target_partition=7,
        )
    )
    start_ms = int(start.timestamp()) * 1_000
    assert (request.partition, request.due_ms) == (7, start_ms + 300_000)
    assert request.schedule == Schedule(
        every_ms=900_000,
        phase_ms=300_000,
        start_ms=start_ms,
        end_ms=start_ms + 86_400_000,
        count=12,
        catch_up_ms=3_600_000,
        window_ms=1_000,
        grace_ms=2_000,
    )


@pytest.mark.parametrize(
    ("options", "reason", "text"),
    [
        ({}, Reason.BAD_SCHEDULE, "give one of cron and every"),
        ({"phase": SECOND}, Reason.BAD_SCHEDULE, "phase belongs to every"),
        ({"cron": "@daily", "every": SECOND}, Reason.BAD_SCHEDULE, "only one of"),
        ({"cron": "30 2 * *"}, Reason.BAD_SCHEDULE, "has 4 fields"),
        ({"cron": "@daily", "zone": "Berlin"}, Reason.BAD_SCHEDULE, "is not the name of a zone"),
        ({"cron": "@daily", "end": datetime(2020, 1, 1, tzinfo=UTC)}, Reason.BAD_SCHEDULE, "no occurrence"),
        ({"cron": "@daily", "start": datetime(2020, 1, 1)}, Reason.BAD_TIME, "is naive"),
        ({"every": SECOND / 2}, Reason.BAD_SCHEDULE, "is not from 1s"),
        ({"every": -SECOND}, Reason.BAD_TIME, "is negative"),
        ({"every": SECOND, "id": ""}, Reason.BAD_ID, "1 to 256 bytes"),
    ],
)
def test_a_recurring_schedule_that_would_be_refused_raises(options: dict[str, Any], reason: Reason, text: str) -> None:
    with pytest.raises(RequestInvalid, match=text) as refused:
        TOPIC.repeat("t", b"v", **{"id": "i", **options})
    assert refused.value.reason == reason


def test_an_occurrence_is_read_and_may_be_scheduled_again() -> None:
    headers: list[tuple[str, bytes | None]] = [
        *(("a", b"1"), ("postdate-origin", b"R/3/9"), ("postdate-due", b"60000"), ("postdate-id", b"i")),
        *(("postdate-occurrence", b"7"), ("postdate-next", b"120000")),
    ]
    delivered = read_delivered(headers)
    assert (delivered.origin, delivered.occurrence, delivered.headers) == ("R/3/9", 7, (("a", b"1"),))
    assert delivered.next == datetime(1970, 1, 1, 0, 2, tzinfo=UTC)
    assert read_delivered(headers[:4]).occurrence is None
    assert read_delivered(headers[:5]).next is None, "the last one"
    assert TOPIC.schedule("orders", b"v", level=1, headers=headers).headers[:2] == (
        ("a", b"1"),
        ("postdate-topic", b"orders"),
    )
