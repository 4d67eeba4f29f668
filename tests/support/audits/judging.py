"""Judges handwritten histories with the code that the audit itself runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from postdate.spark.audit.ranges import PARTITIONS, TARGETS
from postdate.spark.audit.reading import expected_before_ms
from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.job.bounds import NEVER_MS
from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.judging.chunk_digests import ChunkDigests, subtracted, without_exceptional
from postdate.spark.judging.inputs import AuditInputs, folded
from postdate.spark.judging.origin_rows import JudgingParameters, judged_origins, judged_placed, placed, row_counts
from postdate.spark.judging.stages import ROW_COLUMNS, Judged, judged_history
from postdate.spark.judging.stages import History as Read
from postdate.spark.judging.summary import Counted, Plain, Summary, UnreadableRecords, by_verdicts, summarise
from postdate.spark.records.deliveries import (
    dead_letter_rows,
    delivered_messages,
    delivered_rows,
    record_rows,
    unreadable_dead_letters,
    unreadable_records,
)
from postdate.spark.records.dialects import NO_DIALECTS, DialectOptions
from postdate.spark.records.fates import chain_breaks, fate_rows, log_rows
from postdate.spark.records.policies import policy_rows, policy_table, read_rows
from postdate.spark.records.requests import digested_requests, understood_rows
from postdate.spark.records.verdict_records import answer_rows
from postdate.spark.rules.ordering import overtaken
from postdate.spark.rules.request_histories import history_rows
from postdate.spark.rules.schedules.occurrences import Events, with_occurrences
from postdate.spark.rules.unanswered import Mode, unanswered_ends
from postdate.spark.rules.verdict_checks import judged_answers
from postdate.spark.session.caching import cached, materialised
from postdate.spark.session.small_tables import small_table
from postdate.spark.state.chain import Chain
from support.audit_cases.verdicts import SNAPSHOT, Expected, T
from support.audits.written_records import LETTERS, LOG, REQUESTS, TARGET, VERDICTS, RandomHistory
from support.audits.written_records import Row as Record


@dataclass(frozen=True)
class JudgingBounds:
    """The ranges of a history that the audit reads, and the records that are hidden from it."""

    request_start: int = 0
    request_end: int = 10_000
    log_start: int = 0
    log_end: int = 10_000
    log_capped: bool = False
    fates_lost_before_ms: int = -1
    letters_capped: bool = False
    letters_lost_before_ms: int = -1
    answers_capped: bool = False
    answers_lost_before_ms: int = -1
    request_present_end: int = 10_000

    def table(self, spark: SparkSession) -> DataFrame:
        """Returns the one partition of a history as a table for `judge`."""
        return partition_table(spark, [self])

    def row(self, prefix: str = "", partition: int = 0) -> tuple[Any, ...]:
        """Returns the bounds as a row, for topics with this prefix."""
        requests = (f"{prefix}{REQUESTS}", partition, self.log_start, self.request_start, self.request_end)
        log = (f"{prefix}{LOG}", self.log_end, True, self.log_capped, self.fates_lost_before_ms)
        dead_letters = (self.letters_capped, self.letters_lost_before_ms)
        answers = (self.answers_capped, self.answers_lost_before_ms)
        dead_letters_capped_ms = -1 if self.letters_capped else NEVER_MS
        return (*requests, *log, *dead_letters, *answers, dead_letters_capped_ms, self.request_present_end)


def partition_table(spark: SparkSession, bounds: Sequence[JudgingBounds]) -> DataFrame:
    """Returns the partitions of a history, each with its bounds, as a table for `judge`."""
    return small_table(spark, [bound.row(partition=number) for number, bound in enumerate(bounds)], PARTITIONS)


def target_row(
    name: str = TARGET,
    *,
    lost_ms: Sequence[int] = (-1,) * 4,
    capped_from_ms: Sequence[int] = (NEVER_MS,) * 4,
    known_ms: Sequence[int] = (-1,) * 4,
    began_ms: int = -1,
    recreated_ms: int = -1,
    compacted: bool = False,
) -> tuple[Any, ...]:
    """Returns a target as a row for `judge`. It has as many partitions as there are bounds."""
    bounds = ([*lost_ms], [*capped_from_ms], [*known_ms], began_ms, recreated_ms)
    return name, len(lost_ms), min(capped_from_ms) < NEVER_MS, compacted, *bounds


def kept(rows: DataFrame, records: Sequence[Record]) -> DataFrame:
    """Materialises the `rows` of these `records`, as an audit of few rows does.

    Without records, returns the unchanged plan, which the audit leaves out.
    """
    return materialised(rows, few=True) if records else rows


@dataclass(frozen=True)
class Tables:
    """A history as rows."""

    requests: DataFrame
    log: DataFrame
    fates: DataFrame
    answers: DataFrame
    partitions: DataFrame

    @cached_property
    def known(self) -> DataFrame:
        """The input of the rules about other requests, materialised as in an audit."""
        return materialised(history_rows(self.requests, self.fates, self.answers, self.partitions), few=True)


def tables(
    spark: SparkSession,
    history: RandomHistory,
    bounds: JudgingBounds | Sequence[JudgingBounds],
    dialects: DialectOptions = NO_DIALECTS,
) -> Tables:
    """Returns the input of all rules, materialised as in an audit. `bounds` holds for all partitions, or is a list with
    the bounds of each."""
    bounds_of_partitions = [bounds] * history.partitions if isinstance(bounds, JudgingBounds) else bounds
    partitions = partition_table(spark, bounds_of_partitions)
    log = kept(log_rows(small_table(spark, history.log, RECORDS), partitions), history.log)
    records = small_table(spark, history.requests, RECORDS)
    understood = understood_rows(records, LEVELS_MS_DEFAULT, dialects, _policies(spark, log))
    requests = materialised(digested_requests(understood), few=True)
    answers = answer_rows(small_table(spark, history.answers, RECORDS), {VERDICTS: REQUESTS})
    return Tables(requests, log, fate_rows(log), kept(answers, history.answers), partitions)


def by_the_rules(inputs: AuditInputs, parameters: JudgingParameters) -> DataFrame:
    """Judges all `inputs` by the rules: no origin counts as plain."""
    placed_rows = placed(materialised(folded(inputs), few=True), parameters).withColumn(
        "plain", F.lit(None).cast("string")
    )
    counts = row_counts(placed_rows)
    if counts.has_schedules:
        has_lost, before_ms = counts.has_lost_controls, parameters.overdue_before_ms
        recurring = with_occurrences(placed_rows, inputs.occurrences, before_ms, has_lost_controls=has_lost)
        placed_rows = materialised(recurring, few=True)
        counts = row_counts(placed_rows)
    rows = judged_placed(placed_rows, counts, None, parameters, ROW_COLUMNS)
    return rows.where("verdicts is not null")


def judged(
    spark: SparkSession,
    history: RandomHistory,
    *,
    targets: Sequence[tuple[Any, ...]] = (target_row(),),
    dialects: DialectOptions = NO_DIALECTS,
    verdicts: Mode = "none",
    rules_alone: bool = False,
    bounds: JudgingBounds | Sequence[JudgingBounds] = JudgingBounds(),
) -> tuple[DataFrame, DataFrame]:
    """Returns the judged rows and the breaks of the chain of a history. With `rules_alone`, no origin is plain."""
    history_tables = tables(spark, history, bounds, dialects)
    parameters = JudgingParameters(
        history_tables.partitions, small_table(spark, [*targets], TARGETS), verdicts, SNAPSHOT, slack_ms=60_000
    )
    inputs = _inputs(spark, history, history_tables)
    if rules_alone:
        return by_the_rules(inputs, parameters), chain_breaks(history_tables.log)
    rows = judged_origins(
        materialised(folded(inputs), few=True), None, parameters, ROW_COLUMNS, occurrences=inputs.occurrences
    )
    return materialised(rows.where("verdicts is not null"), few=True), chain_breaks(history_tables.log)


@dataclass(frozen=True)
class Situation:
    """A history without answers, its targets, and its bounds. Several situations are judged together."""

    history: RandomHistory
    targets: Sequence[tuple[Any, ...]] = (target_row(),)
    bounds: JudgingBounds = JudgingBounds()


def judged_together(spark: SparkSession, situations: Mapping[str, Situation]) -> dict[str, dict[int, Row]]:
    """Returns the judged rows of each situation by offset.

    One plan judges all situations, since planning takes longer than judging. To keep them apart, the names of a
    situation's topics begin with its number.
    """
    prefixes = {f"{number}.": situation for number, situation in enumerate(situations.values())}
    names = dict(zip((f"{prefix}{REQUESTS}" for prefix in prefixes), situations, strict=True))

    def records(side: str) -> DataFrame:
        rows = [
            _prefixed(row, prefix) for prefix, situation in prefixes.items() for row in getattr(situation.history, side)
        ]
        return small_table(spark, rows, RECORDS)

    partitions = small_table(
        spark, [situation.bounds.row(prefix) for prefix, situation in prefixes.items()], PARTITIONS
    )
    targets = [(f"{prefix}{name}", *row) for prefix, situation in prefixes.items() for name, *row in situation.targets]
    inputs = AuditInputs(
        digested_requests(understood_rows(records("requests"), LEVELS_MS_DEFAULT)),
        fate_rows(log_rows(records("log"), partitions)),
        delivered_rows(records("delivered"), [*names]),
        dead_letter_rows(records("dead_letters"), {f"{prefix}{LETTERS}": f"{prefix}{REQUESTS}" for prefix in prefixes}),
        answer_rows(records("answers"), {}),
    )
    parameters = JudgingParameters(partitions, small_table(spark, targets, TARGETS), "none", SNAPSHOT, slack_ms=60_000)
    found: dict[str, dict[int, Row]] = {name: {} for name in situations}
    for row in (
        judged_origins(materialised(folded(inputs), few=True), None, parameters).where("verdicts is not null").collect()
    ):
        found[names[row["topic"]]][row["offset"]] = row
    return found


def _prefixed(record: Record, prefix: str) -> Record:
    """Returns the record as one of a topic with this prefix. Topics that the record names also get the prefix."""
    named = {"postdate-topic", "postdate-origin"}
    sent = [(name, prefix.encode() + (value or b"") if name in named else value) for name, value in record[7] or []]
    return (f"{prefix}{record[0]}", *record[1:7], sent)


def summary_of(
    spark: SparkSession,
    judged: DataFrame | None,
    breaks: DataFrame,
    samples_max: int,
    plain: Plain | None = None,
    malformed: DataFrame | None = None,
) -> Summary:
    """Returns the summary of judged rows, of breaks of the chain, and of malformed verdict records."""
    nothing = small_table(spark, [], "place string, problem string")
    spoilt = nothing if malformed is None else malformed
    counted = Counted(by_verdicts(judged), breaks.count(), spoilt.count())
    return summarise(judged, breaks, UnreadableRecords(spoilt, nothing), samples_max, plain, counted)


def chunks_of(spark: SparkSession, history: RandomHistory, bits: int = 0) -> DataFrame:
    """Returns the chunks of 2**`bits` offsets of a history of one partition."""
    read = _history(spark, history, tables(spark, history, JudgingBounds()))
    digests, targets = ChunkDigests(expected_before_ms(SNAPSHOT, 60_000), bits), _targets(spark)
    exceptional = digests.exceptional_origins(read.log, [read.dead_letters, read.answers])
    exceptional = materialised(exceptional, few=True)
    fates, messages = (
        without_exceptional(fate_rows(read.log), exceptional),
        without_exceptional(read.messages, exceptional),
    )
    request_chunks = subtracted(
        digests.of_requests(read.understood), digests.of_requests(_of(read.understood, exceptional))
    )
    return digests.together(request_chunks, digests.of_fates(fates), digests.of_records(messages, targets), targets)


def _of(rows: DataFrame, exceptional: DataFrame) -> DataFrame:
    return rows.join(exceptional, list(ORIGIN), "left_semi")


def overtaken_of(spark: SparkSession, history: RandomHistory) -> dict[int, str]:
    """Returns the overtaken messages of a history by offset, each with the last two words of the sentence before ` of
    its target`."""
    read = _history(spark, history, tables(spark, history, JudgingBounds()))
    rows = overtaken(read.records, fate_rows(read.log), read.requests).collect()
    return {row["offset"]: " ".join(row["disorder"].text.split(" of its target")[0].split()[-2:]) for row in rows}


def unreadable_of(spark: SparkSession, history: RandomHistory) -> set[str]:
    """Returns the places of the dead letters and records of a history whose origin cannot be read."""
    messages = delivered_messages(small_table(spark, history.delivered, RECORDS), [REQUESTS])
    dead_letters = unreadable_dead_letters(small_table(spark, history.dead_letters, RECORDS), {LETTERS: REQUESTS})
    return {row["place"] for row in dead_letters.unionByName(unreadable_records(record_rows(messages))).collect()}


def staged(
    spark: SparkSession,
    history: RandomHistory,
    bits: int = 0,
    *,
    in_order: bool = False,
    reads: Callable[[DataFrame], DataFrame] | None = None,
    separate_rows_max: int = 1_000,
    left_share_max: float = 1.0,
    **bounds: Any,
) -> Judged:
    """Judges a history of one partition in stages, with chunks of 2**`bits` offsets.

    `in_order` also checks the order of messages. `reads` is applied to the requests before the audit reads them;
    `separate_rows_max` and `left_share_max` as in JudgingParameters.
    """
    history_tables = tables(spark, history, JudgingBounds(**bounds))
    read, digests = _history(spark, history, history_tables), ChunkDigests(expected_before_ms(SNAPSHOT, 60_000), bits)
    if reads is not None:
        understood = reads(read.understood)
        read = replace(read, understood=understood, requests=digested_requests(understood))
    if in_order:
        read = replace(read, overtaken=(overtaken(read.records, fate_rows(read.log), read.requests),))
    parameters = JudgingParameters(
        *(history_tables.partitions, _targets(spark), "none", SNAPSHOT),
        slack_ms=60_000,
        left_share_max=left_share_max,
        separate_rows_max=separate_rows_max,
    )
    return judged_history(read, parameters, digests, cached(digests.of_requests(read.understood)))


def before_rules(spark: SparkSession, history: RandomHistory) -> tuple[DataFrame, DataFrame]:
    """Returns the rows of a history of one partition before any rule: those of `placed` and of `history_rows`."""
    history_tables = tables(spark, history, JudgingBounds())
    parameters = JudgingParameters(history_tables.partitions, _targets(spark), "none", SNAPSHOT, slack_ms=60_000)
    rows = placed(folded(_inputs(spark, history, history_tables)), parameters)
    return materialised(rows, few=True), materialised(history_tables.known, few=True)


def plain_of(spark: SparkSession, history: RandomHistory) -> dict[int, str]:
    """Returns the origins of a history of one partition that are plain, with their verdicts."""
    history_tables = tables(spark, history, JudgingBounds())
    parameters = JudgingParameters(history_tables.partitions, _targets(spark), "none", SNAPSHOT, slack_ms=60_000)
    rows = placed(folded(_inputs(spark, history, history_tables)), parameters).where("is_judged and plain is not null")
    return {row["offset"]: row["plain"] for row in rows.collect()}


def _policies(spark: SparkSession, log: DataFrame) -> DataFrame | None:
    return policy_table(spark, read_rows(policy_rows(log).collect()))


def _targets(spark: SparkSession) -> DataFrame:
    return small_table(spark, [target_row()], TARGETS)


def _history(spark: SparkSession, history: RandomHistory, history_tables: Tables) -> Read:
    inputs, policies = _inputs(spark, history, history_tables), _policies(spark, history_tables.log)
    request_records = small_table(spark, history.requests, RECORDS)
    understood = materialised(understood_rows(request_records, LEVELS_MS_DEFAULT, policies=policies), few=True)
    messages = delivered_messages(small_table(spark, history.delivered, RECORDS), [REQUESTS])
    messages = kept(messages, history.delivered)
    requests = kept(digested_requests(understood), history.requests)
    records = kept(record_rows(messages), history.delivered)
    dead_letters = kept(inputs.dead_letters, history.dead_letters)
    rows = (requests, messages, records, history_tables.log, dead_letters, inputs.answers)
    return Read(understood, *rows, occurrences=inputs.occurrences)


def read_inputs(spark: SparkSession, history: RandomHistory) -> tuple[DataFrame, AuditInputs]:
    """Returns the dispatch log of a history of one partition, and the rows of all its origins."""
    history_tables = tables(spark, history, JudgingBounds())
    return history_tables.log, _inputs(spark, history, history_tables)


def _inputs(spark: SparkSession, history: RandomHistory, history_tables: Tables) -> AuditInputs:
    return AuditInputs(
        history_tables.requests,
        history_tables.fates,
        delivered_rows(small_table(spark, history.delivered, RECORDS), [REQUESTS]),
        dead_letter_rows(small_table(spark, history.dead_letters, RECORDS), {LETTERS: REQUESTS}),
        history_tables.answers,
        occurrences=_occurrences(spark, history, history_tables.log),
    )


def _occurrences(spark: SparkSession, history: RandomHistory, log: DataFrame) -> Events | None:
    if not any(b"occurred" in row[6] or b"skipped" in row[6] for row in history.log if row[6]):
        return None
    messages = delivered_messages(small_table(spark, history.delivered, RECORDS), [REQUESTS])
    return Events.of(log, messages, Chain.of(log, ()).zones)


@dataclass(frozen=True)
class ReadRecord:
    """The result of reading a dispatch-log record with one fate: whether it parses, and its rows of `fate_rows`."""

    parses: bool
    fates: list[Row]


def read_fates(spark: SparkSession, fates: Iterable[tuple[list[object], int]]) -> list[ReadRecord]:
    """Reads each fate from a dispatch-log record of its version, and returns the results. One plan reads all fates."""
    history = RandomHistory(T)
    for fate, version in fates:
        history.commit(fate, v=version)
    log = kept(log_rows(small_table(spark, history.log, RECORDS), JudgingBounds().table(spark)), history.log)
    records = [ReadRecord(row["parses"], []) for row in log.orderBy("log_offset").collect()]
    for row in fate_rows(log).collect():
        records[row["fate"]["log_offset"]].fates.append(row["fate"])
    return records


def owed(known: DataFrame, mode: Mode) -> dict[int, str]:
    """Returns the missing answers by the offset of the request."""
    return {row["offset"]: row["unanswered"] for row in unanswered_ends(known, mode).collect()}


def wrong_answers(known: DataFrame) -> dict[int, str | None]:
    """Returns the defect of the only answer of each request."""
    return {row["offset"]: row["answer"]["wrong"] for row in judged_answers(known).collect()}


def by_history(judged_rows: DataFrame, histories: Iterable[str]) -> dict[str, dict[int, Row]]:
    """Returns judged rows of `side_by_side` by the name of the history, and by offset."""
    rows: dict[str, dict[int, Row]] = {name: {} for name in histories}
    names = [*rows]
    for row in judged_rows.collect():
        rows[names[row["partition"]]][row["offset"]] = row
    return rows


def by_offset(judged_rows: DataFrame) -> dict[int, Row]:
    """Returns judged rows by offset."""
    return {row["offset"]: row for row in judged_rows.collect()}


def check_case(rows: dict[int, Row], expected: Expected) -> None:
    """Checks that the row of a case has the expected verdicts, and that its details contain the expected word."""
    row = rows[expected.offset]
    assert (set(row["verdicts"]), expected.word in " ".join(row["details"])) == (expected.verdicts, True), row
