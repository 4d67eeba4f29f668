"""Goal: a log that has lost its end repeats nothing and hides nothing, on whatever machine the shard is next.

Method: the real shard over the simulated broker; a log is truncated behind its back, and grows again. Then the shard
starts on its own disk, or on another one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from postdate.connectors.kafka.seam import Partition
from postdate.sidecar.instructions import Instruction, instruct
from postdate.sidecar.shard_status import read_status
from postdate.sidecar.states import State
from support.shard_bench import OWN, Bench, R


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _accept(bench: Bench) -> Instruction:
    told = read_status(bench.directory / "0")
    assert told is not None
    return Instruction(do="resume", accept=told.loss)


def test_a_halt_stands_until_somebody_resumes_it_although_the_log_has_grown_again(bench: Bench) -> None:
    """Requests that come to lie where others were read would be taken for those."""
    shard = bench.shard()
    for _ in range(3):
        bench.schedule(bench.time.now_ms + 60_000)
    bench.until(shard, lambda: shard.next_request == 3)
    shard.close()
    bench.broker.log(Partition(R, 0)).truncate(1)
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    shard.close()
    for _ in range(4):
        bench.schedule(1)
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("requests-truncated")
    instruct(bench.directory / "0", _accept(bench))
    bench.until(shard, lambda: bench.ended() == 5, 120_000)
    assert sorted(offset for fates in bench.fates() for offset, _ in fates) == [0, 1, 2, 3, 4]
    assert len(bench.read("orders")) == 5  # those that were read before, and those behind them
    shard.close()


def test_nobody_delivers_again_what_a_truncated_log_has_forgotten(bench: Bench) -> None:
    """The index that knows may be on another machine than the one that takes the shard over next."""
    shard = bench.shard()
    for count in range(1, 4):
        bench.schedule(1)
        bench.until(shard, lambda count=count: bench.ended() == count)  # type: ignore[misc]
    bench.schedule(bench.time.now_ms + 600_000)
    bench.until(shard, lambda: shard.next_request == 4)
    shard.close()
    bench.broker.log(Partition(OWN.dispatch_log, 0)).truncate(4)
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    assert shard.why.startswith("dispatch-log-truncated")
    shard.close()
    other = bench.new_shard(place="1")
    bench.until(other, lambda: other.state is State.HALTED)
    assert other.why.startswith("seq-broken")
    assert len(bench.read("orders")) == 3
    other.close()
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    assert sum(said.kind == "owner" for said in bench.log()) == 2  # one mark is enough
    instruct(bench.directory / "0", _accept(bench))
    bench.until(shard, lambda: shard.state is State.RUNNING)
    bench.schedule(1)
    bench.until(shard, lambda: len(bench.read("orders")) == 4)
    shard.close()


def test_requests_on_offsets_that_were_used_twice_are_not_read_by_another_disk_either(bench: Bench) -> None:
    shard = bench.shard()
    for _ in range(3):
        bench.schedule(bench.time.now_ms + 60_000)
    bench.until(shard, lambda: shard.next_request == 3)
    shard.close()
    bench.broker.log(Partition(R, 0)).truncate(1)
    shard = bench.new_shard()
    bench.until(shard, lambda: shard.state is State.HALTED)
    for _ in range(4):  # two of them on the offsets 1 and 2
        bench.schedule(1)
    instruct(bench.directory / "0", _accept(bench))
    bench.until(shard, lambda: bench.ended() == 2)
    shard.close()
    shard = bench.new_shard(place="1")
    bench.until(shard, lambda: bench.ended() == 3, 200_000)
    assert sorted(offset for fates in bench.fates() for offset, _ in fates) == [0, 3, 4]
    assert len(bench.read("orders")) == 3
    shard.close()
