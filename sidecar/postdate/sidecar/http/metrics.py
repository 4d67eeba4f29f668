"""Every metric: its name, unit, labels, meaning, and what to do when it looks wrong.

A closed list: `collector` can make nothing else, and docs/operations.md is held equal to it by a test. Names follow
Prometheus' own rules: base units (seconds, bytes), `_total` for what only rises.

Labels: `topic` is the request topic, `partition` its partition (the shard). Lateness, fates and the like are added up
over the shards of a topic, so that their number does not grow with the partitions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Shape(StrEnum):
    """What kind of metric it is, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric. `unit` is empty for plain numbers; `action`: what a person does about it."""

    name: str
    shape: Shape
    unit: str
    labels: tuple[str, ...]
    help: str
    action: str


_TOPIC = ("topic",)
_SHARD = ("topic", "partition")
_BROKER = ("broker",)

LATENESS: Final = Metric(
    "postdate_lateness_seconds",
    Shape.HISTOGRAM,
    "seconds",
    _TOPIC,
    "From the due time of a delivered message (from the request's own timestamp, where that is later) to the commit.",
    "Alert on a high quantile. Look at due entries, transaction time, parked entries and shard states, in this order.",
)
REQUESTS: Final = Metric(
    "postdate_requests_total",
    Shape.COUNTER,
    "",
    ("topic", "outcome"),
    "Requests read, by what they turned out to be: schedule, cancel, reschedule, refused. A restart reads some again.",
    "Many refused: the dead letters of the topic say why.",
)
FATES: Final = Metric(
    "postdate_fates_total",
    Shape.COUNTER,
    "",
    ("topic", "fate"),
    "Fates committed by this process: delivered, dead, cancelled, replaced, applied, moved, stored.",
    "Delivered standing still while entries are due: see lateness.",
)
DEAD_LETTERS: Final = Metric(
    "postdate_dead_letters_total",
    Shape.COUNTER,
    "",
    ("topic", "reason"),
    "Dead letters committed by this process, by reason.",
    "Mend the cause, then `postdate dead-letters requeue`.",
)
RATE_LIMITED: Final = Metric(
    "postdate_rate_limited_total",
    Shape.COUNTER,
    "",
    _TOPIC,
    "Messages that were due and had to wait, parked, for the rate of their target (`messages_per_second_max`).",
    "Rises without end while entries are parked: more falls due for a target than its rate lets out.",
)
TRANSACTIONS: Final = Metric(
    "postdate_transactions_total",
    Shape.COUNTER,
    "",
    ("topic", "outcome"),
    "Transactions with fates or beats: committed, aborted, unknown (fenced anew, the log decides), fenced, failed.",
    "Anything but committed that goes on: the log says what Kafka refuses.",
)
TRANSACTION_SECONDS: Final = Metric(
    "postdate_transaction_seconds",
    Shape.HISTOGRAM,
    "seconds",
    _TOPIC,
    "From the begin of a transaction to the answer to its end, whatever that was.",
    "Slow: brokers, or the network to them. Lateness follows it.",
)
PENDING: Final = Metric(
    "postdate_pending_entries",
    Shape.GAUGE,
    "",
    _SHARD,
    "Entries held: all that was accepted and has not ended, parked ones included.",
    "Grows without end: something is scheduled faster than it falls due, or targets fail.",
)
HORIZONS: Final = Metric(
    "postdate_pending_by_horizon",
    Shape.GAUGE,
    "",
    ("topic", "horizon"),
    "Entries due within each horizon and beyond the one before it; overdue, control and parked apart. By the wheel.",
    "The load to come: scale before it does.",
)
DUE: Final = Metric(
    "postdate_due_entries",
    Shape.GAUGE,
    "",
    _SHARD,
    "Entries that are due now and still there, those of the present tick included.",
    "Stays high: the shard cannot keep up; see the transaction time, and use more partitions or processes.",
)
OVERDUE: Final = Metric(
    "postdate_overdue_entries",
    Shape.GAUGE,
    "",
    _SHARD,
    "Entries that were due before the present tick and are still there; parked ones are not among them.",
    "Above 0 for a minute: messages are late now. See the shard's state, and why in /readyz and the log.",
)
PARKED: Final = Metric(
    "postdate_parked_entries",
    Shape.GAUGE,
    "",
    _SHARD,
    "Entries whose target fails, is isolated or held, or is sent to at a limited rate: they wait apart and hold nobody "
    "up.",
    "`postdate pending list --state parked` names the targets. One that fails: fix it, or let the entries end as dead "
    "letters.",
)
CONTROLS: Final = Metric(
    "postdate_ending_entries",
    Shape.GAUGE,
    "",
    _SHARD,
    "Cancelled, replaced, refused and to-be-stored entries and controls that wait for the next transaction.",
    "Stays high: see transactions.",
)
FENCES: Final = Metric(
    "postdate_fences_total",
    Shape.COUNTER,
    "",
    _SHARD,
    "How often another producer took the shard's transactional id from this process.",
    "Rises without rebalances: two deployments serve one request topic, or a stranger uses the id.",
)
TAKEOVERS: Final = Metric(
    "postdate_takeovers_total",
    Shape.COUNTER,
    "",
    _SHARD,
    "Takeovers that this process completed; disturbed connections cause them too.",
    "Rises steadily: the network to the brokers, or members that come and go.",
)
TAKEOVER_SECONDS: Final = Metric(
    "postdate_last_takeover_seconds",
    Shape.GAUGE,
    "seconds",
    _SHARD,
    "How long nothing was delivered for the shard until its last takeover was complete.",
    "Long: `postdate_state_seconds_total` says in which state; RECOVERING is reading, FENCING is waiting for Kafka.",
)
STATE: Final = Metric(
    "postdate_shard_state",
    Shape.GAUGE,
    "",
    ("topic", "partition", "state"),
    "1 for the state that the shard is in, for each shard that this process holds.",
    "HALTED: a person must look; the log and /readyz say why, and what to do is under Halts.",
)
STATE_SECONDS: Final = Metric(
    "postdate_state_seconds_total",
    Shape.COUNTER,
    "seconds",
    ("topic", "partition", "state"),
    "Time that the shard has spent in each state in this process: takeover time by state.",
    "Read it beside the last takeover's time.",
)
READY: Final = Metric(
    "postdate_ready",
    Shape.GAUGE,
    "",
    (),
    "1 where /readyz answers 200.",
    "0: /readyz says why, in words.",
)
MEMBER: Final = Metric(
    "postdate_group_member",
    Shape.GAUGE,
    "",
    (),
    "1 where the coordinator of the consumer group has taken this process in.",
    "0 for a minute: brokers cannot be reached, or the group id is not allowed.",
)
NEXT_REQUEST: Final = Metric(
    "postdate_next_request_offset",
    Shape.GAUGE,
    "",
    _SHARD,
    "R: everything below it was read and is durable here; also the group's committed offset.",
    "Behind the end of the topic: intake is slow, or paused because the inbox is full.",
)
LAG: Final = Metric(
    "postdate_request_lag",
    Shape.GAUGE,
    "",
    _SHARD,
    "Offsets of the request topic behind R: requests that were not read yet, as Kafka said in the last 10 s.",
    "Grows: intake is slower than the requests come; use more partitions or processes.",
)
LOW_WATER: Final = Metric(
    "postdate_low_water_offset",
    Shape.GAUGE,
    "",
    _SHARD,
    "L: the smallest request offset that is still needed to rebuild the index.",
    "Compare with the start of the request topic's log.",
)
HEAD_ROOM: Final = Metric(
    "postdate_low_water_head_room_seconds",
    Shape.GAUGE,
    "seconds",
    _SHARD,
    "How long retention still keeps the oldest request that is needed, at least; absent where none is, or for ever.",
    "Near 0: raise the request topic's retention.ms now; a disk that is lost later could not be rebuilt.",
)
INBOX: Final = Metric(
    "postdate_inbox_records",
    Shape.GAUGE,
    "",
    _SHARD,
    "Requests that were polled and wait for the shard.",
    "Full (20,000) all the time: intake is bound by this process; use more processes.",
)
TIMER_LOG_BYTES: Final = Metric(
    "postdate_timer_log_bytes",
    Shape.GAUGE,
    "bytes",
    _SHARD,
    "Size of the files of the shard's timer log.",
    "Size the volume for the largest backlog; space of ended entries comes back with some delay.",
)
WHEEL_BYTES: Final = Metric(
    "postdate_wheel_bytes",
    Shape.GAUGE,
    "bytes",
    _SHARD,
    "Size of the shard's wheel file: constant.",
    "None.",
)
WHEEL_REBUILDS: Final = Metric(
    "postdate_wheel_rebuilds_total",
    Shape.COUNTER,
    "",
    _SHARD,
    "Wheels that were not believed at the start, or proved wrong, since the index was opened.",
    "Rises while running: report it. Deliveries do not depend on it.",
)
SKEW: Final = Metric(
    "postdate_clock_skew_seconds",
    Shape.GAUGE,
    "seconds",
    _SHARD,
    "This machine's clock minus the broker's, at the last transaction with fates.",
    "Large: correct the clocks. The broker's decides when a message leaves.",
)
BROKER_UP: Final = Metric(
    "postdate_broker_up",
    Shape.GAUGE,
    "",
    _BROKER,
    "1 where the group consumer's connection to the broker stands; measured every 10 s, as all metrics of brokers.",
    "0 for a broker that should serve: the broker, or the network to it.",
)
BROKER_ROUND_TRIP: Final = Metric(
    "postdate_broker_round_trip_seconds",
    Shape.GAUGE,
    "seconds",
    _BROKER,
    "99th percentile of the time from a request of the group consumer to its answer, fetches that wait included.",
    "Above a second: fetches wait half a second at most, the rest is the broker or the network.",
)
BROKER_TIMEOUTS: Final = Metric(
    "postdate_broker_timeouts_total",
    Shape.COUNTER,
    "",
    _BROKER,
    "Requests of the group consumer that the broker did not answer in time.",
    "Rises: the broker is overloaded or away; expect takeovers.",
)
BROKER_DISCONNECTS: Final = Metric(
    "postdate_broker_disconnects_total",
    Shape.COUNTER,
    "",
    _BROKER,
    "Connections of the group consumer that ended; brokers close idle ones, too.",
    "Rises steadily while there is traffic: the network, or a proxy that cuts connections.",
)
HELD: Final = Metric(
    "postdate_held",
    Shape.GAUGE,
    "",
    ("topic", "partition", "what"),
    "What a person holds of the shard: 1 for delivery, 1 for intake, the number of targets held one by one.",
    "Above 0 and nobody knows why: `postdate hold list` says what, `postdate release` lets it go.",
)
BUILD: Final = Metric(
    "postdate_build_info",
    Shape.GAUGE,
    "",
    ("version", "python", "confluent_kafka", "rocksdict"),
    "Always 1; what runs.",
    "None.",
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, in the order of the documentation."""
