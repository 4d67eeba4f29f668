"""Every verdict on literal rows. Goal: each rule speaks when it is broken, and only then.

Method: one history in which every request is a case of its own, judged by one Spark job; each test names the verdicts
and a word of the detail that its case must have. Cases that differ in one thing stand beside each other, the sound one
too, so a rule that always or never speaks fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from postdate.connectors.spark.summary import summarise
from postdate.connectors.spark.verdicts import VERDICTS, VIOLATIONS
from support.history import TARGET, History
from support.judging import judged, sieve_of
from support.verdict_cases import DUE, T, all_cases

CASES = all_cases()
# Cases of their own: test_spark_answers.
ABOUT_ANSWERS = {"false-verdict", "unanswered"}


@pytest.fixture(scope="module")
def cases(spark: SparkSession) -> Iterator[tuple[DataFrame, DataFrame]]:
    """All cases judged at once, and the breaks of their chain; kept, as the audit keeps them."""
    found, breaks = judged(spark, CASES)
    found.persist()
    yield found, breaks
    found.unpersist()


@pytest.fixture(scope="module")
def rows(cases: tuple[DataFrame, DataFrame]) -> dict[int, Row]:
    """The same by offset."""
    return {row["offset"]: row for row in cases[0].collect()}


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    expected = CASES.expected[name]
    row = rows[expected.offset]
    assert (set(row["verdicts"]), expected.word in " ".join(row["details"])) == (expected.verdicts, True), row


def test_the_sieve_says_of_each_case_what_the_rules_say(spark: SparkSession, rows: dict[int, Row]) -> None:
    by_rules, _ = judged(spark, CASES, sifted_max=0)
    assert {row["offset"]: row for row in by_rules.collect()} == rows


def test_the_sieve_keeps_what_is_plain_and_nothing_else(spark: SparkSession) -> None:
    plain = {row["offset"]: row["plain"] for row in sieve_of(spark, CASES).collect() if row["plain"]}
    of = {case.offset: case.verdicts for case in CASES.expected.values()}
    assert {offset: verdict for offset, verdict in plain.items() if of.get(offset, {verdict}) != {verdict}} == {}
    assert plain[CASES.expected["delivered"].offset] == "delivered"
    assert plain[CASES.expected["on the millisecond"].offset] == "delivered"
    assert "pending" in plain.values()


def test_the_cases_reach_every_verdict_that_rows_can_have() -> None:
    reached = {verdict for case in CASES.expected.values() for verdict in case.verdicts}
    assert reached == set(VERDICTS) - {"chain", "request-expired", "target-expired", *ABOUT_ANSWERS}


def test_lateness_counts_from_the_last_due_time(rows: dict[int, Row]) -> None:
    assert rows[CASES.expected["delivered"].offset]["lateness_ms"] == 1_000
    assert rows[CASES.expected["on the millisecond"].offset]["lateness_ms"] == 0
    assert rows[CASES.expected["moved earlier"].offset]["lateness_ms"] == 1_000
    assert rows[CASES.expected["two records"].offset]["lateness_ms"] is None


def test_what_open_transactions_hide_is_unsettled(spark: SparkSession) -> None:
    history = History(T)
    for offset in (1, 2, 3):
        history.ask(offset)
    history.commit([2, DUE, "delivered"], [3, DUE, "dead"])
    verdicts = {}
    for capped in (False, True):
        targets = [(TARGET, 4, capped, False, -1)]
        found, _ = judged(spark, history, log_capped=capped, letters_capped=capped, targets=targets, with_claims=False)
        verdicts[capped] = {row["offset"]: row["verdicts"] for row in found.collect()}
    assert verdicts[True] == {1: ["unsettled"], 2: ["unsettled"], 3: ["unsettled"]}
    assert verdicts[False] == {1: ["missing"], 2: ["missing", "contradiction"], 3: ["contradiction"]}


def test_what_retention_took_is_no_violation(spark: SparkSession) -> None:
    history = History(T)
    history.commit([1, DUE, "delivered"])  # its request has left the topic
    for offset in (10, 11, 12, 13):
        history.ask(offset, ("postdate-topic", b"orders" if offset == 10 else b"gone"), ("postdate-delay", b"1s"))
    history.ask(14, at_ms=T - 1)
    history.commit([10, DUE, "delivered"], [11, DUE, "delivered"], [12, DUE, "dead"])
    targets = [(TARGET, 4, False, True, -1), ("gone", None, False, False, 2**63 - 1)]
    found, _ = judged(
        spark,
        history,
        log_start=10,
        request_start=10,
        targets=targets,
        fates_lost_before_ms=T,
        letters_lost_before_ms=T + 2_000,
    )
    by_offset = {row["offset"]: row for row in found.collect()}
    assert {offset: row["verdicts"] for offset, row in by_offset.items()} == {
        1: ["request-expired"],
        10: ["target-expired"],
        11: ["target-expired"],
        12: ["target-expired"],
        13: ["missing"],
        14: ["unsettled"],
    }
    assert [offset for offset, row in by_offset.items() if row["is_fate_lost"]] == [14]


def test_a_window_does_not_judge_what_lies_around_it(spark: SparkSession) -> None:
    history = History(T)
    history.ask(20)
    history.commit([5, DUE, "delivered"], [20, DUE, "delivered"], [30, DUE, "delivered"])
    for origin in (5, 20, 30):
        history.deliver(origin)
    found, _ = judged(spark, history, request_start=10, request_end=25)
    assert {row["offset"]: row["verdicts"] for row in found.collect()} == {20: ["delivered"]}


def test_a_late_fate_clears_a_record_and_is_held_to_nothing_else(spark: SparkSession) -> None:
    history = History(T)
    for offset in (1, 2, 3):
        history.ask(offset)
    history.commit()
    history.commit([1, DUE, "delivered"], [2, DUE, "delivered"], [3, DUE, "dead"])
    history.deliver(1)
    found, breaks = judged(spark, history, log_end=1)
    assert {row["offset"]: row["verdicts"] for row in found.collect()} == {
        1: ["delivered"],
        2: ["pending"],
        3: ["pending"],
    }
    assert breaks.count() == 0


def test_summary_counts_and_samples(spark: SparkSession, cases: tuple[DataFrame, DataFrame]) -> None:
    found, breaks = cases
    summary = summarise(found, breaks, spark.createDataFrame([], "place string"), samples_max=2)
    expected = [verdict for case in CASES.expected.values() for verdict in case.verdicts]
    for verdict in VIOLATIONS:
        assert summary.counts[verdict] == expected.count(verdict), verdict
        assert len(summary.samples.get(verdict, [])) == min(2, expected.count(verdict)), verdict
    assert summary.violations == sum(expected.count(verdict) for verdict in VIOLATIONS)
    assert summary.lateness_ms["max"] == T + 2_000 - 5, "the request that was due at 5 ms after 1970"
    assert summary.lateness_ms["p50"] == 1_000
