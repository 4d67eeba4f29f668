"""Changes that no test can detect, each with the reason. They do not count against the score.

They affect nothing that is visible to a user, in a topic or in a file. `tests/unit/support/test_mutation.py` checks
that the tool makes each of them.
"""

from __future__ import annotations

from pathlib import Path

from support.mutation.changes import CodeChange, changes_of
from support.mutation.declaration import Undetectable
from support.mutation.declaration import undetectable as _of
from support.mutation.undetectable_dispatch import DISPATCH
from support.mutation.undetectable_state import STATE

_SIDECAR, _WIRE = "sidecar/postdate/sidecar", "connectors/postdate/wire"
_APPLY, _FATES = f"{_SIDECAR}/index/apply_requests.py", f"{_SIDECAR}/index/apply_fates.py"
_MOVES, _OVERLAY = f"{_SIDECAR}/index/moves.py", f"{_SIDECAR}/index/overlay.py"
_QUOTA = f"{_SIDECAR}/ingest/quota.py"
_REQUESTS = f"{_WIRE}/requests/parser.py"

#: By module and function. The texts have the form that Python prints for a syntax tree: one statement on each line.
UNDETECTABLE: tuple[Undetectable, ...] = (
    _of(
        _REQUESTS,
        "parse_request",
        "the short path of a common request is not taken, or every header name is looked at in full",
        "the general path gives the same; the first letter only saves a call",
        ("len(fields) == 2", "len(fields) == 1"),
        ("name[:1] in 'pP'", "name[:0] in 'pP'"),
    ),
    _of(
        _REQUESTS,
        "parse_request",
        "a due time of 0 counts as a time, or as no time",
        "no request is due before 1",
        ("due_ms >= 0", "due_ms > 0"),
        ("due_ms >= 0", "due_ms >= 1"),
    ),
    _of(
        _REQUESTS,
        "_schedule",
        "a due time of 0 counts as a time, or as no time",
        "no request is due before 1",
        ("due_ms >= 0", "due_ms > 0"),
        ("due_ms >= 0", "due_ms >= 1"),
    ),
    _of(
        _REQUESTS,
        "_window_ms",
        "a due time of 0 counts as a time, or as no time",
        "no request is due before 1",
        ("due_ms < 0", "due_ms <= 0"),
        ("due_ms < 0", "due_ms < 1"),
    ),
    _of(
        _REQUESTS,
        "_parse_control",
        "a control with selectors has another partition, request or grace",
        "a bulk control does not use them",
        ("key, -1, b''", "key, -2, b''"),
        ("key, -1, b''", "key, -0, b''"),
        ("b'', -1, -1", "b'', -2, -1"),
        ("b'', -1, -1", "b'', -0, -1"),
        ("b'', -1, -1", "b'', -1, -2"),
        ("b'', -1, -1", "b'', -1, -0"),
    ),
    _of(
        _REQUESTS,
        "_COMPARED_LENGTH_MAX",
        "longer names are compared",
        "no known name is similar to them",
        ("2 * max", "3 * max"),
    ),
    _of(
        _REQUESTS,
        "_nearest",
        "names of the maximum length are not compared",
        "no known name is similar to them",
        ("len(name) <= _COMPARED_LENGTH_MAX", "len(name) < _COMPARED_LENGTH_MAX"),
    ),
    _of(
        _REQUESTS,
        "_due_ms",
        "two times are also looked for among two headers",
        "a target or an action is one of the two",
        ("len(fields) > 2", "len(fields) >= 2"),
        ("len(fields) > 2", "len(fields) > 1"),
    ),
    _of(
        _REQUESTS,
        "_due_ms",
        "0 is read by the general parser; the earliest due time takes the place of the same one",
        "the general parser gives 0 as well",
        ("due_ms < 0", "due_ms <= 0"),
        ("due_ms >= DUE_MS_MIN", "due_ms > DUE_MS_MIN"),
    ),
    _of(
        _REQUESTS,
        "_bulk_control",
        "a bulk control has a time that it does not use, or another negative number for “none”",
        "a cancel uses no time, and a move only one; of a negative due time, only the sign is used",
        ("return (selection, -1, 0)", "return (selection, -2, 0)"),
        ("return (selection, -1, 0)", "return (selection, -0, 0)"),
        ("-1, _by_ms", "-2, _by_ms"),
        ("return (selection, -1, 0)", "return (selection, -1, -1)"),
        ("return (selection, -1, 0)", "return (selection, -1, 1)"),
        ("fields), 0)", "fields), -1)"),
    ),
    _of(
        _APPLY,
        "_schedule",
        "the short path of a common request is not taken",
        "the general path gives the same",
        ("first_key_due - record.timestamp_ms", "first_key_due + record.timestamp_ms"),
    ),
    _of(
        _APPLY,
        "_control",
        "another negative number for “none”",
        "only the sign is used",
        ("new_due = -1 if is_swept", "new_due = -2 if is_swept"),
    ),
    _of(
        _APPLY,
        "_schedule",
        "another number for no earlier request; a move to 0 counts as no move",
        "only an entry that ends without a delivery uses it; no request is due before 1",
        ("(Kind.DELIVER, -1)", "(Kind.DELIVER, -2)"),
        ("(Kind.DELIVER, -1)", "(Kind.DELIVER, -0)"),
        ("mark.due >= 0", "mark.due > 0"),
        ("mark.due >= 0", "mark.due >= 1"),
    ),
    _of(
        _APPLY,
        "_resolve_pending",
        "another number for no survivor",
        "only an entry that ends without a delivery uses it",
        ("return (None, -1)\n    if keeps", "return (None, -2)\n    if keeps"),
        ("return (None, -1)\n    if keeps", "return (None, -0)\n    if keeps"),
    ),
    _of(
        _FATES,
        "_mark",
        "another number for no control before a bulk control",
        "only the mark of a move in bulk uses it",
        ("if in_bulk else -1", "if in_bulk else -2"),
        ("if in_bulk else -1", "if in_bulk else -0"),
    ),
    _of(
        _APPLY,
        "_resolve_pending",
        "an id that refers to the request that is being read",
        "an id refers only to earlier or later requests",
        ("other > offset", "other >= offset"),
    ),
    _of(
        _MOVES,
        "moved_within",
        "a control at offset 0",
        "a control follows the request that it moves",
        ("control < 0", "control <= 0"),
        ("control < 0", "control < 1"),
    ),
    _of(
        _OVERLAY,
        "IndexOverlay.__init__",
        "another negative number, or 0, for an unknown time",
        "only the sign of one is used, and no message leaves before 1",
        ("self.now_ms = -1", "self.now_ms = -2"),
        ("self.logged_ms = -1", "self.logged_ms = -2"),
        ("self.logged_ms = -1", "self.logged_ms = -0"),
    ),
    _of(
        _OVERLAY,
        "IndexOverlay.__init__",
        "another negative number for the end of no rows",
        "the first offset begins a row, whatever it is",
        ("self._firsts_end = -1", "self._firsts_end = -2"),
    ),
    _of(
        _OVERLAY,
        "IndexOverlay.mark",
        "the mark behind the last one is looked up",
        "the timer log looks nothing up there",
        ("offset < self._marks_end", "offset <= self._marks_end"),
    ),
    _of(
        _OVERLAY,
        "IndexOverlay.remove",
        "an entry of size 0 is read for its size",
        "no entry is empty",
        ("size_bytes < 0", "size_bytes <= 0"),
        ("size_bytes < 0", "size_bytes < 1"),
    ),
    _of(
        f"{_SIDECAR}/index/contradictions.py",
        "check_moved",
        "a reschedule to 0 moves nothing",
        "no request is due before 1",
        ("entry.new_due < 0", "entry.new_due < 1"),
        ("entry.new_due < 0", "entry.new_due <= 0"),
    ),
    _of(
        f"{_SIDECAR}/index/contradictions.py",
        "check_delivered",
        "another number for no later request",
        "no offset is lower",
        ("else -1", "else -2"),
        ("else -1", "else -0"),
    ),
    _of(
        f"{_SIDECAR}/index/contradictions.py",
        "check_delivered",
        "the entry of the next request is looked up",
        "a request has no entry before it is read",
        ("offset < next_request", "offset <= next_request"),
    ),
    _of(
        f"{_SIDECAR}/index/contradictions.py",
        "check_times",
        "a backfill whose first time is 0 does not count",
        "a backfill without a later time is refused",
        ("entry.new_due >= 0", "entry.new_due > 0"),
        ("entry.new_due >= 0", "entry.new_due >= 1"),
    ),
    *DISPATCH,
    _of(
        _QUOTA,
        "Quota.__init__",
        "other values before the first batch",
        "each batch sets them, no offset is negative, and the first bucket is full whatever is added",
        ("self._filled_ms = -1", "self._filled_ms = -2"),
        ("self._filled_ms = -1", "self._filled_ms = -0"),
        ("self._pending = self._size_bytes = 0", "self._pending = self._size_bytes = -1"),
        ("self._from_offset = 0", "self._from_offset = -1"),
    ),
    _of(
        _QUOTA,
        "Quota._spend",
        "the bucket is filled before the first request",
        "it is full then",
        ("self._filled_ms >= 0", "self._filled_ms >= -1"),
    ),
    _of(
        _QUOTA,
        "Quota._spend",
        "the bucket is filled between requests of the same time",
        "nothing is added",
        ("at_ms > self._filled_ms", "at_ms >= self._filled_ms"),
    ),
    *STATE,
)


def names(root: Path, declared: tuple[Undetectable, ...] = UNDETECTABLE) -> set[str]:
    """Returns the names of the declared changes. Raises AssertionError if the tool does not make one of them."""
    found = set()
    for path in {each.path for each in declared}:
        made: dict[tuple[str, str], CodeChange] = {
            (each.scope, each.scope_text()): each for each in changes_of(root, path)
        }
        for each in declared:
            if each.path == path:
                for text, change in zip(each.texts(root), each.changes, strict=True):
                    assert (each.function, text) in made, f"{each.function}: the tool does not make {change}"
                    found.add(made[each.function, text].name)
    return found
