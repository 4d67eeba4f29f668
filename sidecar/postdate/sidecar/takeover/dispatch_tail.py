"""Reads a log of a shard up to an offset, and finds the last committed record of the dispatch log.

Thread rule: functions; each read creates and closes a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing

from postdate.kafka.errors import Retriable
from postdate.kafka.interface import Isolation, Partition, Record
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import Halted, HaltReason, Loss, ShardFenced
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.takeover.limits import (
    LOG_READ_S_MAX,
    LOG_READ_S_MIN,
    READ_RECORDS_MAX,
    RECOVERY_STALL_MS_MAX,
    TAIL_OFFSETS,
)
from postdate.wire.dispatch_log import DispatchRecord, decode_record
from postdate.wire.errors import FormatError, NewerFormat


class Stopped(ShardFenced):
    """The shard is being released, so its takeover ends. Nothing is lost."""


def read_log(ctx: ShardContext, part: Partition, start: int, end: int, apply: Callable[[list[Record]], None]) -> None:
    """Passes every committed record of `part` in [start, end) to `apply`, in order and in batches.

    Returns when the reader's position has reached `end`. The position decides, since markers and aborted records occupy
    offsets too. Raises Retriable if there is no progress for a while, for example because the partition has no leader
    or a foreign transaction is open. Raises Stopped, and the errors of `LogReader.read`.
    """
    for records in _batches(ctx, part, start, end, READ_RECORDS_MAX):
        apply(records)


def first_record(ctx: ShardContext, part: Partition, start: int, end: int) -> Record | None:
    """Returns the first committed record of `part` in [start, end); None if there is none. Raises as `read_log`."""
    with closing(_batches(ctx, part, start, end, 1)) as batches:
        return next((records[0] for records in batches), None)


def _batches(
    ctx: ShardContext, part: Partition, start: int, end: int, records_max: int
) -> Generator[list[Record], None, None]:
    """Yields non-empty batches of the records in [start, end), until the position has reached `end`."""
    reader = ctx.kafka.log_reader(part, start, Isolation.READ_COMMITTED)
    try:
        position, moved_at, wait_s = reader.position(), ctx.clock.steady_ms(), LOG_READ_S_MIN
        while position < end:
            if ctx.stopping():
                raise Stopped("revoked while reading the log")
            records = [record for record in reader.read(records_max, wait_s) if record.offset < end]
            wait_s = min(wait_s * 2, LOG_READ_S_MAX)
            if records:
                yield records
            if reader.position() > position:
                position, moved_at, wait_s = reader.position(), ctx.clock.steady_ms(), LOG_READ_S_MIN
            elif ctx.clock.steady_ms() - moved_at > RECOVERY_STALL_MS_MAX:
                raise Retriable(
                    f"no progress at offset {position} of {end} of {part.topic}/{part.index}: its leader is "
                    "unavailable, or a transaction is open there; recovery continues after that"
                )
    finally:
        reader.close()


def last_committed(
    ctx: ShardContext, start: int, end: int, acceptance: AcceptedLosses | None = None
) -> DispatchRecord | None:
    """Returns the last committed record of the dispatch log in [start, end), decoded; None if there is none.

    Raises as `decode` and `read_log`.
    """
    record = last_committed_record(ctx, start, end, acceptance or AcceptedLosses())
    return None if record is None else decode(ctx.log, record)


def last_committed_record(ctx: ShardContext, start: int, end: int, accepted: AcceptedLosses) -> Record | None:
    """Returns the last committed record of the dispatch log in [start, end), not decoded; None if there is none. Skips
    accepted foreign records. Reads windows that all end at `end`, each four times as long as the one before, until one
    contains a record. Raises as `read_log`."""
    span = TAIL_OFFSETS
    while start < end:
        first = max(start, end - span)
        last: list[Record] = []

        def keep(records: list[Record], last: list[Record] = last) -> None:
            ours = [record for record in records if not accepted.skips(ctx.log.topic, record.offset)]
            last[:] = ours[-1:] or last

        read_log(ctx, ctx.log, first, end, keep)
        if last:
            return last[0]
        if first == start:
            break
        span *= 4
    return None


def decode(log: Partition, record: Record) -> DispatchRecord:
    """Returns the decoded dispatch-log record. Raises Halted if another program or a newer version wrote the record."""
    try:
        return decode_record(record.value)
    except FormatError as error:
        raise unreadable_record_halt(log, record, error) from error


def unreadable_record_halt(log: Partition, record: Record, error: FormatError) -> Halted:
    """Returns the halt for a record in one of Postdate's topics that this program cannot read."""
    where = f"record {log.topic}/{log.index}/{record.offset}"
    if isinstance(error, NewerFormat):
        return Halted(HaltReason.NEWER_FORMAT, f"{where}: {error}; run that version here, then resume the shard")
    return Halted(
        HaltReason.FOREIGN_RECORD,
        f"{where} is not one of Postdate's ({error}): find who writes into {log.topic} and revoke its permission. "
        "To continue, accept that this record is skipped",
        Loss(HaltReason.FOREIGN_RECORD, log.topic, record.offset, record.offset + 1),
    )
