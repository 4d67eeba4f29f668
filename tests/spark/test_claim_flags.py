"""The flags that decide which claims an audit judges. Goal: a history with one kind of claim sets the flags of that
kind, and the rules that these flags select find its error. An audit of merged cases cannot show this, since a claim of
one case sets the flags for all cases. Method: one small history for each kind, ten offsets apart. The flags are
aggregated for each history alone, and only the rules that they select judge it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from postdate.spark.judging.origin_rows import claim_rules, row_count_columns
from postdate.spark.rules.schedules.occurrences import may_have_lost_fate
from support.audit_cases.schedules import EVERY, due
from support.audit_cases.verdicts import DUE, TO_ORDERS, Cases, T, redelivered
from support.audits.judging import before_rules
from support.audits.written_records import REQUESTS

_LATEST = ("postdate-latest", b"600ms")


def _id(offset: int) -> bytes:
    """Returns an id that is unique to a kind."""
    return b"id %d" % offset


def _ended(*fate: object) -> Callable[[Cases, int], None]:
    """Returns a writer of two messages with different ids. `kept` and `dropped` are fates of the second, all others of
    the first."""

    def write(cases: Cases, o: int) -> None:
        cases.schedule(o, b"one %d" % o)
        cases.schedule(o + 1, b"other %d" % o)
        name, *offsets = fate
        fate_offset = o + 1 if name in ("kept", "dropped") else o
        cases.commit([fate_offset, DUE, name, *(o + place for place in offsets if isinstance(place, int))], v=2)

    return write


def _moved(cases: Cases, o: int) -> None:
    cases.schedule(o, _id(o))
    cases.commit([o, DUE, "moved", DUE + 1, o + 1])


def _changed(name: str) -> Callable[[Cases, int], None]:
    def write(cases: Cases, o: int) -> None:
        cases.ask(o, TO_ORDERS, EVERY, ("postdate-id", _id(o)))
        cases.commit([o, due(1), name, T, o + 1, *((DUE, DUE) if name == "backfilled" else ())], v=3)

    return write


def _backfilled(cases: Cases, o: int) -> None:
    """Adds a backfill that was applied, and had requested other times."""
    cases.ask(o, TO_ORDERS, EVERY, ("postdate-id", _id(o)))
    times = ("postdate-start", b"%d" % (due(-3) - 1)), ("postdate-end", b"%d" % due(-1))
    cases.ask(o + 1, ("postdate-action", b"backfill"), ("postdate-id", _id(o)), *times)
    cases.commit([o, due(1), "backfilled", T, o + 1, due(-2), due(-1)], [o + 1, 0, "applied"], v=3)


def _returned(cases: Cases, o: int) -> None:
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    first = ("postdate-first-origin", b"%s/0/%d" % (REQUESTS.encode(), o)), ("postdate-first-due", b"%d" % DUE)
    named = ("postdate-origin", b"%s/0/%d" % (REQUESTS.encode(), o)), ("postdate-due", b"5")
    cases.give_back(o + 1, *named, *first, ("postdate-attempt", b"7"), policy=b"base=1s,factor=1")
    cases.commit([o + 1, DUE, "delivered"])
    cases.deliver(o + 1, behind=redelivered(o, 8))


def _series(cases: Cases, o: int) -> None:
    cases.schedule(o, _id(o), _LATEST)
    cases.commit([o, T + 599, "delivered"])


def _counted(*names: str) -> Callable[[Cases, int], None]:
    """Returns a writer of a bulk control that selects no message, but whose fates count one."""

    def write(cases: Cases, o: int) -> None:
        cases.ask(o, ("postdate-action", b"cancel"), ("postdate-select-id", b"nobody"))
        for name in names:
            cases.commit([o, 0, name, 1], v=2)

    return write


CLAIMS: dict[str, tuple[Callable[[Cases, int], None], str]] = {
    "cancelled": (_ended("cancelled"), "no later request that was applied"),
    "cancelled in bulk": (_ended("cancelled", 1), "which does not select it"),
    "replaced": (_ended("replaced"), "no later request that its owner had read"),
    "replaced by another": (_ended("replaced", 1), "replaced by the request at offset"),
    "kept": (_ended("kept", 0), "kept by the request at offset"),
    "dropped": (_ended("dropped", 0), "dropped by the request at offset"),
    "moved": (_moved, "moved to"),
    **{name: (_changed(name), f"{name} by offset") for name in ("paused", "resumed", "triggered", "backfilled")},
    "backfilled at other times": (_backfilled, "which asks for"),
    "returned": (_returned, "a return of attempt 7"),
    "in a series": (_series, "by its series"),
    "swept": (_counted("swept", "applied"), "counts 1 messages"),
    "applied in bulk": (_counted("applied"), "counts 1 messages"),
}
"""Each kind, with words of the detail of its claim."""


@dataclass(frozen=True)
class _Judged:
    """The flags of each kind, from `row_count_columns`, and the claims that the selected rules have found."""

    flags: dict[str, Row]
    claims: dict[str, set[str]]


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> _Judged:
    """Returns the result for each kind, whose history is judged alone."""
    cases, places = Cases(), {}
    for name, (write, _) in CLAIMS.items():
        o = cases.case(name, "")
        write(cases, o)
        places[o // 10] = name
    beside, known = before_rules(spark, cases)
    kind, rules = F.floor(F.col("offset") / 10), claim_rules({})
    flags = beside.groupBy(kind.alias("kind")).agg(*row_count_columns()).collect()
    made = known.groupBy(kind.alias("kind")).agg(
        *(F.coalesce(F.bool_or(makes), F.lit(False)).alias(f"{number}") for number, (_, makes) in enumerate(rules))
    )
    found = [
        rows.select(kind.alias("kind"), "claim")
        for place, *is_made in made.collect()
        for (rule, _), is_one in zip(rules, is_made, strict=True)
        if is_one
        for rows in rule(known.where(kind == place), False)
    ]
    claims: dict[str, set[str]] = {name: set() for name in CLAIMS}
    for row in reduce(DataFrame.unionByName, found).where("claim is not null").collect():
        claims[places[row["kind"]]].add(row["claim"])
    return _Judged({places[row["kind"]]: row for row in flags}, claims)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_alone_is_judged(judged: _Judged, name: str) -> None:
    assert judged.flags[name]["has_claims"] is True
    assert [claim for claim in judged.claims[name] if CLAIMS[name][1] in claim], judged.claims[name]


def test_other_flags_are_set_by_each_of_their_causes(spark: SparkSession) -> None:
    cases, actions = Cases(), ("trigger", "backfill", "pause", "cancel")
    for action in actions:
        o = cases.case(action, "")
        cases.ask(o, ("postdate-action", action.encode()), ("postdate-id", _id(o)))
    cases.answer(cases.case("an answer", ""), "cancelled")
    cases.ask(cases.case("a schedule", ""), TO_ORDERS, EVERY)
    named = ("postdate-origin", f"{REQUESTS}/0/1".encode())
    cases.ask(cases.case("by its origin", ""), ("postdate-action", b"cancel"), named)
    cases.ask(cases.case("in bulk", ""), ("postdate-action", b"cancel"), ("postdate-select-id", b"nobody"))
    beside, _ = before_rules(spark, cases)
    lost = beside.withColumn("fates_lost_before_ms", F.lit(T + 1))
    columns = [*row_count_columns(), F.bool_or(may_have_lost_fate()).alias("is_lost")]
    rows = {
        row["kind"]: row
        for row in lost.groupBy((F.col("offset") / 10).cast("int").alias("kind")).agg(*columns).collect()
    }
    found = {name: rows[expected.offset // 10] for name, expected in cases.expected.items()}
    for flag, names in {
        "has_lost_controls": {"trigger", "backfill", "pause"},
        "has_answers": {"an answer"},
        "has_schedules": {"a schedule"},
        "has_related": {*actions, "by its origin", "in bulk"},
    }.items():
        assert {name for name, row in found.items() if row[flag]} == names, flag
