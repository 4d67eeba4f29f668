"""Goal: after a log has lost its end, no message is repeated and no loss is hidden, on the same disk or another.

Method: the real shard runs over the simulated broker. A log is truncated without the shard's knowledge, and grows
again. Then the shard starts on its own disk, or on another one.
"""

from __future__ import annotations

from typing import Any

import pytest

from postdate.kafka.errors import FatalClient
from postdate.kafka.interface import Partition, TransactionalProducer
from postdate.sidecar.operation.instructions import INSTRUCTION_NAME, Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.states import State
from postdate.sidecar.takeover import takeover
from postdate.wheel.errors import StorageError
from postdate.wheel.index import TimerIndex
from postdate.wheel.timer_log.changes import EntryChanges
from support.kafka_simulator import SimKafka
from support.kafka_simulator.admin import SimAdmin
from support.shards.simulated_shard import OWN, R, ShardEnvironment, refuse


def _accept(env: ShardEnvironment) -> Instruction:
    status = read_status(env.directory / "0")
    assert status is not None
    return Instruction(do="resume", accept=status.loss)


def _halt_for_truncated_requests(env: ShardEnvironment) -> None:
    """Halts a shard: it has read three requests, and restarts after the topic has lost all but the first."""
    shard = env.shard()
    for _ in range(3):
        env.schedule(env.time.now_ms + 60_000)
    env.until(shard, lambda: shard.next_request == 3)
    shard.close()
    env.broker.log(Partition(R, 0)).truncate(1)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    shard.close()


def test_a_halt_remains_until_resumed_even_if_the_log_has_grown(env: ShardEnvironment) -> None:
    """Otherwise new requests would be mistaken for the requests that were read at their offsets."""
    _halt_for_truncated_requests(env)
    for _ in range(4):
        env.schedule(1)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("requests-truncated")
    instruct(env.directory / "0", _accept(env))
    env.until(shard, lambda: env.ended() == 5, 120_000)
    assert sorted(offset for fates in env.fates() for offset, _ in fates) == [0, 1, 2, 3, 4]
    assert len(env.read("orders")) == 5  # the three requests that were read, and the two at later offsets
    shard.close()


def test_another_halt_does_not_hide_a_truncated_log(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log grows while the shard is halted for another reason; then nothing else shows the truncation."""
    _halt_for_truncated_requests(env)
    with monkeypatch.context() as patched:
        patched.setattr(SimAdmin, "describe", lambda *_: {})
        shard = env.new_shard()
        env.until(shard, lambda: shard.state is State.HALTED)
        assert shard.why.startswith("topic-rules")
    for _ in range(4):
        env.schedule(1)
    instruct(env.directory / "0", Instruction(do="rebuild"))
    env.until(shard, lambda: not (env.directory / "0" / INSTRUCTION_NAME).exists())
    instruct(env.directory / "0", Instruction(do="resume"))
    env.until(shard, lambda: shard.state is not State.HALTED)
    env.until(shard, lambda: shard.state in (State.RUNNING, State.HALTED))
    assert shard.why.startswith("requests-truncated")
    instruct(env.directory / "0", _accept(env))
    env.until(shard, lambda: env.ended() == 5, 120_000)
    shard.close()


def test_no_owner_delivers_again_after_a_truncated_dispatch_log(env: ShardEnvironment) -> None:
    """The next owner may run on another machine, without the index that knows the lost fates."""
    shard = env.shard()
    for count in range(1, 4):
        env.schedule(1)
        env.until(shard, lambda count=count: env.ended() == count)  # type: ignore[misc]
    env.schedule(env.time.now_ms + 600_000)
    env.until(shard, lambda: shard.next_request == 4)
    shard.close()
    env.broker.log(Partition(OWN.dispatch_log, 0)).truncate(4)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("dispatch-log-truncated")
    shard.close()
    other = env.new_shard(place="1")
    env.until(other, lambda: other.state is State.HALTED)
    assert other.why.startswith("seq-broken")
    assert len(env.read("orders")) == 3
    other.close()
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    owners = [record.takeover for record in env.log() if record.kind == "owner"]
    assert owners == [1, 2], "one mark is enough, and it is that of the next takeover"
    instruct(env.directory / "0", _accept(env))
    env.until(shard, lambda: shard.state is State.RUNNING)
    env.schedule(1)
    env.until(shard, lambda: len(env.read("orders")) == 4)
    shard.close()


@pytest.mark.parametrize("is_refused", [False, True], ids=["committed", "refused"])
def test_the_producer_of_the_mark_is_destroyed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """A halted shard does not need the producer, and its threads and connections would remain until the process
    ends."""
    shard = env.shard()
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    shard.close()
    env.broker.log(Partition(OWN.dispatch_log, 0)).truncate(2)
    made: list[TransactionalProducer] = []
    honest = SimKafka.producer

    def producer(self: SimKafka, *arguments: Any) -> TransactionalProducer:
        made.append(honest(self, *arguments))
        return made[-1]

    monkeypatch.setattr(SimKafka, "producer", producer)
    if is_refused:
        refuse(monkeypatch, lambda topic, _: topic == OWN.dispatch_log)
    shard = env.new_shard()
    env.until(shard, lambda: bool(made) and (is_refused or shard.state is State.HALTED))
    for each in made:
        with pytest.raises(FatalClient, match="destroyed"):
            each.begin()
    assert made
    shard.close()


def test_a_dispatch_log_that_lost_everything_is_read_from_its_start(env: ShardEnvironment) -> None:
    """The log begins with the mark of the halted shard, and no other record gets the seq of the mark."""
    shard = env.shard()
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    shard.close()
    env.broker.log(Partition(OWN.dispatch_log, 0)).truncate(0)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    instruct(env.directory / "0", _accept(env))
    env.until(shard, lambda: shard.state is State.RUNNING)
    env.schedule(1)
    env.until(shard, lambda: len(env.read("orders")) == 2)
    numbers = [record.seq for record in env.log()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    shard.close()


def _use_offsets_twice(env: ShardEnvironment, count: int) -> None:
    """Loses requests 1 to `count` - 1, gives their offsets to other requests, and accepts the loss."""
    shard = env.shard()
    for _ in range(count):
        env.schedule(env.time.now_ms + 60_000)
    env.until(shard, lambda: shard.next_request == count)
    shard.close()
    env.broker.log(Partition(R, 0)).truncate(1)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    for _ in range(count + 1):
        env.schedule(1)
    instruct(env.directory / "0", _accept(env))
    env.until(shard, lambda: env.ended() == 2)
    shard.close()


def test_offsets_that_were_used_twice_are_passed_over_in_bounded_writes(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of offsets does not matter. A process that dies between two of the writes starts again with the
    first."""
    monkeypatch.setattr(takeover, "RECOVERY_FATES_MAX", 4)
    _use_offsets_twice(env, 12)
    written: list[int] = []
    honest = TimerIndex.write

    def write(self: TimerIndex, changes: EntryChanges) -> None:
        if len(written) == 1:
            written.append(-1)
            raise StorageError("the process dies here")
        if changes.marks:
            written.append(len(changes.marks))
        honest(self, changes)

    monkeypatch.setattr(TimerIndex, "write", write)
    shard = env.new_shard(place="1")
    env.until(shard, lambda: env.ended() == 3, 200_000)
    assert written[:5] == [4, -1, 4, 4, 3]
    assert sorted(offset for fates in env.fates() for offset, _ in fates) == [0, 12, 13]
    shard.close()


def test_offsets_that_were_assigned_twice_are_not_read_with_another_disk(env: ShardEnvironment) -> None:
    _use_offsets_twice(env, 3)
    shard = env.new_shard(place="1")
    env.until(shard, lambda: env.ended() == 3, 200_000)
    assert sorted(offset for fates in env.fates() for offset, _ in fates) == [0, 3, 4]
    assert len(env.read("orders")) == 3
    shard.close()
