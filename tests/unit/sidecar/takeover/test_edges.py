"""Goal: a recovery delivers nothing twice and loses nothing silently, even if it is interrupted between two steps.

Method: the real shard runs over the simulated broker. At the most harmful time, the logs are cut, the disk is lost or
damaged, or a rebuild is interrupted.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import UNSET

from postdate.kafka.errors import Unreachable
from postdate.kafka.interface import Isolation, NewTopic, Partition
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due.sweep import Sweep
from postdate.sidecar.operation.instructions import REBUILD, RESUME, Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.sidecar.takeover import dispatch_tail, takeover
from postdate.wheel.errors import Corrupt, DiskFull
from postdate.wire.schedules.zones import TZ_VERSION
from support.kafka_simulator.admin import SimAdmin
from support.shards.simulated_shard import OWN, R, ShardEnvironment, parts, takeovers

_HOUR_MS = 3_600_000
_LOG = Partition(OWN.dispatch_log, 0)
_REQUESTS = Partition(R, 0)


def _halt(env: ShardEnvironment, topic: RequestTopicConfig | None = None) -> Shard:
    shard = env.new_shard(topic) if topic is not None else env.new_shard()
    env.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    assert shard.state is State.HALTED
    return shard


def _accept(env: ShardEnvironment) -> None:
    status = read_status(env.directory / "0")
    assert status is not None
    instruct(env.directory / "0", Instruction(do=RESUME, accept=status.loss))


def _pass(env: ShardEnvironment, shard: Shard, wait_ms: float = 20_000) -> None:
    until_ms = env.time.now_ms + wait_ms
    env.until(shard, lambda: env.time.now_ms > until_ms)


def _repeated(env: ShardEnvironment) -> list[bytes | None]:
    seen = Counter(dict(record.headers or [])["postdate-origin"] for record in env.read("orders"))
    return [origin for origin, times in seen.items() if times > 1]


def _deliver(env: ShardEnvironment, shard: Shard, count: int) -> None:
    for ended in range(count):
        env.schedule(1)
        env.until(shard, lambda: env.ended() == ended + 1)  # noqa: B023  # used at once


def _end(env: ShardEnvironment) -> int:
    return env.admin.end_offsets([_LOG], Isolation.READ_UNCOMMITTED)[_LOG]


def _lose_disk(env: ShardEnvironment, shard: Shard) -> None:
    shard.close()
    shutil.rmtree(env.directory / "0")


@pytest.mark.parametrize(("query", "part"), [("end_offsets", _REQUESTS), ("offset_for_time", _LOG)])
def test_a_deposed_leader_without_the_last_record_hides_no_fate(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, query: str, part: Partition
) -> None:
    """The deposed leader does not know the pending request or its fate, although an owner has ended the request."""
    shard = env.shard()
    _deliver(env, shard, 1)
    _lose_disk(env, shard)
    honest, stale = getattr(SimAdmin, query), [part]

    def end_offsets(admin: SimAdmin, parts: Iterable[Partition], isolation: Isolation, *more: Any) -> Any:
        offsets = honest(admin, parts, isolation, *more)
        if isolation is Isolation.READ_COMMITTED and part in offsets and stale:
            offsets[stale.pop()] = 0
        return offsets

    def offset_for_time(admin: SimAdmin, queried_part: Partition, timestamp_ms: int) -> int | None:
        return None if queried_part == part and stale and stale.pop() else honest(admin, queried_part, timestamp_ms)

    monkeypatch.setattr(SimAdmin, query, {"end_offsets": end_offsets, "offset_for_time": offset_for_time}[query])
    shard = env.shard()
    _pass(env, shard)
    assert _repeated(env) == []
    shard.close()


def test_a_deposed_leader_of_the_requests_does_not_keep_an_index_that_contradicts_the_log(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deposed leader does not know the last request that another owner has read, so a rebuild seems impossible."""
    due_ms = int(env.time.now_ms) + 10_000
    shard = env.shard()
    env.schedule(due_ms)
    env.until(shard, lambda: shard.next_request == 1)
    with monkeypatch.context() as patched:
        patched.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
        later = b"%d" % (due_ms + 60_000)
        env.ask(("postdate-action", b"reschedule"), ("postdate-origin", b"requests/0/0"), ("postdate-at", later))
        env.until(shard, lambda: shard.next_request == 2)
        shard.close()
    env.schedule(1)
    other = env.new_shard(RequestTopicConfig(R, horizon_ms=60_000), place="1")
    env.until(other, lambda: env.ended() == 2)
    assert [reason for reason, _ in env.dead_letters()] == [b"beyond-horizon"]
    other.close()
    honest, until_ms = SimAdmin.end_offsets, env.time.now_ms + 2_000

    def end_offsets(admin: SimAdmin, parts: Iterable[Partition], *more: Any) -> Any:
        offsets = honest(admin, parts, *more)
        if _REQUESTS in offsets and env.time.now_ms < until_ms:
            offsets[_REQUESTS] = 2
        return offsets

    monkeypatch.setattr(SimAdmin, "end_offsets", end_offsets)
    shard = env.shard()
    env.until(shard, lambda: len(env.read("orders")) == 2, 120_000)
    dues = [dict(record.headers or [])["postdate-due"] for record in env.read("orders")]
    assert dues == [b"1", b"%d" % due_ms]
    shard.close()


def _reads_again(env: ShardEnvironment) -> Shard:
    """Returns a shard that is about to read again the requests that an earlier owner has read."""
    shard = env.shard()
    _deliver(env, shard, 3)
    _lose_disk(env, shard)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.CATCHING_UP)
    last = env.log()[-1]
    assert last.next_request == last.low_water < last.ingested_to
    return shard


def test_a_request_that_an_owner_has_accepted_stays_accepted_after_two_takeovers(env: ShardEnvironment) -> None:
    """At the second takeover, only the owner record of the first takeover shows that the request was read."""
    topic = RequestTopicConfig(R, pending_max=2)
    shard = env.shard(topic)
    env.schedule(env.time.now_ms + 60_000)
    env.until(shard, lambda: shard.next_request == 1)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    env.schedule(env.time.now_ms + 5_000)
    env.until(shard, lambda: shard.next_request == 3)
    env.schedule(1)  # over the limit: its fate shows that the previous request was read
    env.until(shard, lambda: env.ended() == 2)
    _lose_disk(env, shard)
    shard = env.new_shard(topic)
    env.until(shard, lambda: shard.state is State.CATCHING_UP)
    shard.close()
    shard = env.shard(topic)
    env.until(shard, lambda: env.ended() == 3)
    assert len(env.dead_letters()) == 1
    shard.close()


def test_the_record_behind_a_gap_repeats_how_far_requests_were_read(env: ShardEnvironment) -> None:
    shard = _reads_again(env)
    shard.close()
    read = env.log()[-1].ingested_to
    env.broker.log(_LOG).truncate(_end(env) - 2)  # its owner record, and the marker
    shard = _halt(env)
    assert shard.why.startswith("dispatch-log-truncated")
    assert env.log()[-1].ingested_to == read
    shard.close()


def test_the_only_record_of_a_log_that_lost_all_others_names_no_unread_request_as_read(env: ShardEnvironment) -> None:
    env.shard().close()
    env.broker.log(_LOG).truncate(0)
    shard = _halt(env)
    assert [record.ingested_to for record in env.log()] == [0]
    shard.close()


@pytest.mark.parametrize("stamps", ["LogAppendTime", "CreateTime"])
def test_the_loss_of_all_fates_is_noticed_without_a_disk(env: ShardEnvironment, stamps: str) -> None:
    """The log begins at offset 0 as before, but its only record is the mark that the halted owner has left."""
    env.broker.topics[R].configure({"message.timestamp.type": stamps})
    shard = env.shard()
    env.schedule(int(env.time.now_ms) + 600_000)
    env.until(shard, lambda: shard.next_request == 1)
    _deliver(env, shard, 3)
    shard.close()
    env.broker.log(_LOG).truncate(0)
    env.time.wait(60_000)
    shard = _halt(env)
    assert shard.why.startswith("dispatch-log-truncated")
    _lose_disk(env, shard)
    shard = _halt(env)
    assert shard.why.startswith("fates-missing")
    _accept(env)
    _pass(env, shard)
    assert _repeated(env) == []
    shard.close()


def test_an_owner_continues_after_its_owner_record(env: ShardEnvironment) -> None:
    shard = env.shard()
    assert shard._index is not None
    assert shard._index.checkpoint.next_dispatch == env.read(OWN.dispatch_log)[-1].offset + 1
    shard.close()


def test_the_record_behind_a_gap_repeats_the_named_policies(env: ShardEnvironment) -> None:
    """A later owner reads the policies only from the last record."""
    env.format_version = 2
    topic = RequestTopicConfig(R, retry_policies=("slow: base=1h, max=1h",))
    shard = env.shard(topic)
    _deliver(env, shard, 2)
    shard.close()
    policies = env.log()[-1].policies
    assert policies
    env.broker.log(_LOG).truncate(_end(env) - 2)
    shard = _halt(env, topic)
    assert shard.why.startswith("dispatch-log-truncated")
    assert env.log()[-1].policies == policies
    shard.close()


def test_a_new_policy_applies_to_the_requests_that_waited_when_the_log_was_truncated(env: ShardEnvironment) -> None:
    env.format_version = 2
    shard = env.shard()
    _deliver(env, shard, 2)
    shard.close()
    env.broker.log(_LOG).truncate(_end(env) - 2)
    env.ask(("postdate-topic", b"orders"), ("postdate-retry", b"slow"))
    shard = _halt(env, RequestTopicConfig(R, retry_policies=("slow: base=1h, max=1h",)))
    _accept(env)
    env.until(shard, lambda: shard.next_request == 3)
    env.until(shard, lambda: shard.state is State.RUNNING)
    assert env.dead_letters() == []
    assert parts(shard)[0].count == 1
    shard.close()


@pytest.mark.parametrize(("format_version", "is_named"), [(2, False), (3, True)])
def test_an_owner_that_decides_occurrences_names_its_time_zones(
    env: ShardEnvironment, format_version: int, is_named: bool
) -> None:
    env.format_version = format_version
    env.shard().close()
    assert env.log()[0].tz == (TZ_VERSION if is_named else UNSET)


def test_the_loss_of_requests_that_another_owner_has_read_is_noticed(env: ShardEnvironment) -> None:
    """The owner record of the last owner names these requests, although that owner did not read them again. If the loss
    went unnoticed, their offsets would be used twice."""
    shard = _reads_again(env)
    _lose_disk(env, shard)
    last = env.log()[-1]
    env.broker.log(_REQUESTS).truncate(last.low_water)
    shard = _halt(env)
    assert shard.why.startswith("requests-truncated")
    shard.close()


def test_a_loss_that_grew_before_its_acceptance_is_named_again(env: ShardEnvironment) -> None:
    topic, starts = RequestTopicConfig(R, store_after_ms=0), list[int]()
    shard = env.shard(topic)
    env.schedule(int(env.time.now_ms + 20 * _HOUR_MS))
    env.until(shard, lambda: shard.next_request == 1)
    shard.close()
    for number in range(5):
        starts.append(_end(env))
        shard = env.shard(topic)
        env.schedule(1)
        env.until(shard, lambda: env.ended() == number + 1)  # noqa: B023  # used at once
        shard.close()
        env.time.wait(2 * _HOUR_MS)
    (env.directory / "0").rename(env.directory / "lost")
    env.admin.delete_records({_LOG: starts[1]})
    shard = _halt(env, topic)
    first = shard.why
    env.admin.delete_records({_LOG: starts[3]})
    _accept(env)
    _pass(env, shard)
    assert shard.state is State.HALTED
    assert shard.why != first
    _accept(env)
    env.until(shard, lambda: shard.state is State.RUNNING)
    _pass(env, shard)
    assert _repeated(env) == []
    shard.close()


def test_fates_that_were_deleted_behind_a_stale_start_of_the_log_are_noticed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deposed leader does not know about the deletion, or retention deletes the fates after the leader has
    answered."""
    topic = RequestTopicConfig(R, store_after_ms=0)
    shard = env.shard(topic)
    env.schedule(env.time.now_ms + 20 * _HOUR_MS)
    _deliver(env, shard, 1)
    shard.close()
    env.time.wait(2 * _HOUR_MS)
    first = _end(env)
    shard = env.shard(topic)
    _lose_disk(env, shard)
    env.admin.delete_records({_LOG: first})
    honest, until_ms = SimAdmin.start_offsets, env.time.now_ms + 2_000

    def start_offsets(admin: SimAdmin, parts: Iterable[Partition], *more: Any) -> Any:
        offsets = honest(admin, parts, *more)
        return offsets | {part: 0 for part in offsets if part == _LOG and env.time.now_ms < until_ms}

    monkeypatch.setattr(SimAdmin, "start_offsets", start_offsets)
    monkeypatch.setattr(dispatch_tail, "TAIL_OFFSETS", 2)  # the search for the last record does not reach the start
    shard = env.new_shard(topic)
    env.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    _pass(env, shard, 1_000)
    assert _repeated(env) == []
    assert shard.why.startswith("fates-missing")
    shard.close()


def test_an_index_that_has_seen_everything_outlives_the_whole_dispatch_log(env: ShardEnvironment) -> None:
    shard = env.shard()
    _deliver(env, shard, 1)
    env.schedule(int(env.time.now_ms + _HOUR_MS / 2))
    env.until(shard, lambda: shard.next_request == 2)
    shard.close()
    env.admin.delete_records({_LOG: _end(env)})
    shard = env.shard()
    assert shard.state is State.RUNNING
    env.until(shard, lambda: len(env.read("orders")) == 2, _HOUR_MS)
    shard.close()


def test_repeatedly_interrupted_rebuilds_keep_the_copy_of_an_operator(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    _deliver(env, shard, 1)
    replay, left = takeover._replay, [4]

    def flaky(*given: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise Unreachable("no broker")
        replay(*given)

    monkeypatch.setattr(takeover, "_replay", flaky)
    instruct(env.directory / "0", Instruction(do=REBUILD))
    env.until(shard, lambda: takeovers(shard) == 2)
    assert [path.name for path in env.directory.glob("0.*")] == ["0.set-aside-1"]
    shard.close()


def test_requests_at_offsets_that_were_assigned_before_are_not_dropped(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(int(env.time.now_ms + _HOUR_MS / 2))
    _deliver(env, shard, 3)
    shard.close()
    env.broker.log(_REQUESTS).truncate(1)
    (env.directory / "0").rename(env.directory / "lost")
    for _ in range(2):
        env.schedule(1)
    shard = _halt(env)
    assert "requests-truncated" in shard.why
    shard.close()


def test_a_recreated_store_halts_the_index_that_relies_on_it(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(int(env.time.now_ms + 3 * _HOUR_MS))
    env.until(shard, lambda: env.log()[-1].low_water == 1, 200_000)
    shard.close()
    env.admin.delete_topics([OWN.store])
    env.admin.create_topics([NewTopic(OWN.store, 1, 1, {"message.timestamp.type": "LogAppendTime"})])
    shard = _halt(env)
    assert "topic-recreated" in shard.why
    assert "store_topic_id" in shard.why
    shard.close()


def test_an_accepted_loss_is_in_the_log_even_if_the_first_attempt_failed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    for _ in range(2):
        env.schedule(int(env.time.now_ms + 60_000))
    env.until(shard, lambda: shard.next_request == 2)
    shard.close()
    for _ in range(2):
        env.schedule(1)
    env.admin.delete_records({_REQUESTS: 4})
    shard = _halt(env)
    own, left = takeover.claim_ownership, [1]

    def flaky(*given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Unreachable("no broker")
        return own(*given)

    monkeypatch.setattr(takeover, "claim_ownership", flaky)
    _accept(env)
    env.until(shard, lambda: shard.state is State.RUNNING)
    assert [record.accepted for record in env.log() if record.kind == "owner"][-1] == [("requests-lost", R, 2, 4)]
    shard.close()


def _truncated(env: ShardEnvironment) -> Shard:
    """Returns a halted shard: the dispatch log has lost its last fates, and only the shard's index knows them."""
    shard = env.shard()
    env.schedule(int(env.time.now_ms + _HOUR_MS / 2))
    _deliver(env, shard, 3)
    shard.close()
    env.broker.log(_LOG).truncate(_end(env) - 4)
    return _halt(env)


def test_an_index_that_alone_knows_fates_is_not_rebuilt(env: ShardEnvironment) -> None:
    shard = _truncated(env)
    instruct(env.directory / "0", Instruction(do=REBUILD))
    _pass(env, shard)
    assert shard.state is State.HALTED
    assert _repeated(env) == []
    _accept(env)
    env.until(shard, lambda: shard.state is State.RUNNING)
    assert _repeated(env) == []
    shard.close()


def test_the_fates_of_a_truncated_log_are_not_forgotten_with_a_damaged_index(env: ShardEnvironment) -> None:
    shard = _truncated(env)
    (env.directory / "0" / "log" / "CURRENT").write_bytes(b"x")
    _accept(env)
    _pass(env, shard)
    assert shard.state is State.HALTED
    shard.close()
    shard = _halt(env)  # the next process does not forget them either
    assert "move" in shard.why.lower()
    shard.close()
    (kept,) = env.directory.glob("0.unusable-*")
    shutil.rmtree(kept)
    assert _repeated(env) == []


def test_an_old_disk_does_not_take_the_low_water_mark_back(env: ShardEnvironment) -> None:
    shard = env.shard()
    shard.close()
    shutil.copytree(env.directory / "0", env.directory / "old")
    shard = env.shard()
    _deliver(env, shard, 4)
    env.until(shard, lambda: env.log()[-1].low_water == 4, 200_000)
    shard.close()
    shutil.rmtree(env.directory / "0")
    (env.directory / "old").rename(env.directory / "0")
    shard = env.shard()
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 5)
    low_waters = [record.low_water for record in env.log()]
    assert low_waters == sorted(low_waters)
    assert _repeated(env) == []
    shard.close()


def test_damage_found_on_close_does_not_stop_the_rebuild(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    env.schedule(int(env.time.now_ms + 60_000))
    env.until(shard, lambda: shard.next_request == 1)
    index = shard._index
    assert index is not None
    close = index.close

    def damaged(*_given: Any, **_named: Any) -> None:
        close(clean=False)
        raise Corrupt("a block does not match its checksum")

    monkeypatch.setattr(index, "write", _damaged)
    monkeypatch.setattr(index, "close", damaged)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert shard.state is not State.HALTED
    env.until(shard, lambda: env.ended() == 2, 120_000)
    assert _repeated(env) == []
    shard.close()


def test_a_sweep_that_could_not_be_written_runs_again(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    env.schedule(int(env.time.now_ms + 50 * 60_000))
    env.until(shard, lambda: shard.next_request == 1)
    index, sweep = shard._index, Sweep(60_000)
    assert index is not None
    with monkeypatch.context() as patched:
        patched.setattr(index, "write", _full)
        with pytest.raises(DiskFull):
            sweep.step(index, int(env.time.now_ms + 61_000))
    assert sweep.step(index, int(env.time.now_ms + 61_000)) == 1
    shard.close()


def _damaged(*_given: Any) -> None:
    raise Corrupt("a block does not match its checksum")


def _full(*_given: Any) -> None:
    raise DiskFull("no space left")


def test_a_sweep_starts_again_after_a_rebuild(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(int(env.time.now_ms + 50 * 60_000))
    env.until(shard, lambda: shard.next_request == 1)
    assert shard._index is not None
    sweep, later_ms = Sweep(60_000), int(env.time.now_ms + 61_000)
    assert sweep.step(shard._index, later_ms) == 1
    shard._move_index_aside()  # before the sweep committed anything
    env.until(shard, lambda: takeovers(shard) == 2 and shard.next_request == 1)
    assert sweep.step(shard._index, later_ms) == 1
    shard.close()
