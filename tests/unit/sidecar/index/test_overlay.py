"""Goal: an overlay shows the index as its write will leave it, and adopts decisions of other owners from the log.

Method: an overlay on a real timer index in a temporary directory. `test_apply_requests` tests how requests and fates
use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.errors import StorageError
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENDING_DUE, entry_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.database import RangeIterator
from postdate.wheel.timer_log.timer_log import TimerLogReader
from postdate.wire.dispatch_log import PolicyRow
from postdate.wire.limits import DUE_MS_MIN
from postdate.wire.values.id_digests import id_digest
from support.shards.timer_indexes import NOW_MS, open_index, put_entries

OLD, NEW = "base=1s", "base=2s"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimerIndex]:
    opened = open_index(tmp_path)
    overlay = IndexOverlay(opened)
    overlay.advance(next_request=5)
    overlay.write()
    yield opened
    opened.close()


def learn(index: TimerIndex, *rows: PolicyRow) -> tuple[PolicyRow, ...]:
    """Applies a record with these policies. Returns the policies of the index."""
    overlay = IndexOverlay(index)
    overlay.learn_policies(list(rows))
    overlay.write()
    return index.timer_log.policies


def test_named_policies_of_the_log_are_learned_once(index: TimerIndex) -> None:
    assert learn(index, (5, "slow", OLD), (5, "fast", OLD)) == ((5, "fast", OLD), (5, "slow", OLD))
    assert learn(index, (5, "slow", OLD), (7, "slow", NEW)) == ((5, "fast", OLD), (5, "slow", OLD), (7, "slow", NEW))


def test_a_policy_of_requests_that_were_ingested_without_it_contradicts_the_log(index: TimerIndex) -> None:
    with pytest.raises(Contradicted, match="slow changed at request 4"):
        learn(index, (4, "slow", OLD))
    assert index.timer_log.policies == ()


def test_a_policy_that_no_pending_request_needs_is_skipped(index: TimerIndex) -> None:
    """All requests below 5 have ended, and another row applies to later requests."""
    known = learn(index, (5, "slow", NEW))
    assert learn(index, (4, "slow", OLD)) == known


@pytest.mark.parametrize(("look_up", "read"), [("id_key", IndexOverlay.pending_id), ("entry", IndexOverlay.raw)])
def test_an_id_or_entry_is_looked_up_once(
    index: TimerIndex, monkeypatch: pytest.MonkeyPatch, look_up: str, read: Callable[[IndexOverlay, bytes], bytes]
) -> None:
    looked_up: list[bytes] = []

    def read_key(self: TimerLogReader, key: bytes) -> bytes:
        looked_up.append(key)
        return b"found " + key

    monkeypatch.setattr(TimerLogReader, look_up, read_key)
    overlay = IndexOverlay(index)
    first, second = entry_key(NOW_MS, 1), entry_key(NOW_MS, 2)
    for key in (first, first, second, first):
        assert read(overlay, key) == b"found " + key
    assert looked_up == [first, second, first]


def test_a_request_was_sent_if_it_became_an_entry_that_no_control_has_ended(index: TimerIndex) -> None:
    overlay = IndexOverlay(index)
    for offset, first_due_ms in enumerate((NOW_MS, ENDING_DUE, NOW_MS)):
        overlay.note_first_due(offset, first_due_ms)
    overlay.note_end(2, b"", sent=False)
    is_sent = [True, False, False, False]  # the last request was never read
    assert [overlay.was_sent(offset) for offset in range(4)] == is_sent
    overlay.note_first_dues()
    overlay.write()
    assert [IndexOverlay(index).was_sent(offset) for offset in range(4)] == is_sent


@pytest.mark.parametrize(("offset", "expected"), [(0, -1), (3, -1), (4, 3)])
def test_only_a_delivery_of_an_earlier_request_counts(tmp_path: Path, offset: int, expected: int) -> None:
    index = open_index(tmp_path, IndexOptions(ended_window_ms=1_000))
    overlay = IndexOverlay(index)
    overlay.remember_ids([(3, id_digest(b"a"))], NOW_MS)
    overlay.write()
    assert IndexOverlay(index).delivered(b"a", offset, NOW_MS) == expected
    index.close()


def test_the_controls_are_all_entries_under_key_0(index: TimerIndex) -> None:
    put_entries(index, [(DUE_MS_MIN, 0), (ENDING_DUE, 1), (ENDING_DUE, 2)])
    assert [offset for offset, _ in IndexOverlay(index).controls()] == [1, 2]


def test_a_failed_read_of_the_controls_raises(index: TimerIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(self: RangeIterator) -> None:
        raise StorageError("a disk error")

    monkeypatch.setattr(RangeIterator, "finish", finish)
    with pytest.raises(StorageError):
        list(IndexOverlay(index).controls())
