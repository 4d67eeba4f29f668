"""The audit of a dispatch log that has lost its first records. Goal: in every tier and with a state, a request is not
verifiable if a lost fate may explain it, and a violation if no lost fate can. Method: as in `test_spark_verdicts`.
Beside each correct case are histories that differ in one respect, which shows that the fate was never written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.rules.lost_moves import last_move
from postdate.spark.rules.times.zone_files import tz_version
from postdate.wire.values.murmur2 import partition_for
from support.audit_cases.lost_fates import LAST, lost_fate_cases
from support.audit_cases.lost_graces import LOST_MS
from support.audit_cases.schedules import NEXT_NIGHT, NIGHT
from support.audit_cases.verdicts import DUE, HOUR_MS, TO_ORDERS, T
from support.audits.judging import JudgingBounds, by_offset, check_case, judged, staged
from support.audits.runs_with_state import Ends, Runs, all_of
from support.audits.written_records import RandomHistory

CASES = lost_fate_cases()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[int, Row]:
    """Returns all cases judged by the rules, by offset."""
    return by_offset(judged(spark, CASES, rules_alone=True, bounds=JudgingBounds(fates_lost_before_ms=LOST_MS))[0])


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_the_fast_tiers_give_the_verdicts_of_the_rules(spark: SparkSession, rows: dict[int, Row]) -> None:
    judged_rows = staged(spark, CASES, fates_lost_before_ms=LOST_MS).rows
    assert judged_rows is not None
    left = {row["offset"]: set(row["verdicts"]) for row in judged_rows.collect()}
    expected = {offset: set(row["verdicts"]) for offset, row in rows.items()}
    assert left == {offset: expected[offset] for offset in left}
    plain = [expected[offset] for offset in expected.keys() - left.keys()]
    assert all(verdicts in ({"delivered"}, {"pending"}) for verdicts in plain)


def test_a_message_behind_a_lost_move_has_no_place_in_the_order(spark: SparkSession) -> None:
    """Both messages are behind a message of their key that was due later. One was moved to its due time, the other had
    it from the start."""
    history, moved, sent = RandomHistory(T), (1, b"k"), (11, b"l")
    for first, key in (moved, sent):
        asked_ms = T + (HOUR_MS if first == moved[0] else 900)
        history.ask(first, TO_ORDERS, ("postdate-at", b"%d" % asked_ms), ("postdate-id", key), key=key)
        history.ask(first + 2, key=key)
        for offset, first_ms, due_ms in ((first + 2, DUE, DUE), (first, asked_ms, T + 900)):
            history.commit([offset, first_ms, "delivered"], at_ms=DUE + 5)
            id = key if offset == first else None
            history.deliver(offset, due_ms=due_ms, key=key, id=id, partition=partition_for(key, 4))
    reschedule = ("postdate-action", b"reschedule"), ("postdate-at", b"%d" % (T + 900))
    history.ask(2, *reschedule, ("postdate-id", b"k"))
    stages = staged(spark, history, in_order=True, fates_lost_before_ms=LOST_MS)
    assert stages.rows is not None
    left = {row["offset"]: set(row["verdicts"]) for row in stages.rows.collect()}
    assert left == {1: {"unsettled"}, 2: {"unsettled"}, 11: {"order"}}


@pytest.mark.timeout(900)  # two runs of some ten Spark jobs
def test_runs_with_a_state_find_the_violations_of_one_audit(
    spark: SparkSession, rows: dict[int, Row], tmp_path: Path
) -> None:
    """The first run ends between the last schedule and its trigger, and before the first record that the log still
    has."""
    runs, bounds = Runs(spark, CASES, tmp_path), {0: {"fates_lost_before_ms": LOST_MS}}
    runs.audit(Ends(requests=CASES.expected[LAST].offset + 1), bounds=bounds)
    runs.audit(bounds=bounds)
    union = {offset: set(row["verdicts"]) for offset, row in runs.union().items()}
    assert union == {offset: set(row["verdicts"]) for offset, row in rows.items()}


@pytest.mark.timeout(900)  # two runs of some ten Spark jobs
@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_an_occurrence_at_an_unknown_time_waits_in_the_state(
    spark: SparkSession, tmp_path: Path, has_dead_letter: bool
) -> None:
    """The fate of the first occurrence is lost. An open transaction hides the dead letter of the second from the first
    run."""
    history = RandomHistory(T)
    schedule_headers = (("postdate-cron", b"30 2 * * *"), ("postdate-zone", b"Europe/Berlin"))
    history.ask(10, TO_ORDERS, *schedule_headers, ("postdate-id", b"n"), at_ms=NIGHT - HOUR_MS)
    history.commit(kind="owner", tz=tz_version(), at_ms=NIGHT + 1_000)
    skip = [10, NIGHT, "skipped", 2, 2, "dead", NEXT_NIGHT + 24 * HOUR_MS]
    history.commit(skip, at_ms=NEXT_NIGHT + 5, v=3)
    if has_dead_letter:
        history.bury(10, TO_ORDERS, ("postdate-at", b"%d" % NEXT_NIGHT))
    runs, lost = Runs(spark, history, tmp_path), {"fates_lost_before_ms": NIGHT + 1_000}
    runs.audit(replace(all_of(history), dead_letters=0), bounds={0: {**lost, "letters_capped": True}})
    assert set(runs.union()[10]["verdicts"]) == {"unsettled"}
    runs.audit(bounds={0: lost})
    assert set(runs.union()[10]["verdicts"]) == ({"unsettled"} if has_dead_letter else {"unsettled", "missing"})


def test_the_last_move_is_the_last_in_the_log(spark: SparkSession) -> None:
    """A state may list the fates of earlier runs after the new ones."""
    fates = "array<struct<log_offset:bigint,place:int,fate_name:string,new_due_ms:bigint>>"
    logged_fates = [(7, 0, "moved", 70), (5, 0, "moved", 50), (9, 0, "delivered", None)]
    placed = spark.createDataFrame([((logged_fates,),)], f"facts struct<fates:{fates}>")
    assert placed.select(last_move().new_due_ms).first() == (70,)
