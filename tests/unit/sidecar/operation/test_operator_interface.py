"""Goal: an operator monitors and commands a shard through files alone, and the size and number of these files are
bounded.

Method: the real shard runs over the simulated broker, on a real directory. The commands run on that directory while the
shard runs, and after it was closed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.kafka.errors import NotAuthorized, Retriable
from postdate.kafka.interface import Isolation, NewTopic, Partition
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.context.pacing import TransactionBudget, TransactionThrottle
from postdate.sidecar.errors import Halted, HaltReason, Loss
from postdate.sidecar.operation.halts import ADVICE
from postdate.sidecar.operation.instructions import Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status, write_status
from postdate.sidecar.shard.limits import RECLAIM_QUIET_MS
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import State
from postdate.wheel import limits as wheel_limits
from postdate.wire.dispatch_log import decode_record
from support.deployments.sidecars import wait_until
from support.kafka_simulator.admin import SimAdmin
from support.repository import ROOT
from support.shards.simulated_shard import OWN, R, ShardEnvironment, takeovers

_HOUR_MS = 3_600_000


def _run(env: ShardEnvironment, *arguments: str) -> tuple[int, str, str]:
    data = env.directory.parent.parent
    done = CliRunner().invoke(postdate, ["shard", *arguments, "--data", str(data)])
    return done.exit_code, done.stdout, done.stderr


def _rows(env: ShardEnvironment) -> list[dict[str, Any]]:
    code, out, _ = _run(env, "status", "--output", "json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def _lose_requests(env: ShardEnvironment) -> Shard:
    """Returns a halted shard: two messages are pending, and two more requests were deleted before it read them."""
    shard = env.shard()
    for _ in range(2):
        env.schedule(env.time.now_ms + 60_000)
    env.until(shard, lambda: shard.next_request == 2)
    shard.close()
    for _ in range(2):
        env.schedule(1)
    env.admin.delete_records({Partition(R, 0): 4})
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    return shard


def test_the_status_shows_the_state_of_a_shard(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(env.time.now_ms + 60_000)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    env.until(shard, lambda: _rows(env)[0]["next_dispatch"] == shard._index.checkpoint.next_dispatch, 20_000)  # type: ignore[union-attr]
    (row,) = _rows(env)
    assert (row["requests"], row["partition"], row["cluster_id"], row["state"]) == (R, 0, "simulated", "RUNNING")
    assert (row["next_request"], row["pending"], row["takeover"], row["low_water"]) == (2, 1, 1, 0)
    assert (row["instance"], row["process_id"], row["served"]) == ("instance-1", os.getpid(), True)
    env.until(shard, lambda: _rows(env)[0]["lag"] == 0, 20_000)
    assert abs(_rows(env)[0]["skew_ms"]) < 50
    shard.close()
    (row,) = _rows(env)
    assert (row["state"], row["served"], row["pending"]) == ("UNASSIGNED", False, 1)


def test_an_idle_shard_seldom_writes_its_status(env: ShardEnvironment) -> None:
    shard = env.shard()
    path, seen, changes = env.directory / "0" / "status.json", b"", 0
    started = env.time.now_ms
    while env.time.now_ms < started + 60_000:
        env.until(shard, lambda at=env.time.now_ms + 500: env.time.now_ms >= at)  # type: ignore[misc]
        if path.read_bytes() != seen:
            seen, changes = path.read_bytes(), changes + 1
    assert 4 <= changes <= 12
    shard.close()


def test_holds_survive_an_accepted_loss(env: ShardEnvironment) -> None:
    shard = _lose_requests(env)
    code, out, _ = _run(env, "status")
    assert code == 0
    assert "HALTED" in out
    assert "requests [2, 4)" in out
    assert "--accept-loss 2-4" in out
    code, _, err = _run(env, "resume", f"{R}/0")
    assert (code, "--accept-loss 2-4" in err) == (2, True)
    assert _run(env, "resume", f"{R}/0", "--accept-loss", "2-5")[0] == 2
    instruct(env.directory / "0", Instruction(do="resume"))
    env.until(shard, lambda: not (env.directory / "0" / "instruction.json").exists(), 5_000)
    env.until(shard, lambda: shard.state is State.HALTED and takeovers(shard) == 0)  # without an acceptance
    instruct(env.directory / "0", _accept(env))
    env.until(shard, lambda: shard.state is State.RUNNING)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 3, 120_000)
    assert sorted(offset for fates in env.fates() for offset, _ in fates) == [0, 1, 4]
    owners = [record.accepted for record in env.log() if record.kind == "owner"]
    assert owners[-1] == [("requests-lost", R, 2, 4)]
    shard.close()


def _accept(env: ShardEnvironment) -> Instruction:
    status = read_status(env.directory / "0")
    assert status is not None
    return Instruction(do="resume", accept=status.loss)


def test_an_acceptance_must_name_the_loss_of_the_halt(env: ShardEnvironment) -> None:
    shard = _lose_requests(env)
    wide = Loss(HaltReason.REQUESTS_LOST, R, 0, 1_000, 0)
    instruct(env.directory / "0", Instruction(do="resume", accept=wide))
    env.until(shard, lambda: not (env.directory / "0" / "instruction.json").exists(), 5_000)
    assert shard.state is State.HALTED
    shard.close()


def test_an_instruction_waits_for_the_process_that_starts_later(env: ShardEnvironment) -> None:
    shard = _lose_requests(env)
    shard.close()
    code, _, err = _run(env, "resume", f"{R}/0", "--accept-loss", "2-4")
    assert (code, "the next process that does will carry it out" in err) == (0, True)
    shard = env.shard()
    assert shard._index is not None
    assert (shard._index.count, shard.next_request) == (2, 4)
    shard.close()


def test_a_rebuild_reads_everything_and_keeps_the_old_index(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(env.time.now_ms + 20_000)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert _run(env, "rebuild", f"{R}/0")[0] == 1  # without a confirmation
    instruct(env.directory / "0", Instruction(do="rebuild"))
    env.until(shard, lambda: takeovers(shard) == 2)
    assert [path.name for path in env.directory.glob("0.*")] == ["0.set-aside-1"]
    env.until(shard, lambda: env.ended() == 2)
    assert len(env.read("orders")) == 2
    shard.close()


def test_a_topic_recreated_beside_its_old_dispatch_log_is_recognized(env: ShardEnvironment) -> None:
    shard = env.shard()
    for _ in range(3):
        env.schedule(1)
    env.until(shard, lambda: env.ended() == 3)
    env.until(shard, lambda: env.log()[-1].low_water == 3, 200_000)
    shard.close()
    env.admin.delete_topics([R])
    env.admin.create_topics([NewTopic(R, 1, 1, {"message.timestamp.type": "LogAppendTime"})])
    env.schedule(1)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("topic-recreated")
    instruct(env.directory / "0", Instruction(do="rebuild"))
    env.until(shard, lambda: shard.why.startswith("requests-truncated"))
    assert env.ended() == 3
    shard.close()


@pytest.mark.parametrize(
    ("later", "may_rebuild"), [(HaltReason.TOPIC_RULES, False), (HaltReason.TOPIC_RECREATED, True)]
)
def test_a_kept_loss_allows_a_rebuild_only_for_new_topics(
    env: ShardEnvironment, later: HaltReason, may_rebuild: bool
) -> None:
    """Topics that were created again have none of the messages that only this index has."""
    shard = env.shard()
    operator = shard._operator
    operator.halted(Halted(HaltReason.REQUESTS_TRUNCATED, "", Loss(HaltReason.REQUESTS_TRUNCATED, R, 1, 2)))
    operator.halted(Halted(later, ""))
    assert operator.may_rebuild() is may_rebuild
    operator.report(State.HALTED, "", None, at_once=True)
    shard.close()
    code, _, error = _run(env, "rebuild", f"{R}/0", "--yes")
    assert ("a rebuild would deliver it again" in error, code) == (not may_rebuild, 0 if may_rebuild else 1)


def test_a_takeover_that_finds_two_problems_halts(env: ShardEnvironment) -> None:
    shard = env.shard()
    confirmation = shard._confirmation
    problems = [Halted(reason, "") for reason in (HaltReason.FATES_MISSING, HaltReason.SEQ_BROKEN)]
    for _ in range(3):
        for problem in problems:
            with pytest.raises(Retriable):
                confirmation.confirm(problem, None, None)
        env.time.wait(9_000)
    confirmation.confirm(problems[0], None, None)
    shard.close()


def test_a_fenced_shard_names_the_owner_and_takes_over_when_resumed(env: ShardEnvironment) -> None:
    shard = env.shard()
    other = env.new_shard(group_id="other", place="1")
    env.until(other, lambda: other.state is State.RUNNING)
    env.schedule(1)
    env.until(shard, lambda: shard.foreign, 30_000)
    env.until(shard, lambda: _rows(env)[0]["state"] == "FENCED", 5_000)
    assert "group other" in _rows(env)[0]["why"]
    other.close()
    instruct(env.directory / "0", Instruction(do="resume"))
    env.until(shard, lambda: env.ended() == 1)
    assert not shard.foreign
    shard.close()


def test_a_shard_gets_the_partition_that_the_topics_beside_it_lack(env: ShardEnvironment) -> None:
    env.admin.add_partitions({R: 2})
    shard = env.new_shard(place="1", partition=1)
    env.until(shard, lambda: shard.state is State.RUNNING)
    assert {len(env.broker.topics[name].logs) for name in OWN.names()} == {2}
    shard.close()


def test_if_own_topics_cannot_be_altered_only_the_new_shard_halts(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise NotAuthorized("no")

    env.admin.add_partitions({R: 2})
    monkeypatch.setattr(SimAdmin, "add_partitions", forbidden)
    shard = env.new_shard(place="1", partition=1)
    env.until(shard, lambda: shard.state is State.HALTED)
    assert "postdate topics create" in shard.why
    shard.close()


def test_directories_used_beside_a_held_one_do_not_pile_up(env: ShardEnvironment) -> None:
    for number in range(4):
        beside = env.directory / f"0.beside-{number}"
        (beside / "log").mkdir(parents=True)
        os.utime(beside, (number, number))
    shard = env.shard()
    assert sorted(path.name for path in env.directory.iterdir()) == ["0", "0.beside-3"]
    shard.close()


def test_a_held_directory_is_replaced_by_the_one_used_before(env: ShardEnvironment) -> None:
    holder = env.shard()
    names = []
    for _ in range(2):
        shard = env.shard()
        assert shard._index is not None
        names.append(shard._index.wheel_path.parent.name)
        env.until(shard, lambda: len(_rows(env)) == 1)
        shard.close()
    assert names[0] == names[1]
    assert names[0].startswith("0.beside-")
    holder.close()


def test_disk_space_is_given_back_when_nothing_is_due_for_a_while(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_limits, "RECLAIM_SIZE_BYTES_MIN", 1)
    shard = env.shard()
    index = shard._index
    assert index is not None
    done: list[bool] = []
    reclaim = index.reclaim

    def note() -> bool:
        done.append(reclaim())
        return done[-1]

    monkeypatch.setattr(index, "reclaim", note)
    step_ms = RECLAIM_QUIET_MS / 2
    for number in range(9):
        env.schedule(env.time.now_ms + number * step_ms)
    env.until(shard, lambda: env.ended() == 1)
    before = len(done)
    env.until(shard, lambda: env.ended() == 7)  # takes three times the interval, and some message is always due soon
    assert len(done) == before
    env.until(shard, lambda: len(done) > before, 60_000)
    assert True in done
    shard.close()


def test_every_halt_has_its_advice_and_its_place_in_the_runbook() -> None:
    assert set(ADVICE) == set(HaltReason)
    runbook = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [reason for reason in HaltReason if f"`{reason.value}`" not in runbook] == []


def test_a_malformed_status_file_counts_as_missing(tmp_path: Path, env: ShardEnvironment) -> None:
    shard = env.shard()
    status = read_status(env.directory / "0")
    assert status is not None
    write_status(tmp_path / "new", status)
    assert read_status(tmp_path / "new") == status
    (tmp_path / "new" / "status.json").write_bytes(b'{"v":1}')
    assert read_status(tmp_path / "new") is None
    (tmp_path / "new" / "status.json").write_bytes(b"x" * 100_000)
    assert read_status(tmp_path / "new") is None
    shard.close()


def test_a_loss_is_on_disk_before_the_status_that_names_it_is_there(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure could leave an empty file, and a truncated log that has grown since no longer shows its
    loss."""
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor) or sync(descriptor))  # type: ignore[func-returns-value]
    shard = env.shard()
    status = read_status(env.directory / "0")
    assert status is not None
    before = len(synced)
    write_status(env.directory / "0", status)
    assert len(synced) == before
    write_status(env.directory / "0", msgspec.structs.replace(status, loss=Loss(HaltReason.REQUESTS_LOST, R, 0, 1)))
    assert len(synced) == before + 2  # the file, and the directory that names it
    shard.close()


def test_no_message_is_repeated_after_an_accepted_loss_of_fates(env: ShardEnvironment) -> None:
    shard = env.shard()
    for _ in range(3):
        env.schedule(1)
    env.schedule(env.time.now_ms + _HOUR_MS / 2)
    env.until(shard, lambda: env.ended() == 3)
    env.until(shard, lambda: shard.next_request == 4)
    shard.close()
    (env.directory / "0").rename(env.directory / "lost")
    log = Partition(OWN.dispatch_log, 0)
    env.admin.delete_records({log: env.admin.end_offsets([log], Isolation.READ_UNCOMMITTED)[log] - 2})
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("fates-missing")
    env.schedule(1)  # written after the halt, so it cannot have ended
    instruct(env.directory / "0", _accept(env))
    env.until(shard, lambda: len(env.read("orders")) == 4, 60_000)
    origins = [dict(record.headers or [])["postdate-origin"] for record in env.read("orders")]
    assert origins == [b"%s/0/%d" % (R.encode(), offset) for offset in (0, 1, 2, 4)]
    assert decode_record(env.read(OWN.dispatch_log)[-1].value).low_water >= 4
    shard.close()


def test_an_unexpected_exception_delays_its_shard_which_then_continues(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, struck = Shard._run, threading.Event()

    def run(shard: Shard, *given: Any) -> float:
        if not struck.is_set():
            struck.set()
            raise RuntimeError("a mistake")
        return honest(shard, *given)

    monkeypatch.setattr(Shard, "_run", run)
    released = threading.Event()
    ctx = dataclasses.replace(env.new_shard().ctx, clock=SystemClock(), stopping=released.is_set)
    thread = ShardThread(ctx, TransactionThrottle(TransactionBudget(100), 0.0), released)
    wait_until(lambda: "RuntimeError in test_operator_interface.py:" in thread.shard.why, "it fails")
    assert thread.shard.state is not State.HALTED
    wait_until(lambda: thread.shard.state is State.RUNNING, "it goes on")
    thread.release()
    assert thread.join(30.0)
