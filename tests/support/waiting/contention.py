"""Measures how long other programs kept the programs of a test from running; time limits exclude these waits.

A child process samples the kernel's pressure figures (`/proc/pressure`: how long tasks waited for a core or a disk),
and its own oversleep: how much later than planned it woke up. A wait counts only while processes outside the test's
process tree use the processor. So load that a test or a sidecar causes does not extend a limit, and on an idle machine
the limits hold unchanged.

The pressure is an average over the cores, so a single task may have waited for up to that figure times the number of
cores. Limits of milliseconds use this maximum (`most`). Steps that take seconds are chains of work by many programs, so
their limits use the average (`average`). Neither figure shows which program waited.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support.waiting.timeouts import WAIT_TIMEOUT_S

#: Seconds: the interval between two samples; and between two reads of processor usage, which the kernel counts in steps
#: of 10 ms.
_SAMPLE_S, _POLL_INTERVAL_S = 0.01, 0.25
#: The share of one core that other programs must use for a wait to count. On an idle machine they use less.
FOREIGN_SHARE = 0.1
_SAMPLER = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from support.waiting.contention import sample
sample(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class ContentionSample:
    """One sample: its time (epoch ms), its oversleep, the total pressure so far (ms), and the share of one core that
    other programs used around it."""

    at_ms: float
    overslept_ms: float
    pressure_ms: float
    foreign_share: float


@dataclass
class Waits:
    """The cumulative time for which other programs kept the programs of the test from running, as a function of
    time."""

    _at_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    _waited_ms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def most(cls, samples: Sequence[ContentionSample], cores: int) -> Waits:
        """Returns the maximum wait of a single task: the pressure of all cores together, or the sampler's oversleep if
        that is longer."""
        return cls._of(
            samples,
            [max(b.overslept_ms, cores * (b.pressure_ms - a.pressure_ms)) for a, b in pairwise(samples)],
        )

    @classmethod
    def average(cls, samples: Sequence[ContentionSample]) -> Waits:
        """Returns the average wait over the cores, which estimates the waiting time in a chain of steps by many
        programs. It is at least the sampler's oversleep, the only figure if the kernel does not measure pressure."""
        return cls._of(samples, [max(b.overslept_ms, b.pressure_ms - a.pressure_ms) for a, b in pairwise(samples)])

    @classmethod
    def _of(cls, samples: Sequence[ContentionSample], waits_ms: Sequence[float]) -> Waits:
        if not samples:
            return cls()
        waited = [0.0]
        for (before, after), wait_ms in zip(pairwise(samples), waits_ms, strict=True):
            is_disturbed = after.foreign_share >= FOREIGN_SHARE
            waited.append(waited[-1] + (min(wait_ms, after.at_ms - before.at_ms) if is_disturbed else 0.0))
        return cls(np.array([each.at_ms for each in samples]), np.array(waited))

    def between(self, from_ms: NDArray[np.float64], until_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns for each pair of times (epoch ms) how many of the ms between them were waits for other programs."""
        found = np.interp(until_ms, self._at_ms, self._waited_ms) - np.interp(from_ms, self._at_ms, self._waited_ms)
        return np.asarray(found, dtype=np.float64)

    def undisturbed(self, from_ms: Sequence[float], until_ms: Sequence[float]) -> NDArray[np.float64]:
        """Returns for each pair of times (epoch ms) the ms between them without the waits for other programs."""
        begins, ends = np.array(from_ms, dtype=np.float64), np.array(until_ms, dtype=np.float64)
        return np.asarray(ends - begins - self.between(begins, ends), dtype=np.float64)

    @property
    def share(self) -> float:
        """The waits as a share of the whole time."""
        lasted = float(self._at_ms[-1] - self._at_ms[0])
        return float(self._waited_ms[-1]) / lasted if lasted else 0.0


class Watch:
    """Samples until it is closed. Its curves may be queried at any time."""

    def __init__(self) -> None:
        self._samples: list[ContentionSample] = []
        self._sampler = subprocess.Popen(
            [sys.executable, "-c", _SAMPLER, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._sampler.stdout is not None
        assert self._sampler.stdout.readline() == "sampling\n"

    def most(self) -> Waits:
        """Returns the maximum wait of a single task up to now."""
        return Waits.most(self._taken(), os.cpu_count() or 1)

    def average(self) -> Waits:
        """Returns the average wait over the cores up to now."""
        return Waits.average(self._taken())

    def _taken(self) -> list[ContentionSample]:
        assert self._sampler.stdin is not None
        assert self._sampler.stdout is not None
        print(file=self._sampler.stdin, flush=True)
        while (line := self._sampler.stdout.readline().strip()) != "end":
            assert line, "the sampler has ended"
            self._samples.append(ContentionSample(*map(float, line.split())))
        return self._samples

    def close(self) -> None:
        self._sampler.kill()
        self._sampler.wait(WAIT_TIMEOUT_S)
        for pipe in (self._sampler.stdin, self._sampler.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def watch_contention() -> Iterator[Watch]:
    """Samples while the context lasts. Meanwhile disables the garbage collection of the test process: with 100,000
    records a full collection stops the reader for 0.4 s, and messages that arrive then would appear late."""
    watch, collects = Watch(), gc.isenabled()
    gc.disable()
    try:
        yield watch
    finally:
        if collects:
            gc.enable()
        watch.close()


def sample(own_pid: int) -> None:
    """Runs the sampler: for each line that it reads, it prints the samples since the previous one."""
    import select
    import time

    opened: list[int] = []
    for kind in ("cpu", "io"):
        with suppress(OSError):  # without these figures of the kernel, only the oversleep counts
            opened.append(os.open(f"/proc/pressure/{kind}", os.O_RDONLY))
    waiting: list[tuple[float, float, float]] = []  # samples whose share of foreign load is not known yet
    ready: list[str] = []
    polled, busy, own = time.monotonic(), busy_s(), used_s(own_pid)
    print("sampling", flush=True)
    while True:
        started = time.monotonic()
        time.sleep(_SAMPLE_S)
        now = time.monotonic()
        waiting.append((time.time() * 1000, (now - started - _SAMPLE_S) * 1000, _pressure_ms(opened)))
        is_requested = bool(select.select([sys.stdin], [], [], 0)[0])
        if now - polled >= _POLL_INTERVAL_S:
            busy_now, own_now = busy_s(), used_s(own_pid)
            share = max(busy_now - busy - max(own_now - own, 0.0), 0.0) / (now - polled)
            ready += [f"{at} {overslept} {pressure} {share}" for at, overslept, pressure in waiting]
            waiting.clear()
            polled, busy, own = now, busy_now, own_now
        if is_requested and not waiting:
            if not sys.stdin.readline():
                return
            print(*ready, "end", sep="\n", flush=True)
            ready.clear()


def _pressure_ms(opened: Sequence[int]) -> float:
    """Returns the ms for which some task waited for a core or a disk since the machine started."""
    firsts = [os.pread(each, 200, 0).partition(b"\n")[0] for each in opened]
    return sum(int(line.rpartition(b"total=")[2]) for line in firsts) / 1000


def busy_s() -> float:
    """Returns the seconds for which cores were busy or taken by the host since the machine started, summed over the
    cores."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def used_s(pid: int) -> float:
    """Returns the processor seconds of a process and all its descendants, including children that have exited.

    The children of every thread are read, and three brokers have hundreds of threads, so pathlib is too slow here.
    """
    ticks, left = 0, [pid]
    while left:
        each = left.pop()
        with suppress(OSError):
            fields = _read(f"/proc/{each}/stat").rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
            for task in os.listdir(f"/proc/{each}/task"):
                left += map(int, _read(f"/proc/{each}/task/{task}/children").split())
    return ticks / os.sysconf("SC_CLK_TCK")


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
