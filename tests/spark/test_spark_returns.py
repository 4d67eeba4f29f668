"""Returns as the audit reads them. Goal: due time, attempt, root, first due time and error follow the protocol. Method:
one Spark job reads some thousand random returns; an oracle in plain Python and the sidecar's parser read them too. The
oracle follows docs/protocol.md and shares no code with the audit or the sidecar.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.records.policies import PolicyRow, needed, policy_table, read_rows
from postdate.spark.records.requests import understood_rows
from postdate.spark.session.small_tables import small_table
from postdate.wire.errors import RequestRefused
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.returns import NO_POLICIES, schedule_return
from postdate.wire.requests.rules import RequestRules
from support.audit_cases.verdicts import all_cases
from support.audits.written_records import REQUESTS, Headers, kafka_row

_T = 1_795_258_284_000
_COUNT = 3_000
_TO_ORDERS = ("postdate-topic", b"orders")
_DAY_MS = 86_400_000
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}


@dataclass(frozen=True)
class _Policy:
    """A policy, its factor in hundredths, and its text in a request."""

    text: str
    base_ms: int
    factor: int
    max_ms: int
    attempts: int
    jitter: int


def _policy(chance: random.Random) -> _Policy:
    unit, max_unit = chance.choice(("ms", "s", "m", "")), chance.choice(("h", "d"))
    base, longest = chance.randint(1, 900), chance.randint(15, 200)
    factor = chance.choice((100, 110, 125, 150, 200, 200, 201, 333, 1_000, 9_999, 10_000, chance.randint(100, 10_000)))
    whole, rest = divmod(factor, 100)
    fraction = chance.choice([f".{rest:02}"] + ([f".{rest // 10}"] if rest % 10 == 0 else []) + [""] * (rest == 0))
    attempts, jitter = chance.choice((1, 2, 12, 40, 1_000)), chance.choice((0, 1, 20, 50, 99, 100))
    said = {
        "base": f"{base}{unit}",
        "factor": f"{whole}{fraction}",
        "max": f"{longest}{max_unit}",
        "attempts": str(attempts),
        "jitter": f"{jitter}%",
    }
    defaults = {"factor": 200, "max": _UNITS["h"], "attempts": 12, "jitter": 0}
    dropped = {name for name in defaults if chance.random() < 0.25}
    if "max" in dropped and base * _UNITS[unit or "ms"] > _UNITS["h"]:
        dropped.remove("max")
    parts = [(name, text) for name, text in said.items() if name not in dropped]
    chance.shuffle(parts)

    def space() -> str:
        return chance.choice(("", "", " ", "  "))

    text = ",".join(f"{space()}{name}{space()}={space()}{value}{space()}" for name, value in parts)
    chosen = {"factor": factor, "max": longest * _UNITS[max_unit], "attempts": attempts, "jitter": jitter}
    chosen |= {name: defaults[name] for name in dropped}
    numbers = [chosen[name] for name in ("factor", "max", "attempts", "jitter")]
    return _Policy(text, base * _UNITS[unit or "ms"], *numbers)


def _due_ms(policy: _Policy, attempt: int, origin: str, request_ms: int) -> int:
    delay = policy.base_ms
    for _ in range(attempt - 1):
        delay = min(policy.max_ms, ceil(delay * Fraction(policy.factor, 100)))
    extra = delay * policy.jitter * (crc32(origin.encode()) >> 16) // (100 * 65_536)
    return request_ms + delay + extra


@dataclass(frozen=True)
class _Case:
    headers: Headers
    partition: int
    request_ms: int
    expected: dict[str, Any]


def _case(offset: int, chance: random.Random) -> _Case:
    """Returns a random return, valid or without attempts left."""
    policy, partition, request_ms = _policy(chance), chance.randrange(4), _T + chance.randrange(_DAY_MS)
    own = f"{REQUESTS}/{partition}/{offset}"
    headers: Headers = [_TO_ORDERS, ("postdate-retry", policy.text.encode())]
    said = chance.choice((None, 1, 2, 3, 10, policy.attempts - 1 or None, policy.attempts))
    parent = (
        f"{REQUESTS}/{chance.choice((partition, 9))}/{chance.randrange(offset + 1)}" if chance.random() < 0.8 else None
    )
    root = f"other.requests/3/{chance.randrange(2**63)}" if chance.random() < 0.5 else None
    first_due = chance.randrange(1, _T) if chance.random() < 0.5 else None
    due = chance.randrange(1, _T) if chance.random() < 0.8 else None
    errors = chance.choice(([], [], [b"timeout"], [b"one", b"another"], [None], [b""]))
    texts = {"attempt": said, "origin": parent, "first-origin": root, "first-due": first_due, "due": due}
    headers += [(f"postdate-{name}", str(text).encode()) for name, text in texts.items() if text is not None]
    headers += [("postdate-error", error) for error in errors] + [("a", b"1")]
    chance.shuffle(headers)
    attempt = (said or 0) + 1
    due_ms = _due_ms(policy, attempt, own, request_ms) if attempt <= policy.attempts else None
    last = [value for name, value in headers if name == "postdate-error"]
    is_here = parent is not None and parent.split("/")[1] == str(partition)
    expected = {
        **{"due_ms": due_ms, "attempt": attempt, "attempts": policy.attempts, "said": said},
        **{"first_origin": root or parent or own, "first_due_ms": first_due or due},
        **{"has_error": bool(last), "error": last[-1] if last else None, "is_readable": True, "name": None},
        "acts_on": int(str(parent).split("/")[2]) if is_here else None,
    }
    return _Case(headers, partition, request_ms, expected)


def _shown(case: _Case) -> tuple[int | None, Headers]:
    """Returns the due time that the sidecar must give a return, and the headers of the redelivery after the first
    two."""
    expected, due_ms = case.expected, case.expected["due_ms"]
    if due_ms is None:
        return None, []
    first_due_ms = due_ms if expected["first_due_ms"] is None else expected["first_due_ms"]
    texts = {"attempt": expected["attempt"], "first-origin": expected["first_origin"], "first-due": first_due_ms}
    headers: Headers = [("a", b"1"), *((f"postdate-{name}", str(text).encode()) for name, text in texts.items())]
    return due_ms, [*headers, *([("postdate-error", expected["error"])] if expected["has_error"] else [])]


def _of_the_sidecar(offset: int, case: _Case) -> tuple[int | None, Headers]:
    rules = RequestRules(topic=REQUESTS, format_version=2)
    request = parse_request(rules, case.partition, case.request_ms, b"k", case.headers)
    try:
        found = schedule_return(rules, request, case.partition, offset, case.request_ms, NO_POLICIES)
    except RequestRefused as refused:
        return None, [] if refused.reason is Reason.ATTEMPTS_EXHAUSTED else [(refused.detail, None)]
    return found.due_ms, found.headers


def _read(spark: SparkSession, rows: list[Any], policies: Iterable[PolicyRow] | None = None) -> dict[int, Row]:
    table = None if policies is None else policy_table(spark, policies)
    read = understood_rows(small_table(spark, rows, RECORDS), LEVELS_MS_DEFAULT, policies=table)
    found = read.select("offset", "due_ms", "acts_on", "target", F.size("data").alias("data"), "retry.*")
    return {row["offset"]: row for row in found.collect()}


@pytest.mark.timeout(600)
def test_the_audit_computes_returns_by_the_protocol(spark: SparkSession) -> None:
    chance = random.Random(7)
    cases = [_case(offset, chance) for offset in range(_COUNT)]
    rows = [
        kafka_row(REQUESTS, offset, case.request_ms, b"k", b"v", case.headers, partition=case.partition)
        for offset, case in enumerate(cases)
    ]
    found = _read(spark, rows)
    shown = {
        offset: {
            name: bytes(row[name]) if name == "error" and row[name] is not None else row[name] for name in case.expected
        }
        for offset, (case, row) in enumerate((case, found[offset]) for offset, case in enumerate(cases))
    }
    wrong = {offset: (shown[offset], case) for offset, case in enumerate(cases) if shown[offset] != case.expected}
    assert list(wrong.items())[:3] == []
    assert {row["data"] for row in found.values()} == {1}
    assert [case for offset, case in enumerate(cases) if _of_the_sidecar(offset, case) != _shown(case)][:3] == []
    refused = sum(case.expected["due_ms"] is None for case in cases)
    assert _COUNT // 20 < refused < _COUNT // 2, "both kinds occur"
    grown = sum(case.expected["attempt"] > 2 for case in cases)
    assert grown > _COUNT // 3


def test_the_policy_of_a_return_is_the_last_row_of_its_name(spark: SparkSession) -> None:
    policies = [
        PolicyRow(REQUESTS, 0, "later-run", 10, "base=1s"),
        PolicyRow(REQUESTS, 0, "later-run", 10, "base=4s"),
        PolicyRow(REQUESTS, 0, "slow", 10, "base=1m"),
        PolicyRow(REQUESTS, 0, "slow", 20, "base=2m"),
        PolicyRow(REQUESTS, 0, "slow", 30, ""),
        PolicyRow(REQUESTS, 0, "quick", 10, "base=1s"),
        PolicyRow(REQUESTS, 1, "slow", 0, "base=9m"),
        (REQUESTS, 0, "later-owner", 10, "base=2s", 11),
        (REQUESTS, 0, "later-owner", 10, "base=1s", 9),
    ]
    asked = {9: "slow", 10: "slow", 19: "slow", 20: " slow ", 30: "slow", 31: "quick", 32: "base=3s"}
    asked |= {33: "later-owner", 34: "later-run"}
    rows = [
        kafka_row(REQUESTS, offset, _T, b"k", b"v", [_TO_ORDERS, ("postdate-retry", name.encode())])
        for offset, name in asked.items()
    ]
    found = _read(spark, rows, read_rows(policies))
    due_s = {offset: None if row["due_ms"] is None else (row["due_ms"] - _T) // 1_000 for offset, row in found.items()}
    assert due_s == {9: None, 10: 60, 19: 60, 20: 120, 30: None, 31: 1, 32: 3, 33: 2, 34: 4}
    assert {offset for offset, row in found.items() if row["is_unknown"]} == {9}
    assert {row["name"] for row in found.values()} == {"slow", "quick", "later-owner", "later-run", None}


def test_only_the_rows_that_unread_requests_need_are_kept() -> None:
    rows = [PolicyRow("r", 0, "slow", first, f"base={first}s") for first in (1, 10, 20, 30)]
    rows += [PolicyRow("r", 1, "slow", first, "base=1s") for first in (1, 10)]
    kept = {(row.partition, row.first) for row in needed(rows, {("r", 0): 20})}
    assert kept == {(0, 20), (0, 30), (1, 1), (1, 10)}


def test_a_request_that_is_no_return_has_no_retry(spark: SparkSession) -> None:
    """Neither a control nor a request with leftover headers of a redelivery is a return."""
    left: Headers = [("postdate-attempt", b"3"), ("postdate-first-origin", b"R/0/1"), ("postdate-error", b"x")]
    retry = ("postdate-retry", b"base=1s")
    sent: list[Headers] = [
        [_TO_ORDERS, ("postdate-delay", b"1s"), *left],
        [("postdate-action", b"cancel"), ("postdate-id", b"x"), retry],
        [_TO_ORDERS, ("Postdate-Retry", b"base=1s")],
        [_TO_ORDERS, retry],
    ]
    rows = [kafka_row(REQUESTS, offset, _T, b"k", b"v", headers) for offset, headers in enumerate(sent)]
    found = _read(spark, rows)
    assert [row["attempt"] for _, row in sorted(found.items())] == [None, None, None, 1]
    assert [row["due_ms"] for _, row in sorted(found.items())] == [_T + 1_000, None, None, _T + 1_000]


def test_returns_can_be_counted_without_being_read(spark: SparkSession) -> None:
    """The counted returns have neither a due time nor a parent; all other requests are unchanged."""
    history = all_cases()
    returns: list[Headers] = [
        [_TO_ORDERS, ("postdate-retry", b"base=1s"), ("postdate-origin", b"requests/0/1")],
        [_TO_ORDERS, ("postdate-delay", b"1h"), ("postdate-latest", b"2s"), ("postdate-id", b"x")],
    ]
    first = max(record[2] for record in history.requests) + 1
    rows = [kafka_row(REQUESTS, first + place, _T, b"k", b"v", headers) for place, headers in enumerate(returns)]
    records = small_table(spark, [*history.requests, *rows], RECORDS)
    whole, counted = (
        {row["offset"]: row for row in understood_rows(records, LEVELS_MS_DEFAULT, reads_returns=reads).collect()}
        for reads in (True, False)
    )
    found = {offset for offset, row in whole.items() if row["retry"] is not None}
    assert first in found
    assert {offset for offset, row in counted.items() if row["retry"] is not None} == found
    assert {(counted[offset]["due_ms"], counted[offset]["acts_on"]) for offset in found} == {(None, None)}
    assert counted[first + 1]["due_ms"] == _T + 2_000
    for offset, row in whole.items():
        assert offset in found or counted[offset] == row
