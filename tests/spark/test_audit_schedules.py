"""Recurring schedules in the audit. Goal: in every tier, the audit verifies each occurrence and reports each error in
one. Method: as in `test_spark_verdicts`, one history in which every request is a separate case. The rules judge it
alone and after chunks; the verdicts must be equal.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from support.audit_cases.late_schedules import late_cases
from support.audit_cases.schedules import schedule_cases
from support.audit_cases.verdicts import DUE, T
from support.audits.judging import (
    JudgingBounds,
    ReadRecord,
    by_history,
    by_offset,
    check_case,
    judged,
    read_fates,
    staged,
)
from support.audits.runs_with_state import Ends, Runs, offset_of
from support.audits.written_records import REQUESTS, side_by_side

CASES = schedule_cases()
LATE, LATE_END = late_cases()
#  A second history beside the first: one plan judges both.
HISTORIES = {"cases": CASES, "behind the fixed end of the log": LATE}


@pytest.fixture(scope="module")
def judged_rows(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """Returns both histories judged by the rules, by offset."""
    judged_cases, _ = judged(
        spark,
        side_by_side([*HISTORIES.values()]),
        rules_alone=True,
        bounds=[JudgingBounds(), JudgingBounds(log_end=LATE_END)],
    )
    return by_history(judged_cases, HISTORIES)


@pytest.fixture(scope="module")
def rows(judged_rows: dict[str, dict[int, Row]]) -> dict[int, Row]:
    """Returns all cases judged by the rules, by offset."""
    return judged_rows["cases"]


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_records_after_the_fixed_end_of_the_log_only_settle_doubts(
    judged_rows: dict[str, dict[int, Row]],
) -> None:
    """Occurrences after the fixed end are not judged, so a schedule that ends after it must not require them."""
    late = judged_rows["behind the fixed end of the log"]
    for expected in LATE.expected.values():
        check_case(late, expected)
        figures = late[expected.offset]["position"]["figures"]
        assert (figures["occurred"], figures["verified"], figures["missing"]) == (1, 1, 0)


def test_a_chunk_for_each_origin_gives_the_verdicts_of_the_rules(spark: SparkSession, rows: dict[int, Row]) -> None:
    """The history is judged alone, so that no other history reveals the presence of schedules."""
    staged_rows = staged(spark, CASES, 0).rows
    assert staged_rows is not None
    _check_tier(by_offset(staged_rows), rows)


def test_one_chunk_beside_other_cases_gives_the_verdicts_of_the_rules(
    rows: dict[int, Row], in_one_chunk: dict[str, dict[int, Row]]
) -> None:
    _check_tier(in_one_chunk["schedules"], rows)


def _check_tier(judged_by_tier: dict[int, Row], rows: dict[int, Row]) -> None:
    """Asserts that origins outside the chunks have the verdicts of the rules, and that all others were delivered."""
    left = {offset: set(row["verdicts"]) for offset, row in judged_by_tier.items()}
    expected = {offset: set(row["verdicts"]) for offset, row in rows.items()}
    assert {offset: verdicts for offset, verdicts in expected.items() if offset in left} == left
    verified = [verdicts for offset, verdicts in expected.items() if offset not in left]  # by digests
    assert all(verdicts == {"delivered"} for verdicts in verified)


_FATES: list[tuple[list[object], int, bool]] = [
    ([0, DUE, "occurred", 1, DUE, DUE + 1], 3, True),
    ([0, DUE, "skipped", 1, 4, "missed", 0], 3, True),
    ([0, DUE, "completed"], 3, True),
    ([0, DUE, "paused", T, 4], 3, True),
    ([0, DUE, "resumed", T, 4], 3, True),
    ([0, DUE, "paused", T, 4], 2, False),
    ([0, DUE, "paused", T, 0], 3, False),
    ([0, DUE, "paused", T], 3, False),
    ([0, DUE, "triggered", T, 4], 3, True),
    ([0, DUE, "triggered", T, 4], 2, False),
    ([0, DUE, "backfilled", T, 4, DUE, DUE], 3, True),
    ([0, DUE, "backfilled", T, 4, DUE, DUE], 2, False),
    ([0, DUE, "backfilled", T, 0, DUE, DUE], 3, False),
    ([0, DUE, "backfilled", T, 4, DUE, DUE - 1], 3, False),
    ([0, DUE, "backfilled", T, 4, DUE], 3, False),
    ([0, DUE, "backfilled", T, 4], 3, False),
    ([0, DUE, "extra", 4, 1, DUE, 0], 3, True),
    ([0, DUE, "extra-dead", 4, 1, DUE, 0], 3, True),
    ([0, DUE, "extra", 4, 1, DUE, 0], 2, False),
    ([0, DUE, "extra", 0, 1, DUE, 0], 3, False),
    ([0, DUE, "extra", 4, 0, DUE, 0], 3, False),
    ([0, DUE, "extra", 4, 1, DUE], 3, False),
    ([0, DUE, "occurred", 1, DUE, DUE + 1], 2, False),
    ([0, DUE, "completed"], 1, False),
    ([0, DUE, "occurred", 1, DUE], 3, False),
    ([0, DUE, "occurred", 1, DUE, "never"], 3, False),
    ([0, DUE, "skipped", 1, 4, "bored", 0], 3, False),
    ([0, DUE, "delivered"], 4, False),
]


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> list[ReadRecord]:
    """Returns the audit's reading of these fates."""
    return read_fates(spark, [case[:2] for case in _FATES])


@pytest.mark.parametrize("number", range(len(_FATES)))
def test_a_fate_of_a_schedule_is_read_as_the_sidecar_reads_it(read: list[ReadRecord], number: int) -> None:
    _, _, parses = _FATES[number]
    assert read[number].parses is parses


@pytest.mark.timeout(900)  # two runs of some ten Spark jobs
def test_two_runs_with_a_state_find_the_violations_of_one_audit(
    spark: SparkSession, rows: dict[int, Row], tmp_path: Path
) -> None:
    """The first run ends between two occurrences of a schedule, and within two backfills. It has read the dead letters
    of these backfills. The second run continues from these positions."""
    cut = CASES.expected["an occurrence decided twice"].offset
    topics = (CASES.log, CASES.delivered, CASES.dead_letters, CASES.answers)
    log, delivered, dead_letters, answers = (
        sum(1 for _ in takewhile(lambda record: offset_of(record) < cut, records)) for records in topics
    )
    runs = Runs(spark, CASES, tmp_path)
    # The first run ends behind the fates `stored` and `occurred`, and behind the record of that occurrence.
    runs.audit(Ends(cut + 1, log + 2, delivered + 1, dead_letters, answers, log + 2))
    first = runs.union()[cut]
    assert (first["position"]["next_number"], first["position"]["next_ms"]) == (2, DUE + 1_000)
    last = runs.audit()
    union = runs.union()
    assert {offset: row["verdicts"] for offset, row in union.items()} == {
        offset: row["verdicts"] for offset, row in rows.items()
    }
    assert {offset: row["details"] for offset, row in union.items()} == {
        offset: row["details"] for offset, row in rows.items()
    }
    assert union[cut]["position"]["figures"] == rows[cut]["position"]["figures"]
    assert last.state.zones == {f"{REQUESTS}/0": "2020a"}
    added = {
        row["offset"]: row["occurrences"]["added"]["verified"] for row in last.fresh.collect() if row["occurrences"]
    }
    assert added[cut] == 1, "a run counts the occurrences that it has judged"
