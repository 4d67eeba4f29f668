"""Goal: each step of a takeover is correct, even if an index is replayed from the first record of the dispatch log.

Method: each test calls one step with a timer index and made-up records; no cluster is needed.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET

from postdate.kafka.errors import Retriable
from postdate.kafka.interface import Partition, Record
from postdate.sidecar.errors import Contradicted, Halted, HaltReason
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.takeover import takeover
from postdate.sidecar.takeover.broken_log import SeqBroken
from postdate.sidecar.takeover.checking import TakeoverProgress
from postdate.sidecar.takeover.dispatch_tail import Stopped
from postdate.sidecar.takeover.empty_start import Start
from postdate.sidecar.transaction.bound_check import UnverifiedBound
from postdate.wheel.entry import Entry, Kind, Mark
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.checkpoint import BulkRow, Checkpoint
from postdate.wheel.timer_log.ended import RecentOutcome
from postdate.wire.dispatch_log import (
    BEAT,
    DELIVERED,
    FATES,
    OWNER,
    AcceptedLoss,
    DispatchRecord,
    PlainFate,
    decode_record,
    encode_record,
)
from support.shards.timer_indexes import open_index

_AT_MS = 1_795_258_284_000
_WINDOW_MS = 60_000
_CTX: Any = SimpleNamespace(
    name="r/0",
    own=SimpleNamespace(requests="r"),
    log=Partition("d", 0),
    origin_prefix=b"r/0/",
    stopping=lambda: False,
)
_PASSED = AcceptedLoss("requests-truncated", "r", 0, 1)


def _record(
    number: int, kind: str = BEAT, fates: int = 0, at_ms: int = _AT_MS, accepted: AcceptedLoss = _PASSED
) -> Record:
    """Returns a record with `fates` fates; a record of kind OWNER names `accepted`."""
    dispatch_record = DispatchRecord(
        seq=number + 1,
        takeover=1,
        instance="i",
        group="g",
        at=1,
        next_request=number,
        low_water=0,
        kind=kind,
        fates=[PlainFate(10 * number + at, 1, DELIVERED) for at in range(fates)],
        accepted=[accepted] if kind == OWNER else UNSET,
    )
    return Record(2 * number, at_ms, True, None, encode_record(dispatch_record), [])


def _decoded(*records: Record) -> list[tuple[Record, DispatchRecord]]:
    return [(record, decode_record(record.value)) for record in records]


def _apply(index: TimerIndex, *records: Record) -> None:
    """Applies one piece of a recovery."""
    progress = TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False)
    takeover._apply_piece(_CTX, progress, _decoded(*records))


def test_a_log_that_is_read_again_from_its_first_record_counts_its_own_seq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(tmp_path)
    changes = EntryChanges()
    changes.next_request, changes.next_dispatch, changes.seq, changes.takeover = 0, 90, 45, 1
    index.write(changes)
    read: list[int] = []

    def read_log(_ctx: Any, _part: Partition, start: int, _end: int, take: Any) -> None:
        read.append(start)
        take([_record(number) for number in range(3)])

    monkeypatch.setattr(takeover, "read_log", read_log)
    progress = TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False, rewind_to=0)
    takeover._replay(_CTX, progress, 0, 6)
    assert (read, index.checkpoint.seq, index.checkpoint.next_dispatch) == ([0], 3, 6)
    assert progress.ingested == 2, "the last owner has read the requests below it"
    index.close()


@pytest.mark.parametrize("rewind_to", [-1, 0])
def test_a_record_whose_seq_is_not_the_next_one_ends_the_replay(tmp_path: Path, rewind_to: int) -> None:
    """In a log that is read again from an earlier record, the first record gives the first seq."""
    index = open_index(tmp_path)
    overlay = IndexOverlay(index)
    overlay.advance(next_request=0, next_dispatch=0, seq=40 if rewind_to == 0 else 0, takeover=1)
    overlay.write()
    progress = TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False, rewind_to=rewind_to)
    for numbers in ((0, 1), (2,)):
        takeover._apply_piece(_CTX, progress, _decoded(*map(_record, numbers)))
    with pytest.raises(SeqBroken) as broken:
        takeover._apply_piece(_CTX, progress, _decoded(_record(4)))
    assert (broken.value.offset, broken.value.expected) == (_record(4).offset, 4)
    index.close()


def test_records_are_applied_in_pieces_of_bounded_size_and_an_accepted_loss_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "RECOVERY_FATES_MAX", 4)
    fates = [2, 2, 4, 1, 9, 0, 0, 4, 0]
    records = [_record(number, FATES if count else BEAT, count) for number, count in enumerate(fates)]
    records += [_record(9), _record(10, OWNER), _record(11), _record(12)]
    pieces = [[record.offset // 2 for record, _ in piece] for piece in takeover._pieces(_CTX, records)]
    assert pieces == [[0, 1], [2], [3], [4], [5, 6, 7, 8, 9], [10], [11, 12]]


@pytest.mark.parametrize(
    ("at_ms", "query_ms", "is_known"),
    [(_AT_MS, _AT_MS, True), (_AT_MS, _AT_MS + 3 * _WINDOW_MS, False), (-1, 0, True), (0, 0, True)],
)
def test_the_end_of_an_id_is_remembered_from_the_time_of_the_last_record_of_its_piece(
    tmp_path: Path, at_ms: int, query_ms: int, is_known: bool
) -> None:
    """A record without a timestamp counts as written at time 0."""
    index = open_index(tmp_path, IndexOptions(ended_window_ms=_WINDOW_MS))
    overlay = IndexOverlay(index)
    overlay.advance(next_request=1, next_dispatch=0, seq=0, takeover=1)
    entry = Entry(Kind.DELIVER, False, first_due=1, due=1, target="t", key=None, value=b"", headers=[], id=b"a")
    overlay.put(0, 1, entry)
    overlay.claim_id(entry, 0)
    overlay.write()
    _apply(index, _record(0, FATES, 1, max(at_ms - 3 * _WINDOW_MS, -1)), _record(1, at_ms=at_ms))
    assert index.count == 0
    outcome = IndexOverlay(index, query_ms).outcome(b"a")
    assert outcome == (RecentOutcome(0, True) if is_known else None)
    index.close()


def test_a_process_that_dies_after_a_piece_continues_after_its_last_record(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    overlay = IndexOverlay(index)
    overlay.advance(next_request=0, next_dispatch=0, seq=0, takeover=1)
    overlay.write()
    records = [_record(number) for number in range(3)]
    _apply(index, *records)
    assert (index.checkpoint.next_dispatch, index.checkpoint.seq) == (records[-1].offset + 1, 3)
    index.close()


@pytest.mark.parametrize(
    ("reason", "topic", "passed"),
    [("requests-truncated", "r", [2, 3, 4]), ("requests-lost", "r", []), ("requests-truncated", "other", [])],
)
def test_only_requests_at_offsets_that_were_used_twice_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, topic: str, passed: list[int]
) -> None:
    monkeypatch.setattr(takeover, "RECOVERY_FATES_MAX", 2)
    index = open_index(tmp_path)
    overlay = IndexOverlay(index)
    overlay.advance(next_request=2, next_dispatch=0, seq=0, takeover=1)
    overlay.write()
    _apply(index, _record(0, OWNER, accepted=AcceptedLoss(reason, topic, 1, 5)))
    ended = Mark(final=True, stored=False, due=-1)
    marks = {offset: mark for offset in range(9) if (mark := index.timer_log.mark(offset))}
    assert marks == dict.fromkeys(passed, ended)
    assert index.checkpoint.next_dispatch == 1
    index.close()


def test_a_shard_that_was_revoked_is_not_fenced() -> None:
    """A fence would hit the new owner."""
    ctx: Any = SimpleNamespace(stopping=lambda: True, kafka=None)
    progress: Any = None
    with pytest.raises(Stopped):
        takeover.fence(ctx, progress)


def test_a_fence_that_fails_leaves_no_producer() -> None:
    destroyed: list[bool] = []

    def init(*_: Any) -> None:
        raise Retriable("no coordinator")

    producer = SimpleNamespace(init=init, destroy=lambda: destroyed.append(True))
    kafka = SimpleNamespace(producer=lambda *_: producer)
    ctx: Any = SimpleNamespace(stopping=lambda: False, kafka=kafka, transactional_id="t", log=_CTX.log)
    progress: Any = None
    with pytest.raises(Retriable):
        takeover.fence(ctx, progress)
    assert destroyed == [True]


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_rebuild_leaves_nothing_of_the_old_index_and_keeps_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """No operator needs the remains of an interrupted rebuild."""
    old, start = open_index(tmp_path / "0"), Start(low=0, position=0, takeover=1, seq=4, last_seq=5, ingested=6)
    changes = EntryChanges()
    changes.insert(entry_key(1, 0), b"x")
    if is_whole:
        changes.next_request, changes.next_dispatch, changes.seq, changes.takeover = 1, 0, 0, 1
    old.write(changes)
    monkeypatch.setattr(takeover, "open_index", lambda _: SimpleNamespace(index=open_index(tmp_path / "0")))
    monkeypatch.setattr(takeover, "start_empty", lambda *_: None)
    progress = TakeoverProgress(old, AcceptedLosses(), empty=False, behind=False, rewind_to=3)
    takeover._begin(_CTX, progress, start, "too old")
    assert (progress.index.count, progress.empty, progress.rewind_to) == (0, True, -1)
    assert (progress.last_seq, progress.ingested) == (5, 6)
    assert len(list(tmp_path.iterdir())) == (2 if is_whole else 1)
    progress.index.close()


def test_an_index_that_cannot_be_rebuilt_follows_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is replayed once more, and then the contradiction is only logged."""
    index = open_index(tmp_path)
    overlay = IndexOverlay(index)
    overlay.advance(next_request=0, next_dispatch=0, seq=0, takeover=1)
    overlay.write()
    may_be_replaced: list[bool] = []
    confirmed: list[Halted] = []

    def replay(_ctx: Any, progress: TakeoverProgress, _start: int, _end: int) -> None:
        assert len(may_be_replaced) < 2
        may_be_replaced.append(progress.replaceable)
        if progress.replaceable:
            raise Contradicted("a control was judged otherwise")

    def find_start(*_: Any) -> Start:
        raise Halted(HaltReason.FATES_MISSING, "the dispatch log begins too late")

    monkeypatch.setattr(takeover, "_replay", replay)
    monkeypatch.setattr(takeover, "find_start", find_start)
    monkeypatch.setattr(takeover, "last_committed_record", lambda *_: None)
    progress = TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False)
    fenced = takeover.FencedShard(progress, producer=_CTX)
    assert takeover.recover(_CTX, takeover.Bounded(0, 0, fenced), confirmed.append).index is index
    assert may_be_replaced == [True, False]
    assert len(confirmed) == 1
    index.close()


def test_given_up_requests_leave_no_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark waits for its request, and given-up requests are never read."""
    index = open_index(tmp_path)
    overlay = IndexOverlay(index)
    overlay.advance(next_request=2, next_dispatch=0, seq=0, takeover=1)
    for offset in (2, 3, 5, 6):
        overlay.set_mark(offset, Mark(final=True, stored=False, due=-1))
    overlay.write()
    monkeypatch.setattr(takeover, "rebuild", lambda *_: None)
    takeover._give_up(_CTX, TakeoverProgress(index, AcceptedLosses(), empty=False, behind=True), 5)
    assert index.checkpoint.next_request == 5
    assert [offset for offset in range(9) if index.timer_log.mark(offset) is not None] == [5, 6]
    index.close()


def test_given_up_requests_leave_no_unread_bulk_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unread bulk control would stop all messages until it is read. A control that was read is still carried out,
    and a control after the given-up requests is still read."""
    index = open_index(tmp_path)
    overlay = IndexOverlay(index)
    overlay.advance(next_request=2, next_dispatch=0, seq=0, takeover=1)
    for row in (BulkRow(1, b"request", 3), BulkRow(4, b"", 2), BulkRow(5, b"", 0)):
        overlay.set_bulk(row)
    overlay.write()
    monkeypatch.setattr(takeover, "rebuild", lambda *_: None)
    takeover._give_up(_CTX, TakeoverProgress(index, AcceptedLosses(), empty=False, behind=True), 5)
    assert index.timer_log.bulks == (BulkRow(1, b"request", 3), BulkRow(5, b"", 0))
    index.close()


def test_an_index_that_goes_back_to_the_first_record_has_missed_none() -> None:
    """This holds even if that record has been deleted since: an operator has accepted the loss."""
    index: Any = SimpleNamespace(checkpoint=Checkpoint(next_dispatch=2))
    progress = TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False, rewind_to=0)
    bounded: Any = SimpleNamespace(start=5, end=9)
    assert not takeover._has_missed(_CTX, bounded, progress)


@pytest.mark.parametrize(
    ("seen", "oldest_seq", "end", "rebuilds", "has_missed"),
    [
        (None, None, 90, 0, False),  # nothing was seen
        (50, None, 90, 0, False),  # nothing was deleted
        (40, 8, 90, 0, False),  # the oldest remaining record is the next one
        (40, 9, 90, 0, True),
        (40, None, 41, 1, False),  # the marker of the last record
        (40, None, 42, 0, True),  # a record is among the missing offsets
        (40, None, 43, 0, False),  # an aborted transaction
        (40, None, 43, 1, True),  # or a commit, if a power failure has lost its step of D
        (40, None, 44, 0, True),
    ],
)
def test_an_index_has_missed_what_may_have_been_committed_in_deleted_records(
    monkeypatch: pytest.MonkeyPatch, seen: int | None, oldest_seq: int | None, end: int, rebuilds: int, has_missed: bool
) -> None:
    oldest = None if oldest_seq is None else _record(oldest_seq - 1)
    monkeypatch.setattr(takeover, "oldest_record", lambda *_: oldest)
    index: Any = SimpleNamespace(checkpoint=Checkpoint(next_dispatch=seen, seq=7), rebuilds=rebuilds)
    progress = TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False)
    bounded: Any = SimpleNamespace(start=50, end=end)
    assert takeover._has_missed(_CTX, bounded, progress) == has_missed


@pytest.mark.parametrize(
    ("end", "rewind_to", "empty", "is_refused"),
    [(4, -1, False, True), (5, -1, False, False), (4, -1, True, False), (4, 0, False, False)],
)
def test_an_end_of_the_log_below_the_read_offset_is_queried_again(
    end: int, rewind_to: int, empty: bool, is_refused: bool
) -> None:
    """It is not queried again if the index is rebuilt, or is replayed from an earlier record on."""
    admin = SimpleNamespace(end_offsets=lambda *_: {_CTX.log: end}, start_offsets=lambda *_: {_CTX.log: 0})
    ctx: Any = SimpleNamespace(admin=admin, log=_CTX.log, partition=0)
    index: Any = SimpleNamespace(checkpoint=Checkpoint(next_dispatch=5))
    progress = TakeoverProgress(index, AcceptedLosses(), empty=empty, behind=False, rewind_to=rewind_to)
    fenced = takeover.FencedShard(progress, producer=ctx)
    if is_refused:
        with pytest.raises(Retriable, match="was read up to 5"):
            takeover.bound(ctx, fenced)
    else:
        assert takeover.bound(ctx, fenced).end == end


def test_a_commit_that_is_about_to_be_requested_is_known_to_the_index(tmp_path: Path) -> None:
    """Otherwise, after the deletion of its records, the commit would look like an aborted transaction."""
    index = open_index(tmp_path)
    takeover._note_commit(index, 7)
    assert index.checkpoint.next_dispatch == 7
    index.close()


@pytest.mark.parametrize(("last_seq", "is_left"), [(None, True), (6, True), (7, True), (8, False)])
def test_a_mark_is_left_once(monkeypatch: pytest.MonkeyPatch, last_seq: int | None, is_left: bool) -> None:
    """The mark has the next seq. If the log's last seq is that of the index, the log has grown again without a mark."""

    def fence(*_: Any) -> None:
        raise Stopped("this begins the mark")

    index: Any = SimpleNamespace(checkpoint=Checkpoint(seq=7))
    monkeypatch.setattr(takeover, "fence", fence)
    monkeypatch.setattr(takeover, "last_record", lambda _: last_seq and SimpleNamespace(seq=last_seq))
    if is_left:
        with pytest.raises(Stopped):
            takeover.leave_mark(_CTX, index, 0, standing=False)
    else:
        takeover.leave_mark(_CTX, index, 0, standing=False)


@pytest.mark.parametrize(("offset", "is_refused"), [(4, False), (5, True)])
def test_a_mark_is_committed_only_below_the_known_end(offset: int, is_refused: bool) -> None:
    index: Any = SimpleNamespace(checkpoint=Checkpoint(next_dispatch=5))
    if is_refused:
        with pytest.raises(UnverifiedBound):
            takeover._verify_truncated(index, offset)
    else:
        takeover._verify_truncated(index, offset)
