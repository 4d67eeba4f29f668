"""The transaction coordinator: producer ids and epochs, the states of a transaction, and its end.

After `TransactionCoordinator.scala` and `TransactionMetadata.scala` of Apache Kafka, without KIP-890 part 2, which
librdkafka does not support: an epoch lasts until the next `init`. So a late EndTxn ends whatever transaction of that
epoch is open when it arrives (KAFKA-17754).

EndTxn decides the outcome; the markers follow, in each log separately. Until the last one is written, the next
transaction and `init` get CONCURRENT_TRANSACTIONS. A log without a leader gets its marker as soon as it has one; a
deleted log needs none.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import KafkaError

from postdate.kafka.interface import Partition
from support.kafka_simulator.error_responses import refusal
from support.kafka_simulator.faults import Faults
from support.kafka_simulator.time import SimTime

#: Milliseconds: the maximum delay of a late marker.
MARKER_MS_MAX = 400.0

#: Milliseconds: the pause before a marker is written again to a log without a leader that responds.
MARKER_RETRY_MS = 100.0

#: Writes a marker: partition, producer id, epoch, commit. False if the log cannot be written now.
WriteMarker = Callable[[Partition, int, int, bool], bool]


class Phase(Enum):
    """The states of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED = {True: Phase.PREPARE_COMMIT, False: Phase.PREPARE_ABORT}
_COMPLETE = {True: Phase.COMPLETE_COMMIT, False: Phase.COMPLETE_ABORT}


@dataclass
class _Identity:
    """The state of one transactional id. `number` counts its transactions: a timer of an earlier transaction is
    ignored."""

    producer: int
    timeout_ms: float
    epoch: int = 0
    phase: Phase = Phase.EMPTY
    parts: list[Partition] = field(default_factory=list)
    unmarked: set[Partition] = field(default_factory=set)
    number: int = 0


class TransactionCoordinator:
    """All transactional ids of the cluster. `decided` counts the ended transactions by cause."""

    def __init__(self, time: SimTime, faults: Faults, write_marker: WriteMarker) -> None:
        self._time = time
        self._faults = faults
        self._write_marker = write_marker
        self._ids: dict[str, _Identity] = {}
        self.away_until_ms = 0.0
        self.decided = {"commit": 0, "abort": 0, "timeout": 0, "fenced": 0, "late": 0}

    def init(self, tid: str, timeout_ms: float) -> tuple[int, int]:
        """Returns a producer id and the epoch that fences every older producer; aborts an open transaction first.

        Raises CONCURRENT_TRANSACTIONS until that transaction has ended.
        """
        self._here()
        found = self._ids.get(tid)
        if found is None:
            found = self._ids[tid] = _Identity(1_000 + len(self._ids), timeout_ms)
            return found.producer, found.epoch
        if found.phase is Phase.ONGOING:
            self.decided["fenced"] += 1
            found.epoch += 1
            self._decide(found, commit=False)
        self._settled(found)
        found.timeout_ms = timeout_ms
        found.epoch += 1
        found.phase = Phase.EMPTY
        return found.producer, found.epoch

    def bump(self, tid: str, producer: int, epoch: int) -> int:
        """Returns the next epoch for a producer that dropped records without knowing their outcome (KIP-360)."""
        self._here()
        found = self._known(tid, producer, epoch)
        self._settled(found)
        found.epoch += 1
        found.phase = Phase.EMPTY
        return found.epoch

    def add(self, tid: str, producer: int, epoch: int, part: Partition) -> None:
        """Adds a partition to the transaction; the first one begins it."""
        self._here()
        found = self._known(tid, producer, epoch)
        self._settled(found)
        if found.phase is not Phase.ONGOING:
            found.phase, found.parts = Phase.ONGOING, []
            found.number += 1
            number = found.number
            self._time.at(self._time.now_ms + found.timeout_ms, lambda: self._expire(found, number))
        if part not in found.parts:
            found.parts.append(part)

    def includes(self, tid: str, producer: int, epoch: int, part: Partition) -> bool:
        """True while the partition is part of an open transaction of this producer and epoch."""
        found = self._ids.get(tid)
        return (
            found is not None
            and (found.producer, found.epoch, found.phase) == (producer, epoch, Phase.ONGOING)
            and part in found.parts
        )

    def end(self, tid: str, producer: int, epoch: int, commit: bool, late: bool = False) -> None:
        """Handles EndTxn. A repeated request gets the same response as the first. `late`: the request is a late copy,
        which is counted separately."""
        self._here()
        found = self._known(tid, producer, epoch)
        if found.phase is Phase.ONGOING:
            self.decided["late" if late else "commit" if commit else "abort"] += 1
            self._decide(found, commit)
        elif found.phase is _PREPARED[commit]:
            raise refusal(KafkaError.CONCURRENT_TRANSACTIONS, "the transaction is still ending")
        elif found.phase is not _COMPLETE[commit]:
            raise refusal(KafkaError.INVALID_TXN_STATE, f"the transaction is {found.phase.value}")

    def usurp(self, tid: str) -> None:
        """Lets a foreign producer take over the id, if it exists, which fences its owner. The foreign producer does
        nothing more."""
        found = self._ids.get(tid)
        if found is None or found.phase in (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT):
            return
        found.epoch += 1
        if found.phase is Phase.ONGOING:
            self.decided["fenced"] += 1
            self._decide(found, commit=False)

    def phase(self, tid: str) -> Phase:
        """Returns the state of the transactional id; EMPTY if it is unknown."""
        found = self._ids.get(tid)
        return Phase.EMPTY if found is None else found.phase

    def _here(self) -> None:
        if self._faults.strikes("coordinator-away"):
            self.away_until_ms = self._time.now_ms + self._faults.between(100.0, 14_000.0)
        if self._time.now_ms < self.away_until_ms:
            raise refusal(KafkaError.COORDINATOR_NOT_AVAILABLE, "the coordinator is away")

    def _known(self, tid: str, producer: int, epoch: int) -> _Identity:
        found = self._ids.get(tid)
        if found is None or found.producer != producer:
            raise refusal(KafkaError.INVALID_PRODUCER_ID_MAPPING, f"{tid} does not belong to this producer")
        if found.epoch != epoch:
            raise refusal(KafkaError.PRODUCER_FENCED, f"{tid} has epoch {found.epoch} now, not {epoch}")
        return found

    def _settled(self, found: _Identity) -> None:
        if found.phase in (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT):
            raise refusal(KafkaError.CONCURRENT_TRANSACTIONS, "the last transaction is still ending")

    def _expire(self, found: _Identity, number: int) -> None:
        if found.phase is Phase.ONGOING and found.number == number:
            self.decided["timeout"] += 1
            found.epoch += 1
            self._decide(found, commit=False)

    def _decide(self, found: _Identity, commit: bool) -> None:
        found.phase, found.unmarked = _PREPARED[commit], set(found.parts)
        for part in found.parts:
            if self._faults.strikes("markers-late"):
                delay = self._faults.between(0.0, MARKER_MS_MAX)
                self._time.at(self._time.now_ms + delay, self._marking(found, part, commit))
            else:
                self._marking(found, part, commit)()

    def _marking(self, found: _Identity, part: Partition, commit: bool) -> Callable[[], None]:
        epoch = found.epoch

        def mark() -> None:
            if not self._write_marker(part, found.producer, epoch, commit):
                self._time.at(self._time.now_ms + MARKER_RETRY_MS, mark)
                return
            found.unmarked.discard(part)
            if not found.unmarked:
                found.phase = _COMPLETE[commit]

        return mark
