"""The incremental audit: reads the records since the last run, judges them, reports, and then commits.

1. Fix the end offsets as the full audit does; read each partition from where the last run stopped.
2. Judge the new records with the stored rows that they affect, and write both (`advance`).
3. Report the outcome. After that, commit (`state.store`).

So a run costs as much as the new records and the rows that they affect. The last verdict on each origin, over all runs,
is that of one full audit. If topics have lost records since, this audit knows more, because earlier runs have read
them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.spark.audit.advance import Advance, advance, write_findings
from postdate.spark.audit.fresh import by_partition, overtaken_since, since, since_effects, without_renewed
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import Outcome, StateOutcome, VerdictRecords, range_lines
from postdate.spark.audit.picture import audit_picture
from postdate.spark.audit.ranges import Causes, Effects, fix_causes, log_ranges, partition_table, target_table
from postdate.spark.audit.steps import AuditSteps, Returns, notes_of
from postdate.spark.columns.by_origin import PARTITION
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster import Partition
from postdate.spark.job.progress import Reporter
from postdate.spark.judging.chunk_digests import ChunkDigests
from postdate.spark.judging.stages import History, JudgingParameters
from postdate.spark.judging.summary import Counted, Summary, summarise
from postdate.spark.limits import CHUNKS_ROWS_MIN
from postdate.spark.records.policies import PolicyRow, needed
from postdate.spark.records.requests import digested_requests
from postdate.spark.rules.verdicts import FINDINGS, VERDICTS
from postdate.spark.state.lateness_trend import TrendDay, lateness_trend
from postdate.spark.state.origins import (
    DOUBTFUL,
    is_due,
)
from postdate.spark.state.store import (
    AuditState,
    StateStore,
    place_of,
)


def audit_since(
    steps: AuditSteps, report: Callable[[Outcome], None], after: AuditState | None = None
) -> tuple[Outcome, AuditState]:
    """Judges the records since the last run with `options.state`, reports the outcome by `report`, and then commits it.
    Returns the outcome and the state from which to continue.

    `after`: the state that the last step of this process has committed; None: read it. Raises CannotRun, JobUsageError;
    after an error, also one of `report`, nothing is committed.
    """
    began_s, options = time.monotonic(), steps.options
    assert options.state is not None, "without a state there is no last run"
    store = StateStore(steps.spark, options.state)
    state = store.newest() if after is None else after
    read = _Reading.of(steps, state)
    if state.run and not read.has_new and not _needs_look(store, read.snapshot_ms - options.slack_ms):
        outcome = _idle(read, store, options, began_s)
        outcome = replace(outcome, trend=_trend(steps, store.origins_of(state), read.snapshot_ms))
        report(outcome)
    else:
        earlier = store.origins_of(state) if state.run else None
        overtaken = overtaken_since(steps, read.history, read.spans, read.partitions, earlier)
        read = replace(read, history=replace(read.history, overtaken=overtaken))
        found, grown, outcome = _judged(steps, store, read, began_s)
        outcome = replace(outcome, trend=_trend(steps, store.origins(), read.snapshot_ms))
        report(outcome)
        summary = outcome.summary
        figures = {"judged": summary.rows, "lateness_ms": summary.lateness_ms, "settings": settings_of(options)}
        state = store.commit(grown, figures)
        store.tidy()
        found.forget()
    read.forget()
    return outcome, state


def _trend(steps: AuditSteps, origins: DataFrame, snapshot_ms: int) -> tuple[TrendDay, ...] | None:
    """The lateness by day, of these rows of the state; None if nobody wants it."""
    options = steps.options
    if not (options.trend or options.html):
        return None
    with steps.reporter.working(steps.spark, "computing the lateness by day"):
        return lateness_trend(origins, datetime.fromtimestamp(snapshot_ms / 1_000, UTC).date(), options.trend_days)


def _judged(
    steps: AuditSteps, store: StateStore, read: _Reading, began_s: float
) -> tuple[Advance, AuditState, Outcome]:
    """Judges what was read; returns the result, the state to commit, and the outcome to report."""
    options = steps.options
    assert options.state is not None, "without a state there is no last run"
    with steps.reporter.working(steps.spark, "comparing requests, fates and records"):
        found = advance(
            *(store, read.state, read.history, read.how(steps.spark, options), read.digests),
            read.asked if read.requests >= CHUNKS_ROWS_MIN else None,
        )
        malformed = read.history.answers.where("malformed")
        unreadable = steps.unreadable(read.letters, read.history.messages if found.has_garbled else None)
        summary = summarise(
            *(found.fresh, found.chain.breaks, malformed, options.samples, found.plain),
            counted=Counted(found.by_verdicts, found.late, found.chain.broken, read.verdict_records.malformed),
            unreadable=unreadable,
        )
        holes = steps.holes(found.fresh, read.causes.log.values())
        standing = store.open_violations(read.state)
        opened = 0
        if any(summary.counts[verdict] for verdict in FINDINGS):
            opened = write_findings(store, found, malformed, unreadable, read.snapshot_ms)
        picture = audit_picture(store.origins().where(F.col("run") == found.state.run)) if options.html else None
    beside = {"chain": found.chain.broken, "unreadable": summary.counts["unreadable"]}
    grown = read.grown(found, {**beside, "false-verdict": read.verdict_records.malformed}, opened)
    _expire(store, read, options)
    outcome = replace(
        _outcome(read, options, summary, began_s),
        left_unread=_left_unread(read, store),
        holes=holes,
        picture=picture,
        order_checked=bool(read.history.overtaken),
        returned_again=_returned_again(read, store),
        state=StateOutcome(options.state, grown.run, grown.open, found.closed, standing, _counts(grown)),
    )
    return found, grown, outcome


def _left_unread(read: _Reading, store: StateStore) -> int:
    """The number of offsets that left the request topics between two runs, so that no run has read them, and of which
    no fate or record was read either. Cost: one job if there are any."""
    if not read.gaps:
        return 0
    named = reduce(
        Column.__or__,
        (
            (F.col("topic") == part.topic) & (F.col("partition") == part.number) & F.col("offset").between(first, last)
            for part, first, last in read.gaps
        ),
    )
    return sum(last + 1 - first for _, first, last in read.gaps) - store.origins().where(named).count()


def _returned_again(read: _Reading, store: StateStore) -> int:
    """The number of new returns whose parent another one before them has returned, in this run or an earlier one.
    Cost: three jobs if there are new returns; one reads the parents in all rows."""
    if read.returns is None:
        return 0
    if not read.state.run:
        return read.returns.again()
    request = F.col("facts.request")
    rows = store.origins_of(read.state).where(request.retry.isNotNull())
    return read.returns.again(rows.select(*PARTITION, request.acts_on.alias("acts_on")))


def _needs_look(store: StateStore, overdue_before_ms: int) -> bool:
    """Whether a row is overdue or in doubt."""
    table = store.origins()
    return not table.where((F.col("state") == DOUBTFUL) | is_due(overdue_before_ms)).select("offset").isEmpty()


def _outcome(read: _Reading, options: AuditOptions, summary: Summary, began_s: float) -> Outcome:
    return Outcome(
        *(options.requests, read.snapshot_ms, None, None, summary, read.spans, read.verdict_records),
        notes=notes_of(read.causes, read.effects),
        seconds=time.monotonic() - began_s,
        html=options.html,
        strict=options.strict,
        lateness_bounds=options.lateness_bounds,
        openmetrics=options.openmetrics,
    )


def _idle(read: _Reading, store: StateStore, options: AuditOptions, began_s: float) -> Outcome:
    """The outcome of a run with nothing to do; the state does not change."""
    assert options.state is not None, "without a state there is no last run"
    state, standing = read.state, store.open_violations(read.state)
    return replace(
        _outcome(read, options, Summary(0, dict.fromkeys(VERDICTS, 0), {}, {}), began_s),
        state=StateOutcome(options.state, state.run, state.open, 0, standing, _counts(state)),
        html=None,
    )


def _expire(store: StateStore, read: _Reading, options: AuditOptions) -> None:
    """Once a day, deletes closed rows that are older than `options.keep_days`."""
    day, last = (datetime.fromtimestamp(ms / 1_000, UTC).date() for ms in (read.snapshot_ms, read.state.snapshot_ms))
    if read.state.run and day != last:
        starts = {place_of(part): span.log_start for part, span in read.causes.requests.items()}
        store.expire((day - timedelta(days=options.keep_days)).isoformat(), starts)


@dataclass(frozen=True)
class _Reading:
    """The input of one run: whole ranges for the tables about them, and the new part of each for the history."""

    state: AuditState
    snapshot_ms: int
    causes: Causes
    effects: Effects
    spans: tuple[Range, ...]
    targets: list[str]
    ids: dict[str, str]
    letters: tuple[Range, ...]
    requests: int
    digests: ChunkDigests
    asked: DataFrame
    history: History
    partitions: DataFrame
    verdict_records: VerdictRecords
    returns: Returns | None

    @property
    def has_new(self) -> bool:
        """Whether there is anything to read, or to report."""
        return any(span.start < span.end for span in self.spans) or bool(self.gaps)

    @property
    def gaps(self) -> list[tuple[Partition, int, int]]:
        """The first and the last offset of the requests that left each partition before a run could read them."""
        spans = self.causes.requests
        read = {part: self.state.next.get(place_of(part), span.log_start) for part, span in spans.items()}
        return [(part, read[part], span.log_start - 1) for part, span in spans.items() if read[part] < span.log_start]

    @classmethod
    def of(cls, steps: AuditSteps, state: AuditState) -> _Reading:
        """Fixes the end offsets, cause before effect; starts where `state` stopped."""
        snapshot_ms, options, reporter = time.time_ns() // 1_000_000, steps.options, steps.reporter
        own = options.own_topics()
        fixed = fix_causes(steps.cluster, own, options)
        whole_requests, new_requests = since(fixed.requests, state)
        whole_log, new_log = since(fixed.log, state)
        _say(reporter, new_requests, new_log)
        understood = steps.understood(new_requests.values())
        digests = ChunkDigests(snapshot_ms - options.slack_ms)
        asked = steps.kept(digests.of_requests(understood))
        targets = state.targets
        if _any(new_requests):
            with reporter.working(steps.spark, "reading requests"):
                targets = sorted({*state.targets, *steps.targets_of(asked)})
        ids = steps.cluster.topic_ids([*targets, *(name for one in own for name in one.names())])
        state = without_renewed(state, ids, {name for one in own for name in one.names()})
        effects, fresh = since_effects(steps.effects(targets, state), state)
        _say(reporter, *fresh)
        causes = Causes(whole_requests, whole_log)
        partitions = partition_table(steps.spark, own, causes, effects)
        log_spans = since(by_partition(log_ranges(causes, effects)), state)[1]
        log = steps.log(log_spans.values(), partitions)
        returns = None
        if _any(new_requests):
            returns = steps.returns([*new_requests.values()], asked, log, state.policies)
        if returns is not None:
            understood = returns.understood
        messages, letters = steps.messages(fresh[0].values()), steps.letters(fresh[1].values())
        answers, verdict_records = steps.answers(fresh[2].values()), VerdictRecords(options.verdicts, 0, 0)
        if _any(fresh[2]):
            with reporter.working(steps.spark, "reading verdict records"):
                verdict_records = steps.count(answers)
        return cls(
            *(state, snapshot_ms, causes, effects),
            tuple(span for some in (new_requests, log_spans, *fresh) for span in some.values()),
            targets,
            ids,
            tuple(fresh[1].values()),
            sum(span.end - span.start for span in new_requests.values()),
            digests,
            asked,
            History(
                *(understood, messages, log, letters, answers),
                returns=returns.rows if returns is not None else None,
                requests_of=partial(_requests_of, steps, causes, log, state.policies),
            ),
            partitions,
            verdict_records,
            returns,
        )

    def how(self, spark: SparkSession, options: AuditOptions) -> JudgingParameters:
        """The parameters of judging in this run."""
        return JudgingParameters(
            *(self.partitions, target_table(spark, self.effects), False, False),
            *(options.verdicts, self.snapshot_ms, options.slack_ms),
        )

    def grown(self, found: Advance, beside: Mapping[str, int], opened: int) -> AuditState:
        """The state from which the next run continues. `beside`: the number of violations without a row, by verdict;
        `opened`: the number of violations that this run has added to their table."""
        read = {
            place_of(part): span
            for some in (self.causes.requests, self.causes.log, *self.effects.records())
            for part, span in some.items()
        }
        next_offsets = {(part.topic, part.number): span.end for part, span in self.causes.requests.items()}
        return replace(
            found.state,
            snapshot_ms=self.snapshot_ms,
            policies=needed(found.state.policies, next_offsets),
            topic_ids={**self.state.topic_ids, **self.ids},
            next={**self.state.next, **{place: span.end for place, span in read.items()}},
            lost_before_ms={**self.state.lost_before_ms, **{place: s.lost_before_ms for place, s in read.items()}},
            known_ms={place_of(part): span.known_ms for part, span in self.effects.targets.items()},
            targets=self.targets,
            counts=dict(Counter(found.state.counts) + Counter(beside)),
            violations=self.state.violations + opened,
        )

    def forget(self) -> None:
        """Releases cached rows."""
        returns = [] if self.returns is None else [self.returns.rows]
        for one in (self.asked, self.history.log, self.history.answers, *self.history.overtaken, *returns):
            one.unpersist()


def _requests_of(
    steps: AuditSteps, causes: Causes, log: DataFrame, known: Iterable[PolicyRow], origins: DataFrame
) -> DataFrame:
    """The requests from the first to the last of `origins` in each partition, as far as they are in their topics, with
    the named policies that are `known` or in `log`."""
    first, last = F.min("offset").alias("first"), F.max("offset").alias("last")
    bounds = origins.groupBy(*PARTITION).agg(first, last).collect()
    spans = [(causes.requests[Partition(row["topic"], row["partition"])], row) for row in bounds]
    ranges = [
        replace(span, start=max(span.log_start, row["first"]), end=min(span.end, row["last"] + 1))
        for span, row in spans
    ]
    return digested_requests(steps.understood(ranges, steps.policies(log, known)))


def settings_of(options: AuditOptions) -> dict[str, Any]:
    """The options that decide how requests are interpreted, and which are read; stored in the row of the run."""
    return {
        "requests": list(options.requests),
        "levels_ms": list(options.levels_ms),
        "dialects": list(options.dialects),
        "default_target": options.default_target,
        "verdicts": options.verdicts,
    }


def _say(reporter: Reporter, *ranges: Mapping[Partition, Range]) -> None:
    for line in range_lines(span for some in ranges for span in some.values()):
        reporter.say(line)


def _any(ranges: Mapping[Partition, Range]) -> bool:
    """Whether there is anything to read."""
    return any(span.start < span.end for span in ranges.values())


def _counts(state: AuditState) -> dict[str, int]:
    """The number of origins by verdict over all runs."""
    return {verdict: state.counts.get(verdict, 0) for verdict in VERDICTS}
