"""Goal: a scan cursor never points at, or remembers, the key of an ended entry, in any order of ends.

Method: over random writes, the cursor is compared with a sorted list of the present keys. In a timer index, an ended
key must not cause a rebuild of the wheel.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import FIRST_KEY, entry_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.identity import Identity
from postdate.wheel.timer_log.scan_cursor import ScanCursor

NOW_MS = 1_767_225_600_000


@given(st.lists(st.tuples(st.sampled_from(["put", "end", "scan"]), st.sets(st.integers(0, 3), min_size=1))))
def test_the_cursor_stands_at_the_first_present_key(steps: list[tuple[str, set[int]]]) -> None:
    cursor, present = ScanCursor(FIRST_KEY), list[bytes]()
    for action, numbers in steps:
        keys = sorted(entry_key(NOW_MS + number, number) for number in numbers)
        if action == "put":
            added = [key for key in keys if key not in present]
            present = sorted([*present, *added])
            if added:
                cursor.note_put(added[0])
        elif action == "end":
            cursor.note_deleted(dict.fromkeys(key for key in keys if key in present))
            present = [key for key in present if key not in keys]
        else:
            found = present[bisect_left(present, cursor.at) :]
            if found:
                cursor.note_present(found)
            else:
                cursor.note_empty(entry_key(NOW_MS + 20, 0))
        assert not present or cursor.at <= present[0]
        assert not cursor.is_exact or cursor.at == present[0]


def test_changes_to_returned_keys_do_not_move_the_cursor() -> None:
    first, second, third = (entry_key(NOW_MS + number, number) for number in range(3))
    cursor = ScanCursor(FIRST_KEY)
    keys = [first]
    cursor.note_present(keys)
    keys.append(third)
    cursor.note_deleted({first: None})
    assert cursor.at <= second  # the cursor does not know this key, which may be present
    assert not cursor.is_exact


def test_messages_behind_controls_do_not_become_keys_of_the_cursor_of_controls(tmp_path: Path) -> None:
    index = TimerIndex.open(tmp_path / "0", Identity("c", "r", "d", 0, "s"), IndexOptions(), NOW_MS)
    control, message = entry_key(0, 1), entry_key(NOW_MS, 0)
    changes = EntryChanges()
    changes.next_request = 2
    changes.insert(control, b"x")
    changes.insert(message, b"x")
    index.write(changes)
    assert index.scan_due(NOW_MS + 1, 10)[0] == [control, message]
    changes = EntryChanges()
    changes.delete(control, 1)
    index.write(changes)
    assert not index._ending.is_exact
    index.close()


def test_a_wheel_is_not_rebuilt_for_a_key_that_ended_in_the_middle(tmp_path: Path) -> None:
    index = TimerIndex.open(tmp_path / "0", Identity("c", "r", "d", 0, "s"), IndexOptions(), NOW_MS)
    keys = [entry_key(NOW_MS + 10 * number, number) for number in range(3)] + [entry_key(NOW_MS + 3_600_000, 9)]
    changes = EntryChanges()
    changes.next_request = 10
    for key in keys:
        changes.insert(key, b"x")
    index.write(changes)
    assert len(index.scan_due(NOW_MS + 1_000, 10)[0]) == 3
    for key in (keys[1], keys[0], keys[2]):
        changes = EntryChanges()
        changes.delete(key, 1)
        index.write(changes)
    assert index.confirm(NOW_MS + 1_000)
    assert index.rebuilds == 0
    index.close()
