"""Changes that no test can detect, each with the reason. They survive, and do not count against the score.

Nothing that a user, a topic or a file shows depends on what they change. `docs/testing.md` shows this list;
`tests/unit/test_mutation.py` keeps the two equal, and checks that each change here is one that the tool makes.
"""

from __future__ import annotations

from pathlib import Path

from support.mutation.changes import Change, changes_of
from support.mutation.declaration import Undetectable
from support.mutation.declaration import undetectable as _of
from support.mutation.undetectable_dispatch import DISPATCH

_SIDECAR, _WHEEL, _WIRE = "sidecar/postdate/sidecar", "wheel/postdate/wheel", "connectors/postdate/wire"


_APPLY, _OVERLAY = f"{_SIDECAR}/index/apply.py", f"{_SIDECAR}/index/overlay.py"
_QUOTA, _TAKEOVER = f"{_SIDECAR}/ingest/quota.py", f"{_SIDECAR}/takeover/takeover.py"
_TIMER_LOG, _WHEEL_FILE = f"{_WHEEL}/timer_log.py", f"{_WHEEL}/wheel_file.py"
_REQUESTS = f"{_WIRE}/requests.py"

#: By module and function. The texts are those that Python prints for a syntax tree: one statement a line.
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
        "it has no use for them",
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
        "they are near none",
        ("2 * max", "3 * max"),
    ),
    _of(
        _REQUESTS,
        "_nearest",
        "names of the greatest length are not compared",
        "they are near none",
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
        "a bulk control that moves no message by a time has such a time",
        "a cancel has no use for it, and neither has a move to a due time if it is negative",
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
        "another number for no earlier request; a move to 0 is none",
        "only an entry that ends without a delivery uses it; no request is due before 1",
        ("(Kind.DELIVER, -1)", "(Kind.DELIVER, -2)"),
        ("(Kind.DELIVER, -1)", "(Kind.DELIVER, -0)"),
        ("mark.due >= 0", "mark.due > 0"),
        ("mark.due >= 0", "mark.due >= 1"),
    ),
    _of(
        _APPLY,
        "_meet_pending",
        "another number for no survivor",
        "only an entry that ends without a delivery uses it",
        ("return (None, -1)\n    if keeps", "return (None, -2)\n    if keeps"),
        ("return (None, -1)\n    if keeps", "return (None, -0)\n    if keeps"),
    ),
    _of(
        _APPLY,
        "_meet_pending",
        "an id that refers to the request that is being read",
        "it refers to earlier or later ones",
        ("other > offset", "other >= offset"),
    ),
    _of(
        _APPLY,
        "_moved_to",
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
        "the entry of the next request is looked up",
        "a request has no entry before it is read",
        ("offset < next_request", "offset <= next_request"),
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
        "Quota._take",
        "the bucket is filled before the first request",
        "it is full then",
        ("self._filled_ms >= 0", "self._filled_ms >= -1"),
    ),
    _of(
        _TAKEOVER,
        "recover",
        "another negative number for “none”, or no place to stop a process",
        "only the sign is used; only tests stop a process there",
        ("progress, None, -1)", "progress, None, -2)"),
        ("bounded.end), -1)", "bounded.end), -2)"),
        ("failpoints.reached('takeover.recovered')", "pass"),
    ),
    _of(
        _TAKEOVER,
        "fence",
        "no place to stop a process",
        "only tests stop a process there",
        ("failpoints.reached('takeover.fenced')", "pass"),
    ),
    _of(
        _TAKEOVER,
        "bound",
        "no place to stop a process",
        "only tests stop a process there",
        ("failpoints.reached('takeover.bounded')", "pass"),
    ),
    _of(
        _TAKEOVER,
        "recover",
        "another negative number, or 0, for an unknown time",
        "only the sign of one is used, and no message leaves before 1",
        ("-1 if record is None", "-2 if record is None"),
        ("-1 if record is None", "-0 if record is None"),
    ),
    _of(
        _TAKEOVER,
        "recover",
        "a lower offset if the log has no record",
        "offsets of the index, which are not negative, are compared with it, and the highest counts",
        ("else (0, 0)", "else (-1, 0)"),
        ("else (0, 0)", "else (0, -1)"),
    ),
    _of(
        _TAKEOVER,
        "recover",
        "an accepted loss of requests that ends at offset 0",
        "every such loss ends behind at least one request",
        ("give_up_to >= 0", "give_up_to > 0"),
        ("give_up_to >= 0", "give_up_to >= 1"),
        ("give_up_to < 0", "give_up_to <= 0"),
        ("give_up_to < 0", "give_up_to < 1"),
    ),
    _of(
        _TAKEOVER,
        "_begin",
        "another negative number for “none”",
        "only the sign is used",
        ("(True, -1)", "(True, -2)"),
    ),
    _of(
        _TAKEOVER,
        "_check_behind",
        "another negative number for “none”",
        "only the sign is used",
        ("return -1", "return -2"),
    ),
    _of(
        _TAKEOVER,
        "_replay",
        "memory is released one byte earlier",
        "the bound only determines when memory is released",
        ("in_memory > RECOVERY_MEMTABLES_BYTES_MAX", "in_memory >= RECOVERY_MEMTABLES_BYTES_MAX"),
    ),
    _of(
        _TAKEOVER,
        "_pieces",
        "the first record of a piece instead of the last one",
        "a record that names accepted losses is alone in its piece",
        ("piece[-1]", "piece[-0]"),
    ),
    _of(
        _TAKEOVER,
        "_apply_piece",
        "time 1 for a record without a time; another negative number for “none”; no place to stop a process",
        "ends of ids are kept by longer periods; only the sign is used; only tests stop a process there",
        ("timestamp_ms, 0)", "timestamp_ms, 1)"),
        ("progress.rewind_to = -1", "progress.rewind_to = -2"),
        ("failpoints.reached('takeover.record-applied')", "pass"),
    ),
    _of(
        _TAKEOVER,
        "_pass_over",
        "another due time in the mark of an ended request",
        "only marks of pending requests have due times",
        ("due=-1", "due=-0"),
        ("due=-1", "due=-2"),
    ),
    _of(
        _TAKEOVER,
        "own",
        "no place to stop a process",
        "only tests stop a process there",
        ("failpoints.reached('takeover.owned')", "pass"),
    ),
    _of(
        _TAKEOVER,
        "leave_mark",
        "the state of the index at the fence",
        "the fence passes it on, and here nobody reads it",
        ("empty=False", "empty=True"),
        ("behind=False", "behind=True"),
    ),
    _of(
        _TAKEOVER,
        "leave_mark",
        "requests below offset -1 were read by earlier owners",
        "the record names the requests that the index has read, if these are more",
        ("0 if last is None", "-1 if last is None"),
    ),
    _of(
        _TIMER_LOG,
        "_UNBOUNDED",
        "another bound of bytes",
        "no row of it is as large",
        ("2 ** 62", "2 ** 63"),
        ("2 ** 62", "2 ** 61"),
        ("2 ** 62", "3 ** 62"),
    ),
    _of(_TIMER_LOG, "_NONE_PENDING", "another negative number for “none”", "only the sign is used", ("-1", "-2")),
    _of(
        _TIMER_LOG,
        "TimerLog._load",
        "the offset of no row; rows are trimmed one offset earlier or later",
        "an empty row holds no offset; the time of trimming only determines when space is freed",
        ("self._trim_from = 0", "self._trim_from = 1"),
        ("self._trim_from = 0", "self._trim_from = -1"),
        ("(0, b'')", "(1, b'')"),
        ("(0, b'')", "(-1, b'')"),
    ),
    _of(
        _TIMER_LOG,
        "TimerLog.first_due",
        "the first offset of the row that was read last",
        "it is read again; positions are multiples of 8",
        ("0 <= at", "0 < at"),
        ("0 <= at", "1 <= at"),
        ("0 <= at", "-1 <= at"),
    ),
    _of(
        _TIMER_LOG,
        "TimerLog._first_dues",
        "more rows, or a row beyond the end of the range",
        "the caller looks up offsets of the range only",
        ("collect(before - start", "collect(before + start"),
        ("min(before - base", "min(before + base"),
    ),
    _of(
        _TIMER_LOG,
        "TimerLog._low_water_moved",
        "rows are trimmed more often",
        "it only determines when space is freed",
        ("self.low_water() - self._trim_from", "self.low_water() + self._trim_from"),
    ),
    _of(
        _TIMER_LOG,
        "TimerLog._trim_firsts",
        "an empty range is deleted, the offset of no row, and range tombstones are counted otherwise",
        "an empty row holds no offset; the count only determines when memory is written out",
        ("bound > self.first_dues_from", "bound >= self.first_dues_from"),
        ("(bound, (0, b''))", "(bound, (1, b''))"),
        ("(bound, (0, b''))", "(bound, (-1, b''))"),
        ("0 if row is None", "1 if row is None"),
        ("0 if row is None", "-1 if row is None"),
        ("self._range_tombstones += 1", "pass"),
        ("self._range_tombstones += 1", "self._range_tombstones += 0"),
        ("self._range_tombstones += 1", "self._range_tombstones += 2"),
    ),
    _of(
        _TIMER_LOG,
        "TimerLog.reclaim",
        "space is freed one byte later",
        "the bound only determines when space is freed",
        ("self.reclaimable_size_bytes < limits", "self.reclaimable_size_bytes <= limits"),
    ),
    _of(
        _WHEEL_FILE,
        "WheelFile.__init__",
        "the first generation is 2",
        "only the order of generations is used",
        ("0 if stamp is None", "1 if stamp is None"),
    ),
    _of(
        _WHEEL_FILE,
        "WheelFile._write_stamp",
        "another number for no checksum",
        "the checksum of an unclean file is not read",
        ("if clean else 0", "if clean else 1"),
    ),
)


def names(root: Path, declared: tuple[Undetectable, ...] = UNDETECTABLE) -> set[str]:
    """The names of the declared changes. Raises AssertionError if one of them is none that the tool makes."""
    found = set()
    for path in {each.path for each in declared}:
        made: dict[tuple[str, str], Change] = {(each.scope, each.scope_text()): each for each in changes_of(root, path)}
        for each in declared:
            if each.path == path:
                for text, change in zip(each.texts(root), each.changes, strict=True):
                    assert (each.function, text) in made, f"{each.function}: the tool does not make {change}"
                    found.add(made[each.function, text].name)
    return found


def table(declared: tuple[Undetectable, ...] = UNDETECTABLE) -> str:
    """The list as a table for people."""
    rows = [f"| `{each.function}` | {each.what} | {each.reason} |" for each in declared]
    return "\n".join(["| function | change | reason |", "| --- | --- | --- |", *rows])
