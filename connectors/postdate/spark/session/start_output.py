"""Reduces the output of Spark's JVM on standard error while it starts: progress instead of pages of Ivy's report.

The JVM inherits the file descriptor, so the lines are intercepted there: descriptor 2 points to a pipe while the JVM
starts, and a daemon thread reads the pipe for as long as the JVM lives. Later lines (only errors) are passed on. Not
for two threads at once: the descriptor belongs to the process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from postdate.spark.limits import START_LINES_KEPT

_STDERR = 2


class StartOutput:
    """A context for starting a JVM; `say` is called with one sentence for each downloaded jar."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lines: deque[str] = deque(maxlen=START_LINES_KEPT)
        self._is_starting = True
        self._is_at_end = threading.Event()

    def __enter__(self) -> Self:
        sys.stderr.flush()
        self._real = os.dup(_STDERR)
        read_end, write_end = os.pipe()
        os.dup2(write_end, _STDERR)
        os.close(write_end)
        threading.Thread(target=self._pass_on, args=(read_end,), name="spark-output", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stderr.flush()
        self._is_starting = False
        os.dup2(self._real, _STDERR)

    def last_lines(self) -> list[str]:
        """The last lines of the JVM's output; complete once it has ended."""
        sys.stderr.flush()
        os.dup2(self._real, _STDERR)  # a JVM that failed has closed its end; this closes ours
        self._is_at_end.wait(timeout=5)
        return list(self._lines)

    def _pass_on(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                self._lines.append(line.rstrip())
                if not self._is_starting:
                    os.write(self._real, line.encode())
                elif line.startswith("downloading "):
                    self._say(f"fetching {line.split()[1].rsplit('/', 1)[-1]}")
        self._is_at_end.set()
