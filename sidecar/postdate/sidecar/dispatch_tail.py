"""Reading the dispatch log backwards: its last committed record, without reading all of it.

Thread rule: functions; each makes and closes a reader of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from postdate.connectors.kafka.seam import Isolation, Kafka, LogReader, Partition, Record
from postdate.connectors.wire.dispatch_log import DispatchRecord, decode_record
from postdate.connectors.wire.errors import FormatError, NewerFormat
from postdate.sidecar.clock import Clock
from postdate.sidecar.errors import Fenced, Halted, HaltReason, Loss
from postdate.sidecar.limits import RECOVERY_SLOW_MS, RECOVERY_STALL_MS_MAX, TAIL_OFFSETS
from postdate.sidecar.losses import Acceptance

log = logging.getLogger(__name__)


class Stopped(Fenced):
    """The shard was told to let go in the middle of a takeover: drop everything, nothing was lost."""


def read_until(
    reader: LogReader, end: int, clock: Clock, stopping: Callable[[], bool], take: Callable[[list[Record]], None]
) -> None:
    """Hand every record below offset `end` to `take`, in order, until the reader's position has reached `end`.

    Position, not a count and not an end-of-partition event: markers and aborted records occupy offsets too. Raises
    Halted when nothing moves for three minutes (a foreign transaction stays open), Stopped, and what `LogReader.read`
    raises.
    """
    for records in _batches(reader, end, clock, stopping, 10_000):
        take(records)


def read_first(reader: LogReader, end: int, clock: Clock, stopping: Callable[[], bool]) -> Record | None:
    """The first record below offset `end`, None where there is none. Raises as `read_until`."""
    return next((records[0] for records in _batches(reader, end, clock, stopping, 1)), None)


def _batches(
    reader: LogReader, end: int, clock: Clock, stopping: Callable[[], bool], records_max: int
) -> Iterator[list[Record]]:
    """Batches of the records below offset `end`, none of them empty, until the position has reached it."""
    position, moved_at, is_told = reader.position(), clock.steady_ms(), False
    while position < end:
        if stopping():
            raise Stopped("told to let go while reading the log")
        records = [record for record in reader.read(records_max, 0.2) if record.offset < end]
        if records:
            yield records
        if reader.position() > position:
            position, moved_at, is_told = reader.position(), clock.steady_ms(), False
        elif not is_told and clock.steady_ms() - moved_at > RECOVERY_SLOW_MS:
            is_told = True
            log.warning("waiting at offset %d of %d: a transaction is open there, or the broker is away", position, end)
        elif clock.steady_ms() - moved_at > RECOVERY_STALL_MS_MAX:
            raise Halted(
                HaltReason.RECOVERY_STALLED,
                f"no progress at offset {position} of {end} for {RECOVERY_STALL_MS_MAX // 1000} s: a "
                "transaction stays open on the log; see whose it is before it is ended, then resume the shard",
            )


def last_committed(
    kafka: Kafka,
    log: Partition,
    start: int,
    end: int,
    clock: Clock,
    stopping: Callable[[], bool],
    acceptance: Acceptance | None = None,
) -> DispatchRecord | None:
    """The last committed record of the dispatch log in [start, end), or None where there is none.

    Reads from the end in windows that double. Raises Halted for a record that is not ours, unless that was accepted,
    and as `read_until`.
    """
    span, accepted = TAIL_OFFSETS, acceptance or Acceptance()
    while start < end:
        first = max(start, end - span)
        last: list[Record] = []

        def keep(records: list[Record], last: list[Record] = last) -> None:
            ours = [record for record in records if not accepted.skips(log.topic, record.offset)]
            last[:] = ours[-1:] or last

        reader = kafka.log_reader(log, first, Isolation.READ_COMMITTED)
        try:
            read_until(reader, end, clock, stopping, keep)
        finally:
            reader.close()
        if last:
            return decode(log, last[0])
        if first == start:
            break
        span *= 4
    return None


def decode(log: Partition, record: Record) -> DispatchRecord:
    """The dispatch-log record; raises Halted where it is not one: somebody else wrote into the log."""
    try:
        return decode_record(record.value)
    except FormatError as error:
        raise not_ours(log, record, error) from error


def not_ours(log: Partition, record: Record, error: FormatError) -> Halted:
    """The halt at a record of one of our own topics that this program cannot read."""
    where = f"record {log.topic}/{log.index}/{record.offset}"
    if isinstance(error, NewerFormat):
        return Halted(HaltReason.NEWER_FORMAT, f"{where}: {error}; run that version here, then resume the shard")
    return Halted(
        HaltReason.FOREIGN_RECORD,
        f"{where} is not one of Postdate's ({error}): find who writes into {log.topic} and take their permission away. "
        "To go on means to pass over this record",
        Loss(HaltReason.FOREIGN_RECORD, log.topic, record.offset, record.offset + 1),
    )
