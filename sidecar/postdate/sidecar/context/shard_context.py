"""The context of a shard, shared by its parts: its configuration, its names on Kafka, and its clients. Immutable,
except for counters, queries, holds, and what the shards of a process share: the semaphore and the trace queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from postdate.kafka.interface import Admin, Kafka, Partition
from postdate.sidecar.clock import Clock
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.context.index_queries import IndexQueries
from postdate.sidecar.context.limits import BEAT_INTERVAL_MS_MAX
from postdate.sidecar.context.pacing import LargeTransactionSemaphore
from postdate.sidecar.context.traced_messages import TraceQueue
from postdate.sidecar.counts import ShardCounts
from postdate.wire.origins import format_origin
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics


@dataclass(frozen=True, slots=True)
class LongDelays:
    """The rule for storing entries: an entry is stored if its delay exceeds `store_after_ms`, or if its request is
    older than `sweep_age_ms`. A bound of 0 is not applied."""

    store_after_ms: int
    sweep_age_ms: int

    @classmethod
    def of(cls, topic: RequestTopicConfig, retention_ms: int) -> LongDelays:
        """Returns the rule for a request topic that keeps its requests for `retention_ms` (-1: for ever)."""
        after_ms = topic.store_after_ms
        if not after_ms or retention_ms < 0:
            return cls(after_ms, 0)
        return cls(min(after_ms, max(retention_ms // 4, 1)), retention_ms // 2)


@dataclass(frozen=True, slots=True)
class ShardContext:
    """One request partition and everything that its shard needs. `stopping` returns True when the shard should be
    released."""

    config: Config
    topic: RequestTopicConfig
    own: OwnTopics
    rules: RequestRules
    partition: int
    cluster_id: str
    directory: Path
    kafka: Kafka
    admin: Admin
    clock: Clock
    instance: str
    stopping: Callable[[], bool]
    beat_interval_ms: int = BEAT_INTERVAL_MS_MAX
    retention_ms: int = -1  # of the request topic; -1: for ever
    counts: ShardCounts = field(default_factory=ShardCounts)
    index_queries: IndexQueries = field(default_factory=IndexQueries)
    held: HoldState = field(default_factory=HoldState)
    large_transactions: LargeTransactionSemaphore = field(default_factory=LargeTransactionSemaphore)
    """Shared by all shards of a process."""
    traces: TraceQueue | None = None  # None: no spans

    @property
    def long_delays(self) -> LongDelays:
        """The rule for storing an entry."""
        return LongDelays.of(self.topic, self.retention_ms)

    @property
    def requests(self) -> Partition:
        """The shard's partition of the request topic (REQ)."""
        return Partition(self.own.requests, self.partition)

    @property
    def log(self) -> Partition:
        """The shard's partition of the dispatch log (DL)."""
        return Partition(self.own.dispatch_log, self.partition)

    @property
    def store(self) -> Partition:
        """The shard's partition of the store topic (STORE)."""
        return Partition(self.own.store, self.partition)

    @property
    def origin_prefix(self) -> bytes:
        """The origin of each request of the shard, without the offset."""
        return format_origin(self.own.requests, self.partition, 0)[:-1]

    @property
    def transactional_id(self) -> str:
        """The transactional id. It names the shard, not the deployment: two deployments on one request topic fence each
        other."""
        return f"postdate/{self.own.requests}/{self.partition}"

    @property
    def name(self) -> str:
        """The name of the shard in logs and messages."""
        return f"{self.own.requests}/{self.partition}"
