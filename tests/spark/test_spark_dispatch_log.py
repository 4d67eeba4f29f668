"""Reading dispatch logs. Goal: only valid fates are read, and no break of the chain is missed. Method: literal records
and many ways to damage them, with the sidecar's decoder as the oracle.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.records.fates import chain_breaks, fate_rows, log_rows, occurrence_fates
from postdate.wire.dispatch_log import DispatchRecord, PlainFate, decode_record, encode_record
from postdate.wire.errors import FormatError
from support.audits.written_records import LOG, REQUESTS, kafka_row, log_value


def _policies(rows: Any, **changes: Any) -> bytes:
    return log_value(1, [[7, 1_000, "delivered"]], **({"v": 2, "policies": rows} | changes))


GOOD: dict[str, bytes | None] = {
    "plain": log_value(1, [[7, 1_000, "delivered"]]),
    "every name": log_value(
        1, [[n, 1, name] for n, name in enumerate(("delivered", "dead", "cancelled", "replaced", "applied", "stored"))]
    ),
    "moved": log_value(1, [[7, 1_000, "moved", 2_000, 9], [9, 0, "applied"]]),
    "beat": log_value(1, []),
    "owner": log_value(1, [], kind="owner"),
    "largest numbers": log_value(1, [[2**63 - 1, 2**63 - 1, "dead"]], next_request=2**63 - 1),
    "version 2": log_value(1, [[7, 0, "dead"]], v=2),
    "policies behind fates": _policies([[0, "slow", "base=1s"], [9, "slow", ""]]),
    "policies of a beat": log_value(1, [], v=2, policies=[[0, "a", "base=1s"]]),
    "the longest policies": _policies([[n, "n" * 64, "t" * 256] for n in range(256)]),
    "policies before fates": b'{"policies":[[0,"a","b"]],' + log_value(1, [[7, 0, "delivered"]], v=2)[1:],
    "a policy with digits and brackets": _policies([[0, '],["1', '"[["7']]),
    "unknown extra field": log_value(1, [[7, 0, "dead"]], more={"x": [1]}),
}
BAD: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "not JSON": b"{",
    "an array": b"[]",
    "another version": log_value(1, [[7, 0, "dead"]], v=4),
    "policies of version 1": _policies([[0, "slow", "base=1s"]], v=1),
    "no policy": _policies([]),
    "policies an object": _policies({"slow": "base=1s"}),
    "policies a text": _policies("slow"),
    "the first request of a policy in quotation marks": _policies([["0", "slow", "base=1s"]]),
    "a policy too short": _policies([[0, "slow"]]),
    "a policy too long": _policies([[0, "slow", "base=1s", ""]]),
    "a policy without a name": _policies([[0, "", "base=1s"]]),
    "a policy without a text": _policies([[0, "slow", None]]),
    "a policy from before the first request": _policies([[-1, "slow", "base=1s"]]),
    "a long name": _policies([[0, "n" * 65, "base=1s"]]),
    "a long policy": _policies([[0, "slow", "t" * 257]]),
    "too many policies": _policies([[n, "slow", "base=1s"] for n in range(257)]),
    "no seq": log_value(1, [[7, 0, "dead"]], seq=None),
    "seq 0": log_value(0, [[7, 0, "dead"]]),
    "seq a text": log_value(1, [[7, 0, "dead"]], seq="one"),
    "seq in quotation marks": log_value(1, [[7, 0, "dead"]], seq="1"),
    "single quotes": log_value(1, [[7, 0, "dead"]]).replace(b'"', b"'"),
    "another object behind the record": log_value(1, [[7, 0, "dead"]]) + b',{"v":0}]',
    "unknown kind": log_value(1, [], kind="other"),
    "a beat with fates": log_value(1, [[7, 0, "dead"]], kind="beat"),
    "fates without fates": log_value(1, [], kind="fates"),
    "unknown fate": log_value(1, [[7, 0, "lost"]]),
    "fate too short": log_value(1, [[7, "dead"]]),
    # In Postdate's spelling, the second value has the length of the name that the first fate lacks.
    "two values beside one": log_value(1, [[1, 2], [123_456_789]]),
    "fate too long": log_value(1, [[7, 0, "dead", 1]]),
    "a fate of very many values": log_value(1, [[7, 0, "moved", *range(50_000)]]),
    "moved without control": log_value(1, [[7, 0, "moved"]]),
    "moved by an earlier offset": log_value(1, [[7, 0, "moved", 1, 6]]),
    "negative offset": log_value(1, [[-1, 0, "dead"]]),
    "fractional due": log_value(1, [[1, 0.5, "dead"]]),
    "an offset in quotation marks": log_value(1, [["7", 0, "dead"]]),
    "a due time in quotation marks": log_value(1, [[7, "0", "dead"]]),
    "a control in quotation marks": log_value(1, [[7, 0, "moved", 1, "9"]]),
    "offset null": log_value(1, [[None, 0, "dead"]]),
    "one bad among good": log_value(1, [[1, 0, "dead"], [2, 0, "lost"], [3, 0, "dead"]]),
    "a fate that is no array": log_value(1, ["dead"]),
    "fates of a beat an object": log_value(1, [], fates={"a": 1}),
    "fates of a beat a text": log_value(1, [], fates="none"),
    "fates an object": log_value(1, [], kind="fates", fates={"a": 1}),
    "low water above the next request": log_value(1, [[7, 0, "dead"]], low_water=5, next_request=4),
    "no writer": log_value(1, [[7, 0, "dead"]], instance=None),
    "not UTF-8": log_value(1, [[7, 0, "dead"]]).replace(b"dead", b"de\xffd"),
}
WRITTEN = encode_record(
    DispatchRecord(
        seq=8,
        takeover=2,
        instance="a",
        group="postdate",
        at=5,
        next_request=90,
        low_water=6,
        fates=[
            PlainFate(7, 1_795_258_283_950, "delivered"),
            PlainFate(0, 0, "delivered"),
            PlainFate(89, 10**18 - 1, "delivered"),
        ],
    )
)
"""A record in the form of nearly all records of the sidecar."""
MIXED = [
    [7, 1_795_258_283_950, "delivered"],
    [8, 1, "moved", 2_000, 9],
    [9, 0, "applied"],
    [10, 2, "delivered", 5],
    [11, 3, "dead", 6],
    [12, 4, "cancelled", 20],
    [20, 0, "swept", 3],
    [13, 5, "kept", 12],
    [14, 5, "replaced", 15],
    [15, 5, "replaced", 16, 4],
    [16, 7, "delivered"],
    [17, 8, "occurred", 1, 8, 9],
    [17, 8, "skipped", 2, 3, "missed", 10],
    [17, 8, "paused", 9, 18],
    [17, 8, "triggered", 9, 19],
    [17, 8, "backfilled", 9, 21, 1, 2],
    [17, 8, "extra-dead", 19, 1, 8, 0],
    [17, 8, "completed"],
    [89, 10**18 - 1, "delivered"],
]
"""Fates of every type."""
_PLACES = "topic string, partition int, log_topic string, log_end bigint, log_is_whole boolean"


def _log(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    return _logs(spark, [(values, True)])


def _logs(spark: SparkSession, logs: list[tuple[list[bytes | None], bool]]) -> DataFrame:
    """Returns the rows of these logs, each of which is one partition. Each log is (values, is_whole)."""
    places = [(REQUESTS, partition, LOG, 1_000, whole) for partition, (_, whole) in enumerate(logs)]
    rows = [
        kafka_row(LOG, offset, 5_000 + offset, None, value, None, partition=partition)
        for partition, (values, _) in enumerate(logs)
        for offset, value in enumerate(values)
    ]
    return log_rows(spark.createDataFrame(rows, RECORDS), spark.createDataFrame(places, _PLACES))


def _oracle(value: bytes | None) -> bool:
    try:
        decode_record(value)
    except FormatError:
        return False
    return True


def test_the_audit_parses_the_records_that_the_sidecar_parses(spark: SparkSession) -> None:
    both = {**GOOD, **BAD}
    # The test's own JSON has blanks, so only the same values in Postdate's spelling reach the regular expression.
    both |= {f"{name}, as written": _as_written(value) for name, value in both.items()}
    rows = _log(spark, [*both.values()]).orderBy("log_offset").collect()
    fields = dict(zip(both, [row["parses"] for row in rows], strict=True))
    assert fields == {name: name.removesuffix(", as written") in GOOD for name in both}
    assert fields == {name: _oracle(value) for name, value in both.items()}


def _as_written(value: bytes | None) -> bytes | None:
    """Returns a JSON value in the spelling of the sidecar, without blanks; any other value as it is."""
    with suppress(ValueError, TypeError):
        return json.dumps(json.loads(value or b""), separators=(",", ":")).encode()
    return value


def test_fates_of_a_record(spark: SparkSession) -> None:
    fates = fate_rows(_log(spark, [GOOD["moved"], BAD["one bad among good"], GOOD["largest numbers"]]))
    rows = fates.orderBy("fate.log_offset", "fate.place").collect()
    found = [
        (row["offset"], *(row["fate"][name] for name in ("fate_name", "first_due_ms", "new_due_ms"))) for row in rows
    ]
    assert found == [(7, "moved", 1_000, 2_000), (9, "applied", 0, None), (2**63 - 1, "dead", 2**63 - 1, None)]
    assert [row["fate"]["control_offset"] for row in rows] == [9, None, None]
    assert {row["fate"]["at_ms"] for row in rows} == {5_000, 5_002}


def test_extracted_fates_are_those_that_json_has(spark: SparkSession) -> None:
    """The fates that the regular expression extracts are those that JSON parsing reads, in the record as written and
    with added blanks."""
    log = _log(spark, [WRITTEN, json.dumps(json.loads(WRITTEN)).encode(), _with_fates([[7, 5, "delivered"]])])
    assert [row["all_delivered"] for row in log.orderBy("log_offset").collect()] == [True, False, True]
    fates: dict[int, list[tuple[Any, ...]]] = {}
    for row in fate_rows(log).orderBy("fate.place").collect():
        fields = tuple(row["fate"][name] for name in ("fate_name", "first_due_ms", "new_due_ms", "control_offset"))
        fates.setdefault(row["fate"]["log_offset"], []).append((row["offset"], *fields))
    dues = {7: 1_795_258_283_950, 0: 0, 89: 10**18 - 1}
    assert fates[0] == fates[1] == [(offset, "delivered", due_ms, None, None) for offset, due_ms in dues.items()]
    assert fates[2] == [(7, "delivered", 5, None, None)]


def test_fates_of_every_type_are_those_that_json_has(spark: SparkSession) -> None:
    written = _with_fates(MIXED, v=3)
    assert written == encode_record(decode_record(written)), "the sidecar spells the record so"
    log = _log(spark, [written, json.dumps(json.loads(written)).encode()])
    assert [row["parses"] for row in log.collect()] == [True, True]
    rows = [*fate_rows(log).collect(), *occurrence_fates(log).collect()]
    by_record: list[list[Any]] = [[], []]
    for row in rows:
        fate = row["fate"].asDict()
        of_record = by_record[fate.pop("log_offset")]
        of_record.append((fate["place"], row["offset"], fate | {"log_place": "", "at_ms": 0}))
    extracted, parsed = (sorted(fates, key=lambda fate: fate[0]) for fates in by_record)
    assert extracted == parsed
    assert [offset for _, offset, _ in extracted] == [offset for offset, *_ in MIXED]


def _with_fates(fates: list[Any], **changes: Any) -> bytes:
    return json.dumps({**json.loads(WRITTEN), "fates": fates, **changes}, separators=(",", ":")).encode()


def _damaged_bytes(written: bytes, others: Sequence[bytes]) -> list[bytes]:
    """Returns the record with each byte omitted, doubled, or replaced by each of `others`."""
    found = []
    for place in range(len(written)):
        before, byte, after = written[:place], written[place : place + 1], written[place + 1 :]
        found += [before + other + after for other in (b"", 2 * byte, *others)]
    return found


def _damaged() -> list[bytes]:
    """Returns the record with damage to each byte, and similar texts."""
    found = _damaged_bytes(WRITTEN, (b"0", b",", b"]", b'"', b"x", b" "))
    head, fates = WRITTEN.split(b',"fates":')
    found += [
        head + b',"x":{"y":1,"fates":' + fates,
        head + b',"x":{"y":1,"fates":' + fates + b"}",
        head + b',"fates":[],"x":{"y":1,"fates":' + fates + b"}",
        head + b',"x":"\\",\\"fates","fates":' + fates,
        head.replace(b'"a"', b'"a,\\"fates\\":[[1,2,"') + b',"fates":' + fates,
        WRITTEN + b"]]}",
        WRITTEN.replace(b'"kind":"fates"', b'"kind":"beat"'),
        WRITTEN.replace(b'"kind":"fates"', b'"kind":"owner"'),
        WRITTEN.replace(b"],[", b"],[],["),
        WRITTEN.replace(b"[7,", b"[07,"),
        WRITTEN.replace(b"[7,", b"[-7,"),
        WRITTEN.replace(b"[7,", b"[9223372036854775808,"),
        WRITTEN.replace(b"[7,", b"[9223372036854775807,"),
    ]
    return found


def test_damage_to_a_record_as_written(spark: SparkSession) -> None:
    damaged = _damaged()
    log = _log(spark, [*damaged])
    parses = {row["log_offset"]: row["parses"] for row in log.select("log_offset", "parses").collect()}
    differ = [value for place, value in enumerate(damaged) if parses[place] != _oracle(value)]
    assert differ == []
    offsets: dict[int, list[tuple[int, int]]] = {}
    for row in fate_rows(log).orderBy("fate.place").collect():
        offsets.setdefault(row["fate"]["log_offset"], []).append((row["offset"], row["fate"]["first_due_ms"]))
    fields = {place: decode_record(value).fates for place, value in enumerate(damaged) if parses[place]}
    assert offsets == {place: [(fate.offset, fate.first_due_ms) for fate in fates] for place, fates in fields.items()}
    assert 100 < len(fields) < len(damaged) - 100, "some are as good as before, and most are not"


def test_damage_to_a_record_with_every_type_of_fate(spark: SparkSession) -> None:
    written = _with_fates(MIXED, v=3)
    head = written.index(b'"fates":[')
    damaged = [written[:head] + rest for rest in _damaged_bytes(written[head:], (b"0", b",", b'"', b"x"))]
    parses = {row["log_offset"]: row["parses"] for row in _log(spark, [*damaged]).collect()}
    assert [value for place, value in enumerate(damaged) if parses[place] != _oracle(value)] == []
    assert 100 < sum(parses.values()) < len(damaged) - 100, "some are as good as before, and most are not"


_SEQUENCES: dict[str, tuple[list[int | None], bool, list[str]]] = {
    "whole": ([1, 2, 3], True, []),
    "began before": ([7, 8], False, []),
    "does not begin with 1": ([7, 8], True, ["begins at seq 7"]),
    "repeat": ([1, 2, 2, 3], True, ["seq 2 again, after 2"]),
    "gap": ([1, 2, 4, 5], True, ["seq 4 leaves a gap after 2"]),
    "begins with 1 again": ([1, 2, 3, 1], True, ["seq 1 again, after 3"]),
    "unreadable": ([1, None, 2], True, ["does not parse"]),
}
_FIRST: dict[str, Any] = {"kind": "owner", "takeover": 4, "instance": "a"}
_OWNER: dict[str, Any] = {"kind": "owner", "takeover": 5, "instance": "b"}
_STRANGERS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "handed over": ([{"takeover": 4}, _OWNER, {"takeover": 5, "instance": "b"}], []),
    "not announced": ([{"takeover": 5, "instance": "b"}], ["takeover 5 has no owner record"]),
    "fenced": ([_OWNER, {"takeover": 4}], ["takeover 4 after takeover 5"]),
    "another instance": (
        [{"takeover": 4, "instance": "x"}],
        ["takeover 4 of x of postdate, which is that of a of postdate"],
    ),
    "another group": ([{"takeover": 4, "group": "x"}], ["takeover 4 of a of x, which is that of a of postdate"]),
    "announced twice": ([_FIRST], ["takeover 4 is announced again"]),
}


@pytest.fixture(scope="module")
def breaks(spark: SparkSession) -> dict[str, list[str]]:
    """Returns log name -> the chain breaks found in it. Each log is one partition."""
    logs: dict[str, tuple[list[bytes | None], bool]] = {
        **{
            name: ([b"?" if seq is None else log_value(seq, []) for seq in sequence], whole)
            for name, (sequence, whole, _) in _SEQUENCES.items()
        },
        **{
            name: ([log_value(1 + n, [], **changes) for n, changes in enumerate([_FIRST, *later])], True)
            for name, (later, _) in _STRANGERS.items()
        },
    }
    found = chain_breaks(_logs(spark, [*logs.values()])).orderBy("partition", "log_offset").collect()
    problems: dict[str, list[str]] = {name: [] for name in logs}
    for row in found:
        problems[[*logs][row["partition"]]].append(row["problem"])
    return problems


@pytest.mark.parametrize("name", _SEQUENCES)
def test_chain(breaks: dict[str, list[str]], name: str) -> None:
    assert breaks[name] == _SEQUENCES[name][2]


@pytest.mark.parametrize("name", _STRANGERS)
def test_a_strangers_record_breaks_the_chain(breaks: dict[str, list[str]], name: str) -> None:
    assert breaks[name] == _STRANGERS[name][1]


def test_the_literal_record_has_the_documented_format() -> None:
    assert json.loads(GOOD["moved"] or b"")["fates"][0] == [7, 1_000, "moved", 2_000, 9]
