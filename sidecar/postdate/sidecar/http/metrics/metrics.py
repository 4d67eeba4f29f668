"""Every metric: its name, labels, meaning, and the operator's action.

The list is closed: `collector` exports no other metric, and a test keeps docs/operations.md equal to the list. A name
follows Prometheus' rules, so it shows shape and unit: base units (seconds, bytes), and `_total` for counters.

Labels: `topic` is the request topic, `partition` its partition (the shard). Lateness, fates and similar metrics are
sums over the shards of a topic, so that their number does not grow with the partitions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Shape(StrEnum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric. `action` is for the operator."""

    name: str
    labels: tuple[str, ...]
    help: str
    action: str
    is_histogram: bool = False

    @property
    def shape(self) -> Shape:
        """The type in Prometheus."""
        if self.is_histogram:
            return Shape.HISTOGRAM
        return Shape.COUNTER if self.name.endswith("_total") else Shape.GAUGE


_TOPIC = ("topic",)
_SHARD = ("topic", "partition")
_BROKER = ("broker",)

LATENESS: Final = Metric(
    "postdate_lateness_seconds",
    _TOPIC,
    "Time from the due time of a delivered message (or the request's timestamp, if that is later) to the commit.",
    "Alert on a high quantile. Check due entries, transaction time, parked entries and shard states, in this order.",
    is_histogram=True,
)
REQUESTS: Final = Metric(
    "postdate_requests_total",
    ("topic", "outcome"),
    "Requests read, by kind: schedule, cancel, reschedule, pause, resume, trigger, backfill, refused. After a restart "
    "some are read and counted again.",
    "Many refused: read the reasons in the dead letters of the topic.",
)
FATES: Final = Metric(
    "postdate_fates_total",
    ("topic", "fate"),
    "Fates that this process committed: delivered, dead, cancelled, replaced, kept, dropped, applied, moved, stored, "
    "swept; of recurring schedules also occurred, skipped, paused, resumed, triggered, backfilled, extra, extra-dead, "
    "completed.",
    "`delivered` does not rise while entries are due: see lateness.",
)
SKIPPED_OCCURRENCES: Final = Metric(
    "postdate_skipped_occurrences_total",
    ("topic", "reason"),
    "Occurrences of recurring schedules that this process has skipped: missed, paused, gap, grace, or dead for one "
    "that became a dead letter.",
    "`missed` or `grace` rises: occurrences are late; see lateness. `dead`: read the dead letters.",
)
DEAD_LETTERS: Final = Metric(
    "postdate_dead_letters_total",
    ("topic", "reason"),
    "Dead letters that this process committed, by reason.",
    "Fix the cause, then run `postdate dead-letters requeue`.",
)
RATE_LIMITED: Final = Metric(
    "postdate_rate_limited_total",
    _TOPIC,
    "Due messages that had to wait, parked, because of the rate of their target (`messages_per_second_max`).",
    "Rises continuously while entries are parked: more messages fall due for a target than its rate allows.",
)
UNREMEMBERED_IDS: Final = Metric(
    "postdate_unremembered_ids_total",
    _TOPIC,
    "Delivered messages with `postdate-if-ended` whose id is not remembered, since a partition had a million of them "
    "within the hour. A repetition of such a message is delivered.",
    "Rises: use more partitions, or send fewer requests with `postdate-if-ended`.",
)
TRANSACTIONS: Final = Metric(
    "postdate_transactions_total",
    ("topic", "outcome"),
    "Transactions with fates or beats: committed, aborted, unknown (a takeover reads the outcome), fenced, failed.",
    "Any other outcome than `committed` rises steadily: read Kafka's error in the log.",
)
TRANSACTION_SECONDS: Final = Metric(
    "postdate_transaction_seconds",
    _TOPIC,
    "Time from the begin of a transaction to the response to its commit or abort.",
    "High: check the brokers, and the network to them. Lateness follows this time.",
    is_histogram=True,
)
PENDING: Final = Metric(
    "postdate_pending_entries",
    _SHARD,
    "Pending entries: accepted and not ended, including parked ones.",
    "Grows continuously: messages are scheduled faster than they fall due, or targets fail.",
)
SCHEDULES: Final = Metric(
    "postdate_schedules",
    _SHARD,
    "Recurring schedules among the pending entries, including paused and parked ones. Not reported while the index was "
    "written in part by an earlier version.",
    "Falls to 0, or grows, unexpectedly: look for a client that cancels schedules, or creates them without end.",
)
HORIZONS: Final = Metric(
    "postdate_pending_by_horizon",
    ("topic", "horizon"),
    "Entries due within each horizon and beyond the previous one; overdue, ending and parked separately. From the "
    "wheel.",
    "Shows the upcoming load: scale before it is due.",
)
DUE: Final = Metric(
    "postdate_due_entries",
    _SHARD,
    "Entries that are due and not delivered yet, including those of the present tick.",
    "Stays high: the shard cannot keep up. Check the transaction time; use more partitions or processes.",
)
OVERDUE: Final = Metric(
    "postdate_overdue_entries",
    _SHARD,
    "Entries that were due before the present tick and are not delivered yet, without parked ones.",
    "Above 0 for a minute: messages are late. Check the shard's state, and the reason in /readyz and the log.",
)
PARKED: Final = Metric(
    "postdate_parked_entries",
    _SHARD,
    "Entries whose target fails, is isolated, is held or is over its rate. They wait separately and delay no other "
    "target.",
    "`postdate pending list --state parked` names the targets. If one fails, fix it; otherwise the entries become dead "
    "letters.",
)
ENDING: Final = Metric(
    "postdate_ending_entries",
    _SHARD,
    "Controls, and cancelled, replaced, refused or to-be-stored entries, that wait for the next transaction.",
    "Stays high: check the transactions.",
)
FENCES: Final = Metric(
    "postdate_fences_total",
    _SHARD,
    "Number of times that another producer took the shard's transactional id from this process.",
    "Rises without rebalances: two deployments serve one request topic, or a foreign client uses the id.",
)
TAKEOVERS: Final = Metric(
    "postdate_takeovers_total",
    _SHARD,
    "Takeovers that this process completed. Broken connections cause takeovers too.",
    "Rises steadily: check the network to the brokers, and whether members keep joining and leaving.",
)
TAKEOVER_SECONDS: Final = Metric(
    "postdate_last_takeover_seconds",
    _SHARD,
    "Time without deliveries for the shard until its last takeover was complete.",
    "Long: `postdate_state_seconds_total` shows the state. RECOVERING reads the dispatch log, FENCING waits for Kafka.",
)
STATE: Final = Metric(
    "postdate_shard_state",
    ("topic", "partition", "state"),
    "1 for the present state of each shard that this process holds.",
    "HALTED: an operator must act. The log and /readyz give the reason; Halts describes the action.",
)
STATE_SECONDS: Final = Metric(
    "postdate_state_seconds_total",
    ("topic", "partition", "state"),
    "Time that the shard has spent in each state in this process.",
    "Compare with the time of the last takeover.",
)
READY: Final = Metric(
    "postdate_ready",
    (),
    "1 if /readyz responds with 200.",
    "0: read the reasons in /readyz.",
)
MEMBER: Final = Metric(
    "postdate_group_member",
    (),
    "1 if this process is a member of the consumer group.",
    "0 for a minute: brokers are unavailable, or the group id is not allowed.",
)
NEXT_REQUEST: Final = Metric(
    "postdate_next_request_offset",
    _SHARD,
    "The next request offset to read; everything below it is in the index. Also the group's committed offset.",
    "Behind the end of the topic: intake is slow, or paused because the inbox is full.",
)
LAG: Final = Metric(
    "postdate_request_lag",
    _SHARD,
    "Offsets of the request topic that are not read yet; at most 10 s old.",
    "Grows: requests arrive faster than they are read. Use more partitions or processes.",
)
LOW_WATER: Final = Metric(
    "postdate_low_water_offset",
    _SHARD,
    "The smallest request offset that a rebuild of the index still needs.",
    "Compare with the start of the request topic's log.",
)
HEAD_ROOM: Final = Metric(
    "postdate_low_water_head_room_seconds",
    _SHARD,
    "Least time for which retention keeps the oldest request that a rebuild needs; absent if there is none, or without "
    "a limit.",
    "Near 0: raise retention.ms of the request topic now. Without that request, a lost disk cannot be rebuilt.",
)
INBOX: Final = Metric(
    "postdate_inbox_records",
    _SHARD,
    "Polled requests that wait for the shard.",
    "Always full (20,000): this process limits intake. Use more processes.",
)
TIMER_LOG_BYTES: Final = Metric(
    "postdate_timer_log_bytes",
    _SHARD,
    "Size of the files of the shard's timer log.",
    "Size the volume for the largest backlog. The space of ended entries is freed with some delay.",
)
WHEEL_BYTES: Final = Metric(
    "postdate_wheel_bytes",
    _SHARD,
    "Size of the shard's wheel file, which is constant.",
    "None.",
)
WHEEL_REBUILDS: Final = Metric(
    "postdate_wheel_rebuilds_total",
    _SHARD,
    "Wheels that were rebuilt since the index was opened, because a check failed at the start or later.",
    "Rises while running: report it. Deliveries do not depend on the wheel.",
)
SKEW: Final = Metric(
    "postdate_clock_skew_seconds",
    _SHARD,
    "This machine's clock minus the broker's clock, at the last transaction with fates.",
    "Large: correct the clocks. The broker's clock decides when a message is due.",
)
BROKER_UP: Final = Metric(
    "postdate_broker_up",
    _BROKER,
    "1 if the group consumer is connected to the broker. Metrics of brokers are measured every 10 s.",
    "0 for a broker that should serve: check the broker, and the network to it.",
)
BROKER_ROUND_TRIP: Final = Metric(
    "postdate_broker_round_trip_seconds",
    _BROKER,
    "99th percentile of the time from a request of the group consumer to its response, including waiting fetches.",
    "Above a second: check the broker and the network, since a fetch waits for at most half a second.",
)
BROKER_TIMEOUTS: Final = Metric(
    "postdate_broker_timeouts_total",
    _BROKER,
    "Requests of the group consumer that the broker did not answer in time.",
    "Rises: the broker is overloaded or unavailable. Expect takeovers.",
)
BROKER_DISCONNECTS: Final = Metric(
    "postdate_broker_disconnects_total",
    _BROKER,
    "Closed connections of the group consumer. Brokers close idle connections too.",
    "Rises steadily under traffic: check the network, and proxies that cut connections.",
)
HELD: Final = Metric(
    "postdate_held",
    ("topic", "partition", "what"),
    "Holds of the shard: 1 if delivery is held, 1 if intake is held, and the number of held targets.",
    "Unexpectedly above 0: `postdate hold list` shows the holds, `postdate release` ends them.",
)
SPANS_DROPPED: Final = Metric(
    "postdate_spans_dropped_total",
    (),
    "Spans that were not made because too many waited (`traces`).",
    "Rises: sample fewer traces at the producers. Deliveries do not depend on spans.",
)
BUILD: Final = Metric(
    "postdate_build_info",
    ("version", "python", "confluent_kafka", "rocksdict"),
    "Always 1; the labels are the versions.",
    "None.",
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in the order of the documentation."""
