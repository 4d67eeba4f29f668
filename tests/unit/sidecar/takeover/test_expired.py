"""Goal: a shard does not halt for a problem that resolves with time, and a halted shard keeps everything that can end
the halt.

Method: the real shard runs over the simulated broker. The dispatch log expires, is broken, or is unreachable for long.
Then the shard starts on its own disk or on another one.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import msgspec
import pytest

from postdate.kafka import limits as kafka_limits
from postdate.kafka.interface import Isolation, Partition
from postdate.sidecar import failpoints
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.operation.instructions import RESUME, Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import BEAT, ChosenFate, encode_record
from support.kafka_simulator.admin import SimAdmin
from support.shards.simulated_shard import OWN, R, ShardEnvironment

_LATER_MS = 120_000
_OUTAGE_MS = 600_000
_LOG, _STORE = Partition(OWN.dispatch_log, 0), Partition(OWN.store, 0)


def _halt(env: ShardEnvironment, topic: RequestTopicConfig | None = None) -> Shard:
    shard = env.new_shard(topic) if topic is not None else env.new_shard()
    env.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    assert shard.state is State.HALTED
    return shard


def _accept(env: ShardEnvironment) -> None:
    status = read_status(env.directory / "0")
    assert status is not None
    instruct(env.directory / "0", Instruction(do=RESUME, accept=status.loss))


def _repeated(env: ShardEnvironment) -> list[bytes | None]:
    seen = Counter(dict(record.headers or [])["postdate-origin"] for record in env.read("orders"))
    return [origin for origin, times in seen.items() if times > 1]


def _deliver(env: ShardEnvironment, shard: Shard, count: int) -> None:
    for ended in range(count):
        env.schedule(1)
        env.until(shard, lambda: env.ended() == ended + 1)  # noqa: B023  # used at once


def _end(env: ShardEnvironment) -> int:
    return env.admin.end_offsets([_LOG], Isolation.READ_UNCOMMITTED)[_LOG]


def _dies(env: ShardEnvironment, shard: Shard, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Ends the process inside its next transaction with fates; the coordinator ends the transaction."""
    armed = [True]

    def reached(name: str) -> None:
        if name == step and armed:
            armed.clear()
            raise SystemExit(step)

    env.schedule(1)
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reached", reached)
        with pytest.raises(SystemExit):
            env.until(shard, lambda: False)
    shard._drop_index()
    successor = env.kafka.producer(shard.ctx.transactional_id)
    successor.init(30)
    successor.destroy()


def test_a_trailing_aborted_transaction_does_not_count_as_missed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    _deliver(env, shard, 1)
    env.schedule(env.time.now_ms + _LATER_MS)
    env.until(shard, lambda: shard.next_request == 2)
    _dies(env, shard, monkeypatch, "dispatch.flushed")
    env.admin.delete_records({_LOG: _end(env)})
    shard = env.shard()
    env.until(shard, lambda: len(env.read("orders")) == 3, 2 * _LATER_MS)
    assert [path.name for path in env.directory.glob("0*")] == ["0"]
    shard.close()


def test_an_index_whose_wheel_is_lost_may_have_missed_the_last_transaction(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure may have lost the last step of D, to the record of a committed transaction. The log would then
    have the same offsets."""
    shard = env.shard()
    _deliver(env, shard, 1)
    assert shard._index is not None
    wheel = shard._index.wheel_path
    env.schedule(env.time.now_ms + _LATER_MS)
    env.until(shard, lambda: shard.next_request == 2)
    _dies(env, shard, monkeypatch, "dispatch.flushed")
    wheel.unlink()
    env.admin.delete_records({_LOG: _end(env)})
    shard = _halt(env)
    assert shard.why.startswith("dispatch-log-empty")
    shard.close()


def test_messages_behind_an_accepted_loss_are_not_delivered_again(env: ShardEnvironment) -> None:
    """Another owner has delivered the messages. The index has not read their requests."""
    shard = env.shard()
    env.schedule(env.time.now_ms + _LATER_MS)
    env.until(shard, lambda: shard.next_request == 1)
    shard.close()
    other = env.new_shard(place="elsewhere/0")
    _deliver(env, other, 4)
    other.close()
    env.admin.delete_records({Partition(R, 0): 3})
    shard = _halt(env)
    assert shard.why.startswith("requests-lost")
    _accept(env)
    env.until(shard, lambda: len(env.read("orders")) == 5, 2 * _LATER_MS)
    assert _repeated(env) == []
    shard.close()


@pytest.mark.parametrize("step", ["dispatch.committed", "another owner"])
def test_an_index_that_may_have_missed_fates_halts_and_is_kept(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The process died between its commit and the local write, or an owner with another disk has served since. No log
    shows this any more."""
    shard = env.shard()
    _deliver(env, shard, 1)
    env.schedule(env.time.now_ms + _LATER_MS)
    env.until(shard, lambda: shard.next_request == 2)
    if step == "another owner":
        shard.close()
        other = env.new_shard(place="elsewhere/0")
        env.schedule(1)
        env.until(other, lambda: env.ended() == 2)
        other.close()
    else:
        _dies(env, shard, monkeypatch, step)
    env.admin.delete_records({_LOG: _end(env)})
    delivered = len(env.read("orders"))
    for _ in range(2):
        shard = _halt(env)
        assert shard.why.startswith("dispatch-log-empty")
        assert [path.name for path in env.directory.glob("0*")] == ["0"]
        shard.close()
    assert len(env.read("orders")) == delivered


@pytest.mark.parametrize("left", [0, 1], ids=["nothing", "a marker"])
def test_without_a_disk_an_expired_log_halts_whatever_is_left_of_it(env: ShardEnvironment, left: int) -> None:
    """The group has no offset yet, so only the deleted records show that the shard was served before."""
    shard = env.shard()
    _deliver(env, shard, 1)
    shard.close()
    shutil.rmtree(env.directory / "0")
    env.admin.delete_records({_LOG: _end(env) - left})
    shard = _halt(env)
    assert shard.why.startswith("dispatch-log-empty")
    shard.close()
    assert len(env.read("orders")) == 1


def test_an_index_whose_next_record_is_the_oldest_continues(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(env.time.now_ms + _LATER_MS)
    _deliver(env, shard, 1)
    shard.close()
    stranger = env.kafka.producer("somebody")
    stranger.init(10)
    for _ in range(3):
        stranger.begin()
        stranger.produce(OWN.dispatch_log, b"x", None, [], 0)
        stranger.flush(10)
        stranger.abort()
    deleted = _end(env)
    other = env.new_shard(place="elsewhere/0")
    env.schedule(1)
    env.until(other, lambda: env.ended() == 2)
    other.close()
    env.admin.delete_records({_LOG: deleted})
    shard = env.shard()
    env.until(shard, lambda: len(env.read("orders")) == 3, 2 * _LATER_MS)
    assert _repeated(env) == []
    assert [path.name for path in env.directory.glob("0.*")] == []
    shard.close()


def test_an_index_whose_next_record_is_gone_is_rebuilt(env: ShardEnvironment) -> None:
    """Retention has deleted the records that the index missed. The topics still have the pending requests, so no
    operator must decide."""
    shard = env.shard()
    _deliver(env, shard, 1)
    shard.close()
    other = env.new_shard(place="elsewhere/0")
    env.schedule(1)
    env.until(other, lambda: env.ended() == 2)
    deleted = _end(env)
    env.until(other, lambda: env.log()[-1].low_water == 2, _LATER_MS)
    env.schedule(env.time.now_ms + _LATER_MS)
    env.until(other, lambda: other.next_request == 3)
    other.close()
    env.admin.delete_records({_LOG: deleted})
    shard = env.shard()
    assert [path.name for path in env.directory.glob("0.*")] == ["0.old-1"]
    env.until(shard, lambda: len(env.read("orders")) == 3, 2 * _LATER_MS)
    assert _repeated(env) == []
    shard.close()


@pytest.mark.parametrize("beyond", [0, 1], ids=["up to the low-water mark", "one more"])
def test_an_old_disk_needs_no_request_below_the_low_water_mark(env: ShardEnvironment, beyond: int) -> None:
    shard = env.shard()
    _deliver(env, shard, 1)
    shard.close()
    other = env.new_shard(place="elsewhere/0")
    env.schedule(1)
    env.until(other, lambda: env.ended() == 2)
    env.schedule(env.time.now_ms + _LATER_MS)
    env.schedule(env.time.now_ms + _LATER_MS)
    env.until(other, lambda: other.next_request == 4 and env.log()[-1].low_water == 2, _LATER_MS)
    other.close()
    env.admin.delete_records({Partition(R, 0): 2 + beyond})
    shard = _halt(env) if beyond else env.shard()
    assert shard.why.startswith("requests-lost" if beyond else "")
    shard.close()


def test_a_stored_message_behind_lost_requests_gets_no_time_before_the_last_record_of_the_log(
    env: ShardEnvironment,
) -> None:
    """The owner of the message chose a later time than the drawn one, since fewer messages are due then. The owner has
    delivered messages that were due between these times."""
    env.format_version = 2
    shard = env.shard()
    _deliver(env, shard, 1)
    shard.close()
    other = env.new_shard(place="elsewhere/0")
    env.until(other, lambda: other.state is State.RUNNING)
    due_ms = int(env.time.now_ms) + 12 * _OUTAGE_MS
    even = env.schedule(due_ms, ("postdate-window", b"60s"), ("postdate-spread", b"even"))
    draw_ms = due_ms + ((60_001 * (crc32(b"requests/0/%d" % even) >> 8)) >> 24)
    for tick in range(100):
        env.schedule(draw_ms + 100 * tick)
    env.until(other, lambda: env.admin.end_offsets([_STORE], Isolation.READ_UNCOMMITTED)[_STORE] > 101)
    env.time.wait(due_ms - env.time.now_ms - _LATER_MS)
    env.until(other, lambda: len(env.read("orders")) == 21, 2 * _LATER_MS)
    lost = env.schedule(env.time.now_ms + _OUTAGE_MS)
    env.until(other, lambda: other.next_request == lost + 1)
    logged_ms, logged = env.read(OWN.dispatch_log)[-1].timestamp_ms, len(env.log())
    other.close()
    env.admin.delete_records({Partition(R, 0): lost + 1})
    shard = _halt(env)
    assert shard.why.startswith("requests-lost")
    _accept(env)
    env.until(shard, lambda: len(env.read("orders")) == 102, _LATER_MS)
    (chosen,) = [fate for each in env.log()[logged:] for fate in each.fates if isinstance(fate, ChosenFate)]
    assert (chosen.offset, draw_ms < logged_ms < chosen.chosen_ms) == (even, True)
    shard.close()


def test_a_directory_that_was_put_back_ends_the_halt(env: ShardEnvironment) -> None:
    shard = env.shard()
    _deliver(env, shard, 1)
    env.schedule(env.time.now_ms + _LATER_MS)
    env.until(shard, lambda: shard.next_request == 2)
    shard.close()
    env.admin.delete_records({_LOG: _end(env)})
    (env.directory / "0").rename(env.directory / "copy")
    shard = _halt(env)
    shard.close()
    shutil.rmtree(env.directory / "0")
    (env.directory / "copy").rename(env.directory / "0")
    shard = env.shard()
    env.until(shard, lambda: len(env.read("orders")) == 2, 2 * _LATER_MS)
    shard.close()


def _forge(env: ShardEnvironment, seq: int) -> None:
    last = env.log()[-1]
    forged = encode_record(msgspec.structs.replace(last, seq=seq, kind=BEAT, fates=[]))
    env.broker.append(_LOG, None, forged, [], 0)


@pytest.mark.parametrize("step", [2, -1], ids=["missing", "written twice"])
def test_a_break_of_seq_can_be_accepted_once_for_all_disks(env: ShardEnvironment, step: int) -> None:
    """Requests from before the break are given up, except those in STORE. Every later owner delivers the requests after
    the break."""
    topic = RequestTopicConfig(R, store_after_ms=60_000)
    shard = env.shard(topic)
    _deliver(env, shard, 2)
    stored = env.schedule(env.time.now_ms + _LATER_MS, value=b"stored")
    env.until(shard, lambda: env.ended() == 3)
    env.schedule(env.time.now_ms + 50_000, value=b"given up")
    env.until(shard, lambda: shard.next_request == stored + 2)
    shard.close()
    _forge(env, env.log()[-1].seq + step)
    shard = _halt(env, topic)
    assert shard.why.startswith("seq-broken")
    status = read_status(env.directory / "0")
    assert status is not None
    assert status.loss is not None
    assert (status.loss.topic, status.loss.end) == (R, stored + 2)
    assert [path.name for path in env.directory.glob("0*")] == ["0"]
    _accept(env)
    env.until(shard, lambda: shard.state is State.RUNNING)
    assert [path.name for path in env.directory.glob("0.*")] == ["0.old-1"]
    late = env.schedule(env.time.now_ms + 40_000, value=b"late")
    env.until(shard, lambda: shard.next_request == late + 1)
    shard.close()
    shutil.rmtree(env.directory / "0")
    shard = env.shard(topic)  # another disk meets the same break, and needs no acceptance
    env.until(shard, lambda: len(env.read("orders")) == 4, 2 * _LATER_MS)
    values = Counter(record.value for record in env.read("orders"))
    assert values == {b"v": 2, b"stored": 1, b"late": 1}
    assert _repeated(env) == []
    shard.close()


def test_a_break_of_seq_can_be_accepted_while_requests_arrive(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record before the break can have ended a request that was written after the halt. A deposed leader, which
    knows fewer requests, does not decide the range."""
    shard = env.shard()
    env.schedule(env.time.now_ms + 50_000, value=b"given up")
    env.until(shard, lambda: shard.next_request == 1)
    shard.close()
    env.schedule(1, value=b"given up, too")
    _forge(env, env.log()[-1].seq + 2)
    honest, until_ms = SimAdmin.end_offsets, env.time.now_ms + 2_000

    def end_offsets(admin: SimAdmin, parts: Iterable[Partition], *more: Any) -> Any:
        offsets = honest(admin, parts, *more)
        return offsets | {part: 1 for part in offsets if part.topic == R and env.time.now_ms < until_ms}

    monkeypatch.setattr(SimAdmin, "end_offsets", end_offsets)
    shard = _halt(env)
    env.schedule(1, value=b"later")
    _accept(env)
    env.until(shard, lambda: shard.state is State.RUNNING)
    env.until(shard, lambda: len(env.read("orders")) == 1)
    assert [record.value for record in env.read("orders")] == [b"later"]
    shard.close()


def test_a_takeover_waits_for_a_log_without_a_leader(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    _deliver(env, shard, 1)
    shard.close()
    log = env.broker.log(_LOG)

    def reached(name: str) -> None:
        if name == "takeover.bounded" and env.time.now_ms < back_ms:
            log.has_leader = False

    back_ms = env.time.now_ms + _OUTAGE_MS
    env.time.at(back_ms, lambda: setattr(log, "has_leader", True))
    env.time.at(env.time.now_ms + 30_000, lambda: setattr(log, "has_leader", True))  # so that recovery stalls as well
    monkeypatch.setattr(failpoints, "reached", reached)
    shutil.rmtree(env.directory / "0")
    shard = env.new_shard()
    env.schedule(1)
    seen: set[State] = set()
    whys: set[str] = set()

    def is_back() -> bool:
        seen.add(shard.state)
        whys.add(shard.why)
        return len(env.read("orders")) == 2

    env.until(shard, is_back, _OUTAGE_MS + 30_000)
    assert State.HALTED not in seen
    assert any(f"no progress at offset 0 of {_end(env) - 4} of {OWN.dispatch_log}/0" in why for why in whys), whys
    shard.close()


def test_a_takeover_waits_for_a_foreign_transaction_that_stays_open(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    shard.close()
    stranger = env.kafka.producer("somebody")
    with monkeypatch.context() as patched:
        patched.setattr(kafka_limits, "TRANSACTION_TIMEOUT_MS", 180_000)
        stranger.init(10)
    stranger.begin()
    stranger.produce(OWN.dispatch_log, b"x", None, [], 0)
    stranger.flush(10)
    hanging = env.broker.log(_LOG).stable_end
    shard = env.new_shard()
    env.schedule(1)
    env.until(shard, lambda: "no progress" in shard.why)
    assert f"at offset {hanging} of" in shard.why
    env.until(shard, lambda: len(env.read("orders")) == 1, 240_000)  # the coordinator gives it up
    shard.close()
