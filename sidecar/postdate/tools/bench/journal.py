"""Reads the dispatch log and the targets of a run, from which the figures are computed.

`Journal` keeps the raw records and decodes them at the end, since decoding would take time from the measured processes.
Thread rule: an object belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from postdate.kafka.interface import Admin, Isolation, Kafka, LogReader, Partition, Record
from postdate.sidecar.errors import TransientError
from postdate.tools.bench.figures import Lateness
from postdate.tools.bench.limits import CASE_TIMEOUT_S, PARTITIONS, POLL_INTERVAL_S, READ_RECORDS_MAX
from postdate.wire import headers as names
from postdate.wire.dispatch_log import DELIVERED, OWNER, Fate, decode_record
from postdate.wire.topics import OwnTopics


class Journal:
    """Follows the dispatch log of one request topic from its beginning, committed records only."""

    def __init__(self, kafka: Kafka, requests: str, fate: str = DELIVERED) -> None:
        """Opens readers at the start of the log. `fate`: the fate to count."""
        self._fate, self._mark = fate, b'"' + fate.encode() + b'"'
        log = OwnTopics.of(requests).dispatch_log
        self._readers = [
            kafka.log_reader(Partition(log, index), 0, Isolation.READ_COMMITTED) for index in range(PARTITIONS)
        ]
        self._records: list[list[Record]] = [[] for _ in self._readers]
        self.counted = 0

    def follow(self, count: int, check: Callable[[], None]) -> None:
        """Reads on until `count` requests have the fate; `check` raises if that is no longer possible.

        Raises TransientError after CASE_TIMEOUT_S.
        """
        deadline = time.monotonic() + CASE_TIMEOUT_S
        while self.counted < count:
            if not self._read():
                check()
                if time.monotonic() > deadline:
                    raise TransientError(f"{self.counted} of {count} were {self._fate} in {CASE_TIMEOUT_S:.0f} s")
                time.sleep(POLL_INTERVAL_S)

    def _read(self) -> int:
        found = 0
        for reader, records in zip(self._readers, self._records, strict=True):
            taken = reader.read(READ_RECORDS_MAX, 0.0)
            records += taken
            self.counted += sum((record.value or b"").count(self._mark) for record in taken)
            found += len(taken)
        return found

    def close(self) -> None:
        """Drops the clients."""
        for reader in self._readers:
            reader.close()

    def seconds(self) -> float:
        """Returns the seconds from the first of the shards' latest takeovers to the last counted fate, by the broker's
        clock."""
        began = min(
            max(record.timestamp_ms for record in records if decode_record(record.value or b"").kind == OWNER)
            for records in self._records
        )
        return max(max(record.timestamp_ms for record in self._marked()) - began, 1) / 1000

    def senders(self) -> int:
        """Returns the number of processes that have written records with the counted fate."""
        return len({decode_record(record.value or b"").instance for record in self._marked()})

    def lateness(self, is_meant: Callable[[int], bool] = lambda due_ms: True) -> Lateness:
        """Returns the lateness of these fates: the broker's time of the transaction's record minus the due time. Omits
        fates whose due time `is_meant` rejects."""
        late = [at_ms - fate.first_due_ms for at_ms, fate in self.fates() if is_meant(fate.first_due_ms)]
        return np.array(late, dtype=np.float64)

    def fates(self) -> Iterator[tuple[int, Fate]]:
        """Yields each counted fate with the broker's time of its record, epoch ms."""
        for record in self._marked():
            for fate in decode_record(record.value or b"").fates:
                if fate.name == self._fate:
                    yield record.timestamp_ms, fate

    def _marked(self) -> Iterator[Record]:
        return (each for records in self._records for each in records if self._mark in (each.value or b""))


def read_to_end(
    admin: Admin, parts: Sequence[Partition], readers: Sequence[LogReader], read_new: Callable[[], int]
) -> None:
    """Calls `read_new` until each reader has reached the end that its partition has now. `read_new` reads the available
    records, and returns their number. Raises TransientError if it returns 0 after CASE_TIMEOUT_S."""
    ends = admin.end_offsets(parts, Isolation.READ_COMMITTED)
    deadline = time.monotonic() + CASE_TIMEOUT_S
    while any(reader.position() < ends[part] for part, reader in zip(parts, readers, strict=True)):
        if not read_new():
            if time.monotonic() > deadline:
                raise TransientError(f"the ends of the target were not reached in {CASE_TIMEOUT_S:.0f} s")
            time.sleep(POLL_INTERVAL_S)


class Arrivals:
    """A read_committed consumer of a target. The lateness of a message is its arrival, by this machine's clock, minus
    its due time."""

    def __init__(self, kafka: Kafka, target: str, partitions: int) -> None:
        self._parts = [Partition(target, index) for index in range(partitions)]
        self._readers = [kafka.log_reader(part, 0, Isolation.READ_COMMITTED) for part in self._parts]
        self._late: list[float] = []

    def read_new(self) -> int:
        """Reads the available records; returns their number."""
        noted = 0
        for reader in self._readers:
            records = reader.read(READ_RECORDS_MAX, 0.0)
            now_ms = time.time_ns() / 1_000_000
            self._late += [now_ms - _due_ms(record) for record in records]
            noted += len(records)
        return noted

    def take_all(self, admin: Admin) -> int:
        """Reads on to the end that the target has now. Returns the total number of arrivals. Raises as
        `read_to_end`."""
        read_to_end(admin, self._parts, self._readers, self.read_new)
        return self.count

    @property
    def count(self) -> int:
        """The number of arrivals so far."""
        return len(self._late)

    def lateness(self, first: int) -> Lateness:
        """Returns the lateness of the arrivals from number `first` on."""
        return np.array(self._late[first:], dtype=np.float64)

    def close(self) -> None:
        """Drops the clients."""
        for reader in self._readers:
            reader.close()


def _due_ms(record: Record) -> int:
    for name, value in record.headers or []:
        if name == names.DUE:
            return int(value or b"0")
    raise TransientError(f"a record of the target has no {names.DUE}: did another program produce it?")
