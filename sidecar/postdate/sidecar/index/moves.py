"""Gives pending entries another due time: at ingest of a control, when a fate is applied, or when the fine ring reaches
their window.

Thread rule: as for `IndexOverlay`.
"""

from __future__ import annotations

import msgspec

from postdate.sidecar.index.bulk import shifted
from postdate.sidecar.index.limits import DEFERRED_ENTRIES_MAX
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.entry import PENDING, Entry, Kind, Next, Spread, Window, decode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import split_key


def move(overlay: IndexOverlay, key: bytes, old: Entry, new: Entry) -> bytes:
    """Replaces an entry by `new`, which has another due time, and returns its new key. If the next transaction must end
    or store the entry, it lies under key 0 until then, and only the new time is recorded."""
    offset = split_key(key)[1]
    key = overlay.move(key, offset, old, new)
    if overlay.has_id(old.id, offset):
        overlay.claim_id(new, offset)
    return key


def continue_schedule(overlay: IndexOverlay, key: bytes, old: Entry, following: Next) -> bytes:
    """Moves a schedule to its next occurrence, and returns its new key. If the next transaction must end or store the
    schedule, it lies under key 0 until then, and only the occurrence is recorded."""
    is_pending, offset = old.kind in PENDING, split_key(key)[1]
    due_ms = overlay.chosen_ms(offset, old.stripped, following) if is_pending else following.nominal_ms
    return move(overlay, key, old, msgspec.structs.replace(old, due=due_ms, next=following))


def mark_stored(overlay: IndexOverlay, key: bytes, old: Entry, size_bytes: int = -1) -> None:
    """Applies the fate `stored` to the entry under `key`, after a commit and in recovery: STORE now has the entry.
    `size_bytes`: as for `IndexOverlay.remove`."""
    kind = Kind.DELIVER if old.kind == Kind.STORE else old.kind
    overlay.move(key, split_key(key)[1], old, msgspec.structs.replace(old, kind=kind, stored=True), size_bytes)


def due_at(overlay: IndexOverlay, old: Entry, due_ms: int, control: int) -> Entry:
    """Returns the entry with the due time that a control gives it; its time within a window is chosen again."""
    due_ms, window = moved_within(overlay, old.window, due_ms, control)
    return msgspec.structs.replace(old, due=due_ms, window=window, moved_by=control)


def moved_within(overlay: IndexOverlay, window: Window | None, due_ms: int, control: int) -> tuple[int, Window | None]:
    """Returns the time at which a message leaves, and its window, after its due time is set to `due_ms`. `control`: the
    offset of the control whose origin determines the time; -1: the origin of the request determines it."""
    if window is None:
        return due_ms, None
    if control < 0:
        return shifted(window, window.first, due_ms, overlay.left_ms)
    chosen_ms, spread = overlay.choose_ms(control, due_ms, window.length_ms, window.spread != Spread.DRAWN)
    return chosen_ms, Window(due_ms, window.length_ms, window.first, spread)


def choose_deferred(index: TimerIndex, now_ms: int) -> bool:
    """Chooses the times of some entries with an even spread whose windows the fine ring now covers. Returns True if
    more such entries may follow.

    `now_ms`: the broker's time. An entry moves only if both its old and its new time are after `now_ms`: otherwise a
    later message of the same key could leave first. Does nothing while there is a bulk control. O(entries), at most
    DEFERRED_ENTRIES_MAX.
    """
    if index.timer_log.bulks:  # a bulk sweep visits each entry once, so no entry may move behind it
        return False
    keys = index.deferred(DEFERRED_ENTRIES_MAX)
    if not keys:
        return False
    overlay = IndexOverlay(index)
    overlay.now_ms = now_ms
    for key in keys:
        overlay.drop_deferred(key)
        drawn_ms = split_key(key)[0]
        raw = overlay.raw(key) if drawn_ms > now_ms else None
        entry = decode_entry(raw) if raw is not None else None
        if entry is None or entry.window is None or entry.window.spread != Spread.DEFERRED:
            continue
        window = entry.window
        chosen_ms = overlay.emptiest_ms(window.due, window.length_ms, drawn_ms, is_counted=True)
        if chosen_ms is not None and chosen_ms != drawn_ms:
            chosen = msgspec.structs.replace(window, spread=Spread.CHOSEN)
            move(overlay, key, entry, msgspec.structs.replace(entry, due=chosen_ms, window=chosen))
    overlay.write()
    return len(keys) == DEFERRED_ENTRIES_MAX
