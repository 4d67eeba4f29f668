"""Every verdict on literal rows. Goal: each rule reports its violation, and only that. Method: one history in which
every request is a separate case, judged by one Spark job; each case has its verdicts and a word of the detail. Cases
that differ in one respect are neighbours, the correct one included, so a rule that always or never reports fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from postdate.spark.job.bounds import NEVER_MS
from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.judging.summary import Outcomes, Plain
from postdate.spark.limits import COMMIT_MS_MAX
from postdate.spark.records.deliveries import delivered_messages, record_rows
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.records.requests import digested_requests, understood_rows
from postdate.spark.rules.ordering import overtaken
from postdate.spark.rules.verdicts import VERDICTS, VIOLATIONS
from postdate.spark.session.caching import released
from postdate.spark.session.small_tables import small_table
from postdate.wire.values.murmur2 import partition_for
from support.audit_cases.drops import drop_cases
from support.audit_cases.id_policies import id_policy_cases
from support.audit_cases.schedules import schedule_cases
from support.audit_cases.verdicts import DUE, HOUR_MS, SNAPSHOT, TO_ORDERS, T, all_cases
from support.audits.judging import (
    JudgingBounds,
    Situation,
    by_offset,
    check_case,
    chunks_of,
    judged,
    judged_together,
    overtaken_of,
    plain_of,
    staged,
    summary_of,
    target_row,
    unreadable_of,
)
from support.audits.small_spark import has_cached
from support.audits.written_records import LETTERS, REQUESTS, TARGET, Headers, RandomHistory

CASES = all_cases()
CHUNKS = (
    *("sound", "one ahead", "one due now", "no fate", "no record", "two fates", "two records", "another value"),
    *("swapped dues", "another header", "another partition", "another's record twice", "not asked for", "early"),
    *("a second record due now", "a record due now"),
)
EXCEPTIONAL = (
    *("a letter", "cancelled", "cancelled and delivered", "moved and delivered"),
    *("delivered now", "a second fate due now"),
)
PLAIN_IN_NO_CHUNK = {"the partition asked for", "pending within the slack"}
ABOUT_BOUNDS = {
    "request-expired",
    "target-expired",
    "target-recreated",
    "target-younger",
    "capped",
    "unsettled",
    "order",
    "overtaken",
    "unreadable",
}
# test_spark_answers has the cases.
ABOUT_ANSWERS = {"false-verdict", "unanswered"}


@pytest.fixture(scope="module")
def cases(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Returns all cases, judged at once, and the breaks of their chain."""
    return judged(spark, CASES)


@pytest.fixture(scope="module")
def rows(cases: tuple[DataFrame, DataFrame]) -> dict[int, Row]:
    """Returns the rows of `cases` by offset."""
    return by_offset(cases[0])


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_each_case_is_judged_as_by_the_rules_alone(spark: SparkSession, rows: dict[int, Row]) -> None:
    by_rules, _ = judged(spark, CASES, rules_alone=True)
    assert {row["offset"]: row for row in by_rules.collect()} == rows


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> dict[int, str]:
    """Returns the cases that are plain."""
    return plain_of(spark, CASES)


def test_only_delivered_and_pending_requests_are_plain(plain: dict[int, str]) -> None:
    of = {case.offset: case.verdicts for case in CASES.expected.values()}
    assert {offset: verdict for offset, verdict in plain.items() if of.get(offset, {verdict}) != {verdict}} == {}
    assert plain[CASES.expected["delivered"].offset] == "delivered"
    assert plain[CASES.expected["on the millisecond"].offset] == "delivered"
    assert plain[CASES.expected["delivered whole"].offset] == "delivered", "a null key may lie anywhere"
    assert "pending" in plain.values()


def test_a_chunk_of_one_request_is_consistent_if_the_request_is_plain(
    spark: SparkSession, plain: dict[int, str]
) -> None:
    of = {case.offset: (name, case.verdicts) for name, case in CASES.expected.items()}
    found = chunks_of(spark, CASES).where("is_consistent and asked + ahead > 0").collect()
    consistent = {row["chunk"]: "delivered" if row["asked"] else "pending" for row in found}
    assert {
        chunk: verdict for chunk, verdict in consistent.items() if of.get(chunk, ("", {verdict}))[1] != {verdict}
    } == {}
    # Only the rules judge requests that name their partition, and messages that are late but not missing.
    assert {of[offset][0] for offset in plain.keys() - consistent.keys()} == PLAIN_IN_NO_CHUNK


def test_consistent_chunks_and_the_rest_have_the_verdicts_of_the_rules(
    spark: SparkSession, rows: dict[int, Row], cases: tuple[DataFrame, DataFrame]
) -> None:
    found = staged(spark, CASES, bits=1)
    assert found.rows is not None
    assert found.plain is not None
    left = {row["offset"]: row for row in found.rows.collect()}
    assert left == {offset: row for offset, row in rows.items() if offset in left}
    expected = summary_of(spark, *cases, samples_max=0)
    assert summary_of(spark, found.rows, cases[1], 0, found.plain) == expected


def test_one_difference_makes_a_chunk_of_many_requests_inconsistent(spark: SparkSession) -> None:
    """The name of a chunk describes the difference of one of its four requests; the others are plain."""
    history = _chunks((*CHUNKS, *EXCEPTIONAL))
    found = {row["chunk"]: row for row in chunks_of(spark, history, bits=2).collect()}
    consistent = [name for number, name in enumerate((*CHUNKS, *EXCEPTIONAL)) if found[number]["is_consistent"]]
    assert consistent == ["sound", "one ahead", "one due now", *EXCEPTIONAL]
    left_out = [4 - found[len(CHUNKS) + number]["requests"] for number in range(len(EXCEPTIONAL))]
    assert left_out == [1] * len(EXCEPTIONAL)


def test_an_exceptional_request_is_judged_alone_and_its_neighbours_as_a_chunk(spark: SparkSession) -> None:
    history = _chunks(EXCEPTIONAL)
    by_rules = {row["offset"]: row for row in judged(spark, history)[0].collect()}
    found = staged(spark, history, bits=2)
    assert found.rows is not None
    assert found.plain is not None
    assert found.plain.counts == {"delivered": 3 * len(EXCEPTIONAL), "pending": 0}
    assert found.plain.lateness.count() == 3 * len(EXCEPTIONAL)
    assert {row["offset"]: row for row in found.rows.collect()} == {
        offset: by_rules[offset] for offset in range(0, 4 * len(EXCEPTIONAL), 4)
    }


def _chunks(names: Sequence[str]) -> RandomHistory:
    """Returns a history with a chunk of four requests for each name."""
    history = RandomHistory(T)
    for number, name in enumerate(names):
        for place in range(4):
            _add_to_chunk(history, 4 * number, place, name if place == 0 or name.startswith("swapped") else "")
    return history


def _add_to_chunk(history: RandomHistory, first: int, place: int, name: str) -> None:
    offset, swapped = first + place, first + (1, 0, 2, 3)[place]
    now = {"one due now": SNAPSHOT, "a record due now": SNAPSHOT, "delivered now": SNAPSHOT - 1_000}
    key, at = b"%d" % offset, now.get(name, DUE + offset + (400 * 24 * HOUR_MS if name == "one ahead" else 0))
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
    fates = {"no fate": 0, "one ahead": 0, "one due now": 0, "a record due now": 0, "two fates": 2}
    for _ in range(fates.get(name, 1)):
        at_ms = max(T + HOUR_MS - 1, said)
        history.commit([offset, said, "delivered"], at_ms=said - 1 if name == "early" else at_ms)
    if name == "a second fate due now":
        history.commit([offset, SNAPSHOT, "delivered"], at_ms=SNAPSHOT)
    if name == "a second record due now":
        history.deliver(offset, key=key, headers=sent, partition=partition_for(key, 4), due_ms=SNAPSHOT)
    if name == "a letter":
        history.bury(offset)
    of = offset + 1 if name == "another's record twice" else offset
    records = {"no record": 0, "one ahead": 0, "one due now": 0, "two records": 2}
    for _ in range(records.get(name, 1)):
        history.deliver(
            of,
            key=b"%d" % of,
            value=b"w" if name == "another value" else b"v",
            headers=[("a", None), ("b", b"c")] if name == "another header" else sent,
            partition=(partition_for(b"%d" % of, 4) + (name == "another partition")) % 4,
            due_ms=DUE + of if of != offset else said,
        )


def test_the_cases_reach_every_verdict_that_rows_can_have() -> None:
    every = (CASES, id_policy_cases(), drop_cases(), schedule_cases())
    reached = {verdict for cases in every for case in cases.expected.values() for verdict in case.verdicts}
    assert reached - ABOUT_ANSWERS == set(VERDICTS) - {"chain", *ABOUT_BOUNDS, *ABOUT_ANSWERS}


def test_lateness_counts_from_the_last_due_time(rows: dict[int, Row]) -> None:
    assert rows[CASES.expected["delivered"].offset]["lateness_ms"] == 1_000
    assert rows[CASES.expected["on the millisecond"].offset]["lateness_ms"] == 0
    assert rows[CASES.expected["moved earlier"].offset]["lateness_ms"] == 1_000
    assert rows[CASES.expected["two records"].offset]["lateness_ms"] is None


def _open_transactions() -> dict[str, Situation]:
    history = RandomHistory(T)
    for offset in (1, 2, 3):
        history.ask(offset)
    history.commit([2, DUE, "delivered"], [3, DUE, "dead"])
    capped = JudgingBounds(log_capped=True, letters_capped=True)
    return {
        "open transactions": Situation(history, [target_row(capped_from_ms=[-1] * 4)], capped),
        "no open transactions": Situation(history),
    }


def _retention() -> dict[str, Situation]:
    history = RandomHistory(T)
    history.commit([1, DUE, "delivered"])  # its request has left the topic
    for offset in (10, 11, 12, 13):
        history.ask(offset, ("postdate-topic", b"orders" if offset == 10 else b"gone"), ("postdate-delay", b"1s"))
    history.ask(14, at_ms=T - 1)
    history.commit([10, DUE, "delivered"], [11, DUE, "delivered"], [12, DUE, "dead"])
    gone: tuple[object, ...] = ("gone", None, False, False, [NEVER_MS], [NEVER_MS], [], -1, -1)
    bounds = JudgingBounds(log_start=10, request_start=10, fates_lost_before_ms=T, letters_lost_before_ms=T + 2_000)
    return {"retention": Situation(history, [target_row(compacted=True), gone], bounds)}


_PLACES = {offset: partition_for(b"k%d" % offset, 4) for offset in range(10)}


def _bounds_of_partitions() -> dict[str, Situation]:
    """Keys k0 to k9 on four partitions, and bounds of partition 3."""
    history = RandomHistory(T)
    for offset in _PLACES:
        history.ask(offset, key=b"k%d" % offset)
    history.ask(10, key=None)
    history.commit(*([offset, DUE, "delivered"] for offset in range(11)))
    at_ms, never_ms = T + 2_000, [NEVER_MS] * 3
    before_ms = at_ms - COMMIT_MS_MAX
    bounds = {
        "partition 3 target-expired": target_row(lost_ms=[-1, -1, -1, before_ms]),
        "partition 3 capped": target_row(capped_from_ms=[*never_ms, at_ms]),
        "partition 3 hides nothing": target_row(
            lost_ms=[-1, -1, -1, before_ms - 1], capped_from_ms=[*never_ms, at_ms + 1]
        ),
    }
    return {name: Situation(history, [row]) for name, row in bounds.items()}


_YOUNG = {"target-younger": -1, "target-recreated": T + 3_000}


def _young_targets() -> dict[str, Situation]:
    history = RandomHistory(T)
    for offset in (1, 2):
        history.ask(offset)
    history.commit([1, DUE, "delivered"], at_ms=T + 2_000)
    history.commit([2, DUE, "delivered"], at_ms=T + 3_000)
    return {
        reason: Situation(history, [target_row(began_ms=T + 3_000, recreated_ms=recreated_ms)])
        for reason, recreated_ms in _YOUNG.items()
    }


_KEYS = [b"k%d" % number for number in range(20)]


def _grown_target() -> dict[str, Situation]:
    """Returns messages on three partitions, then a fourth, whose first record has the time T + 5 s."""
    history = RandomHistory(T)
    for offset, key in enumerate(_KEYS):
        history.ask(offset, key=key)
        history.ask(100 + offset, key=key)
        history.commit([offset, DUE, "delivered"], at_ms=T + 4_999)
        history.commit([100 + offset, DUE, "delivered"], at_ms=T + 5_000)
        for origin in (offset, 100 + offset):
            history.deliver(origin, key=key, partition=partition_for(key, 3))
    return {"grown target": Situation(history, [target_row(known_ms=[-1, -1, -1, T + 5_000])])}


def _expired_requests() -> dict[str, Situation]:
    """Returns a history whose requests below offset 10 have left their topic; a record or the dispatch log names their
    due times."""
    history = RandomHistory(T)
    for offset in range(1, 8):
        history.commit([offset, DUE, "delivered"], at_ms=DUE - 1 if offset in (3, 4) else T + 2_000)
    history.commit([8, T + HOUR_MS, "moved", DUE, 9], [8, T + HOUR_MS, "delivered"])
    for origin, topic in ((1, TARGET), (2, TARGET), (2, TARGET), (3, TARGET), (5, TARGET), (5, "retries"), (8, TARGET)):
        history.deliver(origin, topic=topic)
    return {"expired requests": Situation(history, bounds=JudgingBounds(log_start=10, request_start=10))}


def _window() -> dict[str, Situation]:
    history = RandomHistory(T)
    history.ask(20)
    history.commit([5, DUE, "delivered"], [20, DUE, "delivered"], [30, DUE, "delivered"])
    for origin in (5, 20, 30):
        history.deliver(origin)
    return {"window": Situation(history, bounds=JudgingBounds(request_start=10, request_end=25))}


@pytest.fixture(scope="module")
def situations(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """Returns the rows of all of these situations, by offset."""
    some = (_open_transactions(), _retention(), _bounds_of_partitions(), _young_targets(), _grown_target())
    every = {name: one for each in (*some, _expired_requests(), _window()) for name, one in each.items()}
    return judged_together(spark, every)


def _verdicts(rows: dict[int, Row]) -> dict[int, list[str]]:
    return {offset: row["verdicts"] for offset, row in rows.items()}


def test_requests_that_open_transactions_hide_are_capped(situations: dict[str, dict[int, Row]]) -> None:
    capped, others = situations["open transactions"], situations["no open transactions"]
    assert _verdicts(capped) == {1: ["capped"], 2: ["capped"], 3: ["capped"]}
    assert _verdicts(others) == {1: ["missing"], 2: ["missing", "contradiction"], 3: ["contradiction"]}


def test_records_that_retention_deleted_are_no_violation(situations: dict[str, dict[int, Row]]) -> None:
    rows = situations["retention"]
    assert _verdicts(rows) == {
        1: ["request-expired"],
        10: ["target-expired"],
        11: ["target-expired"],
        12: ["target-expired"],
        13: ["missing"],
        14: ["unsettled"],
    }
    assert [offset for offset, row in rows.items() if row["is_fate_lost"]] == [14]


def test_a_bound_of_one_partition_excuses_no_message_in_another(situations: dict[str, dict[int, Row]]) -> None:
    """A bound of partition 3 excuses only the messages of partition 3."""
    lost = ["missing", "contradiction"]
    for reason in ("target-expired", "capped"):
        expected = {offset: [reason] if place == 3 else lost for offset, place in _PLACES.items()}
        assert _verdicts(situations[f"partition 3 {reason}"]) == {**expected, 10: [reason]}
    assert _verdicts(situations["partition 3 hides nothing"]) == dict.fromkeys(range(11), lost)


@pytest.mark.parametrize("reason", _YOUNG)
def test_a_message_older_than_its_target_is_not_missing(situations: dict[str, dict[int, Row]], reason: str) -> None:
    assert _verdicts(situations[reason]) == {1: [reason], 2: ["missing", "contradiction"]}


def test_a_key_belongs_to_the_partition_of_any_count_that_the_target_may_have_had(
    situations: dict[str, dict[int, Row]],
) -> None:
    moved = {100 + offset for offset, key in enumerate(_KEYS) if partition_for(key, 3) != partition_for(key, 4)}
    verdicts = _verdicts(situations["grown target"])
    assert {offset for offset, found in verdicts.items() if found == ["mismatch"]} == moved
    assert moved


def test_without_its_request_an_origin_still_has_one_record_and_none_too_early(
    situations: dict[str, dict[int, Row]],
) -> None:
    verdicts = _verdicts(situations["expired requests"])
    assert {offset: set(found) - {"request-expired"} for offset, found in verdicts.items()} == {
        **{1: set(), 2: {"duplicate"}, 3: {"early"}, 4: {"early"}, 5: set()},
        **{6: set(), 7: set(), 8: set()},  # their target is unknown, and may not have been read
    }


def test_a_window_judges_only_its_own_requests(situations: dict[str, dict[int, Row]]) -> None:
    assert _verdicts(situations["window"]) == {20: ["delivered"]}


def test_the_summary_counts_four_outcomes(spark: SparkSession) -> None:
    history = RandomHistory(T)
    for offset in (10, 11, 12):
        history.ask(offset)
    history.ask(13, TO_ORDERS, ("postdate-delay", b"2h"))
    history.commit([1, DUE, "delivered"], [10, DUE, "delivered"], [11, DUE, "delivered"], [12, DUE, "delivered"])
    history.deliver(10)
    history.deliver(11, value=b"w")
    targets = [target_row(lost_ms=[T + 2_000] * 4)]
    found, breaks = judged(spark, history, targets=targets, bounds=JudgingBounds(log_start=10, request_start=10))
    summary = summary_of(spark, found, breaks, samples_max=0)
    assert summary.outcomes == Outcomes(1, 1, {"request-expired": 1, "target-expired": 1}, pending=1)
    assert summary.outcomes.verified_share == 0.25
    unread = summary.outcomes.with_unread({"outside-window": 4, "capped": 0, "target-expired": 1}).reasons
    assert unread == {"request-expired": 1, "target-expired": 2, "outside-window": 4}
    plain = Plain({"delivered": 3, "pending": 2}, spark.createDataFrame([], "lateness_ms bigint"))
    assert summary_of(spark, None, breaks, 0, plain).outcomes == Outcomes(3, pending=2)


def test_a_message_is_overtaken_only_by_one_that_left_after_its_request_was_ingested(spark: SparkSession) -> None:
    """Each case is a key with its records in the order of the target. A record is (offset of the request, due time in
    seconds, next request): when the fate was written, the owner had read the requests below `next request`."""
    cases: dict[bytes, list[tuple[int, int, int]]] = {
        b"in order": [(1, 1, 99), (2, 1, 99), (3, 2, 99)],
        b"by due": [(11, 2, 99), (10, 1, 99)],
        b"by offset": [(21, 1, 99), (20, 1, 99)],
        b"came too late": [(30, 5, 31), (31, 1, 99)],
        b"behind one that came too late": [(41, 5, 42), (42, 0, 99), (40, 1, 99)],
        b"rescheduled": [(51, 2, 99), (50, 1, 99)],
        b"a copy of the first": [(70, 1, 99), (71, 2, 99), (70, 1, 99)],
        b"a copy of what was late": [(81, 2, 99), (80, 1, 99), (81, 2, 99), (80, 1, 99)],
        b"behind a copy of another's": [(91, 2, 99), (90, 1, 99)],
        b"of a request that was not read": [(101, 2, 999), (100, 1, 999)],
    }
    history = RandomHistory(T)
    history.commit([50, DUE, "moved", T + 1_000, 59])
    for key, records in cases.items():
        for offset in sorted({record[0] for record in records} - {100}):
            history.ask(offset, ("postdate-topic", b"retries" if offset == 91 else b"orders"), ("postdate-at", b"1"))
        for offset, due_s, known in records:
            history.commit([offset, DUE, "delivered"], next_request=known)
            history.deliver(offset, key=key, due_ms=T + 1_000 * due_s)
    history.deliver(61, key=b"by due", due_ms=T, partition=1)
    history.commit([61, T, "delivered"])
    for offset, due_s in ((71, 2), (70, 1)):  # a consumer has copied them to another topic, in reverse order
        history.deliver(offset, topic="retries", key=b"a copy of the first", due_ms=T + 1_000 * due_s)
    assert overtaken_of(spark, history) == {10: "offset 3", 20: "offset 5", 40: "offset 9", 80: "offset 17"}


def test_a_record_that_was_not_to_be_delivered_is_not_out_of_order(spark: SparkSession) -> None:
    """Its request was replaced, or has no fate; both are separate violations."""
    history = RandomHistory(T)
    for offset in (1, 2, 3, 4):
        history.ask(offset)
    history.commit([1, DUE, "replaced"], [2, DUE, "delivered"], [4, DUE, "delivered"])
    for offset in (2, 1, 4, 3):
        history.deliver(offset)
    assert overtaken_of(spark, history) == {}


def test_an_audit_releases_its_cached_rows_at_its_end(spark: SparkSession) -> None:
    history = RandomHistory(T)
    for offset, due_s in ((2, 2), (1, 1)):
        history.ask(offset)
        history.commit([offset, DUE, "delivered"])
        history.deliver(offset, due_ms=T + 1_000 * due_s)
    records = record_rows(delivered_messages(small_table(spark, history.delivered, RECORDS), [REQUESTS]))
    log = log_rows(small_table(spark, history.log, RECORDS), JudgingBounds().table(spark))
    asked = small_table(spark, history.requests, RECORDS)
    requests = digested_requests(understood_rows(asked, LEVELS_MS_DEFAULT))
    spark.catalog.clearCache()
    with released():
        found = overtaken(records, fate_rows(log), requests, few=False)  # few are part of the plan
        assert [row["offset"] for row in found.collect()] == [1]
        assert has_cached(spark)
    assert not has_cached(spark)


def test_an_overtaken_message_is_judged_alone(spark: SparkSession) -> None:
    history = RandomHistory(T)
    for offset in (1, 2, 3):
        history.ask(offset, ("postdate-topic", b"orders"), ("postdate-at", b"%d" % (T + offset)))
    for offset in (2, 1, 3):
        history.commit([offset, T + offset, "delivered"], at_ms=T + offset)
        history.deliver(offset, due_ms=T + offset, partition=partition_for(b"k", 4))
    found = staged(spark, history, bits=4, in_order=True)
    assert found.rows is not None
    assert {row["offset"]: row["verdicts"] for row in found.rows.collect()} == {1: ["order"]}
    assert found.plain is not None
    assert found.plain.counts["delivered"] == 2


def test_a_message_that_left_late_may_have_been_parked(spark: SparkSession) -> None:
    history, cases = RandomHistory(T), ((1, b"k", 500, "order"), (11, b"l", 501, "overtaken"))
    for first, key, _, _ in cases:
        for offset in (first, first + 1):
            due = ("postdate-at", b"%d" % (T + offset))
            history.ask(offset, ("postdate-topic", b"orders"), due, key=key)
    for first, key, late_ms, _ in cases:
        for offset in (first + 1, first):
            history.commit([offset, T + offset, "delivered"], at_ms=T + offset + late_ms)
            history.deliver(offset, due_ms=T + offset, key=key, partition=partition_for(key, 4))
    found = staged(spark, history, bits=4, in_order=True)
    assert found.rows is not None
    assert {row["offset"]: row["verdicts"] for row in found.rows.collect() if row["offset"] in (1, 11)} == {
        first: [verdict] for first, *_, verdict in cases
    }


def test_a_record_with_an_unreadable_origin_is_reported_by_its_position(spark: SparkSession) -> None:
    history = RandomHistory(T)
    history.ask(1)
    history.commit([1, DUE, "delivered"])
    history.deliver(1)
    history.bury(1)
    row = history.delivered[0]
    origins = {"gone": None, "garbled": b"r/x/1", "copied": b"another/0/1"}
    headers: dict[str, Headers] = {topic: [("postdate-origin", text)] for topic, text in origins.items()}
    headers["foreign"] = []
    for place, (topic, sent) in enumerate(headers.items()):
        history.delivered.append((topic, 0, place, *row[3:7], sent))
        history.dead_letters.append((LETTERS, 0, 10 + place, *row[3:7], sent))
    assert unreadable_of(spark, history) == {
        *("gone/0/0", "garbled/0/1"),
        *(f"{LETTERS}/0/{offset}" for offset in (10, 11, 12, 13)),
    }


def test_a_late_fate_explains_a_record_and_is_not_judged_otherwise(spark: SparkSession) -> None:
    history = RandomHistory(T)
    for offset in (1, 2, 3):
        history.ask(offset)
    history.commit()
    history.commit([1, DUE, "delivered"], [2, DUE, "delivered"], [3, DUE, "dead"])
    history.deliver(1)
    found, breaks = judged(spark, history, bounds=JudgingBounds(log_end=1))
    assert {row["offset"]: row["verdicts"] for row in found.collect()} == {
        1: ["delivered"],
        2: ["pending"],
        3: ["pending"],
    }
    assert breaks.count() == 0


def test_summary_counts_and_samples(spark: SparkSession, cases: tuple[DataFrame, DataFrame]) -> None:
    found, breaks = cases
    summary = summary_of(spark, found, breaks, samples_max=2)
    expected = [verdict for case in CASES.expected.values() for verdict in case.verdicts]
    for verdict in VIOLATIONS:
        assert summary.counts[verdict] == expected.count(verdict), verdict
        assert len(summary.samples.get(verdict, [])) == min(2, expected.count(verdict)), verdict
    assert summary.violations == sum(expected.count(verdict) for verdict in VIOLATIONS)
    assert summary.lateness_ms["max"] == T + 2_000 - 5, "the request that was due at 5 ms after 1970"
    assert summary.lateness_ms["p50"] == 1_000
