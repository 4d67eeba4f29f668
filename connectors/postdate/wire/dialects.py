"""The header dialects of other schedulers, as one table: the meaning and unit of each header, and the form of a cancel.

A request topic with a dialect accepts the requests of that system unchanged. `dialect_requests` translates them into
the headers of Postdate, and `requests` parses these. Only the exact names in the table belong to a dialect. No two
dialects share a name, so the headers of a record identify its dialect. Immutable; may be pickled.

Facts, each from the system's own documentation or source:

etf1        github.com/etf1/kafka-message-scheduler: README.md, clientlib/clientlib.go, schedule/kafka/schedule.go
karafka     github.com/karafka/karafka: lib/karafka/pro/scheduled_messages/{proxy,dispatcher,schema_validator}.rb,
            lib/karafka/pro/scheduled_messages/contracts/message.rb, and karafka.io/docs/Pro-Scheduled-Messages
kaspr       github.com/vmirz/kaspr: kaspr/scheduler/manager.py, and kaspr.dev/docs/user-guide/scheduler
timebridge  github.com/martavoi/kafka-timebridge: README.md, timebridge/acceptor.go
chronos     github.com/kindredgroup/chronos (of several of this name, the one between two Kafka topics):
            README.md, How-to.md, chronos_bin/src/utils/util.rs, chronos_bin/src/message_receiver.rs
rabbitmq    github.com/rabbitmq/rabbitmq-delayed-message-exchange: README.md, src/rabbit_delayed_message_utils.erl
nats        github.com/nats-io/nats-architecture-and-design: adr/ADR-51.md
rocketmq    github.com/apache/rocketmq: common/.../message/MessageConst.java, broker/.../util/HookUtils.java,
            store/.../timer/TimerMessageStore.java, and rocketmq.apache.org/docs/4.x/producer/04message3
spring      github.com/spring-projects/spring-kafka: spring-kafka/.../retrytopic/RetryTopicHeaders.java,
            .../retrytopic/DeadLetterPublishingRecovererFactory.java, and docs.spring.io/spring-kafka (retrytopic)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from postdate.wire import dialect_values as values
from postdate.wire.headers import ACTION, AT, DELAY, ID, KEY, LEVEL, PARTITION, TOPIC

Found = Mapping[str, bytes | None]
"""The headers of a dialect in one record."""

CHECKED: Final = ""
"""Marks a header of a dialect that has no meaning in Postdate: its value is only parsed, so that a bad one is
refused."""


class Part(NamedTuple):
    """The meaning of a header of a dialect: the equivalent header of Postdate, and the reader of the value."""

    header: str
    read: Callable[[bytes | None], bytes | None] = values.as_given


def names_for(parts: Mapping[str, Part], header: str) -> list[str]:
    """The names among `parts` that are equivalent to `header` of Postdate."""
    return [name for name, part in parts.items() if part.header == header]


def _never(found: Found, is_tombstone: bool) -> bool:
    return False


def _is_tombstone(found: Found, is_tombstone: bool) -> bool:
    return is_tombstone


def _karafka_cancels(found: Found, is_tombstone: bool) -> bool:
    # Karafka writes a tombstone after a dispatch; here, too, it means that nothing is left to send.
    return found.get("schedule_source_type") in (b"cancel", b"tombstone")


def _kaspr_cancels(found: Found, is_tombstone: bool) -> bool:
    return found.get("x-scheduler-action") == b"CANCEL"


def _nats_cancels(found: Found, is_tombstone: bool) -> bool:
    # Every message that a schedule has produced carries these two; in a new schedule they have no meaning.
    return found.get("Nats-Schedule-Next") == b"purge" and "Nats-Schedule" not in found


def _rocketmq_cancels(found: Found, is_tombstone: bool) -> bool:
    return "TIMER_DEL_UNIQKEY" in found


@dataclass(frozen=True)
class Dialect:
    """How another system requests a message at a later time.

    `marks`: the names that identify a record as a request of the system. `schedule`, `cancel`: the meaning of its
    headers in a request of that kind; a name of the other kind only is ignored. `cancels`: True if a record with these
    headers is a cancel. `left_over`: names without a meaning here, which the system adds to delivered messages or uses
    internally; they may be repeated. `refused`: names of features that Postdate does not have, and the reason.
    `id_is_key`: if no header names the schedule, the record's own key does. `key_header`: the header of the target key;
    if it is absent, the target key is null. `partition_key_header`: a text by which the partition is chosen.
    `needs_id`: a header and its value with which an id is required. `needs_target`: False if the system chooses the
    target outside the record, so that the request topic's default applies.
    """

    name: str
    marks: frozenset[str]
    schedule: Mapping[str, Part]
    cancel: Mapping[str, Part] = field(default_factory=dict)
    cancels: Callable[[Found, bool], bool] = _never
    left_over: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    id_is_key: bool = False
    key_header: str = ""
    partition_key_header: str = ""
    needs_id: tuple[str, bytes] = ("", b"")
    needs_target: bool = True

    @cached_property
    def read(self) -> frozenset[str]:
        """The names that are read, each at most once in a record."""
        named = {*self.marks, *self.schedule, *self.cancel, *self.refused, self.partition_key_header}
        return frozenset(named - {""})

    @cached_property
    def has_ids(self) -> bool:
        """True if its requests may name a schedule, so that delivered messages carry `postdate-id`."""
        return self.id_is_key or any(part.header == ID for part in self.schedule.values())

    @cached_property
    def cancel_names_id(self) -> bool:
        """True if a header of a cancel names the schedule, so that its record key does not."""
        return any(part.header == ID for part in self.cancel.values())

    def names_of(self, header: str) -> list[str]:
        """The names in a request to schedule that are equivalent to `header` of Postdate."""
        return names_for(self.schedule, header)


ETF1: Final = Dialect(
    name="etf1",
    marks=frozenset({"scheduler-epoch", "scheduler-target-topic", "scheduler-target-key"}),
    schedule={
        "scheduler-epoch": Part(AT, values.epoch_s),
        "scheduler-target-topic": Part(TOPIC),
        "scheduler-target-key": Part(KEY),
    },
    cancels=_is_tombstone,
    left_over=frozenset({"scheduler-timestamp", "scheduler-key", "scheduler-topic"}),
    id_is_key=True,
    key_header="scheduler-target-key",
)

KARAFKA: Final = Dialect(
    name="karafka",
    marks=frozenset({"schedule_target_epoch", "schedule_target_topic", "schedule_source_type"}),
    schedule={
        "schedule_target_epoch": Part(AT, values.epoch_s),
        "schedule_target_topic": Part(TOPIC),
        "schedule_target_key": Part(KEY),
        "schedule_target_partition": Part(PARTITION),
        "schedule_source_type": Part(ACTION, values.karafka_type),
        "schedule_schema_version": Part(CHECKED, values.karafka_schema),
    },
    cancel={"schedule_schema_version": Part(CHECKED, values.karafka_schema)},
    cancels=_karafka_cancels,
    left_over=frozenset(
        {"schedule_source_topic", "schedule_source_partition", "schedule_source_offset", "schedule_source_key"}
    ),
    id_is_key=True,
    key_header="schedule_target_key",
    partition_key_header="schedule_target_partition_key",
)

_NO_RECURRING: Final = "a dialect has no recurring schedules: use Postdate's own headers for them (docs/calendar.md)"

KASPR: Final = Dialect(
    name="kaspr",
    marks=frozenset(
        {"x-scheduler-action", "x-scheduler-deliver-at", "x-scheduler-deliver-to", "x-scheduler-request-id"}
    ),
    schedule={
        "x-scheduler-deliver-at": Part(AT, values.iso_utc),
        "x-scheduler-deliver-to": Part(TOPIC),
        "x-scheduler-request-id": Part(ID),
        "x-scheduler-action": Part(ACTION, values.kaspr_action),
    },
    cancel={"x-scheduler-request-id": Part(ID)},
    cancels=_kaspr_cancels,
    left_over=frozenset({"x-scheduler-cron-fire-timestamp"}),
    refused={
        "x-scheduler-cron-expr": _NO_RECURRING,
        "x-scheduler-cron-missed-fire-policy": _NO_RECURRING,
    },
    needs_id=("x-scheduler-action", b"REPLACE"),
)

TIMEBRIDGE: Final = Dialect(
    name="timebridge",
    marks=frozenset({"X-Timebridge-When", "X-Timebridge-Where"}),
    schedule={"X-Timebridge-When": Part(AT, values.rfc3339), "X-Timebridge-Where": Part(TOPIC)},
    left_over=frozenset({"X-Timebridge-Error"}),
)

CHRONOS: Final = Dialect(
    name="chronos",
    marks=frozenset({"chronosMessageId", "chronosDeadline"}),
    schedule={"chronosDeadline": Part(AT, values.iso_utc), "chronosMessageId": Part(ID)},
    needs_target=False,
)

RABBITMQ: Final = Dialect(
    name="rabbitmq",
    marks=frozenset({"x-delay"}),
    schedule={"x-delay": Part(DELAY, values.delay_ms)},
    needs_target=False,
)

NATS: Final = Dialect(
    name="nats",
    marks=frozenset({"Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Next"}),
    schedule={"Nats-Schedule": Part(AT, values.at_rfc3339), "Nats-Schedule-Target": Part(TOPIC)},
    cancel={"Nats-Scheduler": Part(ID)},
    cancels=_nats_cancels,
    left_over=frozenset({"Nats-Schedule-TTL", "Nats-Schedule-Rollup"}),
    refused={
        "Nats-Schedule-Source": "a message is delivered as it was sent, not read from elsewhere",
        "Nats-Schedule-Time-Zone": _NO_RECURRING,
        "Nats-TTL": "how long a schedule may live is not supported",
    },
    id_is_key=True,
)

ROCKETMQ: Final = Dialect(
    name="rocketmq",
    marks=frozenset({"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY"}),
    schedule={
        "DELAY": Part(LEVEL),
        "TIMER_DELAY_SEC": Part(DELAY, values.delay_s),
        "TIMER_DELAY_MS": Part(DELAY, values.delay_ms),
        "TIMER_DELIVER_MS": Part(AT, values.epoch_ms),
        "REAL_TOPIC": Part(TOPIC),
        "UNIQ_KEY": Part(ID),
    },
    cancel={"TIMER_DEL_UNIQKEY": Part(ID, values.behind_plus)},
    cancels=_rocketmq_cancels,
    left_over=frozenset(
        {
            *("REAL_QID", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
            *("TIMER_DELAY_LEVEL", "TIMER_DEL_MS"),
        }
    ),
    needs_target=False,
)

SPRING: Final = Dialect(
    name="spring",
    marks=frozenset({"retry_topic-backoff-timestamp"}),
    schedule={"retry_topic-backoff-timestamp": Part(AT, values.binary_ms)},
    needs_target=False,
)

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect for dialect in (ETF1, KARAFKA, KASPR, TIMEBRIDGE, CHRONOS, RABBITMQ, NATS, ROCKETMQ, SPRING)
}
"""Every dialect by the name that a configuration gives it."""
