"""Goal: an inbox is bounded in all that a record holds, and hands each request on once, whichever thread comes first.

Method: the calls of the two threads in the orders that matter, made by one; no thread is needed to show a bad order.
"""

from __future__ import annotations

from postdate.connectors.kafka.seam import Headers, Record
from postdate.sidecar.inbox import Inbox
from postdate.sidecar.limits import INBOX_SIZE_BYTES_MAX


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
        assert not inbox.has_room()
        (first, *rest) = inbox.take()
        inbox.put_back(rest)
        assert not inbox.has_room()
        assert inbox.take() == rest
        assert inbox.take() == [large]
        assert inbox.has_room()
        assert first == record(0)


def test_many_small_headers_are_not_free() -> None:
    inbox = open_inbox()
    assert not inbox.offer([record(0, headers=[("", b"")] * 1_000_000)])


def test_a_start_that_was_overtaken_by_another_does_not_open_the_inbox() -> None:
    inbox = Inbox()
    inbox.restart(70)
    assert inbox.start_at == 70  # the poll thread moves the partition there; meanwhile the index is wiped
    inbox.restart(5)
    inbox.started(70)
    assert inbox.start_at == 5
    assert inbox.offer([record(70)])
    assert inbox.take() == [], "what lies between 5 and 70 would be passed over"
    inbox.started(5)
    assert inbox.start_at == -1
    inbox.offer([record(5)])
    assert inbox.take() == [record(5)]


def test_a_position_is_only_told_together_with_an_empty_inbox() -> None:
    inbox = Inbox()
    assert inbox.position_if_empty() == -1
    inbox.restart(3)
    assert inbox.position_if_empty() == -1
    inbox.started(3)
    inbox.note_position(8)
    assert inbox.position_if_empty() == 8
    inbox.offer([record(8), record(9)])
    assert inbox.position_if_empty() == -1
    inbox.take()
    assert inbox.position_if_empty() == 10
    inbox.put_back([record(9)])
    assert inbox.position_if_empty() == -1
