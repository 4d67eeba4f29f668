"""The sidecar with one safeguard removed: the simulation must detect each of these mutations.

Every mutation is a patch that lasts for one run; the shipped code contains no hooks for it. If a second safeguard has
the same effect, the mutation removes both. For example, a recycled producer fences again, and then the log decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from postdate.kafka.errors import AbortRequired, UnknownOutcome
from postdate.kafka.interface import Isolation, Record
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.after_commit import finish
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due import batch_limit, due_reader
from postdate.sidecar.dispatch.due.due_reader import Due, DueReader
from postdate.sidecar.dispatch.due.own_topics_filter import OwnTopicsFilter
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.dispatch.undelivered_ends import UndeliveredEnds
from postdate.sidecar.index import apply_fates, apply_requests
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.ingest import ingest
from postdate.sidecar.takeover import takeover
from postdate.sidecar.transaction.bound_check import BoundCheck
from postdate.sidecar.transaction.transaction import Content, ShardOwnership
from postdate.sidecar.transaction.verdict_records import VerdictWriter
from postdate.wheel.entry import Entry, Kind, decode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.timing_wheel.wheel_file import WheelFile
from postdate.wire.dispatch_log import FATES, MOVED, Moved
from postdate.wire.requests.request import Action, Request
from postdate.wire.verdicts import Verdict
from support.kafka_simulator.producer import SimTransactionalProducer
from support.simulation.mutations.bulk import BULK_MUTATIONS
from support.simulation.mutations.cluster import CLUSTER_MUTATIONS
from support.simulation.mutations.fates import FATE_MUTATIONS
from support.simulation.mutations.ids import ID_MUTATIONS
from support.simulation.mutations.isolation import ISOLATION_MUTATIONS
from support.simulation.mutations.records import RECORD_MUTATIONS
from support.simulation.mutations.recovery import RECOVERY_MUTATIONS
from support.simulation.mutations.recurring import RECURRING_MUTATIONS
from support.simulation.plan import IDS
from support.simulation.requests.key_zero import key_zero_in_pieces
from support.simulation.requests.volume import VOLUME
from support.simulation.runtime.process import ShardActor
from support.simulation.runtime.simulated_run import SimulatedRun

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


def _no_marks(_: SimulatedRun) -> AbstractContextManager[object]:
    """Fates are forgotten if their requests are not ingested yet."""
    return patch.object(apply_fates, "_mark", lambda overlay, fate: None)


def _stable_end_as_bound(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery reads to the last stable offset, and the first transaction does not verify this bound: an open foreign
    transaction hides records that were committed after it began."""
    honest = takeover.bound
    stack = ExitStack()
    stack.enter_context(patch.object(BoundCheck, "verify", lambda self, offset: None))

    def bound(ctx: ShardContext, fenced: takeover.FencedShard) -> takeover.Bounded:
        bounded = honest(ctx, fenced)
        bounded.end = ctx.admin.end_offsets([ctx.log], Isolation.READ_COMMITTED)[ctx.log]
        return bounded

    stack.enter_context(patch.object(takeover, "bound", bound))
    return stack


def _delete_before_commit(_: SimulatedRun) -> AbstractContextManager[object]:
    """Entries are deleted locally before their transaction is committed."""

    def commit(
        self: Dispatcher,
        index: TimerIndex,
        ownership: ShardOwnership,
        overlay: IndexOverlay,
        batch: Batch,
        due: Due,
        _: Holds,
    ) -> bool:
        finish(overlay, batch)
        overlay.write()
        try:
            content = Content(FATES, batch.messages, batch.fates, batch.due_max_ms)
            offset = ownership.run(content, read_up_to(index), index.timer_log.low_water())
        except AbortRequired as fault:
            self._aborts.aborted(ownership, batch, due, fault)
            return False
        self._write(ownership, IndexOverlay(index), offset)
        return True

    return patch.object(Dispatcher, "_commit", commit)


@contextmanager
def _unknown_taken_as(done: bool) -> Iterator[None]:
    honest_commit, honest_abort = SimTransactionalProducer.commit, SimTransactionalProducer.abort
    honest_settle = SimTransactionalProducer.settle
    guessed: set[int] = set()

    def commit(self: SimTransactionalProducer) -> None:
        guessed.discard(id(self))
        try:
            honest_commit(self)
        except UnknownOutcome as fault:
            guessed.add(id(self))
            if not done:
                raise AbortRequired(str(fault), fault.code) from fault

    def abort(self: SimTransactionalProducer) -> None:
        if id(self) not in guessed:
            honest_abort(self)

    def settle(self: SimTransactionalProducer) -> bool:
        return id(self) in guessed or honest_settle(self)

    with ExitStack() as stack:
        for name, method in (("commit", commit), ("abort", abort), ("settle", settle)):
            stack.enter_context(patch.object(SimTransactionalProducer, name, method))
        yield


def _unknown_as_failed(_: SimulatedRun) -> AbstractContextManager[object]:
    """A commit without a response counts as failed, and is retried on the same producer."""
    return _unknown_taken_as(done=False)


def _unknown_as_done(_: SimulatedRun) -> AbstractContextManager[object]:
    """A commit without a response counts as committed."""
    return _unknown_taken_as(done=True)


def _no_recycle(_: SimulatedRun) -> AbstractContextManager[object]:
    """A producer whose last transaction ended suspiciously is used again: a late EndTxn then ends the next
    transaction."""
    return patch.object(SimTransactionalProducer, "settle", lambda self: True)


def _id_of_instance(_: SimulatedRun) -> AbstractContextManager[object]:
    """The transactional id names the process: a new owner does not fence the older owner, which continues to commit."""
    return patch.object(ShardContext, "transactional_id", property(lambda self: f"postdate/{self.instance}"))


def _id_of_deployment(_: SimulatedRun) -> AbstractContextManager[object]:
    """All shards have the same transactional id: they fence each other."""
    return patch.object(ShardContext, "transactional_id", property(lambda self: "postdate"))


def _dispatch_before_recovery(_: SimulatedRun) -> AbstractContextManager[object]:
    """Records that other owners have committed are skipped, not applied."""
    return patch.object(takeover, "apply_fate", lambda overlay, fate, next_request: None)


def _wheel_unchecked(_: SimulatedRun) -> AbstractContextManager[object]:
    """The content of the wheel file is trusted without a check."""
    return patch.object(WheelFile, "is_believed", lambda self, *_: True)


@contextmanager
def _cancel_answered_early(run: SimulatedRun) -> Iterator[None]:
    """A cancel gets its verdict when it is read: another owner may deliver the message before the transaction of the
    cancel is committed."""
    honest = apply_requests.apply_request
    honest_answer = VerdictWriter.to_control

    def early(overlay: IndexOverlay, record: Record, request: Any) -> int:
        pending = {offset for offset in range(record.offset) if apply_requests._pending(overlay, offset, None)}
        first_due: int = honest(overlay, record, request)
        if isinstance(request, Request) and request.action == Action.CANCEL:
            actor = run.scheduler.current
            assert isinstance(actor, ShardActor)
            ended = [offset for offset in pending if apply_requests._pending(overlay, offset, None) is None]
            verdict = Verdict.CANCELLED if ended else Verdict.NOT_FOUND
            verdicts = actor.shard._dispatcher._builder._verdicts
            message = verdicts.message(verdict, record.offset, request.id, ended[0] if ended else -1)
            log = run.broker.topics[message[1]].logs[message[2]]
            log.append(Record(-1, run.broker.now_ms(), False, message[3], message[4], []))
        return first_due

    def later(self: VerdictWriter, overlay: IndexOverlay, entry: Entry, offset: int) -> list[Any]:
        return [] if entry.reason == "cancel" else list(honest_answer(self, overlay, entry, offset))

    with patch.object(ingest, "apply_request", early), patch.object(VerdictWriter, "to_control", later):
        yield


def _controls_apart(_: SimulatedRun) -> AbstractContextManager[object]:
    """Rule 1: a batch limit may separate the end of an entry from the control that ended it."""
    return patch.object(DueReader, "_limits", lambda self, index: (1, 1 << 20))


@contextmanager
def _one_entry_too_many(_: SimulatedRun) -> Iterator[None]:
    """Rule 1: key 0 may have one more entry than fits into a dispatch-log record."""
    with patch.object(ingest, "ENDING_ENTRIES_MAX", 5_000), patch.object(batch_limit, "ENDING_ENTRIES_MAX", 5_000):
        yield


@contextmanager
def _careless_pieces(run: SimulatedRun) -> Iterator[None]:
    """Rule 1: key 0 is isolated, and split after any entry, even if later entries act on that entry."""

    def piece(offsets: Sequence[int], acts_on: Sequence[int], most: int) -> list[int]:
        return list(range(min(len(offsets), most)))

    with key_zero_in_pieces(run), patch.object(due_reader, "first_piece", piece):
        yield


@contextmanager
def _messages_beside_controls(run: SimulatedRun) -> Iterator[None]:
    """Rule 4: key 0 is isolated, and messages leave although an entry under key 0 acts on them."""
    with key_zero_in_pieces(run), patch.object(OwnTopicsFilter, "takes", lambda self, *_: self.own_left is None):
        yield


def _decided_early(_: SimulatedRun) -> AbstractContextManager[object]:
    """Rule 2: a reschedule gets the fate `moved` even if its message has already ended."""
    honest = UndeliveredEnds._apply

    def decide(self: UndeliveredEnds, batch: Batch, overlay: IndexOverlay, entry: Entry, offset: int) -> None:
        gone = entry.acts_on >= 0 and overlay.find(entry.acts_on) is None
        if gone and entry.new_due >= 0:
            batch.fates.append(Moved(entry.acts_on, 0, MOVED, entry.new_due, offset))
        honest(self, batch, overlay, entry, offset)

    return patch.object(UndeliveredEnds, "_apply", decide)


def _messages_first(_: SimulatedRun) -> AbstractContextManager[object]:
    """Rule 4: messages leave before the controls that are waiting."""
    honest = TimerIndex.scan_due

    def scan(self: TimerIndex, *arguments: Any, **more: Any) -> tuple[list[bytes], list[bytes]]:
        keys, values = honest(self, *arguments, **more)
        pairs = [pair for pair in zip(keys, values, strict=True) if decode_entry(pair[1]).kind == Kind.DELIVER]
        return ([key for key, _ in pairs], [value for _, value in pairs]) if pairs else (keys, values)

    return patch.object(TimerIndex, "scan_due", scan)


def _rates_overtaken(_: SimulatedRun) -> AbstractContextManager[object]:
    """Later messages overtake a message that waits for the rate of its target, if the rate permits messages again."""
    honest = TargetRates.admits

    def admits(self: TargetRates, target: str, key: bytes, sent: Mapping[str, int]) -> bool:
        bucket = self._bucket(target)
        waits = bucket is not None and bucket.waits
        if bucket is not None and waits:
            bucket.waits = False
        admitted = honest(self, target, key, sent)
        if bucket is not None and waits:
            bucket.waits = True
        return admitted

    return patch.object(TargetRates, "admits", admits)


#: Name -> the mutation, and the theme of the runs that must detect it.
MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "no T marks": (_no_marks, ""),
    "LSO as the bound, not verified": (_stable_end_as_bound, "stranger"),
    "local delete before commit": (_delete_before_commit, ""),
    "unknown commit taken as failed": (_unknown_as_failed, "unknown"),
    "unknown commit taken as done": (_unknown_as_done, "unknown"),
    "no recycle": (_no_recycle, "torn"),
    "one tid for an instance": (_id_of_instance, ""),
    "one tid for all shards": (_id_of_deployment, ""),
    "dispatch before recovery": (_dispatch_before_recovery, ""),
    "wheel believed without its checks": (_wheel_unchecked, "power"),
    "cancel answered before its commit": (_cancel_answered_early, "controls"),
    "rule 1: controls apart": (_controls_apart, "controls"),
    "rule 1: one entry too many": (_one_entry_too_many, VOLUME),
    "rule 1: careless pieces of key 0": (_careless_pieces, "controls"),
    "rule 4: messages beside what acts on them": (_messages_beside_controls, "controls"),
    "rule 2: decided early": (_decided_early, "controls"),
    "rule 4: messages first": (_messages_first, IDS),
    "rates: what waits is overtaken": (_rates_overtaken, "burst"),
    **FATE_MUTATIONS,
    **BULK_MUTATIONS,
    **ID_MUTATIONS,
    **RECORD_MUTATIONS,
    **CLUSTER_MUTATIONS,
    **RECOVERY_MUTATIONS,
    **ISOLATION_MUTATIONS,
    **RECURRING_MUTATIONS,
}
