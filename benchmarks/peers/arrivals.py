"""The messages that one receiver has received, and the figures that follow from them.

A receiver is a client program that writes a row of four big-endian 64-bit integers for each message to its stdout:
sequence number, due time (epoch ms), arrival (epoch microseconds), and position on the target (partition or queue in
the upper 16 bits, offset below). The first row has the sequence number -1: the receiver is ready.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from benchmarks.peers.errors import PeerFailed

Rows = npt.NDArray[np.int64]
Value = float | int | dict[str, int]

ROW_SIZE_BYTES = 32
READ_SIZE_BYTES = 1 << 20
#: Seconds: a JVM on a busy machine starts in some 10 s.
READY_TIMEOUT_S = 90.0
#: Seconds: the time between two checks of the arrivals.
POLL_INTERVAL_S = 0.02
#: The percentiles of lateness that a report shows.
PERCENTILES = (50, 99)
#: Milliseconds: the width of one step in the raw values of a drain.
STEP_MS = 100


def rows_of(data: bytes | bytearray) -> Rows:
    """Returns the rows in `data` as an array of shape (n, 4); an incomplete last row is left out."""
    whole = len(data) // ROW_SIZE_BYTES * ROW_SIZE_BYTES
    return np.frombuffer(bytes(data[:whole]), dtype=">i8").astype(np.int64).reshape(-1, 4)


def lateness_figures(rows: Rows, first_sequence: int = 0) -> dict[str, Value]:
    """Returns the lateness of the messages from `first_sequence` on, ms: percentiles, the largest value, the number of
    early messages, and the raw values as a histogram of whole milliseconds."""
    chosen = rows[rows[:, 0] >= first_sequence]
    if not len(chosen):
        raise PeerFailed("no message arrived after the warm-up")
    late_ms = chosen[:, 2] / 1_000 - chosen[:, 1]
    figures: dict[str, Value] = {f"p{p}_ms": round(float(np.percentile(late_ms, p)), 1) for p in PERCENTILES}
    steps, counts = np.unique(np.floor(late_ms).astype(np.int64), return_counts=True)
    return figures | {
        "max_ms": round(float(late_ms.max()), 1),
        "early": int((late_ms < 0).sum()),
        "messages_by_ms": {str(step): int(n) for step, n in zip(steps, counts, strict=True)},
    }


def drain_figures(rows: Rows, due_ms: int, count: int) -> dict[str, Value]:
    """Returns the rate of a drain, from the due time to the arrival of the last message, and arrivals by steps of 100
    ms.

    Raises PeerFailed if no message arrived.
    """
    if not len(rows):
        raise PeerFailed("no message arrived")
    after_ms = rows[:, 2] / 1_000 - due_ms
    steps, counts = np.unique((after_ms // STEP_MS).astype(np.int64) * STEP_MS, return_counts=True)
    return {
        "delivered_per_s": round(count / (float(after_ms.max()) / 1_000)),
        "first_ms": round(float(after_ms.min()), 1),
        "last_ms": round(float(after_ms.max()), 1),
        "messages_by_100_ms": {str(step): int(n) for step, n in zip(steps, counts, strict=True)},
    }


def count_figures(rows: Rows, count: int) -> dict[str, Value]:
    """Returns how many of `count` messages are lost, and how many are on the target more than once.

    A receiver may read the same position of the target again, for example after it has reconnected. This does not count
    as a repeat. Raises PeerFailed if a message arrived that was never sent.
    """
    if len(rows) and not 0 <= rows[:, 0].min() <= rows[:, 0].max() < count:
        raise PeerFailed("messages arrived that were never sent: the receiver's rows cannot be read")
    places = np.unique(rows[:, [0, 3]], axis=0)
    numbers, copies = np.unique(places[:, 0], return_counts=True)
    return {"lost": count - len(numbers), "twice": int((copies > 1).sum()), "records": len(places)}


class Receiver:
    """A receiving client program, and the messages received so far. The stderr of the program goes to `log`."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self._data = bytearray()
        self._log = log
        self._last = time.monotonic()
        with log.open("wb") as words:
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words, env=environment
            )
        self._thread = threading.Thread(target=self._read, name="receiver", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        try:
            self._wait(lambda: len(self._data) >= ROW_SIZE_BYTES, READY_TIMEOUT_S, "is not ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def count(self) -> int:
        """The number of received messages, including repeats."""
        return len(self._data) // ROW_SIZE_BYTES - 1

    def rows(self) -> Rows:
        """Returns all messages received so far, in order of arrival."""
        return rows_of(self._data)[1:]

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Returns when `count` messages have arrived. Raises PeerFailed after `timeout_s`."""
        self._wait(lambda: self.count >= count, timeout_s, f"has got fewer than {count:,} messages")

    def wait_for_all(self, count: int, silent_s: float, quiet_s: float = 0.0) -> None:
        """Returns when each of `count` messages has arrived, and then none for `quiet_s`. If some messages are missing,
        returns when none has arrived for `silent_s`."""
        checked, complete = -1, False
        while True:
            self._check()
            if not complete and self.count >= count and self.count != checked:
                checked = self.count
                complete = len(np.unique(self.rows()[:, 0])) >= count
            idle_s = time.monotonic() - self._last
            if idle_s >= (quiet_s if complete else silent_s):
                return
            time.sleep(POLL_INTERVAL_S)

    def wait_until(self, due_ms: int) -> None:
        """Waits until the due time. The time without an arrival counts from then on."""
        time.sleep(max(0.0, due_ms / 1_000 - time.time()))
        self.touch()

    def touch(self) -> None:
        """Counts the time without an arrival from now on."""
        self._last = time.monotonic()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while part := self._process.stdout.read1(READ_SIZE_BYTES):  # type: ignore[attr-defined]
            self._data += part
            self._last = time.monotonic()

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            self._check()
            if time.monotonic() > deadline:
                raise PeerFailed(f"after {timeout_s:.0f} s the receiver {what}:\n{self._words()}")
            time.sleep(POLL_INTERVAL_S)

    def _check(self) -> None:
        if self._process.poll() is not None:
            raise PeerFailed(f"the receiver ended:\n{self._words()}")

    def _words(self) -> str:
        return self._log.read_text(errors="replace")[-600:]
