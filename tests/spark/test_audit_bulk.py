"""Bulk controls in the audit. Goal: in every tier, the audit finds each message that a bulk control ended without
selecting it, and each wrong count, and accepts correct ones.

Method: as in `test_spark_verdicts`, one history in which every request is a separate case. The rules judge it alone and
after chunks; the verdicts must be equal.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from support.audit_cases.bulk import bulk_cases
from support.audit_cases.schedules import EVERY, due
from support.audit_cases.verdicts import DUE, TO_ORDERS, T
from support.audits.judging import JudgingBounds, ReadRecord, by_offset, check_case, judged, read_fates
from support.audits.written_records import RandomHistory

CASES = bulk_cases()


@pytest.fixture(scope="module")
def rows(ruled: dict[str, dict[int, Row]]) -> dict[int, Row]:
    """Returns all cases judged by the rules, by offset."""
    return ruled["bulks"]


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_the_fast_tiers_give_the_verdicts_of_the_rules(
    rows: dict[int, Row], chunked: dict[str, dict[int, Row]]
) -> None:
    assert {offset: set(row["verdicts"]) for offset, row in chunked["bulks"].items()} == {
        offset: set(row["verdicts"]) for offset, row in rows.items()
    }


def test_a_schedule_that_is_cancelled_while_the_audit_reads_is_not_compared(spark: SparkSession) -> None:
    """Its due time follows from an occurrence after the end of the log, which this audit does not judge."""
    history = RandomHistory(T)
    history.ask(1, TO_ORDERS, EVERY, ("postdate-id", b"a"))
    times = ("postdate-select-from", b"%d" % due(2)), ("postdate-select-until", b"%d" % (due(2) + 1))
    history.ask(2, ("postdate-action", b"cancel"), *times, ("postdate-select-id", b"a"))
    history.commit([1, due(1), "stored"], v=3)
    history.commit([1, due(1), "occurred", 1, due(1), due(2)], at_ms=due(1) + 5, v=3)
    history.commit([1, due(1), "cancelled", 2], [2, 0, "applied", 1], at_ms=due(1) + 9, v=2)
    rows = by_offset(judged(spark, history, bounds=JudgingBounds(log_end=1))[0])
    assert {offset: row["verdicts"] for offset, row in rows.items()} == {1: ["cancelled"], 2: ["applied"]}


_FATES: list[tuple[list[object], int, bool]] = [
    ([0, DUE, "cancelled", 1], 2, True),
    ([0, DUE, "cancelled", 0], 2, False),
    ([0, DUE, "cancelled", 1], 1, False),
    ([0, 0, "swept", 0], 2, True),
    ([0, 0, "swept", 0], 1, False),
    ([0, 0, "swept"], 2, False),
    ([0, 0, "applied", 7], 2, True),
    ([0, 0, "applied", -7], 2, False),
    ([0, DUE, "replaced", 0], 2, False),
    ([0, DUE, "stored", 1], 2, False),
]


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> list[ReadRecord]:
    """Returns the audit's reading of _FATES."""
    return read_fates(spark, [case[:2] for case in _FATES])


@pytest.mark.parametrize("number", range(len(_FATES)))
def test_fates_are_read_as_the_sidecar_reads_them(read: list[ReadRecord], number: int) -> None:
    fate, _, parses = _FATES[number]
    assert (read[number].parses, len(read[number].fates)) == (parses, parses)
    for fate_row in read[number].fates:
        assert fate_row["fate_name"] == fate[2]
        assert (fate_row["bulk_offset"] or fate_row["count"] or 0) == fate[3]
