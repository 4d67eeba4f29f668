"""Goal: requests with the timestamps of their producers repeat nothing after a loss, and halt no shard without one.

Such a timestamp may lie any time ahead or behind. Method: the real shard over the simulated broker, whose request topic
keeps CreateTime; the dispatch log is cut or broken, and the shard starts without a disk.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from postdate.kafka.interface import Headers, Isolation, Partition
from postdate.sidecar.operation.instructions import RESUME, Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import BEAT, encode_record
from support.kafka_simulator.admin import SimAdmin
from support.shards.simulated_shard import OWN, Bench, R

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_LOG = Partition(OWN.dispatch_log, 0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Its broker takes any timestamp, as Kafka does by default before version 4."""
    directory = tmp_path / "simulated" / R
    directory.mkdir(parents=True)
    bench = Bench(directory)
    stamps = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(100 * _DAY_MS)}
    bench.broker.topics[R].configure(stamps)
    return bench


def _schedule(bench: Bench, created_ms: float) -> int:
    headers: Headers = [("postdate-topic", b"orders"), ("postdate-delay", b"1s")]
    return bench.broker.append(Partition(R, 0), b"k", b"v", headers, int(created_ms))[0]


def _deliver(bench: Bench, shard: Shard, count: int) -> None:
    for _ in range(count):
        _schedule(bench, bench.time.now_ms)
        due = bench.ended() + 1
        bench.until(shard, lambda: bench.ended() == due)  # noqa: B023  # used at once


def _start_without_disk(bench: Bench, shard: Shard) -> Shard:
    shard.close()
    shutil.rmtree(bench.directory / "0")
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    return shard


def _delete_log_but_the_last_record(bench: Bench) -> None:
    bench.admin.delete_records({_LOG: bench.read(OWN.dispatch_log)[-1].offset})


def _accept(bench: Bench, shard: Shard) -> None:
    status = read_status(bench.directory / "0")
    assert status is not None
    instruct(bench.directory / "0", Instruction(do=RESUME, accept=status.loss))
    bench.until(shard, lambda: shard.state is State.RUNNING)
    until_ms = bench.time.now_ms + 20_000
    bench.until(shard, lambda: bench.time.now_ms > until_ms)


def _delivered(bench: Bench) -> Counter[bytes | None]:
    return Counter(dict(record.headers or [])["postdate-origin"] for record in bench.read("orders"))


def test_deleted_fates_are_missed_behind_a_request_from_the_future(bench: Bench) -> None:
    """It stays pending and keeps the low-water mark, while requests behind it end and their fates expire."""
    shard = bench.shard()
    _schedule(bench, bench.time.now_ms + 6 * _DAY_MS)
    _deliver(bench, shard, 3)
    bench.time.wait(2 * _HOUR_MS)
    _deliver(bench, shard, 1)
    _delete_log_but_the_last_record(bench)
    shard = _start_without_disk(bench, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "fates-missing")
    late = _schedule(bench, bench.time.now_ms)  # was read by no owner: it is not lost
    _accept(bench, shard)
    delivered = {b"requests/0/%d" % offset: 1 for offset in (1, 2, 3, 4, late)}
    assert _delivered(bench) == delivered
    shard.close()


def test_no_fate_is_missed_behind_a_request_from_the_past(bench: Bench) -> None:
    """A program that repeats old input stamps its requests with the times of the input."""
    shard = bench.shard()
    _deliver(bench, shard, 3)
    bench.until(shard, lambda: bench.log()[-1].low_water == 3, 200_000)
    _delete_log_but_the_last_record(bench)
    _schedule(bench, bench.time.now_ms - 10 * _DAY_MS)
    shard = _start_without_disk(bench, shard)
    assert shard.state is State.RUNNING, shard.why
    bench.until(shard, lambda: len(bench.read("orders")) == 4)
    assert set(_delivered(bench).values()) == {1}
    shard.close()


def test_a_request_from_the_future_bounds_no_loss_behind_a_break_of_seq(bench: Bench) -> None:
    """Requests behind it have ended before the break."""
    shard = bench.shard()
    _schedule(bench, bench.time.now_ms + 6 * _DAY_MS)
    _deliver(bench, shard, 3)
    last = bench.log()[-1]
    forged = encode_record(msgspec.structs.replace(last, seq=last.seq + 2, kind=BEAT, fates=[]))
    bench.broker.append(_LOG, None, forged, [], 0)
    shard = _start_without_disk(bench, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "seq-broken")
    end = bench.admin.end_offsets([Partition(R, 0)], Isolation.READ_UNCOMMITTED)[Partition(R, 0)]
    assert f"requests [0, {end})" in shard.why
    _accept(bench, shard)
    assert _delivered(bench) == {b"requests/0/%d" % offset: 1 for offset in (1, 2, 3)}
    shard.close()


def test_an_owner_names_all_requests_that_another_one_has_ended(bench: Bench) -> None:
    """Its index has only their marks, and the dispatch log has lost all records that name them."""
    bench.shard().close()
    other = bench.new_shard(place="1")
    bench.until(other, lambda: other.state is State.RUNNING)
    _schedule(bench, bench.time.now_ms + 6 * _DAY_MS)
    _deliver(bench, other, 3)
    other.close()
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.CATCHING_UP)
    shard.close()
    bench.admin.delete_records({_LOG: bench.admin.end_offsets([_LOG], Isolation.READ_UNCOMMITTED)[_LOG]})
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.CATCHING_UP)
    assert bench.log()[-1].ingested_to == 4
    bench.until(shard, lambda: shard.state is State.RUNNING)
    _delete_log_but_the_last_record(bench)
    shard = _start_without_disk(bench, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "fates-missing")
    shard.close()


def test_an_aborted_record_from_the_future_bounds_no_loss(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker names it for the searched time, but the next committed request is older. The topic had CreateTime."""
    bench.broker.topics[R].configure({"message.timestamp.type": "LogAppendTime"})
    honest = SimAdmin.offset_for_time

    def offset_for_time(admin: SimAdmin, asked: Partition, timestamp_ms: int) -> int | None:
        return 1 if asked.topic == R else honest(admin, asked, timestamp_ms)

    shard = bench.shard()
    _deliver(bench, shard, 3)
    last = bench.log()[-1]
    forged = encode_record(msgspec.structs.replace(last, seq=last.seq + 2, kind=BEAT, fates=[], low_water=0))
    bench.broker.append(_LOG, None, forged, [], 0)
    monkeypatch.setattr(SimAdmin, "offset_for_time", offset_for_time)
    shard = _start_without_disk(bench, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "seq-broken")
    assert "requests [0, 3)" in shard.why
    shard.close()
