"""Goal: this version reads the formats of all earlier versions, and writes what they can read. It refuses data of a
newer version with a clear error, and keeps the data.

Method: the present code reads the samples in `tests/samples`. The version that introduced a format made its samples
once, with `support.shards.format_samples`. A newer format is a sample with its version raised.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rocksdict import WriteBatch

from postdate.wheel.entry import decode_entry
from postdate.wheel.errors import FormatMismatch
from postdate.wheel.index import TimerIndex, move_aside
from postdate.wheel.keys import entry_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.database import Database
from postdate.wire.dispatch_log import decode_record, encode_record
from postdate.wire.errors import FormatError, NewerFormat
from postdate.wire.stored import decode_stored
from postdate.wire.verdicts import decode_verdict
from support.shards import format_samples as samples


def _open(directory: Path) -> TimerIndex:
    return TimerIndex.open(directory, samples.IDENTITY, IndexOptions(), samples.NOW_MS)


def _check_whole(index: TimerIndex) -> None:
    """Checks that the index holds everything from which the sample was made."""
    keys, values = index.scan_due(samples.NOW_MS + 10, 100)
    assert {key: decode_entry(value) for key, value in zip(keys, values, strict=True)} == samples.ENTRIES
    read = index.checkpoint
    assert (read.next_request, read.next_dispatch, read.seq, read.takeover) == (10, 4, 3, 1)
    assert index.timer_log.id_key(b"order-9") == entry_key(samples.NOW_MS, 7)
    assert {offset: index.timer_log.mark(offset) for offset in samples.MARKS} == samples.MARKS
    index.close()


def test_the_dispatch_log_of_every_version_is_read_and_still_written() -> None:
    assert [decode_record(line) for line in samples.lines(samples.DISPATCH_LOG)] == samples.RECORDS
    assert [encode_record(record) for record in samples.RECORDS] == samples.lines(samples.DISPATCH_LOG)
    assert [decode_record(line) for line in samples.lines(samples.DISPATCH_LOG_2)] == samples.RECORDS_2
    assert [encode_record(record) for record in samples.RECORDS_2] == samples.lines(samples.DISPATCH_LOG_2)
    assert [decode_record(line) for line in samples.lines(samples.DISPATCH_LOG_3)] == samples.RECORDS_3
    assert [encode_record(record) for record in samples.RECORDS_3] == samples.lines(samples.DISPATCH_LOG_3)


def test_verdicts_of_every_version_are_read_and_still_written() -> None:
    assert [decode_verdict(line) for line in samples.lines(samples.VERDICTS)] == samples.ANSWERS
    assert [samples.verdict_line(answer) for answer in samples.ANSWERS] == samples.lines(samples.VERDICTS)
    assert [decode_verdict(line) for line in samples.lines(samples.VERDICTS_2)] == samples.ANSWERS_2
    assert [samples.verdict_line(answer) for answer in samples.ANSWERS_2] == samples.lines(samples.VERDICTS_2)
    assert [decode_verdict(line) for line in samples.lines(samples.VERDICTS_3)] == samples.ANSWERS_3
    assert [samples.verdict_line(answer) for answer in samples.ANSWERS_3] == samples.lines(samples.VERDICTS_3)


@pytest.mark.parametrize(("file", "version"), [(samples.VERDICTS_2, b"2"), (samples.VERDICTS_3, b"3")])
@pytest.mark.parametrize("other", [b"1", b"2", b"3"])
def test_a_verdict_needs_its_version(file: Path, version: bytes, other: bytes) -> None:
    changed = samples.lines(file)[-1].replace(b'"v":' + version, b'"v":' + other)
    if other == version:
        decode_verdict(changed)
    else:
        with pytest.raises(FormatError):
            decode_verdict(changed)


def test_the_answer_to_a_bulk_control_needs_its_version_and_count() -> None:
    line = samples.lines(samples.VERDICTS_2)[0]
    for changed in (line.replace(b'"v":2', b'"v":1'), line.replace(b',"count":17', b""), line.replace(b"17", b"-1")):
        with pytest.raises(FormatError):
            decode_verdict(changed)


def test_store_records_of_every_version_are_read_and_still_written() -> None:
    assert [decode_stored(*samples.stored_record(line)) for line in samples.lines(samples.STORE)] == samples.STORED
    assert [samples.stored_line(request) for request in samples.STORED] == samples.lines(samples.STORE)
    assert [decode_stored(*samples.stored_record(line)) for line in samples.lines(samples.STORE_2)] == samples.STORED_2
    assert [samples.stored_line(request) for request in samples.STORED_2] == samples.lines(samples.STORE_2)
    assert [decode_stored(*samples.stored_record(line)) for line in samples.lines(samples.STORE_3)] == samples.STORED_3
    assert [samples.stored_line(request) for request in samples.STORED_3] == samples.lines(samples.STORE_3)


def test_a_store_record_of_a_newer_version_stops_the_reader() -> None:
    key, value, headers = samples.stored_record(samples.lines(samples.STORE)[0])
    name, meaning = headers[-1]
    headers[-1] = name, (meaning or b"").replace(b'"v":1', b'"v":4')
    with pytest.raises(NewerFormat, match="request 17 has version 4: written by a newer Postdate"):
        decode_stored(key, value, headers)


def test_a_timer_log_of_this_format_is_read(tmp_path: Path) -> None:
    samples.unpack(samples.TIMER_LOG, tmp_path)
    _check_whole(_open(tmp_path))


def test_fields_of_a_newer_version_are_ignored() -> None:
    line = samples.lines(samples.DISPATCH_LOG)[1]
    assert decode_record(line[:-1] + b',"added":{"later":[1]}}') == samples.RECORDS[1]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_record_of_a_newer_version_stops_the_reader(number: int) -> None:
    line = samples.lines(samples.DISPATCH_LOG)[number]
    with pytest.raises(NewerFormat, match="version 4: written by a newer Postdate"):
        decode_record(line.replace(b'"v":1', b'"v":4'))


def test_a_verdict_of_a_newer_version_stops_the_reader() -> None:
    with pytest.raises(FormatError, match="version 4: written by a newer Postdate"):
        decode_verdict(samples.lines(samples.VERDICTS)[0].replace(b'"v":1', b'"v":4'))


def test_a_timer_log_of_a_newer_version_is_refused_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    directory = tmp_path / "3"
    samples.unpack(samples.TIMER_LOG, directory)
    _set_version(directory, 3)
    with pytest.raises(FormatMismatch, match="format version 3, this program writes 2"):
        _open(directory)
    kept = move_aside(directory, "unusable")
    assert _open(directory).count == 0, "it is rebuilt from Kafka"
    _set_version(kept, 2)
    _check_whole(_open(kept))


def _set_version(directory: Path, version: int) -> None:
    """Replaces the first member of the identity row, as another version would write it."""
    database = Database(directory / "log", IndexOptions())
    _, identity, log_id = msgspec.msgpack.decode(database.get("meta", b"identity") or b"")
    batch = WriteBatch(raw_mode=True)
    batch.put(b"identity", msgspec.msgpack.encode((version, identity, log_id)), database.handle("meta"))
    database.write(batch)
    database.close()
