"""Verifies the bound of a recovery: no unread committed record may precede the first record of an ownership.

The bound is the end offset reported by the broker that the client considers the leader. A leader that was deposed while
it was frozen returns an old end offset, and recovery would miss the fates after it. A write, in contrast, is
acknowledged only by the current leader, and its offset is above those of all older records. So before its commit, the
first transaction of an ownership compares the offset of its dispatch-log record with D, the offset up to which recovery
has replayed the log (docs/protocol.md, takeover 7).

Thread rule: the shard's thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from postdate.kafka.errors import AbortRequired, KafkaFault
from postdate.kafka.interface import Isolation, Kafka, Partition
from postdate.sidecar.clock import Clock
from postdate.sidecar.transaction.limits import BOUND_CHECK_MS_MAX


class UnverifiedBound(AbortRequired):
    """The check failed: committed records that recovery did not read may precede the first record of the ownership. The
    transaction is aborted; the caller drops the ownership and takes over again."""


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """The check of the bound of one recovery. `replayed_to`: the offset up to which recovery has replayed the dispatch
    log."""

    kafka: Kafka
    log: Partition
    replayed_to: int
    clock: Clock

    def verify(self, offset: int) -> None:
        """Verifies that no committed record lies in [replayed_to, offset). `offset`: the offset of the record of the
        open transaction, at which a `read_committed` reader stops. Opens a reader only if `offset` is above
        `replayed_to`.

        Raises UnverifiedBound if there is such a record, if the range cannot be read in time, or if `offset` is below
        `replayed_to`, since the log has then lost its end.
        """
        if offset == self.replayed_to:
            return
        gap = (
            f"{self.log.topic}/{self.log.index} was replayed up to offset {self.replayed_to}, but the next is {offset}"
        )
        if offset < self.replayed_to:
            raise UnverifiedBound(f"{gap}: the log has lost its end")
        try:
            if self._holds_records(offset):
                raise UnverifiedBound(f"{gap}, and records lie between: the end came from a deposed leader")
        except UnverifiedBound:
            raise
        except KafkaFault as fault:
            raise UnverifiedBound(f"{gap}, and the records between cannot be read: {fault}", fault.code) from fault

    def _holds_records(self, offset: int) -> bool:
        deadline = self.clock.steady_ms() + BOUND_CHECK_MS_MAX
        reader = self.kafka.log_reader(self.log, self.replayed_to, Isolation.READ_COMMITTED)
        try:
            while reader.position() < offset:
                if any(record.offset < offset for record in reader.read(1, 0.1)):
                    return True
                if self.clock.steady_ms() >= deadline and reader.position() < offset:
                    raise UnverifiedBound(f"no reader got from offset {reader.position()} to {offset} in time")
        finally:
            reader.close()
        return False
