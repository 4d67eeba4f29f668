"""Records from the documentation and client libraries of other schedulers, and the message that Postdate makes of each.

The unit tests compare the parsed request of each example; the integration tests send each one unchanged to a real
broker. `wire/dialects/table.py` names the sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from postdate.wire.headers import Headers

DEFAULT_TARGET = "chronos.out"
"""The default target for examples of dialects that have no header for a target."""


def _iso(due_ms: int) -> str:
    return datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "")


_WRITE: dict[str, Callable[[int], str]] = {
    "scheduler-epoch": lambda due_ms: str(due_ms // 1000),
    "schedule_target_epoch": lambda due_ms: str(due_ms // 1000),
    "x-scheduler-deliver-at": lambda due_ms: f"{_iso(due_ms)}Z",
    "X-Timebridge-When": lambda due_ms: f"{_iso(due_ms)}Z",
    "chronosDeadline": _iso,
    "retry_topic-backoff-timestamp": lambda due_ms: due_ms.to_bytes(6, "big").decode("latin-1"),
    "Nats-Schedule": lambda due_ms: f"@at {_iso(due_ms)}Z",
}
"""Dialect -> its text for an absolute time; the examples use whole seconds."""


@dataclass(frozen=True)
class Cancel:
    """The record that cancels an example; its value is null."""

    key: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Example:
    """One documented record, and the message that Postdate makes of it.

    `due_ms`: epoch milliseconds; -1 if `delay_ms` counts from the record's timestamp. `delivered`: the delivered
    headers except Postdate's.
    """

    name: str
    key: bytes | None
    value: bytes
    headers: Headers
    target: str
    target_key: bytes | None
    id: bytes
    delivered: Headers
    due_ms: int = -1
    delay_ms: int = -1
    cancel: Cancel | None = None

    @property
    def dialect(self) -> str:
        """The dialect of the record: the first part of the example's name."""
        return self.name.partition(" ")[0]

    def at(self, due_s: int) -> Example:
        """Returns the same request for another time; unchanged if its time is a delay."""
        if self.delay_ms >= 0:
            return self
        due_ms = due_s * 1000
        headers: Headers = [
            (name, _WRITE[name](due_ms).encode("latin-1") if name in _WRITE else value) for name, value in self.headers
        ]
        return replace(self, headers=headers, due_ms=due_ms)


_CUSTOMER = ("customer-header", b"dummy")
_TYPE = ("content-type", b"application/json")
_KARAFKA_KEY = b"users_events-0a5c1d8e-2f64-4b8e-9a0b-5d1c6f1a7b3e"
_UNIQ_KEY = b"7F0000010B2C18B4AAC2194F2E5B0000"

EXAMPLES = (
    Example(
        "etf1",
        b"vid1-online",
        b"video 1",
        [
            ("scheduler-epoch", b"1893456000"),
            ("scheduler-target-topic", b"online-videos"),
            ("scheduler-target-key", b"vid1"),
            _CUSTOMER,
        ],
        target="online-videos",
        target_key=b"vid1",
        id=b"vid1-online",
        delivered=[_CUSTOMER],
        due_ms=1_893_456_000_000,
        cancel=Cancel(b"vid1-online", []),
    ),
    Example(
        "karafka",
        _KARAFKA_KEY,
        b"payload",
        [
            _TYPE,
            ("schedule_schema_version", b"1.0.0"),
            ("schedule_target_epoch", b"1795258290"),
            ("schedule_source_type", b"schedule"),
            ("schedule_target_topic", b"users_events"),
            ("schedule_target_key", b"0"),
        ],
        target="users_events",
        target_key=b"0",
        id=_KARAFKA_KEY,
        delivered=[_TYPE],
        due_ms=1_795_258_290_000,
        cancel=Cancel(_KARAFKA_KEY, [("schedule_schema_version", b"1.0.0"), ("schedule_source_type", b"cancel")]),
    ),
    Example(
        "kaspr",
        b"order-123",
        b'{"type": "send-reminder"}',
        [
            ("x-scheduler-deliver-to", b"reminders-topic"),
            ("x-scheduler-deliver-at", b"2026-05-24T12:30:00Z"),
            ("x-scheduler-request-id", b"reminder-order-123"),
        ],
        target="reminders-topic",
        target_key=b"order-123",
        id=b"reminder-order-123",
        delivered=[],
        due_ms=1_779_625_800_000,
        cancel=Cancel(
            b"order-123", [("x-scheduler-action", b"CANCEL"), ("x-scheduler-request-id", b"reminder-order-123")]
        ),
    ),
    Example(
        "timebridge",
        b"user-7",
        b"hello",
        [("X-Timebridge-When", b"2024-12-25T10:00:00Z"), _TYPE, ("X-Timebridge-Where", b"user-notifications")],
        target="user-notifications",
        target_key=b"user-7",
        id=b"",
        delivered=[_TYPE],
        due_ms=1_735_120_800_000,
    ),
    Example(
        "chronos",
        b"order-9",
        b"{}",
        [
            ("chronosMessageId", b"3767d5c7-aced-45e5-91f1-3f7ad8205a3f"),
            ("chronosDeadline", b"2022-12-01T11:09:01.123"),
        ],
        target=DEFAULT_TARGET,
        target_key=b"order-9",
        id=b"3767d5c7-aced-45e5-91f1-3f7ad8205a3f",
        delivered=[],
        due_ms=1_669_892_941_123,
    ),
    Example(
        "rabbitmq",
        None,
        b"delayed payload",
        [("x-delay", b"5000")],
        target=DEFAULT_TARGET,
        target_key=None,
        id=b"",
        delivered=[],
        delay_ms=5_000,
    ),
    Example(
        "nats",
        b"schedules.orders.single",
        b"body",
        [
            ("Nats-Schedule", b"@at 2009-11-10T23:00:00Z"),
            ("Nats-Schedule-TTL", b"5m"),
            ("Nats-Schedule-Target", b"orders"),
        ],
        target="orders",
        target_key=b"schedules.orders.single",
        id=b"schedules.orders.single",
        delivered=[],
        due_ms=1_257_894_000_000,
        cancel=Cancel(
            b"schedules.orders.single",
            [("Nats-Schedule-Next", b"purge"), ("Nats-Scheduler", b"schedules.orders.single")],
        ),
    ),
    Example(
        "rocketmq level",
        b"order-3",
        b"Hello scheduled message 0",
        [("DELAY", b"3"), ("TAGS", b"TagA")],
        target=DEFAULT_TARGET,
        target_key=b"order-3",
        id=b"",
        delivered=[("TAGS", b"TagA")],
        delay_ms=10_000,
    ),
    Example(
        "rocketmq timer",
        b"order-4",
        b"Hello scheduled message 1",
        [("REAL_TOPIC", b"TestTopic"), ("UNIQ_KEY", _UNIQ_KEY), ("TIMER_DELAY_SEC", b"10")],
        target="TestTopic",
        target_key=b"order-4",
        id=_UNIQ_KEY,
        delivered=[],
        delay_ms=10_000,
        cancel=Cancel(b"order-4", [("TIMER_DEL_UNIQKEY", b"TestTopic+" + _UNIQ_KEY), ("TIMER_DELIVER_MS", b"1")]),
    ),
    Example(
        "spring",
        b"order-7",
        b"{}",
        [
            ("retry_topic-attempts", b"\0\0\0\2"),
            ("retry_topic-original-timestamp", b"\x01\xa1\xff\xbb\x3b\xe0"),
            ("retry_topic-backoff-timestamp", b"\x01\xa1\xff\xbb\x4f\x68"),
            ("kafka_exception-message", b"boom"),
        ],
        target=DEFAULT_TARGET,
        target_key=b"order-7",
        id=b"",
        delivered=[
            ("retry_topic-attempts", b"\0\0\0\2"),
            ("retry_topic-original-timestamp", b"\x01\xa1\xff\xbb\x3b\xe0"),
            ("kafka_exception-message", b"boom"),
        ],
        due_ms=int.from_bytes(b"\x01\xa1\xff\xbb\x4f\x68", "big"),
    ),
)
