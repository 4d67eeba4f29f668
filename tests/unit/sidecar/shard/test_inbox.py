"""Goal: an inbox bounds the memory of keys, values and headers, and passes each request on once, whatever the order in
which its two threads act.

Method: the test makes the calls of both threads from one thread, in the relevant orders.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from postdate.kafka.interface import Headers, Record
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.limits import INBOX_SIZE_BYTES_MAX, TAKEN_RECORDS_MAX, TAKEN_SIZE_BYTES_MAX

_WAIT_S = 0.3


def record(offset: int, key: bytes | None = None, value: bytes | None = None, headers: Headers | None = None) -> Record:
    return Record(offset, 0, True, key, value, headers)


def open_inbox(offset: int = 0) -> Inbox:
    inbox = Inbox()
    inbox.restart(offset)
    inbox.started(offset)
    return inbox


def test_keys_and_headers_fill_an_inbox_as_values_do() -> None:
    half = bytes(INBOX_SIZE_BYTES_MAX // 2)
    for large in (record(0, key=half), record(0, value=half), record(0, headers=[("name", half), ("none", None)])):
        inbox = open_inbox()
        assert inbox.offer([record(0), large])
        assert not inbox.offer([large])
        assert not inbox.has_space()
        (first, *rest) = inbox.drain()
        inbox.put_back(rest)
        assert not inbox.has_space()
        assert inbox.drain() == rest
        assert inbox.drain() == [large]
        assert inbox.has_space()
        assert first == record(0)


def test_waiting_batches_are_taken_together_up_to_a_bound() -> None:
    """If each transaction took one batch, the inbox of a shard with slow transactions would only grow."""
    inbox = open_inbox()
    batches = [[record(2 * number), record(2 * number + 1)] for number in range(TAKEN_RECORDS_MAX)]
    for batch in batches:
        inbox.offer(batch)
    taken = [inbox.drain() for _ in range(3)]
    assert [len(records) for records in taken] == [TAKEN_RECORDS_MAX, TAKEN_RECORDS_MAX, 0]
    assert [each.offset for records in taken for each in records] == list(range(2 * TAKEN_RECORDS_MAX))
    assert inbox.records == 0
    large = [record(number, value=bytes(TAKEN_SIZE_BYTES_MAX // 2)) for number in range(5)]
    for each in large:
        inbox.offer([each])
    assert [len(inbox.drain()) for _ in range(4)] == [2, 2, 1, 0]
    assert inbox.has_space()


def test_a_batch_beyond_the_bound_is_taken_whole() -> None:
    inbox = open_inbox()
    records = [record(number) for number in range(TAKEN_RECORDS_MAX + 1)]
    inbox.offer(records)
    inbox.offer([record(TAKEN_RECORDS_MAX + 1)])
    assert inbox.drain() is records
    assert inbox.drain() == [record(TAKEN_RECORDS_MAX + 1)]


def test_many_small_headers_are_not_free() -> None:
    inbox = open_inbox()
    assert not inbox.offer([record(0, headers=[("", b"")] * 1_000_000)])


def test_a_start_that_was_overtaken_by_another_does_not_open_the_inbox() -> None:
    inbox = Inbox()
    inbox.restart(70)
    assert inbox.start_at == 70  # the poll thread moves the partition there, and the index is wiped meanwhile
    inbox.restart(5)
    inbox.started(70)
    assert inbox.start_at == 5
    assert inbox.offer([record(70)])
    assert inbox.drain() == [], "what lies between 5 and 70 would be passed over"
    inbox.started(5)
    assert inbox.start_at == -1
    inbox.offer([record(5)])
    assert inbox.drain() == [record(5)]


def test_a_position_is_returned_only_with_an_empty_inbox() -> None:
    inbox = Inbox()
    assert inbox.position_if_empty() == -1
    inbox.restart(3)
    assert inbox.position_if_empty() == -1
    inbox.started(3)
    inbox.note_position(8)
    assert inbox.position_if_empty() == 8
    inbox.offer([record(8), record(9)])
    assert inbox.position_if_empty() == -1
    inbox.drain()
    assert inbox.position_if_empty() == 10
    inbox.put_back([record(9)])
    assert inbox.position_if_empty() == -1


def _waited_s(inbox: Inbox, for_records: bool, happens: Callable[[], object]) -> float:
    """Returns the duration of a wait of at most _WAIT_S. Soon after it starts, `happens` runs in another thread."""
    timer = threading.Timer(_WAIT_S / 10, happens)
    started = time.monotonic()
    timer.start()
    inbox.wait(_WAIT_S, for_records=for_records)
    lasted = time.monotonic() - started
    timer.join()
    return lasted


@pytest.mark.parametrize("news", ["records", "position"])
def test_a_shard_that_waits_to_try_again_is_not_woken_by_requests(news: str) -> None:
    inbox = open_inbox()
    happens = {"records": lambda: inbox.offer([record(0)]), "position": lambda: inbox.note_position(1)}[news]
    assert _waited_s(inbox, for_records=False, happens=happens) >= _WAIT_S


@pytest.mark.parametrize("for_records", [True, False])
def test_a_wake_up_ends_the_sleep_of_a_shard(for_records: bool) -> None:
    inbox = open_inbox()
    inbox.wake()
    inbox.wait(3600.0, for_records=for_records)
