"""Queries of a shard's timer index from other threads. The shard's thread, which alone may use the index, answers them.

A RocksDB handle and its iterators belong to the shard's thread. So another thread passes a function of the index to
`query`, and the shard runs it between two of its steps, one query at a time. A query must be short (a few
milliseconds); a long one is split into slices, and the shard dispatches between them.

Once a second the shard also publishes some `IndexStats`, so that a scrape of metrics needs no query. A resting shard
publishes them when it wakes, since its figures cannot change before.

Thread rule: `serve` from the shard's thread; `query` from any other thread, `figures` from all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from postdate.sidecar.context.limits import FIGURES_INTERVAL_MS
from postdate.wheel.entry import decode_entry
from postdate.wheel.errors import TimerIndexError
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES

T = TypeVar("T")
Question = Callable[[TimerIndex], Any]


class Unanswered(Exception):
    """The shard did not answer in time: it has no index now, or is busy. The caller may ask again, or ask another
    process."""


class IndexStats(NamedTuple):
    """The content of an index at one time: counts of entries, offsets of the request topic."""

    next_request: int
    low_water: int
    oldest_ms: int
    """The timestamp of the oldest needed request or an earlier time, epoch ms; -1 if no request is needed, or if the
    time is unknown."""
    pending: int
    schedules: int | None
    """None: unknown."""
    ending: int
    parked: int
    wheel_rebuilds: int
    directory: Path


class _Query:
    def __init__(self, question: Question) -> None:
        self.question = question
        self.done = threading.Event()
        self.is_wanted = True
        self.result: Any = None
        self.error: Exception | None = None


class IndexQueries:
    """The waiting queries of one shard. `figures` is None until the shard has an index."""

    def __init__(self) -> None:
        self.figures: IndexStats | None = None
        self._waiting: deque[_Query] = deque()
        self._figures_at = 0.0

    def query(self, question: Callable[[TimerIndex], T], wake: Callable[[], None], timeout_s: float) -> T:
        """Runs `question` in the shard's thread; returns its result or raises its error. `wake` ends the shard's sleep.

        Raises Unanswered after `timeout_s`.
        """
        query = _Query(question)
        self._waiting.append(query)
        wake()
        if not query.done.wait(timeout_s):
            query.is_wanted = False
            with suppress(ValueError):  # the shard has just taken it
                self._waiting.remove(query)
            raise Unanswered(f"no answer within {timeout_s:g} s")
        if query.error is not None:
            raise query.error
        result: T = query.result
        return result

    @property
    def waits(self) -> bool:
        """True if a query waits for the shard."""
        return bool(self._waiting)

    def serve(self, index: TimerIndex, steady_ms: float) -> None:
        """Answers one query, and updates the figures once a second. Costs a comparison or two if there is nothing to
        do. Raises TimerIndexError if the index itself failed, since the shard must handle that too."""
        if steady_ms >= self._figures_at:
            self._figures_at = steady_ms + FIGURES_INTERVAL_MS
            self.figures = _figures(index, self.figures)
        while self._waiting:
            query = self._waiting.popleft()
            if query.is_wanted:
                self._answer(query, index)
                break

    def _answer(self, query: _Query, index: TimerIndex) -> None:
        try:
            query.result = query.question(index)
        except TimerIndexError as error:
            query.error = error
            raise
        except Exception as error:
            query.error = error
        finally:
            query.done.set()


def _figures(index: TimerIndex, before: IndexStats | None) -> IndexStats:
    next_request, low_water = index.checkpoint.next_request or 0, index.timer_log.low_water()
    oldest_ms = _accepted_ms(index, low_water) if low_water < next_request else -1
    if oldest_ms < 0 and low_water < next_request and before is not None:
        oldest_ms = before.oldest_ms  # the low-water mark follows ended entries slowly; the previous time is earlier
    return IndexStats(
        next_request=next_request,
        low_water=low_water,
        oldest_ms=oldest_ms,
        pending=index.count,
        schedules=index.checkpoint.schedules,
        ending=index.ending_count,
        parked=index.parked_count,
        wheel_rebuilds=index.rebuilds,
        directory=index.wheel_path.parent,
    )


def _accepted_ms(index: TimerIndex, offset: int) -> int:
    """Returns the timestamp of the pending request at this offset; -1 if there is none. Costs a few look-ups."""
    key = index.timer_log.find(offset)
    if key is None:
        return -1
    raw = index.timer_log.entry(key) if len(key) == ENTRY_KEY_SIZE_BYTES else index.timer_log.parked(key)
    return -1 if raw is None else decode_entry(raw).accepted_ms
