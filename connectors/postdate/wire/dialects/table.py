"""The header dialects of other schedulers, as one table: the meaning and unit of each header, and the form of a cancel.

A request topic with a dialect accepts the requests of the other system unchanged. `translation` translates them into
the headers of Postdate, and `requests.parser` parses these. Only the exact names in the table belong to a dialect. No
two dialects share a mark, so the marks of a record identify its dialect. Immutable; may be pickled.

Facts, each from the system's own documentation or source:

etf1        github.com/etf1/kafka-message-scheduler: README.md, clientlib/clientlib.go, schedule/kafka/schedule.go
karafka     github.com/karafka/karafka: lib/karafka/pro/scheduled_messages/{proxy,dispatcher,schema_validator}.rb,
            lib/karafka/pro/scheduled_messages/contracts/message.rb, and karafka.io/docs/Pro-Scheduled-Messages
kaspr       github.com/vmirz/kaspr: kaspr/scheduler/manager.py, and kaspr.dev/docs/user-guide/scheduler
timebridge  github.com/martavoi/kafka-timebridge: README.md, timebridge/acceptor.go
chronos     github.com/kindredgroup/chronos (several projects have this name; this one connects two Kafka topics):
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

from postdate.wire.dialects import conversions as values
from postdate.wire.headers import (
    ACTION,
    AT,
    CRON,
    DELAY,
    EVERY,
    ID,
    KEY,
    LEVEL,
    MISSED,
    PARTITION,
    TOPIC,
    ZONE,
)

Found = Mapping[str, bytes | None]
"""The headers of a dialect in one record."""

CHECKED: Final = ""
"""Marks a header of a dialect that has no meaning in Postdate. Its value is only parsed, so that an invalid value is
refused."""


class Part(NamedTuple):
    """The meaning of a header of a dialect: the equivalent header of Postdate, and the function that converts the
    value.

    `otherwise`: other meanings of the header, each with a test of the value. The first meaning whose test passes
    applies.
    """

    header: str
    read: Callable[[bytes | None], bytes | None] = values.as_given
    otherwise: tuple[tuple[Callable[[bytes | None], bool], Part], ...] = ()

    def of(self, value: bytes | None) -> Part:
        """Returns the meaning of the header with this value."""
        return next((part for is_meant, part in self.otherwise if is_meant(value)), self)


def names_for(parts: Mapping[str, Part], header: str) -> list[str]:
    """Returns the names among `parts` that are equivalent to `header` of Postdate."""
    return [name for name, part in parts.items() if part.header == header]


_CANCEL: Final = b"cancel"
_KASPR_CONTROLS: Final[Mapping[bytes | None, bytes]] = {
    b"CANCEL": _CANCEL,
    b"CRON_CANCEL": _CANCEL,
    b"CRON_PAUSE": b"pause",
    b"CRON_RESUME": b"resume",
}


def _none(found: Found, is_tombstone: bool) -> bytes | None:
    return None


def _of_tombstone(found: Found, is_tombstone: bool) -> bytes | None:
    return _CANCEL if is_tombstone else None


def _of_karafka(found: Found, is_tombstone: bool) -> bytes | None:
    # Karafka writes a tombstone after a dispatch; here it also means that nothing is left to send.
    return _CANCEL if found.get("schedule_source_type") in (b"cancel", b"tombstone") else None


def _of_kaspr(found: Found, is_tombstone: bool) -> bytes | None:
    return _KASPR_CONTROLS.get(found.get("x-scheduler-action"))


def _of_nats(found: Found, is_tombstone: bool) -> bytes | None:
    # Every message that a schedule has produced carries `Nats-Schedule-Next` and `Nats-Scheduler`. In a new schedule
    # they have no meaning.
    return _CANCEL if found.get("Nats-Schedule-Next") == b"purge" and "Nats-Schedule" not in found else None


def _of_rocketmq(found: Found, is_tombstone: bool) -> bytes | None:
    return _CANCEL if "TIMER_DEL_UNIQKEY" in found else None


@dataclass(frozen=True)
class Dialect:
    """The form in which another system requests a message at a later time.

    `marks`: the names that identify a record as a request of the system. `schedule`, `control`: the meaning of each
    header in a request of that kind. Names that only the other kind has are ignored. `action`: returns the action of a
    control with these headers, such as `cancel`, or None if the record is not a control. `left_over`: names without a
    meaning here, which the system adds to delivered messages or uses internally; they may be repeated. `refused`: names
    of features that Postdate does not have, and the reason.

    `id_is_key`: True if the record's own key names the schedule, except in a control if `control_names_id`.
    `key_header`: the header of the target key; if it is absent, the target key is null. `partition_key_header`: the
    header with the text from which the system derives the partition. `needs`: triples of a header, a value and a header
    of Postdate. A request with this value must also have an equivalent of this header of Postdate. `implied`: headers
    of Postdate that every recurring schedule of the system gets. `needs_target`: False if requests need not name a
    target; the request topic's default target then applies. `is_copy`: True if requests are copies of consumed records.
    A `postdate-id` in such a request comes from an earlier delivery.
    """

    name: str
    marks: frozenset[str]
    schedule: Mapping[str, Part]
    control: Mapping[str, Part] = field(default_factory=dict)
    action: Callable[[Found, bool], bytes | None] = _none
    left_over: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    id_is_key: bool = False
    key_header: str = ""
    partition_key_header: str = ""
    needs: tuple[tuple[str, bytes, str], ...] = ()
    implied: tuple[tuple[str, bytes], ...] = ()
    needs_target: bool = True
    is_copy: bool = False

    @cached_property
    def read(self) -> frozenset[str]:
        """The names that are read or refused. Each may occur at most once in a record."""
        named = {*self.marks, *self.schedule, *self.control, *self.refused, self.partition_key_header}
        return frozenset(named - {""})

    @cached_property
    def has_ids(self) -> bool:
        """True if requests in this dialect may have an id, so that delivered messages may carry `postdate-id`."""
        return self.id_is_key or any(part.header == ID for part in self.schedule.values())

    @cached_property
    def control_names_id(self) -> bool:
        """True if a header of a control, not its record key, names the schedule."""
        return any(part.header == ID for part in self.control.values())

    def names_of(self, header: str) -> list[str]:
        """Returns the names in a request to schedule that are equivalent to `header` of Postdate."""
        return names_for(self.schedule, header)


ETF1: Final = Dialect(
    name="etf1",
    marks=frozenset({"scheduler-epoch", "scheduler-target-topic", "scheduler-target-key"}),
    schedule={
        "scheduler-epoch": Part(AT, values.epoch_s),
        "scheduler-target-topic": Part(TOPIC),
        "scheduler-target-key": Part(KEY),
    },
    action=_of_tombstone,
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
    control={"schedule_schema_version": Part(CHECKED, values.karafka_schema)},
    action=_of_karafka,
    left_over=frozenset(
        {"schedule_source_topic", "schedule_source_partition", "schedule_source_offset", "schedule_source_key"}
    ),
    id_is_key=True,
    key_header="schedule_target_key",
    partition_key_header="schedule_target_partition_key",
)

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
        "x-scheduler-cron-expr": Part(CRON, values.kaspr_cron),
        "x-scheduler-cron-missed-fire-policy": Part(MISSED, values.kaspr_missed),
    },
    control={"x-scheduler-request-id": Part(ID)},
    action=_of_kaspr,
    left_over=frozenset({"x-scheduler-cron-fire-timestamp"}),
    needs=(
        ("x-scheduler-action", b"REPLACE", ID),
        ("x-scheduler-action", b"CRON_ADD", CRON),
    ),
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
    schedule={"x-delay": Part(DELAY, values.whole_ms)},
    needs_target=False,
)

NATS: Final = Dialect(
    name="nats",
    marks=frozenset({"Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Next"}),
    schedule={
        "Nats-Schedule": Part(
            CRON,
            values.nats_cron,
            ((values.is_at, Part(AT, values.at_rfc3339)), (values.is_interval, Part(EVERY, values.go_interval))),
        ),
        "Nats-Schedule-Target": Part(TOPIC),
        "Nats-Schedule-Time-Zone": Part(ZONE),
    },
    control={"Nats-Scheduler": Part(ID)},
    action=_of_nats,
    left_over=frozenset({"Nats-Schedule-TTL", "Nats-Schedule-Rollup"}),
    refused={
        "Nats-Schedule-Source": "a message is delivered as it was sent, not read from elsewhere",
        "Nats-TTL": "how long a schedule may live is not supported",
    },
    id_is_key=True,
    implied=((MISSED, b"last"),),
)

ROCKETMQ: Final = Dialect(
    name="rocketmq",
    marks=frozenset({"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY"}),
    schedule={
        "DELAY": Part(LEVEL),
        "TIMER_DELAY_SEC": Part(DELAY, values.delay_s),
        "TIMER_DELAY_MS": Part(DELAY, values.whole_ms),
        "TIMER_DELIVER_MS": Part(AT, values.whole_ms),
        "REAL_TOPIC": Part(TOPIC),
        "UNIQ_KEY": Part(ID),
    },
    control={"TIMER_DEL_UNIQKEY": Part(ID, values.strip_plus_prefix)},
    action=_of_rocketmq,
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
    is_copy=True,
)

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect for dialect in (ETF1, KARAFKA, KASPR, TIMEBRIDGE, CHRONOS, RABBITMQ, NATS, ROCKETMQ, SPRING)
}
"""Every dialect by the name that a configuration gives it."""
