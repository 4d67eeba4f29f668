"""The input of one audit: ranges and small tables of all topics, and the new part of each as rows.

An audit without a state begins with an empty one: then everything is new.

A new message may have been overtaken by one that an earlier run has read. That one left at most ORDER_LATE_MS_MAX
before it, or the new message left late, so it lies a little before the first unread offset. So each partition is read
again from some records before that offset on: as many as are new, and at least ORDER_AGAIN_MIN. So is the dispatch log,
whose record shows how far the owner of the earlier message had read.
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
from postdate.spark.limits import CHUNKS_ROWS_MIN, LOCAL_ROWS_MAX, ORDER_AGAIN_MIN, TARGETS_MAX
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
    """The input of one audit: whole ranges for the tables about them, and the new part of each for the history.

    `spans` are all new ranges, `letters` those of dead letters. `asked` are the cached chunks of the new requests;
    None: too few requests for chunks.
    """

    state: AuditState
    snapshot_ms: int
    causes: Causes
    effects: Effects
    spans: tuple[Range, ...]
    letters: tuple[Range, ...]
    targets: list[str]
    topic_ids: dict[str, str]
    partitions: DataFrame
    how: JudgingParameters
    digests: ChunkDigests
    asked: DataFrame | None
    history: History
    verdict_records: VerdictTopicCounts

    @classmethod
    def of(cls, steps: AuditSteps, state: AuditState) -> Reading:
        """Fixes the end offsets in the order of `ranges`; starts where `state` stopped."""
        snapshot_ms, options, spark = time.time_ns() // 1_000_000, steps.options, steps.spark
        own = options.own_topics()
        own_names = [name for one in own for name in one.names()]
        fixed = fix_causes(steps.cluster, own, options)
        whole_requests, new_requests = since(fixed.requests, state)
        whole_log, new_log = since(fixed.log, state)
        steps.report_ranges(new_requests, new_log)
        understood = steps.understood(new_requests.values(), reads_returns=False)
        digests = ChunkDigests(snapshot_ms - options.slack_ms)
        count = _count(new_requests)
        asked = None if count < CHUNKS_ROWS_MIN else cached(digests.of_requests(understood))
        named: dict[str | None, int] = {}
        with steps.reporter.working(spark, "reading requests"):
            requests = _kept(digested_requests(understood), count)
            if count:
                named = _named(gathered(requests, few=count <= LOCAL_ROWS_MAX) if asked is None else asked)
        targets = sorted({*state.targets, *(options.targets or _valid(named, own_names))})
        ids = steps.cluster.topic_ids([*targets, *own_names])
        state = without_renewed(state, ids, own_names)
        effects, fresh = since_effects(steps.effects(targets, state), state)
        steps.report_ranges(*fresh)
        causes = Causes(whole_requests, whole_log)
        partitions = partition_table(spark, own, causes, effects)
        log_spans = since(by_partition(log_ranges(causes, effects)), state)[1]
        log = log_rows(steps.read(log_spans.values()), partitions)
        log = cached(log if asked is not None else _kept(log, _count(log_spans), may_be_large=True))
        returns = None
        if any(named.values()):
            understood = steps.understood(new_requests.values(), recorded_policies(spark, log, state.policies))
            requests = _kept(digested_requests(understood), count)
            returns = cached(requests.where(F.col("retry").isNotNull()).select(*ORIGIN, "acts_on"))
        messages = steps.messages(fresh[0].values())
        records = _kept(record_rows(messages), _count(fresh[0]))
        letters = _kept(steps.letters(fresh[1].values()), _count(fresh[1]))
        answers, verdict_records = cached(steps.answers(fresh[2].values())), VerdictTopicCounts(options.verdicts)
        if _count(fresh[2]):
            with steps.reporter.working(spark, "reading verdict records"):
                verdict_records = steps.count(answers)
        requests_of = partial(_requests_of, steps, causes, log, state.policies) if state.run else None
        history = (understood, requests, messages, records, log, letters, answers)
        how = (partitions, target_table(spark, effects), options.verdicts, snapshot_ms, options.slack_ms)
        is_short = asked is None and count + sum(map(_count, fresh)) + state.open <= LOCAL_ROWS_MAX
        return cls(
            state=state,
            snapshot_ms=snapshot_ms,
            causes=causes,
            effects=effects,
            spans=tuple(span for some in (new_requests, log_spans, *fresh) for span in some.values()),
            letters=tuple(fresh[1].values()),
            targets=targets,
            topic_ids=ids,
            partitions=partitions,
            how=JudgingParameters(
                *how,
                is_short=is_short and fate_count(log) <= LOCAL_ROWS_MAX,
                separate_rows_max=separate_rows_max(spark),
            ),
            digests=digests,
            asked=asked,
            history=History(*history, returns=returns, requests_of=requests_of),
            verdict_records=verdict_records,
        )

    def in_order(self, steps: AuditSteps, earlier: DataFrame | None = None) -> Reading:
        """The same with the new messages that are out of order. `earlier`: the origins of the state with their targets;
        None if nothing was read before."""
        targets = [span for span in self.spans if span.role == TARGET and span.start < span.end]
        requests, history = self.history.requests.select(*ORIGIN, "target"), self.history
        if earlier is None or not targets:
            overtaken = steps.overtaken(targets, history, requests)
        else:
            starts = [(span.partition.topic, span.partition.number, span.start) for span in targets]
            again = [_from_before(span) for span in targets]
            log = steps.read(_from_before(span) for span in self.spans if span.role == DISPATCH_LOG)
            longer = replace(history, records=record_rows(steps.messages(again)), log=log_rows(log, self.partitions))
            known = requests.unionByName(earlier.select(*ORIGIN, "target"))
            overtaken = steps.overtaken(again, longer, known, small_table(steps.spark, starts, _STARTS))
        return replace(self, history=replace(history, overtaken=overtaken))

    @property
    def has_new(self) -> bool:
        """Whether there is anything to read, or to report."""
        return any(span.start < span.end for span in self.spans) or bool(self.gaps)

    @property
    def gaps(self) -> list[tuple[TopicPartition, int, int]]:
        """The first and the last offset of the requests that left each partition before a run could read them."""
        spans = self.causes.requests
        read = {part: self.state.next.get(state_path(part), span.log_start) for part, span in spans.items()}
        return [(part, read[part], span.log_start - 1) for part, span in spans.items() if read[part] < span.log_start]

    def returned_again(self, earlier: DataFrame | None = None) -> int:
        """The number of new returns whose parent another one before them has returned, in this run or an earlier one.

        `earlier`: the origins of the state. Cost: three jobs if there are new returns; one reads the parents in all
        rows.
        """
        if self.history.returns is None:
            return 0
        named = self.history.returns.where(F.col("acts_on").isNotNull())
        parents = named.select(*PARTITION, "acts_on").distinct()
        if earlier is not None:
            request = F.col("facts.request")
            before = earlier.where(request.retry.isNotNull()).select(*PARTITION, request.acts_on.alias("acts_on"))
            parents = parents.join(before, [*PARTITION, "acts_on"], "left_anti")
        return named.count() - parents.count()


def since(ranges: Mapping[TopicPartition, Range], state: AuditState) -> tuple[Ranges, Ranges]:
    """The ranges, with what was lost *unread*, and the unread part of each.

    Records that left a topic after they were read are not lost. Raises CannotRun if a partition ends before the last
    read.
    """
    whole, fresh = {}, {}
    for partition, span in ranges.items():
        place = state_path(partition)
        read, lost_ms = state.next.get(place), state.lost_before_ms.get(place, -1)
        if read is None:
            whole[partition] = fresh[partition] = span
            continue
        if span.end < read:
            raise CannotRun(
                f"{place} ends at {span.end}, but the state has read it up to {read}: its end was cut off, or "
                "the topic was deleted and created again. Name a new --state."
            )
        if span.log_start > read:
            lost_ms = max(lost_ms, span.lost_before_ms)
        whole[partition] = replace(span, lost_before_ms=lost_ms)
        fresh[partition] = replace(whole[partition], start=max(span.start, read))
    return whole, fresh


def since_effects(effects: Effects, state: AuditState) -> tuple[Effects, tuple[Ranges, Ranges, Ranges]]:
    """The same for targets, dead letters and verdicts; the second reading of the log is unchanged."""
    pairs = [since(ranges, state) for ranges in effects.records()]
    targets, letters, answers = (whole for whole, _ in pairs)
    fresh = (pairs[0][1], pairs[1][1], pairs[2][1])
    return replace(effects, targets=targets, letters=letters, answers=answers), fresh


def by_partition(ranges: Iterable[Range]) -> Ranges:
    """Ranges by their partition."""
    return {span.partition: span for span in ranges}


def without_renewed(state: AuditState, ids: Mapping[str, str], own: Iterable[str]) -> AuditState:
    """The state that forgets what it read of targets that were deleted and created again, and notes that they were.

    `ids` are the present ids of the topics. Raises CannotRun if one of Postdate's own topics, `own`, was created again.
    """
    renewed = {topic for topic, id in ids.items() if state.topic_ids.get(topic, id) != id}
    broken = sorted(renewed & set(own))
    if broken:
        raise CannotRun(f"{', '.join(broken)} was deleted and created again since the last audit. Name a new --state.")

    def kept(numbers: Mapping[str, int]) -> dict[str, int]:
        return {place: number for place, number in numbers.items() if place.rpartition("/")[0] not in renewed}

    return replace(
        state,
        next=kept(state.next),
        lost_before_ms=kept(state.lost_before_ms),
        known_ms=kept(state.known_ms),
        recreated=state.recreated | renewed,
    )


def _named(rows: DataFrame) -> dict[str | None, int]:
    """The targets that requests name, rows as of `digested_requests` or their chunks, each with the number of returns
    to it. Raises CannotRun: too many."""
    returns = F.sum("returns") if "returns" in rows.columns else F.count_if(F.col("retry").isNotNull())
    named = rows.groupBy("target").agg(returns.alias("returns")).limit(TARGETS_MAX + 2).collect()
    if len(named) > TARGETS_MAX + 1:
        raise CannotRun(f"The requests name more than {TARGETS_MAX} targets: name those to read, or a window.")
    return {row["target"]: row["returns"] for row in named}


def _valid(named: Iterable[str | None], own: Iterable[str]) -> list[str]:
    """Those of the names that may be names of targets."""
    return [name for name in named if name and is_topic_name(name) and not name.startswith("__") and name not in own]


def _kept(rows: DataFrame, count: int, *, may_be_large: bool = False) -> DataFrame:
    """The same rows, which come from `count` records: materialised if they are few, so that plans stay short.
    `may_be_large`: each may have thousands of fates."""
    few = count <= LOCAL_ROWS_MAX and not may_be_large
    return materialised(rows, few=few) if 0 < count < CHUNKS_ROWS_MIN else rows


def _count(ranges: Mapping[TopicPartition, Range]) -> int:
    """The number of offsets there."""
    return sum(span.end - span.start for span in ranges.values())


def fate_count(log: DataFrame) -> int:
    """The number of fates in a log; one record may have thousands. Cost: one job."""
    found = log.agg(F.sum(F.size("fates"))).first()
    return (found[0] or 0) if found is not None else 0


def _from_before(span: Range) -> Range:
    """The range with some records before it that are still there."""
    before = max(span.end - span.start, ORDER_AGAIN_MIN)
    return replace(span, start=max(span.log_start, span.start - before))


def _requests_of(
    steps: AuditSteps, causes: Causes, log: DataFrame, known: Iterable[PolicyRow], origins: DataFrame
) -> DataFrame:
    """The requests from the first to the last of `origins` in each partition, as far as they are in their topics, with
    the named policies that are `known` or in `log`."""
    first, last = F.min("offset").alias("first"), F.max("offset").alias("last")
    bounds = origins.groupBy(*PARTITION).agg(first, last).collect()
    spans = [(causes.requests[TopicPartition(row["topic"], row["partition"])], row) for row in bounds]
    ranges = [
        replace(span, start=max(span.log_start, row["first"]), end=min(span.end, row["last"] + 1))
        for span, row in spans
    ]
    return digested_requests(steps.understood(ranges, recorded_policies(steps.spark, log, known)))
