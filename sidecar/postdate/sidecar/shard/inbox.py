"""The bounded queue between the poll thread and one shard: batches of records, and the position of the reader.

The poll thread offers batches and never waits. If the inbox is full, `offer` returns False, and the poll thread pauses
the partition until the shard has emptied half of the inbox (hysteresis, so that a partition is not paused and resumed
for every batch). The shard waits here for records, a wake-up or a deadline.

Thread rule: `offer`, `note_position`, `has_space` and `started` from the poll thread, which also reads `start_at`;
`wake` and `records` from any thread; the other members from the shard's thread. One lock, held for a few list
operations per batch.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import msgspec

from postdate.kafka.interface import Record
from postdate.sidecar.shard.limits import (
    INBOX_RECORDS_MAX,
    INBOX_SIZE_BYTES_MAX,
    TAKEN_RECORDS_MAX,
    TAKEN_SIZE_BYTES_MAX,
)

# The size of a header beside its name and value: a tuple and two object headers.
_HEADER_SIZE_BYTES: Final = 100
_encode: Final = msgspec.msgpack.Encoder().encode


class Inbox:
    """Batches of one partition, in offset order. All records before offset `position` have been offered."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._batches: deque[tuple[list[Record], int]] = deque()  # with their sizes
        self._records = 0
        self._size_bytes = 0
        self._woken = False
        self._has_moved = False
        self.position = -1
        self.start_at = -1  # if not -1: the offset to read the partition from; batches are dropped until `started`
        self._waiting = True

    def offer(self, records: list[Record]) -> bool:
        """Adds a batch. Returns False if the partition should be paused, since the inbox is full. Drops the batch and
        returns True before the first `started`, and between `restart` and `started`."""
        size_bytes = _size_bytes(records)
        with self._condition:
            if self._waiting:
                return True
            self._batches.append((records, size_bytes))
            self._records += len(records)
            self._size_bytes += size_bytes
            self.position = records[-1].offset + 1
            self._condition.notify()
            return self._records < INBOX_RECORDS_MAX and self._size_bytes < INBOX_SIZE_BYTES_MAX

    def note_position(self, position: int) -> None:
        """Notes that the reader has passed everything below `position`. Ignored before the first `started`, and between
        `restart` and `started`."""
        with self._condition:
            if position > self.position and not self._waiting:
                self.position = position
                self._has_moved = True
                self._condition.notify()

    def has_space(self) -> bool:
        """True if a paused partition may be resumed."""
        return self._records <= INBOX_RECORDS_MAX // 2 and self._size_bytes <= INBOX_SIZE_BYTES_MAX // 2

    def drain(self) -> list[Record]:
        """Returns the records of the oldest batches, as many batches as one ingest may apply; an empty list if there
        are none.

        Under load the poll thread offers a batch every 10 ms or so, and a shard drains once for each transaction. If a
        shard took only one batch, it would fall behind whenever its transactions take longer than that.
        """
        taken: list[list[Record]] = []
        count = size_bytes = 0
        with self._condition:
            while self._batches:
                records, batch_bytes = self._batches[0]
                is_beyond = count + len(records) > TAKEN_RECORDS_MAX or size_bytes + batch_bytes > TAKEN_SIZE_BYTES_MAX
                if taken and is_beyond:
                    break
                taken.append(self._batches.popleft()[0])
                count, size_bytes = count + len(records), size_bytes + batch_bytes
            self._records -= count
            self._size_bytes -= size_bytes
        return taken[0] if len(taken) == 1 else [record for records in taken for record in records]

    def put_back(self, records: list[Record]) -> None:
        """Puts the unread rest of a batch back at the front of the inbox."""
        size_bytes = _size_bytes(records)
        with self._condition:
            self._batches.appendleft((records, size_bytes))
            self._records += len(records)
            self._size_bytes += size_bytes

    def restart(self, offset: int) -> None:
        """Drops everything, and accepts nothing until the poll thread has moved the partition to `offset`.

        Otherwise batches from the old position that are still on their way would leave a gap in the requests.
        """
        with self._condition:
            self._batches.clear()
            self._records = self._size_bytes = 0
            self.position = -1
            self.start_at, self._waiting = offset, True

    def started(self, offset: int) -> None:
        """Accepts batches again: the poll thread has moved the partition to `offset`.

        Does nothing if another restart was requested meanwhile; the poll thread handles that restart next.
        """
        with self._condition:
            if self.start_at == offset:
                self.start_at, self._waiting = -1, False

    def position_if_empty(self) -> int:
        """Returns the position if everything below it has been taken; -1 if records wait, or if nothing was read
        yet."""
        with self._condition:
            return -1 if self._batches else self.position

    @property
    def empty(self) -> bool:
        return not self._batches

    @property
    def records(self) -> int:
        """The number of waiting records."""
        return self._records

    def wake(self) -> None:
        """Ends the present or the next `wait`."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def wait(self, timeout_s: float, for_records: bool = True) -> None:
        """Waits until there are records or a new position (if they are wanted), a wake-up, or `timeout_s` has
        passed."""

        def is_over() -> bool:
            return self._woken or (for_records and (self._has_moved or bool(self._batches)))

        with self._condition:
            self._condition.wait_for(is_over, timeout_s)
            self._woken = self._has_moved = False


def _size_bytes(records: list[Record]) -> int:
    """Returns the approximate memory of the keys, values and headers of a batch. One pass. Encoding the headers to
    measure them is several times faster than a loop over them."""
    size_bytes = 0
    for record in records:
        if record.key:
            size_bytes += len(record.key)
        if record.value:
            size_bytes += len(record.value)
        if record.headers:
            size_bytes += _HEADER_SIZE_BYTES * len(record.headers) + len(_encode(record.headers))
    return size_bytes
