"""Reads the input of one audit: the offset ranges of all topics, and DataFrames of the new records.

An audit without a state starts from an empty state, so all records are new.

A message that an earlier run has read may have overtaken a new message. The earlier message left at most
ORDER_LATE_MS_MAX before the new message, unless the new message left late. So the earlier message is only a little
before the first unread offset of its partition. The check of the order therefore also reads the offsets before the
first unread one: as many as there are new offsets, and at least ORDER_AGAIN_MIN. It also rereads the dispatch log,
whose records show how far the owner of the earlier message had read the requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.audit.output import VerdictTopicCounts
from postdate.spark.audit.ranges import Causes, Effects, fix_causes, log_ranges, partition_table, target_table
from postdate.spark.audit.steps import AuditSteps
from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.errors import CannotRun
from postdate.spark.job.bounds import DISPATCH_LOG, TARGET, Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.judging.chunk_digests import ChunkDigests
from postdate.spark.judging.origin_rows import JudgingParameters
from postdate.spark.judging.stages import History
from postdate.spark.limits import CHUNKS_ROWS_MIN, EXPECTED_AFTER_MS, LOCAL_ROWS_MAX, ORDER_AGAIN_MIN, TARGETS_MAX
from postdate.spark.records.deliveries import record_rows
from postdate.spark.records.fates import log_rows
from postdate.spark.records.policies import PolicyRow, recorded_policies
from postdate.spark.records.requests import digested_requests
from postdate.spark.session.caching import cached, gathered, materialised
from postdate.spark.session.small_tables import small_table
from postdate.spark.session.start import separate_rows_max
from postdate.spark.state.store import AuditState, state_path
from postdate.wire.topics import is_topic_name

Ranges = dict[TopicPartition, Range]
_STARTS = "target string, place int, start bigint"


@dataclass(frozen=True)
class Reading:
    """The input of one audit.

    `causes` and `effects` are the whole ranges of the topics; `partitions` is built from them. `history` has the new
    records only. `spans` are the new ranges of all topics, and `dead_letter_ranges` the new ranges of the dead-letter
    topics. `request_chunks` are the cached chunks of the new requests, or None if there are too few requests for
    chunks.
    """

    state: AuditState
    snapshot_ms: int
    causes: Causes
    effects: Effects
    spans: tuple[Range, ...]
    dead_letter_ranges: tuple[Range, ...]
    targets: list[str]
    topic_ids: dict[str, str]
    partitions: DataFrame
    parameters: JudgingParameters
    digests: ChunkDigests
    request_chunks: DataFrame | None
    history: History
    verdict_records: VerdictTopicCounts

    @classmethod
    def of(cls, steps: AuditSteps, state: AuditState) -> Reading:
        """Fixes the end offsets as `ranges` describes, and reads the records from `state` on. Raises CannotRun."""
        snapshot_ms, options, spark = time.time_ns() // 1_000_000, steps.options, steps.spark
        own, own_names = options.own_topics(), [name for topics in options.own_topics() for name in topics.names()]
        first_causes = fix_causes(steps.cluster, own, options)
        whole_requests, new_requests = since(first_causes.requests, state)
        whole_log, new_log = since(first_causes.log, state)
        steps.report_ranges(new_requests, new_log)
        understood = steps.understood(new_requests.values(), reads_returns=False)
        digests = ChunkDigests(expected_before_ms(snapshot_ms, options.slack_ms))
        count = _offset_count(new_requests)
        request_chunks = None if count < CHUNKS_ROWS_MIN else cached(digests.of_requests(understood))
        returns_by_target: dict[str | None, int] = {}
        with steps.reporter.working(spark, "reading requests"):
            requests = _materialised_if_few(digested_requests(understood), count)
            if count and request_chunks is not None:
                returns_by_target = _returns_by_target(request_chunks)
            elif count:
                returns_by_target = _returns_by_target(gathered(requests, few=count <= LOCAL_ROWS_MAX))
        targets = sorted({*state.targets, *(options.targets or _valid_targets(returns_by_target, own_names))})
        topic_ids = steps.cluster.topic_ids([*targets, *own_names])
        state = without_renewed(state, topic_ids, own_names)
        effects, new_effects = since_effects(steps.effects(targets, state), state)
        steps.report_ranges(*new_effects)
        new_deliveries, new_dead_letters, new_answers = new_effects
        causes = Causes(whole_requests, whole_log)
        partitions = partition_table(spark, own, causes, effects)
        log_spans = since(by_partition(log_ranges(causes, effects)), state)[1]
        log = log_rows(steps.read(log_spans.values()), partitions)
        if request_chunks is None:
            log = _materialised_if_few(log, _offset_count(log_spans), may_be_large=True)
        log = cached(log)
        returns = None
        if any(returns_by_target.values()):
            understood = steps.understood(new_requests.values(), recorded_policies(spark, log, state.policies))
            requests = _materialised_if_few(digested_requests(understood), count)
            returns = cached(requests.where(F.col("retry").isNotNull()).select(*ORIGIN, "acts_on"))
        messages = steps.messages(new_deliveries.values())
        records = _materialised_if_few(record_rows(messages), _offset_count(new_deliveries))
        dead_letters = steps.dead_letters(new_dead_letters.values())
        dead_letters = _materialised_if_few(dead_letters, _offset_count(new_dead_letters))
        answers, verdict_records = cached(steps.answers(new_answers.values())), VerdictTopicCounts(options.verdicts)
        if _offset_count(new_answers):
            with steps.reporter.working(spark, "reading verdict records"):
                verdict_records = steps.count(answers)
        requests_of = partial(_requests_of, steps, causes, log, state.policies) if state.run else None
        history = (understood, requests, messages, records, log, dead_letters, answers)
        parameters = (partitions, target_table(spark, effects), options.verdicts, snapshot_ms, options.slack_ms)
        row_count = count + sum(map(_offset_count, new_effects)) + state.open
        is_short = request_chunks is None and row_count <= LOCAL_ROWS_MAX
        return cls(
            state=state,
            snapshot_ms=snapshot_ms,
            causes=causes,
            effects=effects,
            spans=tuple(span for ranges in (new_requests, log_spans, *new_effects) for span in ranges.values()),
            dead_letter_ranges=tuple(new_dead_letters.values()),
            targets=targets,
            topic_ids=topic_ids,
            partitions=partitions,
            parameters=JudgingParameters(
                *parameters,
                is_short=is_short and fate_count(log) <= LOCAL_ROWS_MAX,
                separate_rows_max=separate_rows_max(spark),
            ),
            digests=digests,
            request_chunks=request_chunks,
            history=History(*history, returns=returns, requests_of=requests_of),
            verdict_records=verdict_records,
        )

    def in_order(self, steps: AuditSteps, stored_origins: DataFrame | None = None) -> Reading:
        """Returns this reading with `history.overtaken`: the new messages that are out of order.

        `stored_origins` are the origins of the state with their targets, or None if there was no earlier run.
        """
        targets = [span for span in self.spans if span.role == TARGET and span.start < span.end]
        requests, history = self.history.requests.select(*ORIGIN, "target"), self.history
        if stored_origins is None or not targets:
            overtaken = steps.overtaken(targets, history, requests)
        else:
            starts = [(span.partition.topic, span.partition.number, span.start) for span in targets]
            reread_ranges = [_with_records_before(span) for span in targets]
            log = steps.read(_with_records_before(span) for span in self.spans if span.role == DISPATCH_LOG)
            reread = replace(
                history, records=record_rows(steps.messages(reread_ranges)), log=log_rows(log, self.partitions)
            )
            known_requests = requests.unionByName(stored_origins.select(*ORIGIN, "target"))
            overtaken = steps.overtaken(
                reread_ranges, reread, known_requests, small_table(steps.spark, starts, _STARTS)
            )
        return replace(self, history=replace(history, overtaken=overtaken))

    @property
    def has_new(self) -> bool:
        """True if there are new records to read, or gaps to report."""
        return any(span.start < span.end for span in self.spans) or bool(self.gaps)

    @property
    def gaps(self) -> list[tuple[TopicPartition, int, int]]:
        """The partitions that lost requests before a run could read them, each with its first and last lost offset."""
        spans = self.causes.requests
        read = {part: self.state.next.get(state_path(part), span.log_start) for part, span in spans.items()}
        return [(part, read[part], span.log_start - 1) for part, span in spans.items() if read[part] < span.log_start]

    def returned_again(self, stored_origins: DataFrame | None = None) -> int:
        """Returns the number of new returns whose message an earlier return, in any run, had returned already.

        `stored_origins` are the origins of the state, or None if there was no earlier run. Cost: two counts if there
        are new returns. With `stored_origins`, one of them reads the parents in all stored rows.
        """
        if self.history.returns is None:
            return 0
        with_parent = self.history.returns.where(F.col("acts_on").isNotNull())
        parents = with_parent.select(*PARTITION, "acts_on").distinct()
        if stored_origins is not None:
            request = F.col("facts.request")
            before = stored_origins.where(request.retry.isNotNull()).select(
                *PARTITION, request.acts_on.alias("acts_on")
            )
            parents = parents.join(before, [*PARTITION, "acts_on"], "left_anti")
        return with_parent.count() - parents.count()


def expected_before_ms(snapshot_ms: int, slack_ms: int) -> int:
    """Returns the due time before which chunks expect messages to be delivered.

    Chunks must expect every message that could already be missing. Otherwise they would count a missing message as
    pending.
    """
    return snapshot_ms - min(slack_ms, EXPECTED_AFTER_MS)


def since(ranges: Mapping[TopicPartition, Range], state: AuditState) -> tuple[Ranges, Ranges]:
    """Returns the whole ranges, and their unread parts, by partition.

    If `state` knows a partition, its `lost_before_ms` concerns only records that left the topic unread: a record that
    left after a run had read it is not lost. Raises CannotRun if a partition ends before the first offset that is
    unread according to `state`.
    """
    whole, unread = {}, {}
    for partition, span in ranges.items():
        place = state_path(partition)
        read, lost_ms = state.next.get(place), state.lost_before_ms.get(place, -1)
        if read is None:
            whole[partition] = unread[partition] = span
            continue
        if span.end < read:
            raise CannotRun(
                f"{place} ends at {span.end}, but the state has read it up to {read}: its end was cut off, or "
                "the topic was deleted and created again. Name a new --state."
            )
        if span.log_start > read:
            lost_ms = max(lost_ms, span.lost_before_ms)
        whole[partition] = replace(span, lost_before_ms=lost_ms)
        unread[partition] = replace(whole[partition], start=max(span.start, read))
    return whole, unread


def since_effects(effects: Effects, state: AuditState) -> tuple[Effects, tuple[Ranges, Ranges, Ranges]]:
    """Returns `effects` with the results of `since`, and the unread ranges of targets, dead letters and verdicts.

    The ranges of the second reading of the dispatch log stay as they are.
    """
    pairs = [since(ranges, state) for ranges in effects.records()]
    targets, dead_letters, answers = (whole for whole, _ in pairs)
    unread = (pairs[0][1], pairs[1][1], pairs[2][1])
    return replace(effects, targets=targets, dead_letters=dead_letters, answers=answers), unread


def by_partition(ranges: Iterable[Range]) -> Ranges:
    """Returns the ranges by partition."""
    return {span.partition: span for span in ranges}


def without_renewed(state: AuditState, topic_ids: Mapping[str, str], own: Iterable[str]) -> AuditState:
    """Returns `state` without the offsets and times of targets that were deleted and created again.

    These targets are added to `recreated`. `topic_ids` are the present ids of the topics. Raises CannotRun if one of
    Postdate's own topics, `own`, was created again.
    """
    renewed = {topic for topic, topic_id in topic_ids.items() if state.topic_ids.get(topic, topic_id) != topic_id}
    own_renewed = sorted(renewed & set(own))
    if own_renewed:
        raise CannotRun(
            f"{', '.join(own_renewed)} was deleted and created again since the last audit. Name a new --state."
        )

    def without(numbers: Mapping[str, int]) -> dict[str, int]:
        return {place: number for place, number in numbers.items() if place.rpartition("/")[0] not in renewed}

    return replace(
        state,
        next=without(state.next),
        lost_before_ms=without(state.lost_before_ms),
        known_ms=without(state.known_ms),
        recreated=state.recreated | renewed,
    )


def _returns_by_target(rows: DataFrame) -> dict[str | None, int]:
    """Returns the number of returns to each target that the requests name.

    `rows` are those of `digested_requests`, or chunks of requests. Raises CannotRun if there are more than TARGETS_MAX
    targets.
    """
    returns = F.sum("returns") if "returns" in rows.columns else F.count_if(F.col("retry").isNotNull())
    rows_by_target = rows.groupBy("target").agg(returns.alias("returns")).limit(TARGETS_MAX + 2).collect()
    if len(rows_by_target) > TARGETS_MAX + 1:
        raise CannotRun(f"The requests name more than {TARGETS_MAX} targets: name those to read, or a window.")
    return {row["target"]: row["returns"] for row in rows_by_target}


def _valid_targets(named: Iterable[str | None], own: Iterable[str]) -> list[str]:
    """Returns the names that a target may have: valid topic names that are neither internal nor in `own`."""
    return [name for name in named if name and is_topic_name(name) and not name.startswith("__") and name not in own]


def _materialised_if_few(rows: DataFrame, count: int, *, may_be_large: bool = False) -> DataFrame:
    """Returns `rows`, materialised if there are fewer than CHUNKS_ROWS_MIN records (`count`), so that plans stay short.

    If `may_be_large`, a row may have thousands of fates, so the rows are not gathered on the driver.
    """
    few = count <= LOCAL_ROWS_MAX and not may_be_large
    return materialised(rows, few=few) if 0 < count < CHUNKS_ROWS_MIN else rows


def _offset_count(ranges: Mapping[TopicPartition, Range]) -> int:
    """Returns the number of offsets in the ranges."""
    return sum(span.end - span.start for span in ranges.values())


def fate_count(log: DataFrame) -> int:
    """Returns the number of fates in a log, whose records may have thousands of fates each. Cost: one job."""
    row = log.agg(F.sum(F.size("fates"))).first()
    return (row[0] or 0) if row is not None else 0


def _with_records_before(span: Range) -> Range:
    """Returns the range, extended backwards by its own length, and at least by ORDER_AGAIN_MIN offsets.

    The extended range does not start before the log start.
    """
    before = max(span.end - span.start, ORDER_AGAIN_MIN)
    return replace(span, start=max(span.log_start, span.start - before))


def _requests_of(
    steps: AuditSteps, causes: Causes, log: DataFrame, known_policies: Iterable[PolicyRow], origins: DataFrame
) -> DataFrame:
    """Returns the requests from the first to the last of `origins` in each partition, if their topics still have them.

    Named policies come from `known_policies` and from `log`.
    """
    first, last = F.min("offset").alias("first"), F.max("offset").alias("last")
    bounds = origins.groupBy(*PARTITION).agg(first, last).collect()
    bounded = [(causes.requests[TopicPartition(row["topic"], row["partition"])], row) for row in bounds]
    ranges = [
        replace(span, start=max(span.log_start, row["first"]), end=min(span.end, row["last"] + 1))
        for span, row in bounded
    ]
    return digested_requests(steps.understood(ranges, recorded_policies(steps.spark, log, known_policies)))
