"""The fast tiers of the audit. Goal: chunks, and the expression that finds plain origins, agree with the plain rules.

Method: random histories, each in a separate partition, most of them correct and some with random defects
(`tier_histories`). The rules alone judge all of them at once. Then each tier judges the same histories, and the test
compares each origin:

- If the rules judge only the origins that are not plain, each origin gets the same row as from the rules alone.
- By the rules, each request of a consistent chunk is delivered or pending. The other origins are judged with related
  rows that are read again, and get the rows of the rules, whether or not the requests that name others were gathered
  before. Each origin is in one of these two parts. The audit uses no chunks if each delivered request must be answered.

Both tiers look up the rows that are related to the judged ones, as a large audit does. The rules alone see all rows.

POSTDATE_TEST_HISTORIES is the number of histories, POSTDATE_TEST_HISTORIES_SEED the seed of the first batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postdate.spark.audit.ranges import PARTITIONS
from postdate.spark.audit.ranges import TARGETS as TARGET_COLUMNS
from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.judging import origin_rows as judging
from postdate.spark.judging.chunk_digests import ChunkDigests
from postdate.spark.judging.inputs import folded
from postdate.spark.judging.origin_rows import JudgingParameters, judged_origins, placed
from postdate.spark.judging.stages import ROW_COLUMNS, History, judged_history, read_context, split
from postdate.spark.limits import EXPECTED_AFTER_MS
from postdate.spark.records.deliveries import dead_letter_rows, delivered_messages, record_rows
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.records.policies import policy_rows, policy_table, read_rows
from postdate.spark.records.requests import digested_requests, understood_rows
from postdate.spark.records.verdict_records import answer_rows
from postdate.spark.rules.ordering import overtaken
from postdate.spark.rules.unanswered import Mode
from postdate.spark.session.small_tables import small_table
from support.audit_cases.verdicts import SNAPSHOT
from support.audits.judging import by_the_rules
from support.audits.tier_histories import OVERDUE_MS, SLACK_MS, TARGETS, Histories, write_rows
from support.audits.written_records import LETTERS, REQUESTS, VERDICTS

_COUNT = int(os.environ.get("POSTDATE_TEST_HISTORIES", "4000"))
_SEED = int(os.environ.get("POSTDATE_TEST_HISTORIES_SEED", "1"))
_AT_ONCE = 34_000
_CHUNK_BITS = 2
_NO_LIMIT = 2**62
_MODES: tuple[Mode, ...] = ("none", "control", "all")


@dataclass(frozen=True)
class _Judged:
    """Histories, and their rows by the rules, `expected`. All rows are cut from their plans, since planning with them
    takes longer than judging."""

    history: History
    how: JudgingParameters
    expected: DataFrame
    seed: int

    def differences(self, rows: DataFrame) -> list[tuple[Any, ...]]:
        """Returns some origins of `rows` whose row differs from that of the rules."""
        names = [name for name in self.expected.columns if name not in ORIGIN]
        one = rows.select(*ORIGIN, F.to_json(F.struct(*names)).alias("tier"))
        other = self.expected.select(*ORIGIN, F.to_json(F.struct(*names)).alias("rules"))
        return _some(one.join(other, list(ORIGIN), "left").where("NOT (tier <=> rules)"))


def _some(rows: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows.limit(5).collect()]


def _read(spark: SparkSession, directory: Path, name: str, rows: list[Any], columns: str) -> DataFrame:
    schema, path = StructType.fromDDL(columns), directory / f"{name}.json"
    assert isinstance(schema, StructType)
    write_rows(path, rows, schema.names)
    return spark.read.schema(schema).json(str(path)).localCheckpoint()


def drawn_and_judged(spark: SparkSession, directory: Path, count: int, seed: int, verdicts: Mode) -> _Judged:
    """Returns `count` histories of this seed, judged by the rules."""
    drawn = Histories.drawn(count, seed)
    directory.mkdir(exist_ok=True)
    partitions = _read(spark, directory, "partitions", drawn.partitions, PARTITIONS)
    requests, log, delivered, dead_letters, answers = (
        _read(spark, directory, name, getattr(drawn, name), RECORDS)
        for name in ("requests", "log", "delivered", "dead_letters", "answers")
    )
    log_read = log_rows(log, partitions).localCheckpoint()
    policies = policy_table(spark, read_rows(policy_rows(log_read).collect()))
    understood = understood_rows(requests, LEVELS_MS_DEFAULT, policies=policies).localCheckpoint()
    messages = delivered_messages(delivered, [REQUESTS]).localCheckpoint()
    history = History(
        *(understood, digested_requests(understood).localCheckpoint()),
        *(messages, record_rows(messages).localCheckpoint(), log_read),
        dead_letter_rows(dead_letters, {LETTERS: REQUESTS}).localCheckpoint(),
        answer_rows(answers, {VERDICTS: REQUESTS}).localCheckpoint(),
        returns=understood.where(F.col("retry").isNotNull()).select(*ORIGIN, "acts_on").localCheckpoint(),
    )
    history = replace(history, overtaken=(overtaken(history.records, fate_rows(history.log), history.requests),))
    how = JudgingParameters(
        *(partitions, small_table(spark, TARGETS, TARGET_COLUMNS), verdicts, SNAPSHOT, SLACK_MS),
        left_share_max=1.0,
    )
    return _Judged(history, how, by_the_rules(history.inputs(), how).localCheckpoint(), seed)


def _batches() -> list[tuple[int, int]]:
    """Returns the number of histories in each batch, and its seed."""
    whole, rest = divmod(_COUNT, _AT_ONCE)
    sizes = [_AT_ONCE] * whole + [rest] * (rest > 0)
    return [(size, _SEED + number) for number, size in enumerate(sizes)]


@pytest.fixture(scope="module", params=_batches(), ids=lambda batch: f"{batch[0]} of seed {batch[1]}")
def judged(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Judged]:
    count, seed = request.param
    print(f"{count} histories of seed {seed}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "AROUND_ROWS_MAX", _NO_LIMIT)
        expected = drawn_and_judged(spark, tmp_path_factory.mktemp("histories"), count, seed, _MODES[seed % 3])
        patch.setattr(judging, "AROUND_ROWS_MAX", 0)
        yield expected
    spark.catalog.clearCache()


def problems_of_chunks(judged: _Judged, expected_before_ms: int) -> tuple[dict[str, list[tuple[Any, ...]]], int, int]:
    """Returns the differences from the rules in consistent chunks and in the judged rest, the number of requests in
    consistent chunks, and the number of origins in the rest."""
    digests = ChunkDigests(expected_before_ms, _CHUNK_BITS)
    history, how = judged.history, judged.how
    asked = digests.of_requests(history.understood).localCheckpoint()
    found = split(history, how, digests, asked, gathers_naming=True)
    assert found is not None
    verified = digests.consistent_rows(history.understood, found.inconsistent, found.exceptional).localCheckpoint()
    verdict = F.when(F.col("due_ms") < expected_before_ms, "delivered").otherwise("pending")
    both = verified.select(*ORIGIN, F.array(verdict).alias("found")).join(judged.expected, list(ORIGIN), "left")
    fate = F.col("fate")
    lateness = digests.consistent_rows(fate_rows(history.log), found.inconsistent, found.exceptional).select(
        *ORIGIN, (fate.at_ms - fate.first_due_ms).alias("found_ms")
    )
    late = lateness.join(judged.expected, list(ORIGIN), "left").where("NOT (found_ms <=> lateness_ms)")
    assert found.left is not None
    assert found.naming is not None
    left = folded(found.left).localCheckpoint()

    def judged_left(naming: DataFrame | None) -> DataFrame:
        rows = judged_origins(left, partial(read_context, history, naming), how, ROW_COLUMNS)
        return rows.where("verdicts is not null").localCheckpoint()

    rows = judged_left(found.naming)
    missing = judged.expected.select(*ORIGIN).exceptAll(rows.select(*ORIGIN).unionByName(verified.select(*ORIGIN)))
    problems = {
        "verified": _some(both.where("NOT (found <=> verdicts)")),
        "late": _some(late.select(*ORIGIN, "found_ms", "lateness_ms")),
        "left": judged.differences(rows),
        "left, read twice": judged.differences(judged_left(None)),
        "nowhere": _some(missing),
    }
    return problems, verified.count(), rows.count()


@pytest.mark.timeout(3600)
def test_origins_get_the_rows_of_the_rules_alone(judged: _Judged) -> None:
    rows = folded(judged.history.inputs()).localCheckpoint()
    plain = placed(rows, judged.how).where("is_judged and plain is not null").count()
    found = judged_origins(rows, None, judged.how, ROW_COLUMNS).where("verdicts is not null").localCheckpoint()
    assert judged.differences(found) == []
    assert found.count() == judged.expected.count()
    assert 0.1 < plain / found.count() < 0.8, "both kinds occur"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("expected_before_ms", [OVERDUE_MS, SNAPSHOT - EXPECTED_AFTER_MS])
def test_chunks_and_the_rest_get_the_rows_of_the_rules(judged: _Judged, expected_before_ms: int) -> None:
    if judged.how.requires_all_verdicts:
        asked = ChunkDigests(OVERDUE_MS, _CHUNK_BITS).of_requests(judged.history.understood)
        assert judged_history(judged.history, judged.how, ChunkDigests(OVERDUE_MS), asked).plain is None
        return
    problems, verified, left = problems_of_chunks(judged, expected_before_ms)
    assert not any(problems.values()), problems
    assert 0.05 < verified / (verified + left) < 0.8, "both kinds occur"
