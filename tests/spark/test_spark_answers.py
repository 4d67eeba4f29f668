"""Verdict records on literal rows. Goal: the audit rejects each answer that contradicts the dispatch log, and accepts
each true one. Method: one history in which every answer is a separate case, judged by one Spark job; then missing
answers, malformed answers, and answers that cannot be verified.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.judging import origin_rows as folded
from postdate.spark.records.verdict_records import ANSWERS, answer_rows
from postdate.spark.session.small_tables import small_table
from postdate.wire.verdicts import Verdict, encode_verdict
from support.audit_cases.answers import answer_cases
from support.audit_cases.verdicts import DUE, TO_ORDERS, Cases, T
from support.audits.judging import (
    JudgingBounds,
    Tables,
    by_offset,
    check_case,
    judged,
    owed,
    summary_of,
    tables,
    wrong_answers,
)
from support.audits.written_records import REQUESTS, VERDICTS, RandomHistory, kafka_row

CASES = answer_cases()


@pytest.fixture(scope="module")
def cases(spark: SparkSession) -> DataFrame:
    """Returns all cases judged at once."""
    return judged(spark, CASES)[0].persist()


@pytest.fixture(scope="module")
def rows(cases: DataFrame) -> dict[int, Row]:
    """Returns the rows of `cases` by offset."""
    return by_offset(cases)


@pytest.mark.parametrize("name", CASES.expected)
def test_answer(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_no_other_answer_of_the_history_is_called_false(rows: dict[int, Row]) -> None:
    called = {offset for offset, row in rows.items() if "false-verdict" in row["verdicts"]}
    assert called == {case.offset for case in CASES.expected.values() if "false-verdict" in case.verdicts}


def test_requests_outside_the_window_still_confirm_an_answer(spark: SparkSession) -> None:
    """A control in the window has moved a message before the window. A request after the window has replaced a message
    in the window."""
    history, moved, control, replaced, end = RandomHistory(T), 1, 2, 3, 4
    history.ask(control, ("postdate-action", b"reschedule"), ("postdate-id", b"m"), ("postdate-delay", b"2s"))
    history.commit([moved, DUE, "moved", T + 2_000, control], [control, 0, "applied"])
    history.answer(control, "not-found", None, "m")
    history.ask(replaced, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"r"))
    history.commit([replaced, DUE, "replaced"])
    history.answer(end, "replaced", replaced, "r")
    bounds = JudgingBounds(request_start=control, request_end=end)
    found = judged(spark, history, verdicts="control", bounds=bounds)[0].collect()
    assert {row["offset"]: row["verdicts"] for row in found} == {control: ["false-verdict"], replaced: ["replaced"]}


def test_answers_outside_the_window_count_if_related_rows_are_looked_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is judged by the answer to an earlier request about the same message. That request and the message are
    before the window. In one case, the earlier request cancelled the message; in the other, it replaced the message."""
    monkeypatch.setattr(folded, "AROUND_ROWS_MAX", 0)
    history, replaced, replacement, cancelled, first, second, copy = RandomHistory(T), 0, 1, 2, 3, 4, 5
    history.ask(second, ("postdate-action", b"cancel"), ("postdate-origin", f"{REQUESTS}/0/{cancelled}".encode()))
    history.ask(copy, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"r"))
    history.commit([replaced, DUE, "replaced"])
    history.commit([cancelled, DUE, "cancelled"], [first, 0, "applied"], [second, 0, "applied"])
    history.commit([copy, DUE, "delivered"])
    history.deliver(copy, id=b"r")
    history.answer(replacement, "replaced", replaced, "r")
    history.answer(first, "cancelled", cancelled)
    history.answer(second, "not-found")
    history.answer(copy, "replaced", replaced, "r")
    found = judged(spark, history, bounds=JudgingBounds(request_start=second))[0].collect()
    assert {row["offset"]: row["verdicts"] for row in found} == {second: ["applied"], copy: ["false-verdict"]}


def test_the_answers_are_those_of_the_wire() -> None:
    assert set(ANSWERS) == {*Verdict}


def test_answers_of_the_sidecar_are_read_and_malformed_ones_are_counted(spark: SparkSession) -> None:
    key, value = encode_verdict(
        Verdict.CANCELLED, f"{REQUESTS}/0/8".encode(), "ü".encode(), f"{REQUESTS}/0/7".encode(), 1
    )
    history = RandomHistory(T)
    history.answers.append(kafka_row(VERDICTS, 0, T, key, value, []))
    history.answer(1, "not-found", more="ignored")
    spoilt = (
        {"v": 2},
        {"v": None},
        {"verdict": "lost"},
        {"origin": "postdate.requests/1/1"},
        {"origin": "other/0/1"},
        {"origin": "1"},
        {"of": "postdate.requests/1/1"},
        {"of": "x"},
        {"at": -1},
        {"at": None},
        {"key": "other"},
        {"id": "without a key", "key": None},
        {"partition": 1},
    )
    for changes in spoilt:
        history.answer(1, "not-found", **changes)
    places = len(history.answers)
    for broken in (None, b"", b"[]", b"{", b"\xff"):
        history.answers.append(kafka_row(VERDICTS, len(history.answers), T, None, broken, []))
    read = answer_rows(small_table(spark, history.answers, RECORDS), {VERDICTS: REQUESTS}).collect()
    sound = [row for row in read if not row["malformed"]]
    assert [(row["offset"], row["answer"], row["of"]) for row in sound] == [(8, "cancelled", 7), (1, "not-found", None)]
    assert bytes(sound[0]["id"]) == "ü".encode()
    assert len(read) - len(sound) == len(spoilt) + len(history.answers) - places


def test_unreadable_answers_are_violations_with_a_place(spark: SparkSession, cases: DataFrame) -> None:
    malformed = small_table(spark, [(f"{VERDICTS}/0/{place}",) for place in range(3)], "place string")
    breaks = small_table(spark, [], "topic string, partition int, log_offset bigint")
    summary = summary_of(spark, cases, breaks, samples_max=1_000, malformed=malformed)
    called = sum("false-verdict" in case.verdicts for case in CASES.expected.values())
    assert summary.counts["false-verdict"] == called + 3
    samples = [sample.origin for sample in summary.samples["false-verdict"]]
    assert samples[-3:] == [f"{VERDICTS}/0/{place}" for place in range(3)]
    assert len(samples) == called + 3


def _owing() -> Cases:
    """Returns requests that end in every way, without answers."""
    cases = Cases()
    bad = ("postdate-action", b"cancel")
    cases.schedule(1, b"a")
    cases.cancel(2, b"a")
    cases.schedule(3, b"b")
    cases.schedule(4, b"b")
    cases.ask(5, bad)
    cases.ask(6, TO_ORDERS)
    cases.commit([1, DUE, "cancelled"], [2, 0, "applied"], [3, DUE, "replaced"], [4, DUE, "delivered"])
    cases.commit([5, 0, "dead"], [6, 0, "dead"])
    cases.deliver(4, id=b"b")
    cases.bury(5, bad)
    cases.bury(6, TO_ORDERS)
    return cases


_CONTROL = {2: "fate applied", 3: "that it was replaced", 5: "fate dead"}
_ALL = {1: "fate cancelled", 2: "fate applied", 4: "fate delivered", 5: "fate dead", 6: "fate dead"}


@pytest.fixture(scope="module")
def owing(spark: SparkSession) -> Tables:
    """Returns the verdicts on requests that end in every way and have no answer."""
    return tables(spark, _owing(), JudgingBounds())


def test_a_missing_answer_is_a_violation_where_one_is_required(owing: Tables) -> None:
    was_not = " was not answered"
    assert owed(owing.known, "control") == {offset: end + was_not for offset, end in _CONTROL.items()}
    found = owed(owing.known, "all")
    assert found.pop(3) == f"fate replaced{was_not}; that it was replaced{was_not}"
    assert found == {offset: end + was_not for offset, end in _ALL.items()}


def test_no_answer_is_required_where_it_may_be_hidden(owing: Tables) -> None:
    assert owed(owing.known.withColumn("answers_capped", F.lit(True)), "all") == {}
    ended_ms = T + 2_000
    lost_before = "answers_lost_before_ms"
    assert owed(owing.known.withColumn(lost_before, F.lit(ended_ms)), "all") == {}
    assert owed(owing.known.withColumn(lost_before, F.lit(ended_ms - 1)), "control").keys() == _CONTROL.keys()


def test_a_given_answer_is_not_missing(spark: SparkSession) -> None:
    cases = _owing()
    for offset, answer, of, id in (
        *((1, "cancelled", None, "a"), (2, "cancelled", 1, "a"), (3, "replaced", None, "b"), (4, "replaced", 3, "b")),
        *((4, "delivered", None, "b"), (5, "rejected", None, None), (6, "rejected", None, None)),
    ):
        cases.answer(offset, answer, of, id)
    known = tables(spark, cases, JudgingBounds()).known
    assert owed(known, "all") == {}
    assert set(wrong_answers(known).values()) == {None}


def test_an_answer_about_hidden_records_is_not_judged(spark: SparkSession) -> None:
    history = Cases()
    history.ask(1)
    history.answer(1, "delivered")
    history.cancel(9, b"before the window")
    history.commit([9, 0, "applied"])
    history.answer(9, "too-late", None, "before the window")
    without, late = (f"answered {what}, the dispatch log says " for what in ("delivered", "too-late"))
    known = tables(spark, history, JudgingBounds()).known
    assert wrong_answers(known) == {1: f"{without}nothing", 9: f"{late}applied"}
    assert wrong_answers(known.withColumn("log_capped", F.lit(True)))[1] is None
    assert wrong_answers(known.withColumn("fates_lost_before_ms", F.lit(T + 1)))[1] is None
    assert wrong_answers(known.withColumn("request_start", F.lit(1)))[9] is None


def test_only_an_answer_that_a_request_was_replaced_depends_on_the_survivor_that_it_names(spark: SparkSession) -> None:
    """The survivor in a forged answer has another id, and its fate may have left the dispatch log."""
    history, other, replaced, survivor = Cases(), 1, 2, 3
    history.schedule(other, b"other")
    history.schedule(replaced, b"a")
    history.schedule(survivor, b"a")
    history.commit([replaced, DUE, "replaced"])
    history.answer(replaced, "not-found", None, "a", by=f"{REQUESTS}/0/{other}")
    known = tables(spark, history, JudgingBounds(fates_lost_before_ms=T + 1)).known
    assert wrong_answers(known) == {replaced: "answered not-found, the dispatch log says replaced"}


def test_a_missing_answer_is_a_separate_verdict(spark: SparkSession) -> None:
    rows, _ = judged(spark, _owing(), verdicts="control")
    found = {row["offset"] for row in rows.collect() if "unanswered" in row["verdicts"]}
    assert found == _CONTROL.keys()
