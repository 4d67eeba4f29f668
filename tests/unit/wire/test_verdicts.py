"""Goal: verdicts read back, and no other record passes for a verdict.

Method: each malformed value differs from a valid value by one change. Each must raise FormatError and no other error,
since callers act on verdicts: if a caller wrongly believes a cancel, an order is lost.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from postdate.wire.errors import FormatError
from postdate.wire.limits import ID_BYTES_MAX, INTEGER_END, TOPIC_NAME_LENGTH_MAX, VERDICT_BYTES_MAX
from postdate.wire.origins import format_origin
from postdate.wire.verdicts import Verdict, VerdictRecord, decode_verdict, encode_verdict

GOOD: dict[str, Any] = {
    **{"v": 1, "origin": "R/3/1017", "id": "order-9", "verdict": "cancelled", "of": "R/3/990", "at": 1_795_258_284_000}
}
READ = VerdictRecord(origin="R/3/1017", id="order-9", verdict=Verdict.CANCELLED, of="R/3/990", at_ms=1_795_258_284_000)


def value_of(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_verdict_reads_back() -> None:
    assert decode_verdict(value_of()) == READ
    _, value = encode_verdict(Verdict.TOO_LATE, b"R/3/5", b"", b"", 7)
    assert decode_verdict(value) == VerdictRecord(origin="R/3/5", id=None, verdict=Verdict.TOO_LATE, of=None, at_ms=7)


def test_fields_of_a_later_postdate_are_ignored() -> None:
    assert decode_verdict(value_of(more={"deep": [1]})) == READ


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="null"),
        pytest.param(b"", id="empty"),
        pytest.param(b"cancelled", id="text"),
        pytest.param(b"[1]", id="list"),
        pytest.param(b"[" * 5_000, id="deep"),
        pytest.param(value_of() + b"{}", id="two"),
        pytest.param(value_of(more="x" * VERDICT_BYTES_MAX), id="large"),
        pytest.param(value_of(verdict="canceled"), id="unknown-verdict"),
        pytest.param(value_of(verdict=None), id="null-verdict"),
        pytest.param(value_of(v=0), id="version-that-never-was"),
        pytest.param(value_of(v="1"), id="version-text"),
        pytest.param(value_of(origin="R/3"), id="no-origin"),
        pytest.param(value_of(origin=None), id="null-origin"),
        pytest.param(value_of(of="R/3/-1"), id="of-nothing"),
        pytest.param(value_of(of=990), id="of-number"),
        pytest.param(value_of(id=9), id="id-number"),
        pytest.param(value_of(at=-1), id="time-negative"),
        pytest.param(value_of(at=INTEGER_END), id="time-large"),
        pytest.param(value_of(at=1.5), id="time-fraction"),
    ],
)
def test_foreign_records_are_not_verdicts(value: bytes | None) -> None:
    with pytest.raises(FormatError):
        decode_verdict(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value_of(verdict="4711-Ada"), id="verdict"),
        pytest.param(value_of(origin="4711-Ada"), id="origin"),
        pytest.param(value_of(of="4711-Ada"), id="of"),
        pytest.param(value_of(v=-4711), id="version"),
        pytest.param(value_of(at=-4711), id="time"),
        pytest.param(value_of(id={"4711-Ada": 1}), id="id"),
        pytest.param(value_of() + b"4711-Ada", id="trailing"),
        pytest.param(b'{"v":1,"4711-Ada":\x00}', id="malformed"),
        pytest.param(b"4711-Ada", id="text"),
    ],
)
def test_the_error_quotes_nothing_of_the_record(value: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        decode_verdict(value)
    assert not any(said in str(caught.value) for said in ("4711", "Ada"))


@pytest.mark.parametrize("field", ["v", "origin", "verdict", "at"])
def test_a_verdict_without_a_field_is_malformed(field: str) -> None:
    with pytest.raises(FormatError, match=field):
        decode_verdict(json.dumps({name: value for name, value in GOOD.items() if name != field}).encode())


def test_a_newer_version_is_named() -> None:
    with pytest.raises(FormatError, match="version 4: written by a newer Postdate"):
        decode_verdict(b'{"v":4,"said":"otherwise"}')


def test_the_largest_verdict_can_be_read() -> None:
    origin = format_origin("t" * TOPIC_NAME_LENGTH_MAX, 2**31 - 1, INTEGER_END - 1)
    key, value = encode_verdict(Verdict.RESCHEDULED, origin, b"\x01" * ID_BYTES_MAX, origin, INTEGER_END - 1)
    answer = decode_verdict(value)
    assert (key, answer.id, answer.of) == (b"\x01" * ID_BYTES_MAX, "\x01" * ID_BYTES_MAX, origin.decode())
