"""Goal: a query of a shard's index gets its result, its error, or a timely refusal, and does not disturb the shard.

Method: the test's thread owns a real timer index, and another thread queries it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from postdate.sidecar.context.index_queries import IndexQueries, Unanswered
from postdate.wheel.entry import Entry, Kind, encode_entry
from postdate.wheel.errors import Corrupt
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key
from postdate.wheel.timer_log.changes import EntryChanges
from support.shards.timer_indexes import open_index
from support.waiting.timeouts import WAIT_TIMEOUT_S


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimerIndex]:
    opened = open_index(tmp_path)
    changes = EntryChanges()
    entry = Entry(Kind.DELIVER, False, 9_000, 9_000, "orders", None, b"v", [], accepted_ms=1_234)
    changes.insert(entry_key(9_000, 7), encode_entry(entry))
    changes.firsts.append((7, (9_000).to_bytes(8, "little")))
    changes.next_request = 10
    opened.write(changes)
    yield opened
    opened.close()


@pytest.fixture
def elsewhere() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def query(
    elsewhere: ThreadPoolExecutor,
    index_queries: IndexQueries,
    question: Callable[[TimerIndex], int],
    timeout_s: float = WAIT_TIMEOUT_S,
) -> Future[int]:
    """Queries from another thread; returns after the query has called `wake`."""
    woken = threading.Event()
    future = elsewhere.submit(index_queries.query, question, woken.set, timeout_s)
    assert woken.wait(WAIT_TIMEOUT_S)
    return future


def test_the_owners_thread_answers_a_query(index: TimerIndex, elsewhere: ThreadPoolExecutor) -> None:
    index_queries, threads = IndexQueries(), []

    def question(queried: TimerIndex) -> int:
        threads.append(threading.current_thread())
        return queried.count

    future = query(elsewhere, index_queries, question)
    index_queries.serve(index, 0.0)
    assert future.result(WAIT_TIMEOUT_S) == 1
    assert threads == [threading.current_thread()]


def test_an_error_in_a_query_is_raised_only_to_its_caller(index: TimerIndex, elsewhere: ThreadPoolExecutor) -> None:
    index_queries = IndexQueries()
    future = query(elsewhere, index_queries, lambda _: 1 // 0)
    index_queries.serve(index, 0.0)
    with pytest.raises(ZeroDivisionError):
        future.result(WAIT_TIMEOUT_S)


def test_damage_found_by_a_query_is_also_raised_in_the_shard(index: TimerIndex, elsewhere: ThreadPoolExecutor) -> None:
    index_queries = IndexQueries()

    def question(_: TimerIndex) -> int:
        raise Corrupt("block checksum mismatch")

    future = query(elsewhere, index_queries, question)
    with pytest.raises(Corrupt):
        index_queries.serve(index, 0.0)
    with pytest.raises(Corrupt):
        future.result(WAIT_TIMEOUT_S)


def noting(notes: list[int], number: int) -> Callable[[TimerIndex], int]:
    """Returns a query that notes when it is answered."""

    def question(_: TimerIndex) -> int:
        notes.append(number)
        return number

    return question


def test_an_abandoned_query_is_not_answered(index: TimerIndex, elsewhere: ThreadPoolExecutor) -> None:
    index_queries, answered = IndexQueries(), list[int]()
    with pytest.raises(Unanswered, match=r"within 0\.01 s"):
        query(elsewhere, index_queries, noting(answered, 1), 0.01).result(WAIT_TIMEOUT_S)
    future = query(elsewhere, index_queries, noting(answered, 2))
    index_queries.serve(index, 0.0)
    assert future.result(WAIT_TIMEOUT_S) == 2
    assert answered == [2]


def test_one_query_per_turn(index: TimerIndex) -> None:
    index_queries, answered = IndexQueries(), list[int]()
    with ThreadPoolExecutor(3) as pool:
        futures = [query(pool, index_queries, noting(answered, number)) for number in range(3)]
        for turn in range(1, 4):
            index_queries.serve(index, 0.0)
            assert answered == [*range(turn)]
        assert [future.result(WAIT_TIMEOUT_S) for future in futures] == [0, 1, 2]


def test_figures_are_published_once_a_second(index: TimerIndex) -> None:
    index_queries = IndexQueries()
    index_queries.serve(index, 5_000.0)
    figures = index_queries.figures
    assert figures is not None
    assert (figures.pending, figures.next_request, figures.low_water, figures.oldest_ms) == (1, 10, 7, 1_234)
    changes = EntryChanges()
    later = Entry(Kind.DELIVER, False, 9_500, 9_500, "orders", None, b"v", [], accepted_ms=2_345)
    changes.insert(entry_key(9_500, 9), encode_entry(later))
    changes.firsts.append((9, (9_500).to_bytes(8, "little")))
    changes.delete(entry_key(9_000, 7), 10)
    index.write(changes)
    index_queries.serve(index, 5_999.0)
    assert index_queries.figures is figures
    index_queries.serve(index, 6_000.0)
    assert index_queries.figures is not None
    # The low-water mark lags behind ended requests. Until it is raised, the reported time is too early, but never -1.
    assert (index_queries.figures.low_water, index_queries.figures.oldest_ms) == (7, 1_234)
    index.raise_low_water()
    index_queries.serve(index, 7_000.0)
    assert (index_queries.figures.low_water, index_queries.figures.oldest_ms) == (9, 2_345)
    changes = EntryChanges()
    changes.delete(entry_key(9_500, 9), 10)
    index.write(changes)
    index_queries.serve(index, 8_000.0)
    assert (index_queries.figures.pending, index_queries.figures.oldest_ms) == (0, -1)
