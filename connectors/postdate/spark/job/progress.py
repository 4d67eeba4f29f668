"""The progress of a job: sentences on standard error, and on a terminal a progress bar while Spark works.

The thread of the bar uses only Spark's status tracker, and ends with the context of `working`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_POLL_INTERVAL_S = 0.3


class Reporter:
    """Prints progress to standard error, so that standard output contains only the result."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def report(self, sentence: str) -> None:
        """Writes one line."""
        self._console.print(sentence, style="dim", markup=False)

    @contextmanager
    def working(self, spark: SparkSession, what: str) -> Iterator[None]:
        """Prints `what`; on a terminal, shows the number of finished Spark tasks until the context ends."""
        if not self._console.is_terminal:
            self.report(f"{what} …")
            yield
            return
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tasks]}"), TimeElapsedColumn()
        ended = threading.Event()
        with Progress(*columns, console=self._console) as bar:
            watcher = threading.Thread(
                target=_watch, args=(spark, bar, what, ended), name="spark-progress", daemon=True
            )
            watcher.start()
            try:
                yield
            finally:
                ended.set()
                watcher.join()


def _watch(spark: SparkSession, bar: Progress, what: str, ended: threading.Event) -> None:
    task = bar.add_task(what, total=None, tasks="")
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(_POLL_INTERVAL_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if total:
            bar.update(task, total=total, completed=done, tasks=f"{done}/{total} tasks")
    bar.update(task, total=1, completed=1, tasks="")
