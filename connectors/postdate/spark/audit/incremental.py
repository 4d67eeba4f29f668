"""The incremental audit: reads the records since the last run, and judges them with the stored rows that they affect.

1. Fix the end offsets as the full audit does; read each partition from where the last run stopped.
2. Check spans of the new requests, as the full audit does. The rows of whole spans are written from the dispatch log.
3. Fold the rest into one row for each origin. Join the stored rows that new records name, that are overdue, or that are
   in doubt.
4. Judge them by the rules of the full audit; rows of the same id, and rows that these name, are context.
5. Write the judged rows and the violations. After the outcome was reported, commit (`audit_state`).

So a run costs as much as the new records and the rows that they affect. If a new record has an id or names another
origin, the run also reads the ids of all rows. The last verdict on each origin, over all runs, is that of one full
audit. If topics have lost records since, this audit knows more, because earlier runs have read them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postdate.spark.audit.fresh_order import overtaken_since
from postdate.spark.audit.fresh_ranges import by_partition, since, since_effects, without_renewed
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import Outcome, StateOutcome, VerdictRecords, range_lines
from postdate.spark.audit.picture import audit_picture
from postdate.spark.audit.ranges import Causes, Effects, fix_causes, log_ranges, partition_table, target_table
from postdate.spark.audit.steps import AuditSteps, notes_of
from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.errors import JobUsageError
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster import Partition
from postdate.spark.job.progress import Reporter
from postdate.spark.judging.folded import found_of, is_bare, judged_folded, placed
from postdate.spark.judging.inputs import facts_schema, folded, joined
from postdate.spark.judging.sifting import History, Sifting, Split, split
from postdate.spark.judging.spans import SPAN, Spans
from postdate.spark.judging.summary import Counted, Plain, Summary, summarise
from postdate.spark.limits import SPANS_ROWS_MIN
from postdate.spark.records.fates import fate_rows
from postdate.spark.records.requests import digested_requests
from postdate.spark.rules.verdicts import FINDINGS, VERDICTS
from postdate.spark.session.caching import cached
from postdate.spark.state.chain import Chain
from postdate.spark.state.lateness_trend import TrendDay, lateness_trend
from postdate.spark.state.origins import (
    CLOSED,
    DOUBTFUL,
    PENDING,
    STATE_COLUMNS,
    delivered_rows,
    form_of,
    is_due,
    judged_rows,
    pending_rows,
    recorded_due_day,
    stored_rows,
)
from postdate.spark.state.store import (
    ORIGINS,
    VIOLATION_COLUMNS,
    VIOLATIONS,
    AuditState,
    StateStore,
    place_of,
)
from postdate.spark.state.violations import violation_rows

_DAYS_MAX = 1_000


@dataclass(frozen=True)
class Advance:
    """The result of one run; what it has written is valid once it is committed.

    `fresh` are the rows to report; `plain` are origins without a row there. `told`: the verdicts of the rows in
    `fresh`, with their counts. `state` is the next state, without what was read from the cluster. `closed`: the number
    of rows that are final. `has_garbled`: whether the origin of a record may be unreadable. `kept` must be released by
    `forget`.
    """

    chain: Chain
    fresh: DataFrame
    plain: Plain | None
    told: list[tuple[list[str], int]]
    late: int
    state: AuditState
    closed: int
    has_garbled: bool
    kept: list[DataFrame]

    def forget(self) -> None:
        """Releases cached rows; after that, `fresh` would be computed again."""
        for one in self.kept:
            one.unpersist()


def advance(
    store: StateStore,
    state: AuditState,
    new: History,
    how: Sifting,
    spans: Spans,
    asked: DataFrame | None,
) -> Advance:
    """Judges `new` together with `state`, and writes the rows, which are valid once they are committed.

    `how` contains no claims and answers; this function looks for them. `asked` are the spans of the requests; None: too
    few requests for spans. Raises CannotRun if the broker's clock did not stamp the dispatch log.
    """
    run = state.run + 1
    chain, sides = Chain.of(new.log, state.tails), new.sides()
    facts = facts_schema(sides)
    store.prepare(state, form_of(facts))
    kept, plain, rows_by_verdict = list[DataFrame](), None, Counter(state.counts)
    found = None
    if asked is not None and not how.owes_all:
        in_doubt = store.origins().where(F.col("state") == DOUBTFUL).select(*ORIGIN)
        found = split(new, how, spans, asked, in_doubt)
    opened = closed = 0
    if found is not None:
        kept += found.kept
        plain = found.plain
        _write_whole(store, new, spans, found, facts, run)
        rows_by_verdict.update(plain.counts)
        opened, closed = plain.counts["pending"], plain.counts["delivered"]
    left = sides if found is None else found.left
    rows = _none(store, facts) if left is None else store.written(folded(left))
    touched = _touched(store, state, rows, how, facts, kept)
    beside = placed(touched.rows, how)
    there = found_of(beside)
    if there.has_bare and new.requests_of is not None:
        beside = placed(_with_requests(store, touched.rows, new.requests_of), how)
    how = replace(how, has_claims=there.has_claims, has_answers=there.has_answers)
    stored = stored_rows(store.origins(), facts)
    judged, cached = judged_folded(beside, there, stored, how, STATE_COLUMNS)
    table = store.written(judged_rows(judged, run))
    kept += cached
    groups = (
        table.groupBy("state", "is_told", "was_carried", "verdicts", "told")
        .agg(F.count("*").alias("rows"), F.count("lateness_ms").alias("late"))
        .collect()
    )
    _write_judged(store, table, groups, touched)
    rows_by_verdict.update(_by_verdict(groups, "verdicts"))
    rows_by_verdict.subtract(_by_verdict(groups, "told"))
    told = [row for row in groups if row["verdicts"] is not None and not row["is_told"]]
    fresh = table.where(F.col("verdicts").isNotNull() & ~F.col("is_told"))
    opened += sum(row["rows"] for row in groups if row["state"] != CLOSED) - touched.open
    return Advance(
        chain=chain,
        fresh=fresh,
        plain=plain,
        told=[(row["verdicts"], row["rows"]) for row in told],
        late=sum(row["late"] for row in told),
        state=replace(state, run=run, tails=chain.tails, counts=dict(rows_by_verdict), open=state.open + opened),
        closed=closed + sum(row["rows"] for row in groups if row["state"] == CLOSED),
        has_garbled=found is None or found.has_garbled,
        kept=kept,
    )


@dataclass(frozen=True)
class _Touched:
    """Rows to judge: `carried` of them are in the table, `open` of those not closed, in the partitions of these
    `days`."""

    rows: DataFrame
    carried: int = 0
    open: int = 0
    days: tuple[str, ...] = ()


def _touched(
    store: StateStore, state: AuditState, new: DataFrame, how: Sifting, facts: StructType, kept: list[DataFrame]
) -> _Touched:
    """The rows `new`, joined with the stored rows that they name, that are overdue, or that are in doubt."""
    if not state.run:
        return _Touched(new)
    table = store.origins()
    hits = _kept(new.where("facts.request is null").select(*ORIGIN, recorded_due_day().alias("day")), kept)
    days = [row["day"] for row in hits.select("day").distinct().limit(_DAYS_MAX).collect() if row["day"] is not None]
    overdue_before_ms = how.snapshot_ms - how.slack_ms
    is_needed = (F.col("state") == DOUBTFUL) | is_due(overdue_before_ms)
    opened = table.where(F.col("state").isin(PENDING, DOUBTFUL))
    if not days:
        found = opened.where(is_needed)
    else:
        near = opened.where(is_needed | F.col("due_day").isin(*days))
        marked = near.join(hits.select(*ORIGIN, F.lit(True).alias("is_hit")), list(ORIGIN), "left")
        found = marked.where(is_needed | F.col("is_hit")).drop("is_hit")
    # A state may hold request topics that this audit does not read.
    found = found.join(F.broadcast(how.partitions.select(*PARTITION)), list(PARTITION), "left_semi")
    carried = _kept(stored_rows(found, facts), kept)
    rest = hits.where(_was_read(state)).join(carried.select(*ORIGIN), list(ORIGIN), "left_anti").select(*ORIGIN)
    rest = _kept(rest, kept)
    if not rest.isEmpty():
        places = table.select(*ORIGIN, "due_day").join(rest, list(ORIGIN), "left_semi")
        elsewhere = [row["due_day"] for row in places.select("due_day").distinct().limit(_DAYS_MAX).collect()]
        again = table.where(F.col("due_day").isin(*elsewhere)) if len(elsewhere) < _DAYS_MAX else table
        more = stored_rows(again.join(rest, list(ORIGIN), "left_semi"), facts)
        carried = _kept(carried.unionByName(more), kept)
    groups = carried.groupBy("state", "due_day").count().collect()
    if not groups:
        return _Touched(new)
    return _Touched(
        store.written(joined(new, carried)),
        sum(row["count"] for row in groups),
        sum(row["count"] for row in groups if row["state"] != CLOSED),
        tuple(sorted({row["due_day"].isoformat() for row in groups})),
    )


def _was_read(state: AuditState) -> Column:
    """Whether an earlier run has already read the offset of this origin."""
    if not state.next:
        return F.lit(False)
    read = F.create_map(*(F.lit(one) for pair in state.next.items() for one in pair))
    place = F.concat_ws("/", "topic", "partition")
    return F.coalesce(F.col("offset") < F.try_element_at(read, place), F.lit(False))


def _with_requests(store: StateStore, rows: DataFrame, requests_of: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """`rows`, where the facts of those that are bare contain their request with its digests, if it can still be read.

    Such rows are rare, since each of them breaks a rule.
    """
    bare = rows.where(is_bare()).select(*ORIGIN)
    requests = requests_of(bare)
    again = F.struct(*(name for name in requests.columns if name not in ORIGIN)).alias("again")
    found = bare.join(requests.select(*ORIGIN, again), list(ORIGIN))
    request = F.coalesce("again", "facts.request")
    both = rows.join(found, list(ORIGIN), "left")
    return store.written(both.withColumn("facts", F.col("facts").withField("request", request)).drop("again"))


def _none(store: StateStore, facts: StructType) -> DataFrame:
    """An empty DataFrame in the form of `folded`."""
    empty = stored_rows(store.origins().where(F.lit(False)), facts)
    return empty.select(
        *(*ORIGIN, "id", "links", "facts"),
        F.struct("verdicts", "details").alias("told"),
        F.lit(False).alias("was_carried"),
    )


def _write_whole(store: StateStore, new: History, spans: Spans, found: Split, facts: StructType, run: int) -> None:
    """Writes the rows of whole spans. Delivered messages come from the dispatch log. Requests are read again for
    pending ones, and if they have ids or the requests of a span name several targets."""
    by_span = found.asked.groupBy(*SPAN, "target").agg(F.sum("asked").alias("asked"), F.sum("ids").alias("ids"))
    of_span = (
        by_span.where("asked > 0")
        .groupBy(*SPAN)
        .agg(F.first("target").alias("target"), F.count("*").alias("targets"), F.sum("ids").alias("ids"))
    )
    of_span = cached(of_span)
    most = of_span.agg(F.max("targets").alias("targets"), F.max("ids").alias("ids")).collect()[0]
    fates = spans.whole(fate_rows(new.log), found.broken, found.odd)
    requests = spans.whole(new.understood, found.broken, found.odd)
    if most["targets"] is not None:
        if most["targets"] > 1 or most["ids"]:
            known = requests.where(F.col("due_ms") < spans.overdue_before_ms)
            delivered = fates.join(known.select(*ORIGIN, "target", "id", "request_ms"), list(ORIGIN))
        else:
            delivered = fates.join(F.broadcast(of_span.select(*SPAN, "target")), list(SPAN)).select(
                *(*ORIGIN, "fate", "target"),
                *(F.lit(None).cast("binary").alias("id"), F.lit(None).cast("bigint").alias("request_ms")),
            )
        store.add(ORIGINS, delivered_rows(delivered, run))
    if found.plain.counts["pending"]:
        ahead = requests.where(F.col("due_ms") >= spans.overdue_before_ms).drop("span")
        store.add(ORIGINS, pending_rows(digested_requests(ahead), facts, run))
    of_span.unpersist()


def _write_judged(store: StateStore, table: DataFrame, groups: Sequence[Row], touched: _Touched) -> None:
    """Writes the judged rows, replacing the rows of the same origins in the table."""
    if not groups:
        return
    rows = table.drop("was_carried", "told", "new_findings", "is_told", "is_fate_lost")
    if not touched.carried:
        store.add(ORIGINS, rows)
        return
    days = ", ".join(f"DATE'{day}'" for day in touched.days)
    states = "" if touched.open < touched.carried else f"old.state IN ('{PENDING}', '{DOUBTFUL}') AND "
    store.merge_origins(rows, f"{states}old.due_day IN ({days})")


def audit_since(
    steps: AuditSteps, tell: Callable[[Outcome], None], after: AuditState | None = None
) -> tuple[Outcome, AuditState]:
    """Judges the records since the last run with `options.state`, reports the outcome by `tell`, and then commits it.
    Returns the outcome and the state from which to continue.

    `after`: the state that the last step of this process has committed; None: read it. Raises CannotRun, JobUsageError;
    after an error, also one of `tell`, nothing is committed.
    """
    began_s, options = time.monotonic(), steps.options
    assert options.state is not None, "without a state there is no last run"
    store = StateStore(steps.spark, options.state)
    state = store.newest() if after is None else after
    read = _Reading.of(steps, state)
    if state.run and not read.has_new and not _needs_look(store, read.snapshot_ms - options.slack_ms):
        outcome = _idle(read, store, options, began_s)
        outcome = replace(outcome, trend=_trend(steps, store.origins_of(state), read.snapshot_ms))
        tell(outcome)
    else:
        earlier = store.origins_of(state) if state.run else None
        overtaken = overtaken_since(steps, read.history, read.spans, read.partitions, earlier)
        read = replace(read, history=replace(read.history, overtaken=overtaken))
        found, grown, outcome = _judged(steps, store, read, began_s)
        outcome = replace(outcome, trend=_trend(steps, store.origins(), read.snapshot_ms))
        tell(outcome)
        summary = outcome.summary
        told = {"judged": summary.rows, "lateness_ms": summary.lateness_ms, "settings": settings_of(options)}
        state = store.commit(grown, told)
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
            *(store, read.state, read.history, read.how(steps.spark, options), read.summing),
            read.asked if read.requests >= SPANS_ROWS_MIN else None,
        )
        malformed = read.history.answers.where("malformed")
        unreadable = steps.unreadable(read.letters, read.history.messages if found.has_garbled else None)
        summary = summarise(
            *(found.fresh, found.chain.breaks, malformed, options.samples, found.plain),
            counted=Counted(found.told, found.late, found.chain.broken, read.told.malformed),
            unreadable=unreadable,
        )
        holes = steps.holes(found.fresh, read.causes.log.values())
        standing = store.open_violations(read.state)
        opened = 0
        if any(summary.counts[verdict] for verdict in FINDINGS):
            opened = write_findings(store, found, malformed, unreadable, read.snapshot_ms)
        picture = audit_picture(store.origins().where(F.col("run") == found.state.run)) if options.html else None
    beside = {"chain": found.chain.broken, "unreadable": summary.counts["unreadable"]}
    grown = read.grown(found, {**beside, "false-verdict": read.told.malformed}, opened)
    _expire(store, read, options)
    outcome = replace(
        _outcome(read, options, summary, began_s),
        holes=holes,
        picture=picture,
        order_checked=bool(read.history.overtaken),
        state=StateOutcome(options.state, grown.run, grown.open, found.closed, standing, _counts(grown)),
    )
    return found, grown, outcome


def write_findings(
    store: StateStore, found: Advance, malformed: DataFrame, unreadable: DataFrame, found_ms: int
) -> int:
    """Writes the violations that this run is the first to find, as of `violation_rows`; returns their number."""
    rows = violation_rows(found.fresh, found.chain.breaks, malformed, unreadable)
    run, at_ms = F.lit(found.state.run).cast("bigint"), F.lit(found_ms).cast("bigint")
    columns = [column.split()[0] for column in VIOLATION_COLUMNS.split(", ")]
    rows = cached(rows.select("*", run.alias("run"), at_ms.alias("found_ms")).select(*columns))
    count = rows.count()
    if count:
        store.add(VIOLATIONS, rows)
    rows.unpersist()
    return count


def _needs_look(store: StateStore, overdue_before_ms: int) -> bool:
    """Whether a row is overdue or in doubt."""
    table = store.origins()
    return not table.where((F.col("state") == DOUBTFUL) | is_due(overdue_before_ms)).select("offset").isEmpty()


def _outcome(read: _Reading, options: AuditOptions, summary: Summary, began_s: float) -> Outcome:
    return Outcome(
        *(options.requests, read.snapshot_ms, None, None, summary, read.spans, read.told),
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


def last_verdicts(spark: SparkSession, path: str) -> DataFrame:
    """The last verdict on each origin in the state at `path`, with the `run` that gave it.

    Raises JobUsageError: there is none yet.
    """
    store = StateStore(spark, path)
    state = store.newest()
    if not state.run:
        raise JobUsageError(f"No audit with --state {path} has judged anything yet.")
    rows = store.origins_of(state).where(F.col("verdicts").isNotNull())
    return rows.drop("facts", "links", "id")


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
    summing: Spans
    asked: DataFrame
    history: History
    partitions: DataFrame
    told: VerdictRecords

    @property
    def has_new(self) -> bool:
        """Whether there is anything to read."""
        return any(span.start < span.end for span in self.spans)

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
        summing = Spans(snapshot_ms - options.slack_ms)
        asked = steps.kept(summing.of_requests(understood))
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
        messages, letters = steps.messages(fresh[0].values()), steps.letters(fresh[1].values())
        answers, told = steps.answers(fresh[2].values()), VerdictRecords(options.verdicts, 0, 0)
        if _any(fresh[2]):
            with reporter.working(steps.spark, "reading verdict records"):
                told = steps.count(answers)
        return cls(
            *(state, snapshot_ms, causes, effects),
            tuple(span for some in (new_requests, log_spans, *fresh) for span in some.values()),
            targets,
            ids,
            tuple(fresh[1].values()),
            sum(span.end - span.start for span in new_requests.values()),
            summing,
            asked,
            History(understood, messages, log, letters, answers, requests_of=partial(_requests_of, steps, causes)),
            partitions,
            told,
        )

    def how(self, spark: SparkSession, options: AuditOptions) -> Sifting:
        """The parameters of judging in this run."""
        return Sifting(
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
        return replace(
            found.state,
            snapshot_ms=self.snapshot_ms,
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
        for one in (self.asked, self.history.log, self.history.answers, *self.history.overtaken):
            one.unpersist()


def _requests_of(steps: AuditSteps, causes: Causes, origins: DataFrame) -> DataFrame:
    """The requests from the first to the last of `origins` in each partition, as far as they are in their topics."""
    first, last = F.min("offset").alias("first"), F.max("offset").alias("last")
    bounds = origins.groupBy(*PARTITION).agg(first, last).collect()
    spans = [(causes.requests[Partition(row["topic"], row["partition"])], row) for row in bounds]
    ranges = [
        replace(span, start=max(span.log_start, row["first"]), end=min(span.end, row["last"] + 1))
        for span, row in spans
    ]
    return digested_requests(steps.understood(ranges))


def settings_of(options: AuditOptions) -> dict[str, Any]:
    """The options that decide how requests are interpreted, and which are read; stored in the row of the run."""
    return {
        "requests": list(options.requests),
        "levels_ms": list(options.levels_ms),
        "dialects": list(options.dialects),
        "default_target": options.default_target,
        "verdicts": options.verdicts,
    }


def _kept(rows: DataFrame, kept: list[DataFrame]) -> DataFrame:
    """The same rows, cached; added to `kept`."""
    kept.append(cached(rows))
    return kept[-1]


def _say(reporter: Reporter, *ranges: Mapping[Partition, Range]) -> None:
    for line in range_lines(span for some in ranges for span in some.values()):
        reporter.say(line)


def _any(ranges: Mapping[Partition, Range]) -> bool:
    """Whether there is anything to read."""
    return any(span.start < span.end for span in ranges.values())


def _by_verdict(groups: Iterable[Row], column: str) -> Counter[str]:
    """The number of rows for each verdict in this column; it is null if nothing was judged."""
    counts: Counter[str] = Counter()
    for group in groups:
        for verdict in set(group[column] or ()):
            counts[verdict] += group["rows"]
    return counts


def _counts(state: AuditState) -> dict[str, int]:
    """The number of origins by verdict over all runs."""
    return {verdict: state.counts.get(verdict, 0) for verdict in VERDICTS}
