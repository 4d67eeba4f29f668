"""Goal: an operator sees the state of a shard and commands it by files alone; the files in its directory are bounded.

Method: the real shard over the simulated broker, on a real directory; the commands are run on that directory while it
turns, and after it was closed.
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
from support.shards.simulated_shard import OWN, Bench, R, takeovers

_ROOT = Path(__file__).resolve().parents[2]
_HOUR_MS = 3_600_000


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Its shards lie where those of a data directory do."""
    directory = tmp_path / "simulated" / R
    directory.mkdir(parents=True)
    return Bench(directory)


def _run(bench: Bench, *arguments: str) -> tuple[int, str, str]:
    data = bench.directory.parent.parent
    done = CliRunner().invoke(postdate, ["shard", *arguments, "--data", str(data)])
    return done.exit_code, done.stdout, done.stderr


def _rows(bench: Bench) -> list[dict[str, Any]]:
    code, out, _ = _run(bench, "status", "--output", "json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def _lose_requests(bench: Bench) -> Shard:
    """A shard that halts: two messages are held, and two more were deleted before it read them."""
    shard = bench.shard()
    for _ in range(2):
        bench.schedule(bench.time.now_ms + 60_000)
    bench.until(shard, lambda: shard.next_request == 2)
    shard.close()
    for _ in range(2):
        bench.schedule(1)
    bench.admin.delete_records({Partition(R, 0): 4})
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    return shard


def test_the_status_shows_the_state_of_a_shard(bench: Bench) -> None:
    shard = bench.shard()
    bench.schedule(bench.time.now_ms + 60_000)
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    bench.until(shard, lambda: _rows(bench)[0]["next_dispatch"] == shard._index.next_dispatch, 20_000)  # type: ignore[union-attr]
    (row,) = _rows(bench)
    assert (row["requests"], row["partition"], row["cluster_id"], row["state"]) == (R, 0, "simulated", "RUNNING")
    assert (row["next_request"], row["pending"], row["takeover"], row["low_water"]) == (2, 1, 1, 0)
    assert (row["instance"], row["process_id"], row["served"]) == ("instance-1", os.getpid(), True)
    bench.until(shard, lambda: _rows(bench)[0]["lag"] == 0, 20_000)
    assert abs(_rows(bench)[0]["skew_ms"]) < 50
    shard.close()
    (row,) = _rows(bench)
    assert (row["state"], row["served"], row["pending"]) == ("UNASSIGNED", False, 1)


def test_an_idle_shard_seldom_writes_its_status(bench: Bench) -> None:
    shard = bench.shard()
    path, seen, changes = bench.directory / "0" / "status.json", b"", 0
    started = bench.time.now_ms
    while bench.time.now_ms < started + 60_000:
        bench.until(shard, lambda at=bench.time.now_ms + 500: bench.time.now_ms >= at)  # type: ignore[misc]
        if path.read_bytes() != seen:
            seen, changes = path.read_bytes(), changes + 1
    assert 4 <= changes <= 12
    shard.close()


def test_holds_survive_an_accepted_loss(bench: Bench) -> None:
    shard = _lose_requests(bench)
    code, out, _ = _run(bench, "status")
    assert code == 0
    assert "HALTED" in out
    assert "requests [2, 4)" in out
    assert "--accept-loss 2-4" in out
    code, _, err = _run(bench, "resume", f"{R}/0")
    assert (code, "--accept-loss 2-4" in err) == (2, True)
    assert _run(bench, "resume", f"{R}/0", "--accept-loss", "2-5")[0] == 2
    instruct(bench.directory / "0", Instruction(do="resume"))
    bench.until(shard, lambda: not (bench.directory / "0" / "instruction.json").exists(), 5_000)
    bench.until(shard, lambda: shard.state is State.HALTED and takeovers(shard) == 0)  # without it, it halts again
    instruct(bench.directory / "0", _accept(bench))
    bench.until(shard, lambda: shard.state is State.RUNNING)
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 3, 120_000)
    assert sorted(offset for fates in bench.fates() for offset, _ in fates) == [0, 1, 4]
    owners = [said.accepted for said in bench.log() if said.kind == "owner"]
    assert owners[-1] == [("requests-lost", R, 2, 4)]
    shard.close()


def _accept(bench: Bench) -> Instruction:
    told = read_status(bench.directory / "0")
    assert told is not None
    return Instruction(do="resume", accept=told.loss)


def test_an_acceptance_must_name_the_loss_of_the_halt(bench: Bench) -> None:
    shard = _lose_requests(bench)
    wide = Loss(HaltReason.REQUESTS_LOST, R, 0, 1_000, 0)
    instruct(bench.directory / "0", Instruction(do="resume", accept=wide))
    bench.until(shard, lambda: not (bench.directory / "0" / "instruction.json").exists(), 5_000)
    assert shard.state is State.HALTED
    shard.close()


def test_an_instruction_waits_for_the_process_that_starts_later(bench: Bench) -> None:
    shard = _lose_requests(bench)
    shard.close()
    code, _, err = _run(bench, "resume", f"{R}/0", "--accept-loss", "2-4")
    assert (code, "the next process that does will carry it out" in err) == (0, True)
    shard = bench.shard()
    assert shard._index is not None
    assert (shard._index.count, shard.next_request) == (2, 4)
    shard.close()


def test_a_rebuild_reads_everything_and_keeps_the_old_index(bench: Bench) -> None:
    shard = bench.shard()
    bench.schedule(bench.time.now_ms + 20_000)
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    assert _run(bench, "rebuild", f"{R}/0")[0] == 1  # nobody said yes
    instruct(bench.directory / "0", Instruction(do="rebuild"))
    bench.until(shard, lambda: takeovers(shard) == 2)
    assert [path.name for path in bench.directory.glob("0.*")] == ["0.set-aside-1"]
    bench.until(shard, lambda: bench.ended() == 2)
    assert len(bench.read("orders")) == 2
    shard.close()


def test_a_topic_recreated_beside_its_old_dispatch_log_is_recognized(bench: Bench) -> None:
    shard = bench.shard()
    for _ in range(3):
        bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 3)
    bench.until(shard, lambda: bench.log()[-1].low_water == 3, 200_000)
    shard.close()
    bench.admin.delete_topics([R])
    bench.admin.create_topics([NewTopic(R, 1, 1, {"message.timestamp.type": "LogAppendTime"})])
    bench.schedule(1)
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("topic-recreated")
    instruct(bench.directory / "0", Instruction(do="rebuild"))
    bench.until(shard, lambda: shard.why.startswith("requests-truncated"))
    assert bench.ended() == 3
    shard.close()


@pytest.mark.parametrize(
    ("later", "may_rebuild"), [(HaltReason.TOPIC_RULES, False), (HaltReason.TOPIC_RECREATED, True)]
)
def test_a_kept_loss_allows_a_rebuild_only_for_new_topics(bench: Bench, later: HaltReason, may_rebuild: bool) -> None:
    """Topics that were created again have none of the messages that only this index has."""
    shard = bench.shard()
    operator = shard._operator
    operator.halted(Halted(HaltReason.REQUESTS_TRUNCATED, "", Loss(HaltReason.REQUESTS_TRUNCATED, R, 1, 2)))
    operator.halted(Halted(later, ""))
    assert operator.may_rebuild() is may_rebuild
    operator.report(State.HALTED, "", None, at_once=True)
    shard.close()
    code, _, error = _run(bench, "rebuild", f"{R}/0", "--yes")
    assert ("a rebuild would deliver it again" in error, code) == (not may_rebuild, 0 if may_rebuild else 1)


def test_a_takeover_that_finds_two_problems_halts(bench: Bench) -> None:
    shard = bench.shard()
    confirmation = shard._confirmation
    problems = [Halted(reason, "") for reason in (HaltReason.FATES_MISSING, HaltReason.SEQ_BROKEN)]
    for _ in range(3):
        for problem in problems:
            with pytest.raises(Retriable):
                confirmation.confirm(problem, None, None)
        bench.time.wait(9_000)
    confirmation.confirm(problems[0], None, None)
    shard.close()


def test_a_fenced_shard_names_the_owner_and_takes_over_when_resumed(bench: Bench) -> None:
    shard = bench.shard()
    other = bench.new_shard(group_id="other", place="1")
    bench.until(other, lambda: other.state is State.RUNNING)
    bench.schedule(1)
    bench.until(shard, lambda: shard.foreign, 30_000)
    bench.until(shard, lambda: _rows(bench)[0]["state"] == "FENCED", 5_000)
    assert "group other" in _rows(bench)[0]["why"]
    other.close()
    instruct(bench.directory / "0", Instruction(do="resume"))
    bench.until(shard, lambda: bench.ended() == 1)
    assert not shard.foreign
    shard.close()


def test_a_shard_gets_the_partition_that_the_topics_beside_it_lack(bench: Bench) -> None:
    bench.admin.add_partitions({R: 2})
    shard = bench.new_shard(place="1", partition=1)
    bench.until(shard, lambda: shard.state is State.RUNNING)
    assert {len(bench.broker.topics[name].logs) for name in OWN.names()} == {2}
    shard.close()


def test_if_own_topics_cannot_be_altered_only_the_new_shard_halts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise NotAuthorized("no")

    bench.admin.add_partitions({R: 2})
    monkeypatch.setattr(SimAdmin, "add_partitions", forbidden)
    shard = bench.new_shard(place="1", partition=1)
    bench.until(shard, lambda: shard.state is State.HALTED)
    assert "postdate topics create" in shard.why
    shard.close()


def test_directories_used_beside_a_held_one_do_not_pile_up(bench: Bench) -> None:
    for number in range(4):
        beside = bench.directory / f"0.beside-{number}"
        (beside / "log").mkdir(parents=True)
        os.utime(beside, (number, number))
    shard = bench.shard()
    assert sorted(path.name for path in bench.directory.iterdir()) == ["0", "0.beside-3"]
    shard.close()


def test_a_held_directory_is_replaced_by_the_one_used_before(bench: Bench) -> None:
    holder = bench.shard()
    names = []
    for _ in range(2):
        shard = bench.shard()
        assert shard._index is not None
        names.append(shard._index.wheel_path.parent.name)
        bench.until(shard, lambda: len(_rows(bench)) == 1)
        shard.close()
    assert names[0] == names[1]
    assert names[0].startswith("0.beside-")
    holder.close()


def test_disk_space_is_given_back_when_nothing_is_due_for_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_limits, "RECLAIM_SIZE_BYTES_MIN", 1)
    shard = bench.shard()
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
        bench.schedule(bench.time.now_ms + number * step_ms)
    bench.until(shard, lambda: bench.ended() == 1)
    before = len(done)
    bench.until(shard, lambda: bench.ended() == 7)  # three times the interval, and something always due soon
    assert len(done) == before
    bench.until(shard, lambda: len(done) > before, 60_000)
    assert True in done
    shard.close()


def test_every_halt_has_its_advice_and_its_place_in_the_runbook() -> None:
    assert set(ADVICE) == set(HaltReason)
    told = (_ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [reason for reason in HaltReason if f"`{reason.value}`" not in told] == []


def test_a_malformed_status_file_counts_as_missing(tmp_path: Path, bench: Bench) -> None:
    shard = bench.shard()
    told = read_status(bench.directory / "0")
    assert told is not None
    write_status(tmp_path / "new", told)
    assert read_status(tmp_path / "new") == told
    (tmp_path / "new" / "status.json").write_bytes(b'{"v":1}')
    assert read_status(tmp_path / "new") is None
    (tmp_path / "new" / "status.json").write_bytes(b"x" * 100_000)
    assert read_status(tmp_path / "new") is None
    shard.close()


def test_a_loss_is_on_disk_before_the_status_that_names_it_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power leaves an empty file, and a truncated log that has grown since would show nothing."""
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor) or sync(descriptor))  # type: ignore[func-returns-value]
    shard = bench.shard()
    told = read_status(bench.directory / "0")
    assert told is not None
    before = len(synced)
    write_status(bench.directory / "0", told)
    assert len(synced) == before
    write_status(bench.directory / "0", msgspec.structs.replace(told, loss=Loss(HaltReason.REQUESTS_LOST, R, 0, 1)))
    assert len(synced) == before + 2  # the file, and the directory that names it
    shard.close()


def test_no_message_is_repeated_after_an_accepted_loss_of_fates(bench: Bench) -> None:
    shard = bench.shard()
    for _ in range(3):
        bench.schedule(1)
    bench.schedule(bench.time.now_ms + _HOUR_MS / 2)
    bench.until(shard, lambda: bench.ended() == 3)
    bench.until(shard, lambda: shard.next_request == 4)
    shard.close()
    (bench.directory / "0").rename(bench.directory / "lost")
    log = Partition(OWN.dispatch_log, 0)
    bench.admin.delete_records({log: bench.admin.end_offsets([log], Isolation.READ_UNCOMMITTED)[log] - 2})
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("fates-missing")
    bench.schedule(1)  # since the halt: it cannot have ended
    instruct(bench.directory / "0", _accept(bench))
    bench.until(shard, lambda: len(bench.read("orders")) == 4, 60_000)
    origins = [dict(record.headers or [])["postdate-origin"] for record in bench.read("orders")]
    assert origins == [b"%s/0/%d" % (R.encode(), offset) for offset in (0, 1, 2, 4)]
    assert decode_record(bench.read(OWN.dispatch_log)[-1].value).low_water >= 4
    shard.close()


def test_an_unexpected_exception_delays_its_shard_which_then_continues(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, struck = Shard._run, threading.Event()

    def run(shard: Shard, *given: Any) -> float:
        if not struck.is_set():
            struck.set()
            raise RuntimeError("a mistake")
        return honest(shard, *given)

    monkeypatch.setattr(Shard, "_run", run)
    released = threading.Event()
    ctx = dataclasses.replace(bench.new_shard().ctx, clock=SystemClock(), stopping=released.is_set)
    thread = ShardThread(ctx, TransactionThrottle(TransactionBudget(100), 0.0), released)
    wait_until(lambda: "RuntimeError in test_sidecar_operator_interface.py:" in thread.shard.why, "it fails")
    assert thread.shard.state is not State.HALTED
    wait_until(lambda: thread.shard.state is State.RUNNING, "it goes on")
    thread.release()
    assert thread.join(30.0)
