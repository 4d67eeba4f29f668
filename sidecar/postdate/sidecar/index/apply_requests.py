"""Applies requests to the state of a shard: ingest calls `apply_request` for each.

The result depends only on the overlay and the arguments, so a restart that reads the same records reaches the same
state. Comments mark the places of rules 2 and 5 of `docs/protocol.md`; `dispatch` decides the final effect of a
control.

Thread rule: as for `IndexOverlay`.
"""

from __future__ import annotations

import msgspec

from postdate.kafka.interface import Record
from postdate.sidecar.index.bulk import in_force
from postdate.sidecar.index.moves import due_at, move, moved_within
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import after_control_request, control_refusal
from postdate.wheel.entry import (
    ENDED_BY_EARLIER,
    NO_STRIPPED,
    PENDING,
    Entry,
    Kind,
    Mark,
    Next,
    Spread,
    Window,
    encode_accepted,
    pack_stripped,
)
from postdate.wheel.keys import ENDING_DUE, entry_key, split_key
from postdate.wheel.timer_log.checkpoint import BulkRow
from postdate.wheel.timer_log.timer_log import NO_FIRST_DUE
from postdate.wire.errors import RequestRefused
from postdate.wire.limits import DUE_MS_MIN
from postdate.wire.reasons import Reason
from postdate.wire.requests.request import OF_SCHEDULES, Action, Request
from postdate.wire.requests.selection import BulkRequest, Selection, encode_bulk
from postdate.wire.values.durations import format_duration


def apply_request(overlay: IndexOverlay, record: Record, request: Request | RequestRefused) -> int:
    """Ingests one request. Returns `first_key_due` of its new entry, or NO_FIRST_DUE if there is no new entry.

    REQUIRES: the overlay's index has not ingested `record.offset` yet, and requests are applied in offset order.
    """
    offset = record.offset
    mark = overlay.mark(offset)
    if mark is not None:
        overlay.set_mark(offset, None)
        if mark.final:
            overlay.drop_bulk(offset)
            if isinstance(request, Request):
                _catch_up(overlay, offset, request, mark)
            return NO_FIRST_DUE
    if isinstance(request, RequestRefused):
        stored = mark is not None and mark.stored
        return _put_control(overlay, offset, refused_entry(record, request, stored))
    if request.action == Action.SCHEDULE:
        if request.schedule is not None:
            return _recur(overlay, record, request, mark)
        return _schedule(overlay, record, request, mark)
    if request.selection is not None:
        return _bulk_control(overlay, record, request, request.selection)
    return _control(overlay, record, request)


def _bulk_control(overlay: IndexOverlay, record: Record, request: Request, selection: Selection) -> int:
    """Adds a bulk control, which has no entry. It is in force once all earlier bulk controls have ended.

    If no entries are stored, each entry must be rebuilt from its request (invariant I5). Then no bulk control may move
    messages to a later time, since this could exceed the horizon of some.
    """
    known, is_move = overlay.bulk(record.offset), request.action == Action.RESCHEDULE
    is_later = is_move and (request.by_ms > 0 or request.due_ms > record.timestamp_ms)
    if is_later and not overlay.store_after_ms and known is None:
        refusal = RequestRefused(Reason.BEYOND_HORIZON, "to move many messages to a later time, set store_after_ms")
        return _put_control(overlay, record.offset, refused_entry(record, refusal))
    encoded = encode_bulk(BulkRequest(selection, is_move, request.due_ms, request.by_ms, record.timestamp_ms))
    overlay.set_bulk(BulkRow(record.offset, encoded, -1 if known is None else known.count))
    return NO_FIRST_DUE


def _catch_up(overlay: IndexOverlay, offset: int, request: Request, mark: Mark) -> None:
    """Applies the parts of an ended request that its fate does not contain: the id that has ended, and the grace that a
    reschedule set."""
    if request.action == Action.SCHEDULE:
        if request.id:
            overlay.note_end(offset, b"" if mark.kept else request.id, mark.sent)
    elif request.grace_ms >= 0 and not mark.refused:
        acts_on, id_key = _acts_on(overlay, offset, request)
        pending = _pending(overlay, acts_on, id_key)
        if pending is not None and pending[1].next is None:
            key, old = pending
            overlay.move(key, acts_on, old, msgspec.structs.replace(old, grace_ms=request.grace_ms))


def _acts_on(overlay: IndexOverlay, offset: int, request: Request) -> tuple[int, bytes | None]:
    """Returns the offset of the request that a control acts on, and the key under which its id is pending, if the
    control names an id. Returns -1 and None if there is no such request before the control."""
    id_key = overlay.pending_id(request.id) if request.id else None
    acts_on = split_key(id_key)[1] if id_key is not None else request.acts_on
    return (acts_on, id_key) if acts_on < offset else (-1, None)


def refused_entry(record: Record, refusal: RequestRefused, stored: bool = False) -> Entry:
    """Returns the entry of a request that becomes a dead letter: its record as sent, with the reason.

    `stored`: the request was accepted and stored under other rules, so its end must remove it from STORE.
    """
    return Entry(
        kind=Kind.DEAD,
        stored=stored,
        first_due=ENDING_DUE,
        due=ENDING_DUE,
        target="",
        key=record.key,
        value=record.value,
        headers=record.headers or [],
        reason=refusal.reason,
        detail=refusal.detail,
        accepted_ms=record.timestamp_ms,
    )


def _put_control(overlay: IndexOverlay, offset: int, entry: Entry) -> int:
    overlay.put(offset, ENDING_DUE, entry)
    return ENDING_DUE


def _schedule(overlay: IndexOverlay, record: Record, request: Request, mark: Mark | None) -> int:
    offset, first_due, window = record.offset, request.due_ms, None
    series_ms = -1
    if request.latest_ms:
        series_ms = _series_ms(overlay, record, request, mark)
        first_due = max(min(first_due, series_ms + request.latest_ms), DUE_MS_MIN)
    first_key_due = first_due
    if request.window_ms:
        first_key_due, spread = overlay.choose_ms(offset, first_due, request.window_ms, request.is_even)
        window = Window(first_due, request.window_ms, first_key_due, spread)
    if mark is None and not request.id and not overlay.is_long(first_key_due - record.timestamp_ms):
        key, record_key = request.key, record.key
        raw = encode_accepted(
            first_key_due,
            request.target,
            key,
            record.value,
            request.headers,
            request.partition,
            request.grace_ms,
            () if key == record_key else (record_key,),
            request.stripped,
            record.timestamp_ms,
            window,
        )
        overlay.put_accepted(offset, first_key_due, raw)
        if window is not None and window.spread == Spread.DEFERRED:
            overlay.defer(entry_key(first_key_due, offset))
        return first_key_due
    kind, ended_by = Kind.DELIVER, -1
    due, stored = first_key_due, False
    if mark is not None:  # rule 5: a fate that is not final carries over
        stored = mark.stored
        if mark.due >= 0:
            due, window = moved_within(overlay, window, mark.due, mark.drawn_by if mark.in_bulk else mark.control)
    if not stored and overlay.is_long(due - record.timestamp_ms):
        kind = Kind.STORE
    if request.id:
        ended_as, ended_by = _resolve_id(overlay, record, request, mark, series_ms)
        kind = kind if ended_as is None else ended_as
    entry = Entry(
        kind=kind,
        stored=stored,
        first_due=first_due,
        due=due,
        target=request.target,
        key=request.key,
        value=record.value,
        headers=request.headers,
        partition=request.partition,
        id=request.id,
        grace_ms=request.grace_ms,
        own_key=() if request.key == record.key else (record.key,),
        stripped=pack_stripped(request.stripped),
        acts_on=ended_by,
        accepted_ms=record.timestamp_ms,
        window=window,
        series_ms=series_ms,
        moved_by=mark.control if mark is not None else -1,
        drops=request.drops,
    )
    if kind in ENDED_BY_EARLIER:
        entry = _without_message(entry)
    overlay.put(offset, due if kind == Kind.DELIVER else ENDING_DUE, entry)
    if kind in PENDING:
        overlay.claim_id(entry, offset)
    return first_key_due


def _resolve_id(
    overlay: IndexOverlay, record: Record, request: Request, mark: Mark | None, series_ms: int
) -> tuple[Kind | None, int]:
    """Resolves an id like `_resolve_pending`, but by the id policies of the request: a delivered message of the id may
    also drop the request."""
    is_new = mark is None  # otherwise an earlier owner has accepted the request
    if is_new and request.drops:
        delivered = overlay.delivered(request.id, record.offset, record.timestamp_ms)
        if delivered >= 0:
            return Kind.DROPPED, delivered
    return _resolve_pending(overlay, request.id, record.offset, is_new and request.keeps, series_ms)


def _resolve_pending(
    overlay: IndexOverlay, caller_id: bytes, offset: int, keeps: bool, series_ms: int
) -> tuple[Kind | None, int]:
    """Ends either the pending message of an id or the request `offset`, in favour of the other.

    Returns the kind of the request's entry and the offset of its survivor if the request ends; None and -1 if it stays.
    `series_ms`: the start of its series, -1 if it has none.
    """
    pending = overlay.pending_id(caller_id)
    if pending is None:
        return None, -1
    other = split_key(pending)[1]
    if other > offset:
        return Kind.REPLACED, other
    key = overlay.find(other, hint_key=pending)
    assert key is not None, "an id points at an entry that is not there"
    old = overlay.entry(key)
    if _is_swept(overlay, old, other):
        return None, -1
    if keeps:
        return Kind.KEPT, other
    if old.series_ms >= 0:  # the start of the series that continues; -1: the series ends
        old = msgspec.structs.replace(old, series_ms=series_ms)
    _end(overlay, key, old, Kind.REPLACED, by=offset)
    return None, -1


def _series_ms(overlay: IndexOverlay, record: Record, request: Request, mark: Mark | None) -> int:
    """Returns the start of the series of a debounced request: the smallest timestamp in the series. Unless a clock went
    back, this is the timestamp of the first request."""
    if mark is not None and mark.series_ms >= 0:
        return mark.series_ms
    pending = overlay.pending_id(request.id)
    other = split_key(pending)[1] if pending is not None else record.offset
    key = overlay.find(other, hint_key=pending) if other < record.offset else None
    old = overlay.entry(key) if key is not None else None
    series_ms = old.series_ms if old is not None and not _is_swept(overlay, old, other) else -1
    return min(series_ms, record.timestamp_ms) if series_ms >= 0 else record.timestamp_ms


def _recur(overlay: IndexOverlay, record: Record, request: Request, mark: Mark | None) -> int:
    """Adds a schedule. It is stored immediately, so that its request need not be kept (docs/protocol.md,
    "Schedules")."""
    offset = record.offset
    if mark is None and not overlay.store_after_ms:
        detail = "schedules are kept in the store topic, and store_after_ms = 0 stores nothing"
        return _put_control(overlay, offset, refused_entry(record, RequestRefused(Reason.BAD_SCHEDULE, detail)))
    following = Next(1, request.due_ms) if mark is None or mark.next is None else mark.next
    first_due = following.nominal_ms if following.number == 1 else request.due_ms
    stripped = pack_stripped(request.stripped)
    due, stored = overlay.chosen_ms(offset, stripped, following), mark is not None and mark.stored
    ended_as, ended_by = _resolve_pending(overlay, request.id, offset, keeps=False, series_ms=-1)
    kind = ended_as or (Kind.DELIVER if stored else Kind.STORE)
    entry = Entry(
        kind=kind,
        stored=stored,
        first_due=first_due,
        due=due,
        target=request.target,
        key=request.key,
        value=record.value,
        headers=request.headers,
        partition=request.partition,
        id=request.id,
        own_key=() if request.key == record.key else (record.key,),
        stripped=stripped,
        acts_on=ended_by,
        accepted_ms=record.timestamp_ms,
        next=following,
    )
    overlay.put(offset, due if kind == Kind.DELIVER else ENDING_DUE, entry)
    overlay.count_schedule(entry, 1)
    if kind in PENDING:
        overlay.claim_id(entry, offset)
    return first_due


def _control(overlay: IndexOverlay, record: Record, request: Request) -> int:
    offset = record.offset
    acts_on, id_key = _acts_on(overlay, offset, request)
    pending = _pending(overlay, acts_on, id_key)
    is_swept = pending is not None and _is_swept(overlay, pending[1], acts_on)
    new_due = -1 if is_swept else request.due_ms
    if pending is not None and not is_swept:
        key, old = pending
        if refusal := control_refusal(old, request) or _beyond_horizon(overlay, old, request):
            return _put_control(overlay, offset, refused_entry(record, refusal))
        if request.action == Action.CANCEL:
            _end(overlay, key, old, Kind.CANCELLED, by=offset)
        elif request.action in OF_SCHEDULES:
            new_due = _control_schedule(overlay, key, old, record, request)
        else:
            _reschedule(overlay, key, old, record, request)
    entry = Entry(
        kind=Kind.APPLIED,
        stored=False,
        first_due=ENDING_DUE,
        due=ENDING_DUE,
        target="",
        key=None,
        value=None,
        headers=[],
        id=request.id,
        reason=Action(request.action).name.lower(),
        acts_on=acts_on,  # rule 2: the transaction decides whether that entry still exists
        new_due=new_due,
    )
    return _put_control(overlay, offset, entry)


def action_of(entry: Entry) -> Action:
    """Returns the action of the control that an entry of kind APPLIED represents. `reason` of the entry is the name of
    the action."""
    return Action[entry.reason.upper()]


def _beyond_horizon(overlay: IndexOverlay, old: Entry, request: Request) -> RequestRefused | None:
    """Returns the refusal of a reschedule beyond the horizon; None if the horizon permits the request. If no entries
    are stored, the horizon counts from the moved request, since the entry would be rebuilt from it (invariant I5)."""
    if request.action != Action.RESCHEDULE or overlay.store_after_ms:
        return None
    delay_ms = request.due_ms + (old.window.length_ms if old.window is not None else 0) - old.accepted_ms
    if delay_ms <= overlay.horizon_ms:
        return None
    delay, horizon = format_duration(delay_ms), format_duration(overlay.horizon_ms)
    return RequestRefused(
        Reason.BEYOND_HORIZON, f"due {delay} after the request that it moves; the horizon is {horizon}"
    )


def _pending(overlay: IndexOverlay, offset: int, id_key: bytes | None) -> tuple[bytes, Entry] | None:
    """Returns key and entry of a request that a control may act on. Returns None if there is no entry, or if the entry
    only waits for the transaction that ends it."""
    key = overlay.find(offset, hint_key=id_key) if offset >= 0 else None
    if key is None:
        return None
    entry = overlay.entry(key)
    return (key, entry) if entry.kind in PENDING else None


def _is_swept(overlay: IndexOverlay, entry: Entry, offset: int) -> bool:
    """True if the bulk control in force ends this pending entry: for later requests, the entry is no longer pending."""
    bulk = in_force(overlay.bulks) if overlay.bulks else None
    return bulk is not None and not bulk.request.moves and bulk.acts_on(entry, offset)


def _end(overlay: IndexOverlay, key: bytes, old: Entry, kind: Kind, by: int) -> None:
    """Rewrites a pending entry so that the next transaction ends it without a delivery; its message is no longer
    needed."""
    offset = split_key(key)[1]
    overlay.move(key, offset, old, msgspec.structs.replace(_without_message(old), kind=kind, acts_on=by))
    overlay.drop_id(old.id, offset)


def _without_message(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, key=None, value=None, headers=[], own_key=(), stripped=NO_STRIPPED, reason="")


def _reschedule(overlay: IndexOverlay, key: bytes, old: Entry, record: Record, request: Request) -> None:
    """Gives a pending entry another due time. If the entry is stored already, or its new delay is long, the transaction
    of the control writes it to STORE."""
    new = due_at(overlay, old, request.due_ms, record.offset)
    is_long = overlay.is_long(new.due - record.timestamp_ms)
    kind = Kind.STORE if old.stored or is_long else Kind.DELIVER
    grace_ms = request.grace_ms if request.grace_ms >= 0 else old.grace_ms
    move(overlay, key, old, msgspec.structs.replace(new, kind=kind, grace_ms=grace_ms))


def _control_schedule(overlay: IndexOverlay, key: bytes, old: Entry, record: Record, request: Request) -> int:
    """Pauses, resumes, triggers or backfills a schedule. The transaction of the control writes the schedule to STORE
    again. Returns the time that the fate of the control must have."""
    following, compared_ms = after_control_request(old, record.offset, record.timestamp_ms, request)
    due_ms = overlay.chosen_ms(split_key(key)[1], old.stripped, following)
    move(overlay, key, old, msgspec.structs.replace(old, kind=Kind.STORE, due=due_ms, next=following))
    return compared_ms
