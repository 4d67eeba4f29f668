"""Every verdict on literal rows. Goal: each rule speaks when it is broken, and only then.

Method: one history in which every request is a case of its own, judged by one Spark job; each test names the verdicts
and a word of the detail that its case must have. Cases that differ in one thing stand beside each other, the sound one
too, so a rule that always or never speaks fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from postdate.connectors.spark.summary import summarise
from postdate.connectors.spark.verdicts import VERDICTS, VIOLATIONS
from postdate.connectors.wire.murmur2 import partition_for
from support.history import TARGET, Headers, History
from support.judging import judged, sieve_of, sifted, spans_of
from support.verdict_cases import DUE, HOUR_MS, SNAPSHOT, T, all_cases

CASES = all_cases()
SPANS = (
    *("sound", "one ahead", "no fate", "no record", "two fates", "two records", "another value", "swapped dues"),
    *("another header", "another partition", "another's record twice", "not asked for", "early"),
    *("a second record due now", "a second fate due now"),
)
ODD = ("a letter", "cancelled", "cancelled and delivered", "moved and delivered")
# Cases of their own: test_spark_answers.
UNDECIDED = {"pending", "pending within the slack", "the partition asked for"}
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


def test_a_span_is_whole_where_its_one_request_is_plain(spark: SparkSession) -> None:
    of = {case.offset: (name, case.verdicts) for name, case in CASES.expected.items()}
    plain = {row["offset"]: row["plain"] for row in sieve_of(spark, CASES).collect() if row["plain"]}
    found = spans_of(spark, CASES).where("is_whole and asked + ahead > 0").collect()
    whole = {row["span"]: "delivered" if row["asked"] else "pending" for row in found}
    assert {span: verdict for span, verdict in whole.items() if of.get(span, ("", {verdict}))[1] != {verdict}} == {}
    # What is due while the audit reads, and what names its partition, is looked at more closely.
    assert {of[offset][0] for offset in plain.keys() - whole.keys()} == UNDECIDED


def test_whole_spans_and_what_is_left_of_them_are_what_the_rules_say(
    spark: SparkSession, rows: dict[int, Row], cases: tuple[DataFrame, DataFrame]
) -> None:
    found = sifted(spark, CASES, bits=1)
    nothing = spark.createDataFrame([], "place string")
    assert found.rows is not None
    assert found.plain is not None
    left = {row["offset"]: row for row in found.rows.collect()}
    assert left == {offset: row for offset, row in rows.items() if offset in left}
    expected = summarise(cases[0], cases[1], nothing, samples_max=0)
    assert summarise(found.rows, cases[1], nothing, 0, found.plain) == expected
    found.forget()


def test_a_span_of_many_is_broken_by_one_thing_that_differs(spark: SparkSession) -> None:
    """Each span has four requests, all of them plain but for what its name says of one."""
    history = _spans((*SPANS, *ODD))
    found = {row["span"]: row for row in spans_of(spark, history, bits=2).collect()}
    whole = [name for number, name in enumerate((*SPANS, *ODD)) if found[number]["is_whole"]]
    assert whole == ["sound", "one ahead", *ODD]
    left_out = [4 - found[len(SPANS) + number]["requests"] for number in range(len(ODD))]
    assert left_out == [1] * len(ODD)


def test_what_is_odd_is_judged_by_itself_and_its_neighbours_as_a_whole(spark: SparkSession) -> None:
    history = _spans(ODD)
    by_rules = {row["offset"]: row for row in judged(spark, history)[0].collect()}
    found = sifted(spark, history, bits=2)
    assert found.rows is not None
    assert found.plain is not None
    assert found.plain.counts == {"delivered": 3 * len(ODD), "pending": 0}
    assert found.plain.lateness.count() == 3 * len(ODD)
    assert {row["offset"]: row for row in found.rows.collect()} == {
        offset: by_rules[offset] for offset in range(0, 4 * len(ODD), 4)
    }
    found.forget()


def _spans(names: Sequence[str]) -> History:
    """For each name a span of four."""
    history = History(T)
    for number, name in enumerate(names):
        for place in range(4):
            _add_to_span(history, 4 * number, place, name if place == 0 or name.startswith("swapped") else "")
    return history


def _add_to_span(history: History, first: int, place: int, name: str) -> None:
    offset, swapped = first + place, first + (1, 0, 2, 3)[place]
    key, at = b"%d" % offset, DUE + offset + (400 * 24 * HOUR_MS if name == "one ahead" else 0)
    sent: Headers = [("a", b"b"), ("c", None)]
    if name != "not asked for":
        history.ask(offset, ("postdate-topic", b"orders"), ("postdate-at", b"%d" % at), key=key, headers=sent)
    said = DUE + swapped if name == "swapped dues" else at
    if name == "moved and delivered":
        history.commit([offset, at, "moved", at + 1, offset + 1_000], at_ms=at - 1)
    if name.startswith("cancelled"):
        history.commit([offset, at, "cancelled"], at_ms=at - 1)
        if name == "cancelled":
            return
    for _ in range({"no fate": 0, "one ahead": 0, "two fates": 2}.get(name, 1)):
        history.commit([offset, said, "delivered"], at_ms=said - 1 if name == "early" else T + HOUR_MS - 1)
    if name == "a second fate due now":
        history.commit([offset, SNAPSHOT, "delivered"], at_ms=SNAPSHOT)
    if name == "a second record due now":
        history.deliver(offset, key=key, headers=sent, partition=partition_for(key, 4), due_ms=SNAPSHOT)
    if name == "a letter":
        history.bury(offset)
    of = offset + 1 if name == "another's record twice" else offset
    for _ in range({"no record": 0, "one ahead": 0, "two records": 2}.get(name, 1)):
        history.deliver(
            of,
            key=b"%d" % of,
            value=b"w" if name == "another value" else b"v",
            headers=[("a", None), ("b", b"c")] if name == "another header" else sent,
            partition=(partition_for(b"%d" % of, 4) + (name == "another partition")) % 4,
            due_ms=DUE + of if of != offset else said,
        )


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
