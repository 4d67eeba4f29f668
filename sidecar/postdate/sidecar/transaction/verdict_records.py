"""Creates verdicts: records of the verdicts topic with the outcome of a request, in the transaction that decides it.

The verdict on a control is decided when the transaction is built, not at ingest (rule 2 of docs/protocol.md): in
between, another owner may have delivered the entry that the control acts on.

| setting | answered requests |
| --- | --- |
| `none` | none |
| `control` | controls, replacements, kept and dropped requests, refused requests with an action other than `schedule` |
| `all` | these, and every request to schedule: when it is stored, and when it ends other than by completing |

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from postdate.sidecar.config.settings import Verdicts
from postdate.sidecar.index.apply_requests import action_of
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.transaction.transaction import NOBODY, OutgoingRecord
from postdate.wheel.entry import ENDED_BY_EARLIER, PENDING, Entry, Kind
from postdate.wire.headers import ACTION, ID, Headers
from postdate.wire.limits import ID_BYTES_MAX
from postdate.wire.requests.request import Action
from postdate.wire.topics import OwnTopics
from postdate.wire.verdicts import Verdict, encode_bulk_verdict, encode_verdict

_CHANGED = {
    Action.RESCHEDULE: Verdict.RESCHEDULED,
    Action.PAUSE: Verdict.PAUSED,
    Action.RESUME: Verdict.RESUMED,
    Action.TRIGGER: Verdict.TRIGGERED,
    Action.BACKFILL: Verdict.BACKFILLED,
}


class VerdictWriter:
    """Creates the verdict records of one shard. `controls`: True unless the setting is `none`. `all`: True if the
    setting is `all`."""

    def __init__(self, own: OwnTopics, partition: int, mode: Verdicts, wall_ms: Callable[[], int]) -> None:
        self.controls = mode != "none"
        self.all = mode == "all"
        self._topic = own.verdicts
        self._partition = partition
        self._origin_prefix = f"{own.requests}/{partition}/".encode()
        self._wall_ms = wall_ms

    def message(
        self, verdict: Verdict, offset: int, caller_id: bytes, acted_on: int = -1, survivor: int = -1
    ) -> OutgoingRecord:
        """Returns the record that answers request `offset`. `acted_on`: the offset of the request on which it acted.
        `survivor`: the offset of the request of the same id that survived it. -1: there is none."""
        acted_on_origin = self._origin_prefix + b"%d" % acted_on if acted_on >= 0 else b""
        survivor_origin = self._origin_prefix + b"%d" % survivor if survivor >= 0 else b""
        origin = self._origin_prefix + b"%d" % offset
        key, value = encode_verdict(verdict, origin, caller_id, acted_on_origin, self._wall_ms(), survivor_origin)
        return NOBODY, self._topic, self._partition, key, value, []

    def to_ended(self, entry: Entry, offset: int) -> list[OutgoingRecord]:
        """Returns the answers after another request has ended an entry: the answer to the entry's request and, if that
        was replaced, to the request that replaced it."""
        if entry.kind in ENDED_BY_EARLIER:
            verdict = Verdict.KEPT if entry.kind == Kind.KEPT else Verdict.DROPPED
            return [self.message(verdict, offset, entry.id, survivor=entry.acts_on)] if self.controls else []
        replaced = entry.kind == Kind.REPLACED
        answers: list[OutgoingRecord] = []
        if self.all and replaced:
            answers.append(self.message(Verdict.REPLACED, offset, entry.id, survivor=entry.acts_on))
        elif self.all:
            answers.append(self.message(Verdict.CANCELLED, offset, entry.id))
        if replaced and self.controls:
            answers.append(self.message(Verdict.REPLACED, entry.acts_on, entry.id, acted_on=offset))
        return answers

    def to_refused(self, entry: Entry, offset: int) -> list[OutgoingRecord]:
        """Returns the answer to a request that ingest refused."""
        action, caller_id = _action_and_id(entry.headers)
        if self.all or (self.controls and action not in (None, b"schedule")):
            return [self.message(Verdict.REJECTED, offset, caller_id)]
        return []

    def to_bulk(self, offset: int, count: int) -> list[OutgoingRecord]:
        """Returns the answer to a bulk control that has acted on `count` messages."""
        if not self.controls:
            return []
        value = encode_bulk_verdict(self._origin_prefix + b"%d" % offset, count, self._wall_ms())
        return [(NOBODY, self._topic, self._partition, None, value, [])]

    def too_late(self, entry: Entry, offset: int) -> list[OutgoingRecord]:
        """Returns the answer to a control on a request that this transaction makes a dead letter."""
        return [self.message(Verdict.TOO_LATE, offset, entry.id, entry.acts_on)] if self.controls else []

    def to_control(self, overlay: IndexOverlay, entry: Entry, offset: int) -> list[OutgoingRecord]:
        """Returns the answer to a control, from the current state of the entry that it acts on."""
        if not self.controls:
            return []
        verdict, acted_on = _outcome(overlay, entry, offset)
        return [self.message(verdict, offset, entry.id, acted_on)]


def _outcome(overlay: IndexOverlay, entry: Entry, offset: int) -> tuple[Verdict, int]:
    """Returns the verdict on the control at `offset`, and the offset of the request that it acts on, or -1. The control
    is too late if that request, or the last earlier request of its id, was delivered or became a dead letter."""
    acts_on = entry.acts_on
    key = overlay.find(acts_on) if acts_on >= 0 else None
    if key is not None:
        other = overlay.entry(key)
        action = action_of(entry)
        if action is Action.CANCEL:
            if other.kind == Kind.CANCELLED and other.acts_on == offset:
                return Verdict.CANCELLED, acts_on
        elif other.kind in PENDING and entry.new_due >= 0:  # otherwise a bulk control ends it
            return _CHANGED[action], acts_on
        return Verdict.NOT_FOUND, -1
    outcome = overlay.outcome(entry.id) if entry.id else None
    if outcome is not None and outcome.offset < offset:
        return (Verdict.TOO_LATE, outcome.offset) if outcome.sent else (Verdict.NOT_FOUND, -1)
    if acts_on >= 0 and overlay.was_sent(acts_on):
        return Verdict.TOO_LATE, acts_on
    return Verdict.NOT_FOUND, -1


def _action_and_id(headers: Headers) -> tuple[bytes | None, bytes]:
    """Returns the action and the id in the headers of a refused request. A missing action is None; a missing or invalid
    id is empty."""
    fields = {name: value for name, value in headers if name in (ACTION, ID)}
    caller_id = fields.get(ID) or b""
    try:
        caller_id.decode()
    except UnicodeDecodeError:
        caller_id = b""
    return fields.get(ACTION), caller_id if len(caller_id) <= ID_BYTES_MAX else b""
