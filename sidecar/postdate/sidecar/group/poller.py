"""The poll thread: one member of the consumer group, which feeds the inboxes of its assigned shards.

Only this thread uses the group consumer, except for `confirm`. Shards never wait for this thread. It waits for shards
only when it releases them: then all of them together get some seconds to end their transactions and close.

The client may fail permanently. Then the thread closes it, releases all shards, and joins the group again with a new
client after a pause (`rejoining`).

Thread rule: `run` is the poll thread (the process's main thread). A signal handler may call `stop`, and any thread may
call `drain`, use `holds`, and read public attributes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from postdate.kafka.errors import KafkaFault, OtherProtocol, SettingRefused
from postdate.kafka.interface import GroupConsumer, Partition
from postdate.kafka.settings import log as client_log
from postdate.kafka.statistics import BrokerStatistics
from postdate.sidecar.group.hold_requests import HoldRequests
from postdate.sidecar.group.limits import (
    CONFIRM_TIMEOUT_S,
    GROUP_COMMIT_INTERVAL_S,
    POLL_RECORDS_MAX,
    POLL_TIMEOUT_S,
    REVOKE_WAIT_MS_MAX,
)
from postdate.sidecar.group.rejoining import Rejoining
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import DELIVERING, State

log = logging.getLogger(__name__)

# The interval of queries for read positions, which also pass markers and aborted records. The positions of resting
# shards are queried every _MEMBER_INTERVAL_S.
_POSITION_INTERVAL_S: Final = 0.2

_MEMBER_INTERVAL_S: Final = 1.0

# The shortest interval between checks of all inboxes: a poll may return a single record, and shards may be many.
_ATTEND_INTERVAL_S: Final = 0.01


class Poller:
    """Shards by partition, and the group consumer that feeds them. It is the consumer's `GroupListener`."""

    def __init__(
        self,
        consumer: GroupConsumer | None,
        start_shard: Callable[[Partition], ShardThread],
        report: Callable[[int], None],
        in_background: Callable[[Callable[[], None]], None] = lambda work: work(),
    ) -> None:
        """`consumer`: the first client; if it is None, `run` makes one. `in_background`: runs a function outside the
        poll thread; a simulation has no threads and calls the function directly."""
        self._client = consumer
        self._start_shard = start_shard
        self._report = report
        self._in_background = in_background
        self._confirmed: _Confirmed | None = None
        self._is_confirming = False
        self.shards: dict[Partition, ShardThread] = {}
        self._abandoned: list[ShardThread] = []
        self._paused: set[Partition] = set()
        self._committed: dict[Partition, int] = {}
        self._position_at = 0.0
        self._resting_position_at = 0.0
        self._commit_at = 0.0
        self._attend_at = 0.0
        self._reported = 0
        self._stopping = False
        self.turned_at = time.monotonic()
        """A time within the last round (monotonic, s); each round of a live poll loop is short."""
        self.member_id = ""
        """The member id of this process in the group; empty if it has not joined. Queried once a second until it is
        known, and as long as there are no shards."""
        self.statistics: tuple[BrokerStatistics, ...] = ()
        """The consumer's last measurements of its connections."""
        self._member_query_at = 0.0
        self.waits_for = ""
        """The reason why this process has not joined yet; empty once Kafka has answered."""
        self.failure: ClientFailure | None = None
        """The failure that left this process without a client, until it has a new one."""
        self.stands_by = ""
        """The reason why this process waits until members with another group protocol have left; empty if it does not
        wait."""
        self.holds = HoldRequests()
        """Requested changes of holds."""
        self.is_drained = False
        """True after a drain: this process takes no shards until it is restarted."""
        self._is_drain_requested = False

    def stop(self) -> None:
        """Asks `run` to end gracefully."""
        self._stopping = True

    def drain(self) -> None:
        """Asks `run` to hand all shards to the other members, and to stay without shards until `stop`."""
        self._is_drain_requested = True

    @property
    def is_member(self) -> bool:
        """True if this process has joined the group."""
        return bool(self.member_id or self.shards)

    @property
    def is_stopping(self) -> bool:
        """True after `stop`."""
        return self._stopping

    def run(self, topics: Sequence[str], new_client: Callable[[], GroupConsumer]) -> bool:
        """Serves until `stop`. Returns False if it ended because another deployment fenced every shard of this process.

        Raises ClientFailed if one client after the other failed, and SettingRefused if no client can be made.
        """
        rejoining = Rejoining()
        try:
            while not self._stopping:
                try:
                    if self._client is not None or self._join(topics, new_client, rejoining):
                        self._serve()
                except SettingRefused:
                    raise
                except KafkaFault as fault:
                    self.failure = ClientFailure(time.monotonic(), str(fault))
                    self.stands_by = str(fault) if isinstance(fault, OtherProtocol) else ""
                    self._leave()
                    rejoining.failed(fault, time.monotonic())
                if self.shards and all(thread.shard.foreign for thread in self.shards.values()):
                    return False
            return True
        finally:
            self._leave()

    def _join(self, topics: Sequence[str], new_client: Callable[[], GroupConsumer], rejoining: Rejoining) -> bool:
        """Makes a new client, and joins the group with it unless this process is drained. Returns False, after a short
        wait, if the pause after the last failure is not over."""
        self.turned_at = time.monotonic()
        pause_s = rejoining.joins_in_s(self.turned_at)
        if pause_s > 0:
            time.sleep(min(pause_s, POLL_TIMEOUT_S))
            return False
        self._client = new_client()
        if not self.is_drained:
            self._client.subscribe(topics, self)
        rejoining.joined(time.monotonic())
        self.failure = None
        return True

    def _leave(self) -> None:
        """Closes the client, if there is one, and releases all shards, even if the client cannot be closed cleanly."""
        self.member_id = ""
        try:
            if self._client is not None:
                self._client.close()
        except KafkaFault as fault:
            log.warning("the group's client could not leave the group cleanly: %s", fault)
        finally:
            self._client = None
            self._release(list(self.shards), REVOKE_WAIT_MS_MAX / 1000)
            self._report_delivering()

    @property
    def _consumer(self) -> GroupConsumer:
        assert self._client is not None, "only a member is served"
        return self._client

    # ---- GroupListener ---------------------------------------------------------------------------------------------

    def assigned(self, parts: Sequence[Partition]) -> None:
        log.info("assigned: %s", ", ".join(f"{p.topic}/{p.index}" for p in parts) or "nothing more")
        for part in parts:
            if part in self.shards:
                self._release([part], REVOKE_WAIT_MS_MAX / 1000)
            self.shards[part] = self._start_shard(part)
            self._paused.discard(part)

    def revoked(self, parts: Sequence[Partition]) -> None:
        log.info("revoked: %s", ", ".join(f"{p.topic}/{p.index}" for p in parts))
        self._commit_offsets()
        self._release(parts, REVOKE_WAIT_MS_MAX / 1000)
        self._report_delivering()

    def lost(self, parts: Sequence[Partition]) -> None:
        log.warning(
            "lost to another member: %s; nothing more is delivered for them from here",
            ", ".join(f"{p.topic}/{p.index}" for p in parts),
        )
        self._release(parts, 0.0)
        self.member_id = ""
        self._report_delivering()

    def _release(self, parts: Sequence[Partition], wait_s: float) -> None:
        threads = [self.shards.pop(part) for part in parts if part in self.shards]
        for part in parts:
            self._paused.discard(part)
            self._committed.pop(part, None)
        for thread in threads:
            thread.release()
        deadline = time.monotonic() + wait_s
        for thread in threads:
            if not thread.join(max(deadline - time.monotonic(), 0.0)):
                self._abandoned.append(thread)
        self._abandoned = [thread for thread in self._abandoned if not thread.join(0.0)]

    # ---- one round -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        if self._is_drain_requested and not self.is_drained:
            log.warning("drained: the other members take all shards, and this process takes none until it is restarted")
            self._consumer.leave()
            self.is_drained = True
        for part, records in self._consumer.poll(POLL_RECORDS_MAX, POLL_TIMEOUT_S):
            thread = self.shards.get(part)
            if thread is not None and records and not thread.inbox.offer(records):
                self._consumer.pause([part])
                self._paused.add(part)
        for fault_part, fault in self._consumer.errors():
            self._partition_error(fault_part, fault)
        self.holds.serve(self._consumer, self.shards)
        self.turned_at = now = time.monotonic()
        # Before `_attend`: a partition that it starts at another offset has no position until the next poll.
        if now >= self._position_at:
            self._position_at = now + _POSITION_INTERVAL_S
            includes_resting = now >= self._resting_position_at
            if includes_resting:
                self._resting_position_at = now + _MEMBER_INTERVAL_S
            self._note_positions(includes_resting)
        if now >= self._attend_at:
            self._attend_at = now + _ATTEND_INTERVAL_S
            for part in self._paused | {p for p, thread in self.shards.items() if thread.inbox.start_at >= 0}:
                self._attend(part, self.shards[part])
            self._report_delivering()
        if now >= self._member_query_at:
            self._member_query_at = now + _MEMBER_INTERVAL_S
            for thread in self.shards.values():
                thread.wake_if_needed()
            if not self.member_id or not self.shards:
                self.member_id = self._consumer.member_id()  # the query waits for the library's thread
            if self.is_member:
                self.stands_by = ""
            self.statistics = self._consumer.statistics()
        if now >= self._commit_at:
            self._commit_at = now + GROUP_COMMIT_INTERVAL_S
            self._commit_offsets()
            self._confirm_fenced()
        self._note_confirmed_ownership()

    def _attend(self, part: Partition, thread: ShardThread) -> None:
        inbox = thread.inbox
        start_at = inbox.start_at
        if start_at >= 0:
            try:
                self._consumer.start(part, start_at)
            except KafkaFault as fault:
                log.warning("partition %s/%d cannot be started: %s", part.topic, part.index, fault)
                return
            inbox.started(start_at)
            self._paused.discard(part)
        elif part in self._paused and inbox.has_space():
            self._consumer.resume([part])
            self._paused.discard(part)

    def _note_positions(self, includes_resting: bool) -> None:
        """Passes the read positions to the inboxes. One call of the client library for all shards."""
        read = [
            part
            for part, thread in self.shards.items()
            if thread.shard.state in DELIVERING
            and part not in self._paused
            and (includes_resting or not thread.is_resting)
        ]
        if read:
            for part, position in self._consumer.positions(read).items():
                self.shards[part].inbox.note_position(position)

    def _partition_error(self, part: Partition | None, fault: KafkaFault) -> None:
        if part is None:
            client_log.warning("the consumer reports: %s", fault)
            return
        thread = self.shards.get(part)
        if thread is not None:
            log.warning("partition %s/%d: %s", part.topic, part.index, fault)
            thread.shard.partition_fault(fault)

    def _commit_offsets(self) -> None:
        """Commits R of each delivering shard whose R has changed, with its holds. R is for lag tools; no owner resumes
        from it."""
        offsets: dict[Partition, int] = {}
        for part, thread in self.shards.items():
            read = thread.shard.next_request
            if read >= 0 and self._committed.get(part) != read and thread.shard.state in DELIVERING:
                offsets[part] = read
        if offsets:
            notes = {part: self.shards[part].shard.ctx.held.current.encode() for part in offsets}
            self._consumer.commit(offsets, notes)
            self._committed.update(offsets)

    def _confirm_fenced(self) -> None:
        """Asks the coordinator which fenced shards this member still holds: one request for all shards, outside the
        poll thread."""
        fences = {
            part: _fences(thread)
            for part, thread in self.shards.items()
            if thread.shard.state is State.FENCED and not thread.shard.foreign
        }
        if not fences or self._is_confirming:
            return
        self._is_confirming = True
        consumer = self._consumer

        def confirm() -> None:
            try:
                self._confirmed = _Confirmed(fences, consumer.confirm(list(fences), CONFIRM_TIMEOUT_S))
            finally:
                self._is_confirming = False

        self._in_background(confirm)

    def _note_confirmed_ownership(self) -> None:
        """Passes an answer of the coordinator on to the shards whose ownership it confirms."""
        answer, self._confirmed = self._confirmed, None
        if answer is None:
            return
        for part in answer.parts & self.shards.keys():
            thread = self.shards[part]
            if thread.shard.state is State.FENCED and _fences(thread) == answer.fences[part]:
                thread.shard.note_ownership_confirmed()

    def _report_delivering(self) -> None:
        delivering = sum(thread.shard.state in DELIVERING for thread in self.shards.values())
        if delivering != self._reported:
            self._reported = delivering
            self._report(delivering)


class ClientFailure(NamedTuple):
    """The time at which a client failed (monotonic, s), and the reason."""

    at: float
    why: str


class _Confirmed(NamedTuple):
    """An answer of the coordinator. `fences`: the queried partitions, each with the number of its fences at the query.
    `parts`: the confirmed partitions."""

    fences: dict[Partition, int]
    parts: frozenset[Partition]


def _fences(thread: ShardThread) -> int:
    """Returns the number of times that the shard was fenced in this process. A coordinator's answer is valid only if
    this number is unchanged."""
    return thread.shard.ctx.counts.states.entered[State.FENCED]
