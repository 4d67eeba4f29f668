"""One shard on a simulated cluster. The test runs its steps without a thread or process; time passes only in waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from postdate.kafka import limits
from postdate.kafka.errors import OffsetOutOfRange
from postdate.kafka.interface import Isolation, NewTopic, Partition, Record
from postdate.sidecar.config.settings import Config, DispatchConfig, RequestTopicConfig
from postdate.sidecar.context.pacing import TransactionBudget, TransactionThrottle
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.sidecar.transaction.transaction import ShardOwnership
from postdate.wheel.index import TimerIndex
from postdate.wire.dispatch_log import DispatchRecord, decode_record
from postdate.wire.headers import Headers
from postdate.wire.topics import OwnTopics
from support.kafka_simulator import SimBroker, SimClock, SimKafka
from support.kafka_simulator.error_responses import refusal
from support.kafka_simulator.plain_producer import SimPlainProducer

R = "requests"
OWN = OwnTopics.of(R)
BUDGET_MS = 2_000


class ShardEnvironment:
    """A simulated cluster, and successive shards of its one request partition on the same disk."""

    def __init__(self, directory: Path, clock: Callable[[SimBroker], SimClock] | None = None) -> None:
        """`clock`: makes the clock of the machine on which the shards run; by default it is exact."""
        self.directory = directory
        self.broker = SimBroker()
        self.kafka = SimKafka(self.broker, clock=clock(self.broker) if clock is not None else None)
        self.admin = self.kafka.admin()
        self.time = self.broker.time
        stamped = {"message.timestamp.type": "LogAppendTime"}
        sized = {"max.message.bytes": "1114124"}
        own = [NewTopic(name, 1, 1, stamped | sized) for name in sorted(OWN.names() - {R})]
        self.admin.create_topics([NewTopic(R, 1, 1, stamped), NewTopic("orders", 1, 1, {}), *own])
        self.shards = 0
        self.dispatch = DispatchConfig(retry_budget_ms=BUDGET_MS)
        self.format_version = 1

    def shard(self, topic: RequestTopicConfig | None = None, instance: str = "") -> Shard:
        """Returns a shard that has taken over. REQUIRES: an earlier shard on the same disk is closed."""
        made = self.new_shard(topic, instance)
        self.until(made, lambda: made.state is State.RUNNING)
        return made

    def new_shard(
        self,
        topic: RequestTopicConfig | None = None,
        instance: str = "",
        group_id: str = "postdate",
        place: str = "0",
        partition: int = 0,
    ) -> Shard:
        """Returns a shard that has not started. `place`: its directory below that of the environment."""
        self.shards += 1
        config = Config(
            format_version=self.format_version,
            request_topics=(topic or RequestTopicConfig(R),),
            dispatch=self.dispatch,
            group_id=group_id,
        )
        ctx = ShardContext(
            config=config,
            topic=config.request_topic(R),
            own=OWN,
            rules=rules_of(config, R),
            partition=partition,
            cluster_id=self.broker.cluster_id,
            directory=self.directory / place,
            kafka=self.kafka,
            admin=self.admin,
            clock=self.kafka.clock,
            instance=instance or f"instance-{self.shards}",
            stopping=lambda: False,
        )
        made = Shard(ctx, Inbox(), TransactionThrottle(TransactionBudget(10_000), 0.0))
        return made

    def until(self, shard: Shard, reached: Callable[[], bool], within_ms: float = 60_000) -> None:
        """Runs turns of the shard and steps of the poll thread until the condition holds."""
        deadline = self.time.now_ms + within_ms
        while not reached():
            assert self.time.now_ms < deadline, f"{shard.state} {shard.why}"
            wait_ms = shard.turn()
            self.poll(shard)
            most_ms = 50.0 if shard.state in (State.CATCHING_UP, State.RUNNING) else wait_ms  # new input would wake it
            self.time.wait(max(min(wait_ms, most_ms), 1.0))

    def poll(self, shard: Shard) -> None:
        """Runs one step of the poll thread."""
        inbox = shard.inbox
        start = inbox.start_at
        if start >= 0:
            inbox.started(start)
            self._position = start
        if shard.state in (State.CATCHING_UP, State.RUNNING):
            reader = self.kafka.log_reader(shard.ctx.requests, self._position, Isolation.READ_COMMITTED)
            try:
                records = reader.read(1_000, 0.0)
            except OffsetOutOfRange as fault:
                shard.partition_fault(fault)
                return
            self._position = reader.position()
            if records:
                inbox.offer(records)
            inbox.note_position(self._position)

    def ask(self, *headers: tuple[str, bytes], key: bytes | None = b"k", value: bytes | None = b"v") -> int:
        """Sends a request; returns its offset."""
        producer = self.kafka.plain_producer()
        offsets: list[int] = []
        producer.produce(R, value, key, list(headers), 0, lambda fault, offset, _: offsets.append(offset))
        assert producer.flush(10) == 0
        return offsets[0]

    def schedule(
        self, due_ms: float, *headers: tuple[str, bytes], target: bytes = b"orders", value: bytes | None = b"v"
    ) -> int:
        return self.ask(("postdate-topic", target), ("postdate-at", b"%d" % int(due_ms)), *headers, value=value)

    def read(self, topic: str) -> list[Record]:
        start = self.broker.log(Partition(topic, 0)).start
        reader = self.kafka.log_reader(Partition(topic, 0), start, Isolation.READ_COMMITTED)
        found = reader.read(100_000, 0.0)
        reader.close()
        return found

    def log(self) -> list[DispatchRecord]:
        return [decode_record(record.value) for record in self.read(OWN.dispatch_log)]

    def fates(self) -> list[list[tuple[int, str]]]:
        """Returns (request offset, fate) of the fates in each transaction that has any."""
        return [[(fate.offset, fate.name) for fate in record.fates] for record in self.log() if record.fates]

    def dead_letters(self) -> list[tuple[bytes, bytes | None]]:
        """Returns (reason, value) of each dead letter."""
        found = []
        for record in self.read(OWN.dead_letters):
            headers: Headers = record.headers or []
            found.append((dict(headers)["postdate-dead-reason"] or b"", record.value))
        return found

    def ended(self) -> int:
        return sum(_fates_of(record.value) for record in self.read(OWN.dispatch_log))


def parts(shard: Shard) -> tuple[TimerIndex, ShardOwnership]:
    """Returns the index and the ownership of a running shard."""
    assert shard._index is not None
    assert shard._ownership is not None
    return shard._index, shard._ownership


def takeovers(shard: Shard) -> int:
    """Returns the number of takeovers that the shard has completed."""
    return shard.ctx.counts.states.entered[State.CATCHING_UP]


def read_requests(env: ShardEnvironment, shard: Shard) -> None:
    """Lets a shard read all requests without dispatching any."""
    count = len(env.read("requests"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
        env.until(shard, lambda: shard.next_request == count)


def hold_controls(env: ShardEnvironment, shard: Shard, monkeypatch: pytest.MonkeyPatch, count: int) -> TimerIndex:
    """Fills the index with `count` entries under key 0, which are not dispatched; returns the index."""
    index = shard._index
    assert index is not None
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(count):
        env.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
    env.until(shard, lambda: index.ending_count == count)
    return index


def read_due(env: ShardEnvironment, shard: Shard) -> Due:
    """Returns the input of the next transaction."""
    assert shard._index is not None
    return shard._dispatcher._reader.read(shard._index, shard.ctx.clock.steady_ms(), env.broker.now_ms())


@cache
def _fates_of(value: bytes | None) -> int:
    """Returns the number of fates in a record. Cached, because conditions count all fates after each turn."""
    return len(decode_record(value).fates)


def refuse(
    monkeypatch: pytest.MonkeyPatch,
    wanted: Callable[[str, bytes | None], bool],
    code: int = KafkaError.POLICY_VIOLATION,
) -> None:
    """Makes the broker refuse each transactional record for which `wanted(topic, value)` is true, one by one. `code`:
    the error; the default is an error that may pass with time."""
    honest = SimBroker.append

    def append(self: SimBroker, part: Partition, key: bytes | None, value: bytes | None, *more: Any) -> tuple[int, int]:
        if more[-1] is not None and wanted(part.topic, value):
            raise refusal(code, "schema validation failed")
        return honest(self, part, key, value, *more)

    monkeypatch.setattr(SimBroker, "append", append)


def slow_down(monkeypatch: pytest.MonkeyPatch, topic: str, records_max: int) -> None:
    """Limits a topic to `records_max` records of one producer within the 2 s of message.timeout.ms; further records
    time out."""
    honest = SimPlainProducer._sent

    def sent(self: SimPlainProducer, records: list[Any]) -> bool:
        if not records or records[0].topic != topic:
            return honest(self, records)
        waiting = [record for record in records if not record.reported and record.written is None]
        self._link.wait(limits.MESSAGE_TIMEOUT_MS * min(len(waiting), records_max) / records_max)
        is_sent = honest(self, waiting[:records_max]) if waiting else True
        late = waiting[records_max:]
        if is_sent and late:
            self._report_all(late, refusal(KafkaError._MSG_TIMED_OUT, "timed out in the queue"))
        return is_sent

    monkeypatch.setattr(SimPlainProducer, "_sent", sent)
