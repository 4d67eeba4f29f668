"""Losses of fates on a simulated cluster, for tests of takeovers: causes the loss, and accepts it as an operator
does."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from postdate.kafka import limits
from postdate.kafka.interface import Partition, TransactionalProducer
from postdate.sidecar.operation.instructions import RESUME, Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import BEAT, encode_record
from support.shards.simulated_shard import OWN, R, ShardEnvironment

LOG = Partition(OWN.dispatch_log, 0)
REQUESTS = Partition(R, 0)


def break_seq(env: ShardEnvironment, shard: Shard) -> None:
    """Closes the shard, and forges a record whose `seq` does not follow the last one."""
    shard.close()
    last = env.log()[-1]
    forged = encode_record(msgspec.structs.replace(last, seq=last.seq + 2, kind=BEAT, fates=[]))
    env.broker.append(LOG, None, forged, [], 0)


def open_transaction(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> TransactionalProducer:
    """Opens a transaction of a foreign producer with one request, and appends two other requests after it."""
    producer = env.kafka.producer("somebody")
    with monkeypatch.context() as patched:
        patched.setattr(limits, "TRANSACTION_TIMEOUT_MS", 900_000)  # the maximum that brokers allow by default
        producer.init(10)
    producer.begin()
    producer.produce(R, b"v", b"k", [("postdate-topic", b"orders"), ("postdate-at", b"1")], 0)
    producer.flush(10)
    for _ in range(2):
        env.schedule(1)
    return producer


def accept_loss(env: ShardEnvironment, shard: Shard) -> str:
    """Resumes a halted shard, and accepts the loss that its status names; returns the range of that loss."""
    status = read_status(env.directory / "0")
    assert status is not None
    assert status.loss is not None
    instruct(env.directory / "0", Instruction(do=RESUME, accept=status.loss))
    env.until(shard, lambda: shard.state is State.RUNNING)
    return status.loss.range


def delivery_counts(env: ShardEnvironment, shard: Shard) -> Counter[int]:
    """Runs the shard for 20 s; returns the number of deliveries of each request."""
    until_ms = env.time.now_ms + 20_000
    env.until(shard, lambda: env.time.now_ms > until_ms)
    origins = [dict(record.headers or [])["postdate-origin"] or b"" for record in env.read("orders")]
    return Counter(int(origin.rpartition(b"/")[2]) for origin in origins)
