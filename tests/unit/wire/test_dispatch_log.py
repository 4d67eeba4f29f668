"""Goal: the documented dispatch-log record reads back, and every malformed record is refused.

Method: each malformed value differs from a valid record by one change. Each must raise FormatError and no other error,
and never pass, since the records decide which messages are delivered again.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from postdate.wire.dispatch_log import (
    APPLIED,
    BEAT,
    CANCELLED,
    DEAD,
    DELIVERED,
    FATES,
    FINAL,
    MOVED,
    OWNER,
    REPLACED,
    STORED,
    ChosenFate,
    DispatchRecord,
    Fate,
    FateName,
    Moved,
    PlainFate,
    PolicyRow,
    decode_record,
    encode_record,
)
from postdate.wire.errors import FormatError
from postdate.wire.limits import (
    DISPATCH_RECORD_BYTES_MAX,
    FATES_MAX,
    ID_DIGEST_LENGTH,
    IDS_MAX,
    POLICY_NAME_LENGTH_MAX,
    POLICY_ROWS_MAX,
    POLICY_TEXT_LENGTH_MAX,
)
from postdate.wire.values.id_digests import digest_bytes, id_digest

EXAMPLE = (
    b'{"v":1,"seq":42,"takeover":7,"instance":"postdate-0","group":"postdate","at":1795258284000,"next_request":2040,'
    b'"low_water":990,"kind":"fates","fates":[[1017,1795258283950,"delivered"],[1020,1795258283990,"dead"],'
    b'[990,1795258400000,"moved",1795262000000,1018],[1018,0,"applied"]]}'
)
LARGEST = 2**63 - 1
# The most bytes that one fate adds to a dispatch-log record: three 19-digit numbers, the name, brackets and commas.
FATE_BYTES_MAX, MOVED_FATE_BYTES_MAX = 54, 90
POLICIES_BYTES_MAX = 96 * 1024
PLAIN: dict[str, Any] = {
    **{"v": 1, "seq": 42, "takeover": 7, "instance": "i", "group": "g", "at": 5, "next_request": 9, "low_water": 3},
    **{"kind": "fates", "fates": [[4, 5, "delivered"]]},
}
MOVING: dict[str, Any] = {**PLAIN, "fates": [[4, 5, "delivered"], [5, 6, "moved", 7, 8]]}


def written(kind: str, fates: list[Fate], policies: list[PolicyRow] | UnsetType = UNSET) -> DispatchRecord:
    return DispatchRecord(
        seq=1,
        takeover=1,
        instance="",
        group="",
        at=0,
        next_request=LARGEST,
        low_water=0,
        kind=kind,
        fates=fates,
        policies=policies,
    )


def test_the_documented_example_reads_back() -> None:
    record = DispatchRecord(
        seq=42,
        takeover=7,
        instance="postdate-0",
        group="postdate",
        at=1_795_258_284_000,
        next_request=2040,
        low_water=990,
        kind=FATES,
        fates=[
            PlainFate(1017, 1_795_258_283_950, DELIVERED),
            PlainFate(1020, 1_795_258_283_990, DEAD),
            Moved(990, 1_795_258_400_000, MOVED, 1_795_262_000_000, 1018),
            PlainFate(1018, 0, APPLIED),
        ],
    )
    assert encode_record(record) == EXAMPLE
    assert decode_record(EXAMPLE) == record


@pytest.mark.parametrize("name", [DELIVERED, DEAD, CANCELLED, REPLACED, APPLIED, STORED])
def test_every_plain_fate_reads_back(name: FateName) -> None:
    for good in (PLAIN, MOVING):
        changed = {**good, "fates": [*good["fates"], [LARGEST, LARGEST, name]]}
        assert decode_record(json.dumps(changed).encode()).fates[-1] == PlainFate(LARGEST, LARGEST, name)
    assert (name in FINAL) == (name != STORED)
    assert MOVED not in FINAL


@pytest.mark.parametrize("kind", [OWNER, BEAT])
@pytest.mark.parametrize("fates", [{}, {"fates": []}])
def test_records_without_fates_read_back(kind: str, fates: dict[str, Any]) -> None:
    read = decode_record(json.dumps({**PLAIN, "kind": kind, "fates": [], **fates}).encode())
    assert (read.kind, read.fates, read.seq) == (kind, [], 42)
    assert decode_record(encode_record(read)) == read


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    for good in (PLAIN, MOVING):
        changed = {**good, "colour": {"any": [1.5, None]}}
        assert decode_record(json.dumps(changed).encode()) == decode_record(json.dumps(good).encode())


NO_NUMBERS: list[Any] = [-1, 2**63, 10**40, 1.0, 1.5, "1", None, True, [], {}]
NO_FATES: list[Any] = [
    *([], [4], [4, 5], [4, 5, "delivered", 6], [4, 5, "delivered", 6, 7], [4, 5, "moved"], [4, 5, "moved", 6]),
    *([4, 5, "moved", 6, 7, 8], [4, 5, ""], [4, 5, "Delivered"], [4, 5, "lost"], [4, 5, 6], ["delivered", 4, 5]),
    *([4, 5, "moved", 6, 4], [4, 5, "moved", 6, 3], [4, 5, "cancelled", 6, 7], None, 4, "delivered", {"offset": 4}),
    *([number, 5, "delivered"] for number in NO_NUMBERS),
    *([4, number, "delivered"] for number in NO_NUMBERS),
    *([number, 5, "moved", 6, 7] for number in NO_NUMBERS),
    *([4, number, "moved", 6, 7] for number in NO_NUMBERS),
    *([4, 5, "moved", number, 7] for number in NO_NUMBERS),
    *([4, 5, "moved", 6, number] for number in NO_NUMBERS),
    *([4, 5, "occurred", number, 6, 7] for number in NO_NUMBERS),
    *([4, 5, "occurred", 6, number, 7] for number in NO_NUMBERS),
    *([4, 5, "occurred", 6, 7, number] for number in NO_NUMBERS),
    *([4, 5, "skipped", number, 7, "missed", 8] for number in NO_NUMBERS),
    *([4, 5, "skipped", 6, 7, reason, 8] for reason in ("", "late", None, 1)),
    *([4, 5, "skipped", 6, 7, "missed"], [4, 5, "occurred", 6, 7], [4, 5, "completed"]),
]
NO_ROWS: list[Any] = [
    *([], [4], [4, "a"], [4, "a", "base=1s", 5], [4, "", "base=1s"], [4, "a" * (POLICY_NAME_LENGTH_MAX + 1), ""]),
    *([4, "a", "b" * (POLICY_TEXT_LENGTH_MAX + 1)], [4, "a", None], [4, 5, "a"], ["a", 4, "b"], None, "a"),
    *([number, "a", "base=1s"] for number in NO_NUMBERS),
]
NO_VERSIONS: list[Any] = [0, -1, 1.5, "1", None, True, []]
NO_TEXTS: list[Any] = [None, 1, [], {}]
NO_LISTS: list[Any] = [None, {}, "", 1, []]
NUMBERS = ("seq", "takeover", "at", "next_request", "low_water")
CHANGES: list[dict[str, Any]] = [
    *({"v": version} for version in NO_VERSIONS),
    *({name: number} for name in NUMBERS for number in NO_NUMBERS),
    *({name: text} for name in ("instance", "group", "kind") for text in NO_TEXTS),
    *({"kind": kind} for kind in ("", "Fates", "fate", "owner", "beat", "checkpoint")),
    *({"fates": fates} for fates in NO_LISTS),
    *({"fates": [fate]} for fate in NO_FATES),
    *({"fates": [[5, 6, "moved", 7, 8], fate]} for fate in NO_FATES),
    *({"v": 2, "policies": policies} for policies in [*NO_LISTS, [[4, "a", ""]] * (POLICY_ROWS_MAX + 1)]),
    *({"v": 2, "policies": [row]} for row in NO_ROWS),
    {"policies": [[4, "a", "base=1s"]]},
    {"seq": 0},
    {"low_water": 10},
    {"fates": [[4, 5, "delivered"]] * (FATES_MAX + 1)},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change)[:70])
@pytest.mark.parametrize("good", [PLAIN, MOVING], ids=["plain", "moving"])
def test_a_record_with_one_thing_wrong_is_refused(good: dict[str, Any], change: dict[str, Any]) -> None:
    decode_record(json.dumps(good).encode())
    with pytest.raises(FormatError):
        decode_record(json.dumps({**good, **change}).encode())


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "fates"])
def test_a_record_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match=name):
        decode_record(json.dumps({key: value for key, value in PLAIN.items() if key != name}).encode())


def test_fates_without_a_list_of_fates_are_refused() -> None:
    with pytest.raises(FormatError, match="names 0 fates"):
        decode_record(json.dumps({key: value for key, value in PLAIN.items() if key != "fates"}).encode())


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b" ",
        b"null",
        b"[]",
        b"1",
        b"{}",
        b'"v"',
        b"\xff",
        b"\x00" * 100,
        EXAMPLE[:-1],
        EXAMPLE + b"}",
        EXAMPLE + EXAMPLE,
        EXAMPLE.replace(b"postdate-0", b"\xff\xfe"),
        EXAMPLE.replace(b"postdate-0", b"\\ud800"),
        EXAMPLE.replace(b"42", b"1e999"),
        EXAMPLE.replace(b"42", b"NaN"),
        EXAMPLE.replace(b"42", b"042"),
        b"[" * 200_000,
        EXAMPLE[:-1] + b',"x":' + b"[" * 200_000,
        EXAMPLE + b" " * DISPATCH_RECORD_BYTES_MAX,
    ],
    ids=lambda value: str(value)[:40],
)
def test_arbitrary_bytes_are_refused_as_a_record(value: bytes | None) -> None:
    with pytest.raises(FormatError, match="a dispatch-log record "):
        decode_record(value)


@pytest.mark.parametrize("shape", [{}, {"fates": "elsewhere"}, {"seq": "a-42"}, {"kind": "epoch"}])
def test_a_newer_version_is_named_whatever_its_shape(shape: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="version 4: written by a newer Postdate"):
        decode_record(json.dumps({**PLAIN, "v": 4, **shape}).encode())


def test_the_widest_record_is_within_the_bounds_of_its_parts() -> None:
    def size_bytes(fate: Fate, count: int) -> int:
        record = written(FATES, [fate] * count)
        value = encode_record(record)
        assert decode_record(value) == record
        return len(value)

    plain = PlainFate(LARGEST, LARGEST, DELIVERED)
    moved = Moved(LARGEST - 1, LARGEST, MOVED, LARGEST, LARGEST)
    assert size_bytes(plain, 101) - size_bytes(plain, 1) == 100 * FATE_BYTES_MAX
    assert size_bytes(moved, 101) - size_bytes(moved, 1) == 100 * MOVED_FATE_BYTES_MAX
    assert size_bytes(moved, FATES_MAX) + POLICIES_BYTES_MAX < DISPATCH_RECORD_BYTES_MAX
    with_ids = written(FATES, [ChosenFate(LARGEST, LARGEST, DELIVERED, LARGEST)] * FATES_MAX)
    with_ids.ids = [(LARGEST, "A" * ID_DIGEST_LENGTH)] * IDS_MAX
    assert len(encode_record(with_ids)) <= size_bytes(moved, FATES_MAX)
    policies: list[PolicyRow] = [(LARGEST, "n" * POLICY_NAME_LENGTH_MAX, "t" * POLICY_TEXT_LENGTH_MAX)]
    widest = written(FATES, [moved], policies * POLICY_ROWS_MAX)
    assert len(encode_record(widest)) - size_bytes(moved, 1) <= POLICIES_BYTES_MAX


@pytest.mark.parametrize(("ingested", "ingested_to"), [(UNSET, 7), (9, 9), (5, 7)])
def test_a_record_repeats_the_highest_ingested_offset(ingested: int | UnsetType, ingested_to: int) -> None:
    record = written(BEAT, [])
    record.next_request, record.low_water, record.ingested = 7, 0, ingested
    value = encode_record(record)
    assert decode_record(value).ingested_to == ingested_to
    assert (json.loads(value)["v"], "ingested" in json.loads(value)) == (1, ingested is not UNSET)


def test_only_a_record_with_policies_is_of_version_2() -> None:
    policies: list[PolicyRow] = [(7, "orders", "base=1s"), (9, "orders", "")]
    record = written(BEAT, [], policies)
    value = encode_record(record)
    assert json.loads(value)["v"] == 2
    assert json.loads(value)["policies"] == [[7, "orders", "base=1s"], [9, "orders", ""]]
    assert decode_record(value) == record
    assert json.loads(encode_record(written(BEAT, [])))["v"] == 1
    assert decode_record(json.dumps({**PLAIN, "v": 2}).encode()) == decode_record(json.dumps(PLAIN).encode())


@pytest.mark.parametrize(
    ("kind", "fates"),
    [(FATES, []), (OWNER, [(1, 2, DEAD)]), (BEAT, [(1, 2, DEAD)]), (FATES, [(1, 2, DEAD)] * (FATES_MAX + 1))],
    ids=["no-fates", "owner", "beat", "too-many"],
)
def test_invalid_records_are_detected_before_they_are_written(kind: str, fates: list[Any]) -> None:
    with pytest.raises(AssertionError):
        encode_record(written(kind, fates))


@pytest.mark.parametrize(
    "digest",
    ["", "5pzPoZwH6UfJ4YOOvBaSh", "5pzPoZwH6UfJ4YOOvBaShg=", "5pzPoZwH6UfJ4YOOvBaSh-", "5pzPoZwH6UfJ4YOOvBaShg\n"],
)
def test_only_digests_of_ids_are_read(digest: str) -> None:
    line = encode_record(_with_ids("5pzPoZwH6UfJ4YOOvBaShg"))
    assert decode_record(line) == _with_ids("5pzPoZwH6UfJ4YOOvBaShg")
    with pytest.raises(FormatError):
        decode_record(encode_record(_with_ids(digest)))


def _with_ids(digest: str) -> DispatchRecord:
    fates: list[Fate] = [PlainFate(1, 5, "delivered")]
    return DispatchRecord(
        seq=1, takeover=1, instance="i", group="g", at=5, next_request=2, low_water=1, fates=fates, ids=[(1, digest)]
    )


def test_a_digest_is_half_of_a_sha_256() -> None:
    assert id_digest(b"order-9") == b64encode(sha256(b"order-9").digest()[:16]).decode().rstrip("=")
    assert digest_bytes(id_digest(b"order-9")) == sha256(b"order-9").digest()[:16]
