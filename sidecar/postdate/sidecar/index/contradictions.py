"""Detects that the log decided a control differently from ingest here (docs/protocol.md, "Contradictions").

Ingest applies a control before the log contains its fate. If another owner, with other settings, judged that control
differently, the index must be rebuilt. Each check raises Contradicted, or logs a warning if the index cannot be
rebuilt.

Thread rule: as for `IndexOverlay`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from postdate.sidecar.index.apply_requests import action_of
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.entry import Entry, Kind, decode_entry, decode_head
from postdate.wheel.keys import ENDING_DUE, split_key
from postdate.wire.dispatch_log import Backfilled, Fate, IdRow, Moved, PausedOrResumed, SeriesFate, Triggered
from postdate.wire.requests.request import Action

_ENDED_BY_ANOTHER: Final = frozenset({Kind.CANCELLED, Kind.REPLACED, Kind.KEPT})


def has_moved(overlay: IndexOverlay, fate: Moved | PausedOrResumed | Triggered | Backfilled, at_ms: int) -> bool:
    """True if ingest of the control changed the entry as the log does (rule 3): a move to the same time, a pause,
    resume or trigger at the same time, or a backfill from the same nominal time on. Also True if the control has ended
    since. `at_ms`: that time in the log. Otherwise raises Contradicted, or returns False if the index cannot be
    rebuilt."""
    key = overlay.find(fate.control, ENDING_DUE)
    if key is None:
        return True
    entry = overlay.entry(key)
    if entry.kind == Kind.APPLIED and (entry.acts_on, entry.new_due) == (fate.offset, at_ms):
        overlay.confirm_move(fate.control)
        return True
    overlay.contradicted(
        f"request {fate.control} {fate.name} request {fate.offset} ({at_ms}), but was judged otherwise here"
    )
    return False


def check_moved(overlay: IndexOverlay, control: int, entry: Entry) -> None:
    """Checks a control that ends and whose ingest changed an entry here: the log must contain that change, or the entry
    must have ended."""
    if entry.new_due < 0 or entry.acts_on < 0 or overlay.is_move_confirmed(control):
        return
    if overlay.find(entry.acts_on) is not None:
        overlay.contradicted(f"request {control} did not change request {entry.acts_on}, but was judged otherwise here")


def check_series(overlay: IndexOverlay, fate: Fate, old: Entry) -> None:
    """Checks the end of an entry that ingest marked as replaced by a request that continues its series. If the log
    ended the entry otherwise, the series of that request has another start."""
    expected = (old.acts_on, old.series_ms)
    if type(fate) is SeriesFate and (fate.survivor, fate.start_ms) == expected:
        return
    if overlay.find(old.acts_on) is not None:
        overlay.contradicted(f"request {old.acts_on} does not continue the series of request {fate.offset}")


def check_delivered(overlay: IndexOverlay, rows: Iterable[IdRow], at_ms: int, next_request: int) -> None:
    """Checks that ingest accepted no pending request that the log shows to be dropped. A request with `drops` is
    dropped if, within the window, it follows a message of the same id in `rows`: the messages that a record at `at_ms`
    has delivered. A stored request is not checked, since an earlier owner has accepted it.

    REQUIRES: the fates of that record are not applied yet. `next_request`: the offset of the next request to ingest.
    Raises Contradicted. O(rows).
    """
    for offset, _ in rows:
        key = overlay.find(offset) if offset < next_request else None
        id_key = overlay.pending_id(overlay.entry(key).id) if key is not None else None
        later = split_key(id_key)[1] if id_key is not None else -1
        if later <= offset or (place := overlay.find(later, hint_key=id_key)) is None:
            continue
        entry = overlay.entry(place)
        if entry.drops and not entry.stored and entry.accepted_ms <= at_ms + overlay.window_ms:
            overlay.contradicted(f"request {later} was accepted here, though request {offset} of its id was delivered")


def check_times(overlay: IndexOverlay) -> None:
    """Checks that no schedule or backfill waits to publish its first time.

    REQUIRES: the dispatch log is replayed, and the times in the index were computed by other time zone rules than those
    of this process. Raises Contradicted. O(entries under key 0), at most `ENDING_ENTRIES_MAX`.
    """
    for offset, raw in overlay.controls():
        entry = decode_entry(raw)
        is_first = entry.next is not None and not entry.stored
        if is_first or (entry.kind == Kind.APPLIED and entry.new_due >= 0 and action_of(entry) is Action.BACKFILL):
            overlay.contradicted(f"the times of request {offset} were computed by other time zone rules")
            return


def check_causes(overlay: IndexOverlay) -> None:
    """Checks that no entry waits to be ended by a request that has already ended.

    REQUIRES: the dispatch log is replayed. A cancelled entry ends together with its control, and a replaced or kept
    entry no later than its survivor (rules 1 and 4). So while such an entry is pending, its cause is pending too.
    Raises Contradicted. O(entries under key 0), at most `ENDING_ENTRIES_MAX`.
    """
    if not overlay.ending_count:
        return
    causes = [
        (offset, decode_entry(raw).acts_on)
        for offset, raw in overlay.controls()
        if decode_head(raw).kind in _ENDED_BY_ANOTHER
    ]
    for offset, cause in causes:
        if overlay.find(cause) is None:
            overlay.contradicted(f"request {cause} has ended and was to end request {offset}, by its reading here")
