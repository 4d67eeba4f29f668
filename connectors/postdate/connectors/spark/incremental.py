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
from pyspark.sql import DataFrame, Row, SparkSession
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
from postdate.connectors.spark.carried import CLOSED, OPEN, PART, STATE_COLUMNS, state_rows, union_of_runs
from postdate.connectors.spark.chain import Chain
from postdate.connectors.spark.cluster import Partition
from postdate.connectors.spark.compaction import compacted
from postdate.connectors.spark.errors import JobUsageError
from postdate.connectors.spark.fate_rows import fate_rows
from postdate.connectors.spark.few_rows import suited
from postdate.connectors.spark.folded_judging import found_of, judged_folded, placed
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
from postdate.connectors.spark.output import Outcome, StateOutcome, VerdictRecords, range_lines
from postdate.connectors.spark.progress import Reporter
from postdate.connectors.spark.recall import rows_at, stragglers
from postdate.connectors.spark.record_rows import digested_records
from postdate.connectors.spark.request_rows import digested_requests
from postdate.connectors.spark.sides import Sides, folded, joined, state_schema
from postdate.connectors.spark.sifting import Sifting
from postdate.connectors.spark.summary import Counted, summarise
from postdate.connectors.spark.unanswered import Mode
from postdate.connectors.spark.verdicts import VERDICTS


@dataclass(frozen=True)
class Advance:
    """What one run has found. `open_table` and `closed_table` are written; the state that names them is not.

    `fresh` is what is told now, `standing` counts the rows whose violations an earlier run has told. `counts` are those
    of all that any run has closed, by verdict. `told` and `late` count the rows of `fresh` by their verdicts, and those
    that have a lateness.
    """

    chain: Chain
    fresh: DataFrame
    told: list[tuple[list[str], int]]
    late: int
    standing: int
    opened: int
    opened_counts: Counter[str]
    closed: ClosedTable
    open_table: str | None
    counts: dict[str, int]

    @property
    def breaks(self) -> DataFrame:
        """The breaks of the chains, as rows of `chain_breaks`."""
        return self.chain.breaks


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
    that of the last run. Raises CannotRun where the broker's clock did not stamp the dispatch log.
    """
    run, how = state.run + 1, Sifting(partitions, targets, False, False, verdicts, snapshot_ms, slack_ms)
    chain = Chain.of(log, state.tails)
    schema = state_schema(new)
    opened = store.rows(state.open, schema) if state.open is not None else None
    closed = store.closed(state, schema)
    rows, reopened = _written(store, run, folded(new, opened)), None
    beside = placed(rows, how)
    found = found_of(beside)
    if closed is not None and found.has_stragglers:
        again = rows_at(closed, stragglers(beside)).persist()
        if not again.isEmpty():
            reopened, rows = again, _written(store, run, joined(rows, again))
            beside = placed(rows, how)
            found = found_of(beside)
    how = replace(how, has_claims=found.has_claims, has_answers=found.has_answers)
    judged, cached = judged_folded(beside, found, closed, how, STATE_COLUMNS)
    table = state_rows(judged, run)
    name = store.write("rows", run, table, PART)
    rows = store.rows(name, table.schema)
    groups = (
        rows.groupBy(PART, "is_told", "verdicts", "topic", "partition")
        .agg(F.count("*").alias("rows"), F.max("offset").alias("last"), F.count("lateness_ms").alias("late"))
        .collect()
    )
    ended, left = [row for row in groups if row[PART] == CLOSED], [row for row in groups if row[PART] == OPEN]
    told = [row for row in groups if row["verdicts"] is not None and not row["is_told"]]
    counts = Counter(state.counts)
    counts.update(_by_verdict(ended))
    if reopened is not None:
        counts.subtract(_by_verdict(reopened.groupBy("verdicts").agg(F.count("*").alias("rows")).collect()))
    for one in cached:
        one.unpersist()
    return Advance(
        chain=chain,
        fresh=rows.where(F.col("verdicts").isNotNull() & ~F.col("is_told")),
        told=[(row["verdicts"], row["rows"]) for row in told],
        late=sum(row["late"] for row in told),
        standing=sum(row["rows"] for row in groups if row["is_told"]),
        opened=sum(row["rows"] for row in left),
        opened_counts=_by_verdict(left),
        closed=_closed_table(f"{name}/{PART}={CLOSED}", ended),
        open_table=f"{name}/{PART}={OPEN}" if left else None,
        counts=dict(counts),
    )


def _written(store: StateStore, run: int, rows: DataFrame) -> DataFrame:
    """The same rows, read from where they were written: how they came about is forgotten."""
    return store.rows(store.write("fresh", run, rows), rows.schema)


def next_state(state: AuditState, found: Advance, log_starts: Mapping[str, int], **changes: Any) -> AuditState:
    """The state that `found` leads to; `changes` are what was read of the cluster."""
    grown = replace(
        state,
        run=state.run + 1,
        open=found.open_table,
        closed=[*state.closed, found.closed],
        counts=found.counts,
        tails=found.chain.tails,
        **changes,
    )
    return forgotten(grown, dict(log_starts))


def audit_since(steps: AuditSteps) -> tuple[Outcome, Callable[[], None]]:
    """The outcome of what is new since the last run with `options.state`, and what makes the next run begin behind it.

    Raises CannotRun, JobUsageError: another state is needed.
    """
    options = steps.options
    assert options.state is not None, "without a state there is no last run"
    store, settings = StateStore(steps.spark, options.state), settings_of(options)
    state = store.newest() or AuditState(0, 0, settings)
    require_same(state, settings, options.state)
    store.tidy(state)
    with suited(steps.spark) as suit:
        return _told(steps, store, state, suit)


def _told(
    steps: AuditSteps, store: StateStore, state: AuditState, suit: Callable[[int], None]
) -> tuple[Outcome, Callable[[], None]]:
    began_s, options, settings = time.monotonic(), steps.options, settings_of(steps.options)
    assert options.state is not None, "without a state there is no last run"
    read = _Reading.of(steps, state, lambda records: suit(records + store.rows_estimated(state)))
    with steps.reporter.working(steps.spark, "comparing requests, fates and records"):
        found = advance(
            *(store, read.state, read.sides, read.log, read.partitions, target_table(steps.spark, read.effects)),
            verdicts=options.verdicts,
            snapshot_ms=read.snapshot_ms,
            slack_ms=options.slack_ms,
        )
        summary = summarise(
            *(found.fresh, found.breaks, read.sides.answers.where("malformed"), options.samples),
            counted=Counted(found.told, found.late, found.chain.broken, read.told.malformed),
        )
        holes = steps.holes(found.fresh, read.causes.log.values())
        picture = audit_picture(found.fresh) if options.html is not None else None
    grown = read.grown(found, settings)
    outcome = Outcome(
        *(options.requests, read.snapshot_ms, None, None, summary, read.spans, read.told),
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
    told: VerdictRecords

    @classmethod
    def of(cls, steps: AuditSteps, state: AuditState, suit: Callable[[int], None]) -> _Reading:
        """Fixes the ends, cause before effect, and reads from where `state` stopped; `suit` is told how much."""
        snapshot_ms, options, reporter = time.time_ns() // 1_000_000, steps.options, steps.reporter
        own = options.own_topics()
        fixed = fix_causes(steps.cluster, own, options)
        whole_requests, new_requests = since(fixed.requests, state)
        whole_log, new_log = since(fixed.log, state)
        _say(reporter, new_requests, new_log)
        suit(_records(new_requests, new_log))
        requests = digested_requests(steps.understood(new_requests.values())).persist(StorageLevel.MEMORY_AND_DISK)
        targets = state.targets
        if _any(new_requests):
            with reporter.working(steps.spark, "reading requests"):
                targets = sorted({*state.targets, *steps.targets_of(requests)})
        ids = steps.cluster.topic_ids([*targets, *(name for one in own for name in one.names())])
        state = without_renewed(state, ids, {name for one in own for name in one.names()})
        effects, fresh = since_effects(steps.effects(targets), state)
        _say(reporter, *fresh)
        suit(_records(new_requests, new_log, *fresh))
        causes = Causes(whole_requests, whole_log)
        partitions = partition_table(steps.spark, own, causes, effects)
        log = steps.log(since(by_partition(log_ranges(causes, effects)), state)[1].values(), partitions)
        delivered = digested_records(steps.messages(fresh[0].values()))
        letters = steps.letters(fresh[1].values())
        answers, told = steps.answers(fresh[2].values()), VerdictRecords(options.verdicts, 0, 0)
        if _any(fresh[2]):
            with reporter.working(steps.spark, "reading verdict records"):
                told = steps.count(answers)
        sides = Sides(requests, fate_rows(log), delivered, letters, answers)
        spans = tuple(span for some in (new_requests, new_log, *fresh) for span in some.values())
        return cls(state, snapshot_ms, causes, effects, spans, targets, ids, sides, log, partitions, told)

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


def _records(*ranges: Mapping[Partition, Range]) -> int:
    """How many records there are at most to be read."""
    return sum(span.end - span.start for some in ranges for span in some.values())


def _any(ranges: Mapping[Partition, Range]) -> bool:
    """Whether there is anything to be read."""
    return any(span.start < span.end for span in ranges.values())


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
