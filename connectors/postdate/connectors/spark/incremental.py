"""The audit since the last one: it reads what is new, and judges that together with what was still open.

1. Fix the ends as the full audit does; read each partition from where the last run stopped.
2. Fold that into one row an origin, and write it down: Kafka is read once, and plans stay small.
3. Put the open rows beside it, and of the closed ones those that are hit or needed (`recall`).
4. Judge by the same rules as the full audit.
5. Write what is open and what is closed now; after the outcome was told, make that the state (`audit_state`).

So a run costs what is new and what is open, beside a look through the origins and ids of what is closed where ids are
in use. The last verdict on each origin, over all runs, is that of one full audit; where topics have lost records since,
this one knows more, for it has seen them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from postdate.connectors.spark.audit_picture import audit_picture
from postdate.connectors.spark.audit_state import (
    AuditState,
    ClosedTable,
    StateStore,
    forgotten,
    place_of,
    require_same,
)
from postdate.connectors.spark.audit_steps import AuditSteps, notes_of
from postdate.connectors.spark.bounds import Range
from postdate.connectors.spark.carried import CLOSED, OPEN, PART, gathered, state_rows, union_of_runs
from postdate.connectors.spark.cluster import Partition
from postdate.connectors.spark.compaction import compacted
from postdate.connectors.spark.errors import JobUsageError
from postdate.connectors.spark.fate_rows import chain_breaks, fate_rows
from postdate.connectors.spark.fresh_ranges import by_partition, since, since_effects, without_renewed
from postdate.connectors.spark.history import (
    Causes,
    Effects,
    fix_causes,
    log_ranges,
    partition_table,
    target_table,
)
from postdate.connectors.spark.options import AuditOptions
from postdate.connectors.spark.output import Outcome, StateOutcome, range_lines
from postdate.connectors.spark.progress import Reporter
from postdate.connectors.spark.record_rows import digested_records
from postdate.connectors.spark.request_rows import digested_requests
from postdate.connectors.spark.sides import Sides, folded, unfolded
from postdate.connectors.spark.sieve import asked_rows
from postdate.connectors.spark.sifting import Sifting, judged_sides
from postdate.connectors.spark.small_tables import small_table
from postdate.connectors.spark.summary import summarise
from postdate.connectors.spark.unanswered import Mode
from postdate.connectors.spark.verdicts import VERDICTS

TAIL = (
    "topic string, partition int, log_topic string, log_offset bigint, seq bigint, takeover bigint, writer string,"
    " is_owner boolean, log_is_whole boolean, parses boolean"
)
"""What the chain needs of the last record that was read of a dispatch log."""
_TAIL = tuple(column.split()[0] for column in TAIL.split(","))


@dataclass(frozen=True)
class Advance:
    """What one run has found. `open_table` and `closed_table` are written; the state that names them is not.

    `fresh` is what is told now, `standing` counts the rows whose violations an earlier run has told. `counts` are those
    of all that any run has closed, by verdict.
    """

    breaks: DataFrame
    fresh: DataFrame
    standing: int
    opened: int
    opened_counts: Counter[str]
    closed: ClosedTable
    open_table: str | None
    counts: dict[str, int]
    tails: list[list[Any]]


def advance(
    store: StateStore,
    state: AuditState,
    new: Sides,
    log: DataFrame,
    partitions: DataFrame,
    targets: DataFrame,
    *,
    verdicts: Mode,
    snapshot_ms: int,
    slack_ms: int,
) -> Advance:
    """Judges `new` with all that `state` carries, and writes what the next run needs; nothing of it counts yet.

    `log` are the dispatch-log records behind `new.fates`; `partitions` and `targets` as for `judge`. `state.run` is
    that of the last run.
    """
    run, spark = state.run + 1, log.sparkSession
    fresh = store.rows(store.write("fresh", run, folded(new)))
    opened = store.rows(state.open) if state.open is not None else None
    now = gathered(fresh, opened, store.closed(state), partitions)
    sides = unfolded(now.rows)
    how = Sifting(partitions, targets, now.has_claims, now.has_answers, verdicts, snapshot_ms, slack_ms)
    judged = judged_sides(asked_rows(sides.requests), sides, how)
    assert judged.rows is not None, "each origin has a row"
    found = state_rows(now, judged.rows, partitions, targets, run)
    name = store.write("rows", run, found, PART)
    rows = store.rows(name, found.schema)
    groups = (
        rows.groupBy(PART, "is_told", "verdicts", "topic", "partition")
        .agg(F.count("*").alias("rows"), F.max("offset").alias("last"))
        .collect()
    )
    closed, left = [row for row in groups if row[PART] == CLOSED], [row for row in groups if row[PART] == OPEN]
    counts = Counter(state.counts)
    counts.update(_by_verdict(closed))
    if now.reopened is not None:
        counts.subtract(_by_verdict(now.reopened.groupBy("verdicts").agg(F.count("*").alias("rows")).collect()))
    linked = log.select(*_TAIL, "late").unionByName(
        small_table(spark, [tuple(tail) for tail in state.tails], TAIL).withColumn("late", F.lit(False))
    )
    judged.forget()
    return Advance(
        breaks=_new_breaks(linked, state),
        fresh=rows.where(F.col("verdicts").isNotNull() & ~F.col("is_told")),
        standing=sum(row["rows"] for row in groups if row["is_told"]),
        opened=sum(row["rows"] for row in left),
        opened_counts=_by_verdict(left),
        closed=_closed_table(f"{name}/{PART}={CLOSED}", closed),
        open_table=f"{name}/{PART}={OPEN}" if left else None,
        counts=dict(counts),
        tails=_tails(linked),
    )


def next_state(state: AuditState, found: Advance, log_starts: Mapping[str, int], **changes: Any) -> AuditState:
    """The state that `found` leads to; `changes` are what was read of the cluster."""
    grown = replace(
        state,
        run=state.run + 1,
        open=found.open_table,
        closed=[*state.closed, found.closed],
        counts=found.counts,
        tails=found.tails,
        **changes,
    )
    return forgotten(grown, dict(log_starts))


def audit_since(steps: AuditSteps) -> tuple[Outcome, Callable[[], None]]:
    """The outcome of what is new since the last run with `options.state`, and what makes the next run begin behind it.

    Raises CannotRun, JobUsageError: another state is needed.
    """
    began_s, options = time.monotonic(), steps.options
    assert options.state is not None, "without a state there is no last run"
    store, settings = StateStore(steps.spark, options.state), settings_of(options)
    state = store.newest() or AuditState(0, 0, settings)
    require_same(state, settings, options.state)
    store.tidy(state)
    read = _Reading.of(steps, state)
    with steps.reporter.working(steps.spark, "comparing requests, fates and records"):
        found = advance(
            *(store, read.state, read.sides, read.log, read.partitions, target_table(steps.spark, read.effects)),
            verdicts=options.verdicts,
            snapshot_ms=read.snapshot_ms,
            slack_ms=options.slack_ms,
        )
        summary = summarise(found.fresh, found.breaks, read.sides.answers.where("malformed"), options.samples)
        holes = steps.holes(found.fresh, read.causes.log.values())
        picture = audit_picture(found.fresh) if options.html is not None else None
    grown = read.grown(found, settings)
    outcome = Outcome(
        *(options.requests, read.snapshot_ms, None, None, summary, read.spans, steps.count(read.sides.answers)),
        *(holes, None, notes_of(read.causes, read.effects)),
        seconds=time.monotonic() - began_s,
        state=StateOutcome(
            options.state, grown.run, found.opened, found.closed.rows, found.standing, _counts_of_all(grown, found)
        ),
        picture=picture,
        html=options.html,
    )

    def keep() -> None:
        kept = compacted(store, grown)
        store.keep(kept)
        store.tidy(kept)

    return outcome, keep


def last_verdicts(spark: SparkSession, path: str) -> DataFrame:
    """The last verdict on each origin that the state at `path` remembers, over all runs, with the `run` that gave it.

    Raises JobUsageError: there is none yet.
    """
    store = StateStore(spark, path)
    state = store.newest()
    tables = [] if state is None else [store.closed(state), store.rows(state.open) if state.open else None]
    found = [table for table in tables if table is not None]
    if not found:
        raise JobUsageError(f"No audit with --state {path} has judged anything yet.")
    return union_of_runs(found)


@dataclass(frozen=True)
class _Reading:
    """What one run reads: whole ranges for the tables about them, the new part of each for the sides."""

    state: AuditState
    snapshot_ms: int
    causes: Causes
    effects: Effects
    spans: tuple[Range, ...]
    targets: list[str]
    ids: dict[str, str]
    sides: Sides
    log: DataFrame
    partitions: DataFrame

    @classmethod
    def of(cls, steps: AuditSteps, state: AuditState) -> _Reading:
        """Fixes the ends, cause before effect, and reads from where `state` stopped."""
        snapshot_ms, options, reporter = time.time_ns() // 1_000_000, steps.options, steps.reporter
        own = options.own_topics()
        fixed = fix_causes(steps.cluster, own, options)
        whole_requests, new_requests = since(fixed.requests, state)
        whole_log, new_log = since(fixed.log, state)
        _say(reporter, new_requests, new_log)
        requests = digested_requests(steps.understood(new_requests.values())).persist(StorageLevel.MEMORY_AND_DISK)
        with reporter.working(steps.spark, "reading requests"):
            targets = sorted({*state.targets, *steps.targets_of(requests)})
        ids = steps.cluster.topic_ids([*targets, *(name for one in own for name in one.names())])
        state = without_renewed(state, ids, {name for one in own for name in one.names()})
        effects, fresh = since_effects(steps.effects(targets), state)
        _say(reporter, *fresh)
        causes = Causes(whole_requests, whole_log)
        partitions = partition_table(steps.spark, own, causes, effects)
        log = steps.log(since(by_partition(log_ranges(causes, effects)), state)[1].values(), partitions)
        with reporter.working(steps.spark, "reading the dispatch log"):
            steps.has_claims(log)
        delivered = digested_records(steps.messages(fresh[0].values()))
        letters = steps.letters(fresh[1].values())
        sides = Sides(requests, fate_rows(log), delivered, letters, steps.answers(fresh[2].values()))
        spans = tuple(span for some in (new_requests, new_log, *fresh) for span in some.values())
        return cls(state, snapshot_ms, causes, effects, spans, targets, ids, sides, log, partitions)

    def grown(self, found: Advance, settings: dict[str, Any]) -> AuditState:
        """The state that makes the next run begin where this one ended."""
        read = {
            place_of(part): span
            for some in (self.causes.requests, self.causes.log, *self.effects.records())
            for part, span in some.items()
        }
        return next_state(
            self.state,
            found,
            {place_of(part): span.log_start for part, span in self.causes.requests.items()},
            snapshot_ms=self.snapshot_ms,
            settings=settings,
            topic_ids={**self.state.topic_ids, **self.ids},
            next={**self.state.next, **{place: span.end for place, span in read.items()}},
            lost_before_ms={place: span.lost_before_ms for place, span in read.items()},
            targets=self.targets,
        )


def settings_of(options: AuditOptions) -> dict[str, Any]:
    """What decides what a request means, and which are looked at: the same for all runs of a state."""
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


def _any(rows: DataFrame, condition: Column) -> bool:
    return not rows.where(condition).isEmpty()


def _by_verdict(groups: Iterable[Row]) -> Counter[str]:
    """How many rows have each verdict; `groups` have `verdicts`, null where nothing was judged, and their `rows`."""
    counts: Counter[str] = Counter()
    for group in groups:
        counts.update(dict.fromkeys(group["verdicts"] or (), group["rows"]))
    return counts


def _counts_of_all(state: AuditState, found: Advance) -> dict[str, int]:
    """By verdict, of everything that any run has judged: what is closed and what is open."""
    return {verdict: state.counts.get(verdict, 0) + found.opened_counts[verdict] for verdict in VERDICTS}


def _closed_table(name: str, groups: Iterable[Row]) -> ClosedTable:
    """The table of closed rows, with the last offset of each partition."""
    rows, last = 0, dict[str, int]()
    for group in groups:
        place = place_of(Partition(group["topic"], group["partition"]))
        last[place] = max(last.get(place, -1), group["last"])
        rows += group["rows"]
    return ClosedTable(name, rows, last)


def _tails(linked: DataFrame) -> list[list[Any]]:
    """The last record of each dispatch log that parses and will not be read again."""
    newest = Window.partitionBy("topic", "partition").orderBy(F.desc("log_offset"))
    rows = linked.where(F.col("parses") & ~F.col("late")).withColumn("place", F.row_number().over(newest))
    return [list(row) for row in rows.where("place = 1").select(*_TAIL).orderBy("topic", "partition").collect()]


def _new_breaks(linked: DataFrame, state: AuditState) -> DataFrame:
    """The breaks of the chain at records that are new and will not be read again."""
    tails = [(tail[0], tail[1], tail[3]) for tail in state.tails]
    seen = small_table(linked.sparkSession, tails, "topic string, partition int, log_offset bigint")
    settled = linked.where(~F.col("late"))
    return chain_breaks(settled).join(F.broadcast(seen), ["topic", "partition", "log_offset"], "left_anti")
