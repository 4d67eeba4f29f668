"""Goal: a time limit excludes the waits that other programs cause, but none that the test's own programs cause.

Method: computes curves over handwritten samples; starts programs that burn processor time, as children of the test (its
own load) and as children of init (foreign load); runs the sampler itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from support.deployments.sidecars import wait_until
from support.waiting.contention import ContentionSample, Waits, busy_s, used_s, watch_contention

_BURN = "import time\nwhile time.process_time() < 0.5: pass"
#: Seconds: the minimum to measure. Each program burns a little more, since the figures are coarse.
_LEAST_S = 0.4


def test_waits_count_only_while_other_programs_run_and_up_to_the_elapsed_time() -> None:
    samples = [
        ContentionSample(1_000, 0, 50, 0.0),
        ContentionSample(1_100, 0, 90, 0.0),  # only the test's own load
        ContentionSample(1_200, 0, 100, 1.5),  # 10 ms on each of two cores
        ContentionSample(1_300, 30, 105, 0.5),  # the sampler itself waited for longer than the pressure figure
        ContentionSample(1_400, 0, 300, 2.0),  # the wait cannot exceed the interval of 100 ms
    ]
    waits = Waits.most(samples, cores=2)
    assert waits.undisturbed([1_000, 1_100, 1_200, 1_300, 1_350], [1_100, 1_200, 1_300, 1_400, 1_500]).tolist() == [
        100,
        80,
        70,
        0,
        100,
    ]
    assert round(waits.share, 3) == 0.375
    assert Waits.average(samples).undisturbed([1_100, 1_200, 1_300], [1_200, 1_300, 1_400]).tolist() == [90, 70, 0]
    assert Waits.average([]).undisturbed([5], [7]).tolist() == [2]
    without_pressure = [
        ContentionSample(1_000, 0, 0, 1.0),
        ContentionSample(1_100, 60, 0, 1.0),
        ContentionSample(1_200, 0, 0, 1.0),
    ]
    assert Waits.average(without_pressure).undisturbed([1_000], [1_200]).tolist() == [140]


def test_the_load_of_other_programs_is_separated_from_that_of_the_test() -> None:
    """Two programs burn half a second of processor time each: a child of the test, which counts as the test's own load
    even while it runs, and a child of init."""
    own, busy = used_s(os.getpid()), busy_s()
    burn_and_stay = [sys.executable, "-c", f"{_BURN}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(burn_and_stay, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        assert used_s(os.getpid()) - own >= _LEAST_S
        child.communicate(b"\n")
    between = used_s(os.getpid())
    assert between - own >= _LEAST_S
    assert busy_s() - busy >= _LEAST_S
    busy = busy_s()
    # A shell that ends at once leaves its child to init.
    start = ["sh", "-c", '"$0" -c "$1" >/dev/null & echo $!', sys.executable, _BURN]
    pid = int(subprocess.run(start, stdout=subprocess.PIPE, text=True, check=True).stdout)
    wait_until(lambda: not _runs(pid), "the other has ended")
    assert busy_s() - busy >= _LEAST_S
    assert used_s(os.getpid()) - between < _LEAST_S


def test_the_sampler_responds_to_each_query_and_its_curve_rises() -> None:
    with watch_contention() as watch:
        first = watch.most()
        began_ms = time.time() * 1000
        subprocess.run([sys.executable, "-c", _BURN], check=True)
        ended_ms = time.time() * 1000
        waits, average = watch.most(), watch.average()
    (undisturbed_ms,) = waits.undisturbed([began_ms], [ended_ms])
    assert 0 <= undisturbed_ms <= ended_ms - began_ms
    assert 0 <= first.share <= 1
    assert 0 <= average.share <= waits.share <= 1


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
