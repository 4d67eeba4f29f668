"""The incremental audit: reads the records since the last run, judges them, reports, and then commits.

1. Fix the end offsets as the full audit does, and read each partition from where the last run stopped.
2. Judge the new records with the stored rows that they affect, and write both (`incremental_judging`).
3. Report the outcome, and then commit (`state.store`).

So the cost of a run depends on the new records and on the rows that they affect. After any number of runs, the last
verdict on each origin is that of one full audit. If topics have lost records meanwhile, this audit knows more than a
full audit, because earlier runs have read the lost records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.audit.chart_data import audit_picture
from postdate.spark.audit.incremental_judging import Advance, advance, write_findings
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import AuditOutcome, StateOutcome
from postdate.spark.audit.reading import Reading
from postdate.spark.audit.steps import AuditSteps, notes_of
from postdate.spark.judging.summary import Counted, Summary, UnreadableRecords, summarise
from postdate.spark.records.policies import needed
from postdate.spark.rules.verdicts import FINDINGS, VERDICTS
from postdate.spark.state.lateness_trend import TrendDay, lateness_trend
from postdate.spark.state.origins import DOUBTFUL, is_due
from postdate.spark.state.store import AuditState, StateStore, state_path


def audit_since(
    steps: AuditSteps, report: Callable[[AuditOutcome], None], after: AuditState | None
) -> tuple[AuditOutcome, AuditState]:
    """Judges the records since the last run with `options.state`, calls `report` with the outcome, and then commits. If
    there is nothing to judge, only calls `report`.

    Returns the outcome, and the state from which to continue. `after` is the state that the last step of this process
    has committed; if it is None, the function reads the state from its tables. Raises CannotRun and JobUsageError.
    After an error, including one of `report`, the run is not committed, and the next run restores the tables that this
    run has changed.
    """
    began_s, options = time.monotonic(), steps.options
    assert options.state is not None, "without a state there is no last run"
    store = StateStore(steps.spark, options.state)
    state = store.newest() if after is None else after
    read = Reading.of(steps, state)
    if state.run and not read.has_new and not _needs_look(store.origins_of(state), read.snapshot_ms - options.slack_ms):
        outcome = _idle(read, store, options, began_s)
        outcome = replace(outcome, trend=_trend(steps, store.origins_of(state), read.snapshot_ms))
        report(outcome)
        return outcome, state
    read = read.in_order(steps, store.origins_of(state) if state.run else None)
    grown, outcome = _judged(steps, store, read, began_s)
    outcome = replace(outcome, trend=_trend(steps, store.origins(), read.snapshot_ms))
    report(outcome)
    summary = outcome.summary
    figures = {"judged": summary.rows, "lateness_ms": summary.lateness_ms, "settings": settings_of(options)}
    return outcome, store.commit(grown, figures)


def _trend(steps: AuditSteps, origins: DataFrame, snapshot_ms: int) -> tuple[TrendDay, ...] | None:
    """Returns the lateness by day from the rows `origins` of the state, or None if the options request neither a trend
    nor a page."""
    options = steps.options
    if not (options.trend or options.html):
        return None
    with steps.reporter.working(steps.spark, "computing the lateness by day"):
        return lateness_trend(origins, datetime.fromtimestamp(snapshot_ms / 1_000, UTC).date(), options.trend_days)


def _judged(steps: AuditSteps, store: StateStore, read: Reading, began_s: float) -> tuple[AuditState, AuditOutcome]:
    """Judges the new records. Returns the state to commit, and the outcome to report."""
    options = steps.options
    assert options.state is not None, "without a state there is no last run"
    with steps.reporter.working(steps.spark, "comparing requests, fates and records"):
        advanced = advance(store, read.state, read.history, read.parameters, read.digests, read.request_chunks)
        malformed = read.history.answers.where("malformed")
        unreadable = steps.unreadable(read.dead_letter_ranges, read.history.records if advanced.has_garbled else None)
        summary = summarise(
            *(
                advanced.fresh,
                advanced.chain.breaks,
                UnreadableRecords(malformed, unreadable),
                options.samples,
                advanced.plain,
            ),
            Counted(advanced.groups, advanced.chain.broken, read.verdict_records.malformed),
        )
        holes = steps.holes(advanced.fresh, read.causes.log.values())
        standing = store.open_violations(read.state)
        opened = 0
        if any(summary.counts[verdict] for verdict in FINDINGS):
            opened = write_findings(store, advanced, malformed, unreadable, read.snapshot_ms)
        picture = audit_picture(store.origins().where(F.col("run") == advanced.state.run)) if options.html else None
    beside = {"chain": advanced.chain.broken, "unreadable": summary.counts["unreadable"]}
    grown = _next_state(read, advanced, {**beside, "false-verdict": read.verdict_records.malformed}, opened)
    _expire(store, read, options)
    outcome = replace(
        outcome_of(read, options, summary, began_s),
        left_unread=_left_unread(read, store),
        holes=holes,
        picture=picture,
        order_checked=bool(read.history.overtaken),
        returned_again=read.returned_again(store.origins_of(read.state) if read.state.run else None),
        state=StateOutcome(options.state, grown.run, grown.open, advanced.closed, standing, _counts(grown)),
    )
    return grown, outcome


def _left_unread(read: Reading, store: StateStore) -> int:
    """Returns the number of offsets that left the request topics before any run had read them, and that have no row.

    The state has a row for such an offset if a run has read a fate or a record of its request. Cost: one job if any
    offset left its topic unread.
    """
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


def _needs_look(origins: DataFrame, overdue_before_ms: int) -> bool:
    """True if one of the rows `origins` of the state is overdue or in doubt."""
    return not origins.where((F.col("state") == DOUBTFUL) | is_due(overdue_before_ms)).select("offset").isEmpty()


def outcome_of(read: Reading, options: AuditOptions, summary: Summary, began_s: float) -> AuditOutcome:
    """Returns an outcome with only the fields that audits with and without a state have in common."""
    return AuditOutcome(
        *(options.requests, read.snapshot_ms, None, None, summary, read.spans, read.verdict_records),
        notes=notes_of(read.causes, read.effects),
        seconds=time.monotonic() - began_s,
        html=options.html,
        strict=options.strict,
        lateness_bounds=options.lateness_bounds,
        openmetrics=options.openmetrics,
    )


def _idle(read: Reading, store: StateStore, options: AuditOptions, began_s: float) -> AuditOutcome:
    """Returns the outcome of a run with nothing to do; the state does not change."""
    assert options.state is not None, "without a state there is no last run"
    state, standing = read.state, store.open_violations(read.state)
    return replace(
        outcome_of(read, options, Summary(0, dict.fromkeys(VERDICTS, 0), {}, {}), began_s),
        state=StateOutcome(options.state, state.run, state.open, 0, standing, _counts(state)),
        html=None,
    )


def _expire(store: StateStore, read: Reading, options: AuditOptions) -> None:
    """Deletes closed rows that were due more than `options.keep_days` ago and whose requests have left their topics
    (`StateStore.expire`), in the first run of a UTC day that judges anything. The first run of a state deletes none."""
    day, last = (datetime.fromtimestamp(ms / 1_000, UTC).date() for ms in (read.snapshot_ms, read.state.snapshot_ms))
    if read.state.run and day != last:
        starts = {state_path(part): span.log_start for part, span in read.causes.requests.items()}
        store.expire((day - timedelta(days=options.keep_days)).isoformat(), starts)


def _next_state(read: Reading, advanced: Advance, beside: Mapping[str, int], opened: int) -> AuditState:
    """Returns the state from which the next run continues.

    `beside` has the numbers of violations without a row in the table `origins`, by verdict. `opened` is the number of
    rows that this run has added to the table `violations`.
    """
    ranges = {
        state_path(part): span
        for ranges in (read.causes.requests, read.causes.log, *read.effects.records())
        for part, span in ranges.items()
    }
    next_offsets = {(part.topic, part.number): span.end for part, span in read.causes.requests.items()}
    return replace(
        advanced.state,
        snapshot_ms=read.snapshot_ms,
        policies=needed(advanced.state.policies, next_offsets),
        topic_ids={**read.state.topic_ids, **read.topic_ids},
        next={**read.state.next, **{place: span.end for place, span in ranges.items()}},
        lost_before_ms={**read.state.lost_before_ms, **{place: s.lost_before_ms for place, s in ranges.items()}},
        known_ms={state_path(part): span.known_ms for part, span in read.effects.targets.items()},
        targets=read.targets,
        counts=dict(Counter(advanced.state.counts) + Counter(beside)),
        violations=read.state.violations + opened,
    )


def settings_of(options: AuditOptions) -> dict[str, Any]:
    """Returns the options that select the requests or determine their interpretation. The row of the run has them as
    `settings`."""
    return {
        "requests": list(options.requests),
        "levels_ms": list(options.levels_ms),
        "dialects": list(options.dialects),
        "default_target": options.default_target,
        "verdicts": options.verdicts,
    }


def _counts(state: AuditState) -> dict[str, int]:
    """Returns the number of origins by verdict over all runs."""
    return {verdict: state.counts.get(verdict, 0) for verdict in VERDICTS}
