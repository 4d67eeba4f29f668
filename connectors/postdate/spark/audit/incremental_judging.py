"""One run of an incremental audit: judges new records with the stored rows that they affect, and writes the result.

1. Check chunks of the new requests, as the full audit does. Write the rows of consistent chunks from the dispatch log.
2. Fold the remaining records into one row for each origin. Join the stored rows that new records name, that are
   overdue, or that are in doubt.
3. Judge these rows by the rules of the full audit. Their context is the stored rows with the same id, the stored rows
   that name them or that they name, and the controls whose effects may be lost.
4. Write the judged rows and the violations; `incremental` commits them.

If a row to judge has an id or names another origin, the run may also read the ids and links of all stored rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import one_of, where_computed
from postdate.spark.judging.chunk_digests import CHUNK, ChunkDigests
from postdate.spark.judging.inputs import facts_schema, folded, joined
from postdate.spark.judging.origin_rows import JudgingParameters, judged_origins, stored_context
from postdate.spark.judging.stages import History, Split, split, with_occurrences_of
from postdate.spark.judging.summary import COUNTED, Plain, VerdictGroup
from postdate.spark.limits import LOCAL_ROWS_MAX
from postdate.spark.records.fates import fate_rows
from postdate.spark.records.policies import read_rows
from postdate.spark.records.requests import digested_columns
from postdate.spark.rules.schedules.occurrences import OF_SCHEDULES, lost_controls
from postdate.spark.session.caching import cached, gathered, materialised
from postdate.spark.state.chain import Chain, known_zones
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
)

_DAYS_MAX = 1_000


@dataclass(frozen=True)
class Advance:
    """The result of one run. Its writes become valid with the commit.

    `fresh` are the rows to report, and `groups` their numbers by verdict. `plain` are origins without a row in `fresh`.
    `state` is the next state, without the values that come from the cluster. `closed` is the number of rows that this
    run has closed, including rows that were closed before and judged again. `has_garbled` is True if the origin of a
    record may be unreadable.
    """

    chain: Chain
    fresh: DataFrame
    plain: Plain | None
    groups: list[VerdictGroup]
    state: AuditState
    closed: int
    has_garbled: bool


def advance(
    store: StateStore,
    state: AuditState,
    new: History,
    parameters: JudgingParameters,
    digests: ChunkDigests,
    request_chunks: DataFrame | None,
) -> Advance:
    """Judges `new` together with `state`, and writes the rows, which become valid with the commit.

    `request_chunks` are the cached chunks of the requests, or None if there are too few requests for chunks. Raises
    CannotRun if the broker's clock did not stamp the dispatch log.
    """
    run = state.run + 1
    chain = Chain.of(new.log, state.tails, few=parameters.is_short)
    zones = known_zones(state.zones, chain.zones)
    new = with_occurrences_of(new, zones, state.recurs or chain.recurs)
    inputs = new.inputs()
    facts = facts_schema(inputs)
    store.prepare(state, form_of(facts))
    lost_control_rows = _lost_controls(store, state, parameters, facts)
    new = _with_lost_controls(new, lost_control_rows)
    plain, rows_by_verdict, parts = None, Counter(state.counts), None
    if request_chunks is not None:
        in_doubt = store.origins().where(F.col("state") == DOUBTFUL).select(*ORIGIN)
        parts = split(new, parameters, digests, request_chunks, in_doubt)
    opened = closed = 0
    if parts is not None:
        plain = parts.plain
        _write_consistent(store, new, parts, facts, run)
        rows_by_verdict.update(plain.counts)
        opened, closed = plain.counts["pending"], plain.counts["delivered"]
    left = inputs if parts is None else parts.left
    few = parameters.is_short
    rows = _none(store, facts) if left is None else materialised(folded(left, few=few), few=few)
    touched = _touched(store, state, rows, parameters, facts)
    context = partial(stored_context, stored_rows(store.origins(), facts), lost_control_rows)
    judged = judged_origins(touched.rows, context, parameters, STATE_COLUMNS, new.requests_of, new.occurrences)
    table = materialised(judged_rows(judged, run), few=few)
    groups = (
        gathered(table, few=few)
        .groupBy("state", "is_reported", "is_reopened", "verdicts", "reported")
        .agg(*(F.count(column).alias(name) for name, column in COUNTED.items()))
        .collect()
    )
    _write_judged(store, table, groups, touched)
    rows_by_verdict.update(_by_verdict(groups, "verdicts"))
    rows_by_verdict.subtract(_by_verdict(groups, "reported"))
    unreported = [row for row in groups if row["verdicts"] is not None and not row["is_reported"]]
    fresh = table.where(F.col("verdicts").isNotNull() & ~F.col("is_reported"))
    opened += sum(row["rows"] for row in groups if row["state"] != CLOSED) - touched.open
    return Advance(
        chain=chain,
        fresh=fresh,
        plain=plain,
        groups=[VerdictGroup(row["verdicts"], *(row[name] for name in COUNTED)) for row in unreported],
        state=replace(
            state,
            run=run,
            tails=chain.tails,
            policies=read_rows([*state.policies, *chain.policies]),
            zones={"/".join(map(str, place)): changes[-1][1] for place, changes in zones.items()},
            recurs=state.recurs or new.occurrences is not None,
            counts=dict(rows_by_verdict),
            open=state.open + opened,
        ),
        closed=closed + sum(row["rows"] for row in groups if row["state"] == CLOSED),
        has_garbled=parts is None or parts.has_garbled,
    )


def _lost_controls(
    store: StateStore, state: AuditState, parameters: JudgingParameters, facts: StructType
) -> DataFrame | None:
    """Returns the stored controls (OF_SCHEDULES, or bulk reschedules) whose effects may have left the dispatch log
    unread.

    Returns None if there are no such controls. Cost: one scan of the table if a log has lost fates.
    """
    losses = parameters.partitions.where("fates_lost_before_ms >= 0").select(*PARTITION, "fates_lost_before_ms")
    if not state.run or losses.isEmpty():
        return None
    table = store.origins().join(F.broadcast(losses), list(PARTITION)).where("request_ms < fates_lost_before_ms")
    in_bulk = (F.col("action") == "reschedule") & F.col("facts.request.selected").isNotNull()
    lost = table.where(in_bulk | (one_of(F.col("action"), OF_SCHEDULES) & F.col("fate").isNull()))
    rows = materialised(stored_rows(lost, facts), few=parameters.is_short)
    return None if rows.isEmpty() else rows


def _with_lost_controls(new: History, lost: DataFrame | None) -> History:
    """Returns `new`, whose occurrences also get the controls of schedules (OF_SCHEDULES) in `lost`: a lost control may
    explain an occurrence."""
    if lost is None or new.occurrences is None:
        return new
    controls = lost_controls(lost.where(one_of(F.col("facts.request.action"), OF_SCHEDULES)))
    return replace(new, occurrences=replace(new.occurrences, lost_controls=controls))


@dataclass(frozen=True)
class _Touched:
    """The `rows` to judge. `reopened` is the number of these rows that the table already has, in its partitions of
    `days`. `open` is the number of these stored rows that are not closed."""

    rows: DataFrame
    reopened: int = 0
    open: int = 0
    days: tuple[str, ...] = ()


def _touched(
    store: StateStore,
    state: AuditState,
    new: DataFrame,
    parameters: JudgingParameters,
    facts: StructType,
) -> _Touched:
    """Returns the rows `new`, merged with the stored rows that must be judged again: rows that new records name,
    overdue rows, and rows in doubt."""
    if not state.run:
        return _Touched(new)
    table = store.origins()
    hits = new.where("facts.request is null").select(*ORIGIN, recorded_due_day().alias("day"))
    hits = hits if parameters.is_short else cached(hits)
    days = [row["day"] for row in hits.select("day").distinct().limit(_DAYS_MAX).collect() if row["day"] is not None]
    overdue_before_ms = parameters.snapshot_ms - parameters.slack_ms
    is_needed = (F.col("state") == DOUBTFUL) | is_due(overdue_before_ms)
    opened = table.where(F.col("state").isin(PENDING, DOUBTFUL))
    if not days:
        needed = opened.where(is_needed)
    else:
        near = opened.where(is_needed | F.col("due_day").isin(*days))
        marked = near.join(hits.select(*ORIGIN, F.lit(True).alias("is_hit")), list(ORIGIN), "left")
        needed = marked.where(is_needed | F.col("is_hit")).drop("is_hit")
    # A state may hold request topics that this audit does not read.
    needed = needed.join(F.broadcast(parameters.partitions.select(*PARTITION)), list(PARTITION), "left_semi")
    reopened = materialised(stored_rows(needed, facts), few=parameters.is_short)
    rest = hits.where(_was_read(state)).join(reopened.select(*ORIGIN), list(ORIGIN), "left_anti").select(*ORIGIN)
    rest = materialised(rest, few=parameters.is_short)
    if not rest.isEmpty():
        places = table.select(*ORIGIN, "due_day").join(rest, list(ORIGIN), "left_semi")
        elsewhere = [row["due_day"] for row in places.select("due_day").distinct().limit(_DAYS_MAX).collect()]
        again = table.where(F.col("due_day").isin(*elsewhere)) if len(elsewhere) < _DAYS_MAX else table
        more = stored_rows(again.join(rest, list(ORIGIN), "left_semi"), facts)
        reopened = materialised(reopened.unionByName(more), few=parameters.is_short)
    groups = reopened.groupBy("state", "due_day").count().collect()
    if not groups:
        return _Touched(new)
    return _Touched(
        materialised(joined(new, reopened, few=parameters.is_short), few=parameters.is_short),
        sum(row["count"] for row in groups),
        sum(row["count"] for row in groups if row["state"] != CLOSED),
        tuple(sorted({row["due_day"].isoformat() for row in groups})),
    )


def _was_read(state: AuditState) -> Column:
    """True if an earlier run has already read the offset of this origin."""
    if not state.next:
        return F.lit(False)
    read = F.create_map(*(F.lit(value) for pair in state.next.items() for value in pair))
    place = F.concat_ws("/", "topic", "partition")
    return F.coalesce(F.col("offset") < F.try_element_at(read, place), F.lit(False))


def _none(store: StateStore, facts: StructType) -> DataFrame:
    """Returns an empty DataFrame with the columns of `folded`."""
    empty = stored_rows(store.origins().where(F.lit(False)), facts)
    return empty.select(
        *(*ORIGIN, "id", "links", "facts"),
        F.struct("verdicts", "details").alias("reported"),
        F.lit(False).alias("is_reopened"),
        "position",
    )


def _write_consistent(store: StateStore, new: History, parts: Split, facts: StructType, run: int) -> None:
    """Writes the rows of consistent chunks. The rows of delivered messages are built from the dispatch log.

    Reads the requests once more if some are pending, have ids, or are in a chunk of several targets.
    """
    by_chunk = parts.request_chunks.groupBy(*CHUNK, "target").agg(
        F.sum("asked").alias("asked"), F.sum("ids").alias("ids")
    )
    of_chunk = (
        by_chunk.where("asked > 0")
        .groupBy(*CHUNK)
        .agg(F.first("target").alias("target"), F.count("*").alias("targets"), F.sum("ids").alias("ids"))
    )
    of_chunk = cached(of_chunk)
    most = of_chunk.agg(F.max("targets").alias("targets"), F.max("ids").alias("ids")).collect()[0]
    has_delivered, has_pending = most["targets"] is not None, parts.plain.counts["pending"] > 0
    by_request = has_delivered and (most["targets"] > 1 or most["ids"] > 0)
    is_ahead = F.col("due_ms") >= parts.digests.expected_before_ms
    ahead = F.when(is_ahead, F.struct(*digested_columns())).alias("ahead")
    understood = parts.digests.consistent_rows(new.understood, parts.inconsistent, parts.exceptional)
    requests = understood.select(*ORIGIN, "target", "id", "request_ms", ahead)
    if not by_request:
        requests = where_computed(requests, F.col("ahead").isNotNull())
    if has_pending:
        requests = cached(requests)  # read once for delivered requests; twice for pending ones, to sort them by day
    if has_delivered:
        fates = parts.digests.consistent_rows(fate_rows(new.log), parts.inconsistent, parts.exceptional)
        if by_request:
            delivered = fates.join(where_computed(requests, F.col("ahead").isNull()).drop("ahead"), list(ORIGIN))
        else:
            delivered = fates.join(F.broadcast(of_chunk.select(*CHUNK, "target")), list(CHUNK)).select(
                *(*ORIGIN, "fate", "target"),
                *(F.lit(None).cast("binary").alias("id"), F.lit(None).cast("bigint").alias("request_ms")),
            )
        store.create(ORIGINS)
        store.add(ORIGINS, delivered_rows(delivered, run))
    if has_pending:
        store.add(ORIGINS, pending_rows(requests.where("ahead is not null").select("ahead.*"), facts, run))
        requests.unpersist()
    of_chunk.unpersist()


def _write_judged(store: StateStore, table: DataFrame, groups: Sequence[Row], touched: _Touched) -> None:
    """Writes the judged rows, replacing the rows of the same origins in the table."""
    if not groups:
        return
    rows = table.drop("is_reopened", "reported", "new_findings", "is_reported", "is_fate_lost", "occurrences")
    if not touched.reopened:
        store.add(ORIGINS, rows)
        return
    days = ", ".join(f"DATE'{day}'" for day in touched.days)
    states = "" if touched.open < touched.reopened else f"old.state IN ('{PENDING}', '{DOUBTFUL}') AND "
    store.merge_origins(rows, f"{states}old.due_day IN ({days})")


def write_findings(
    store: StateStore, result: Advance, malformed: DataFrame, unreadable: DataFrame, found_ms: int
) -> int:
    """Writes the new findings of a run (`violation_rows`) to the table of violations, and returns their number."""
    rows = violation_rows(result.fresh, result.chain.breaks, malformed, unreadable)
    run, at_ms = F.lit(result.state.run).cast("bigint"), F.lit(found_ms).cast("bigint")
    columns = [column.split()[0] for column in VIOLATION_COLUMNS.split(", ")]
    rows = rows.select("*", run.alias("run"), at_ms.alias("found_ms")).select(*columns)
    rows = materialised(rows, few=sum(group.rows for group in result.groups) <= LOCAL_ROWS_MAX)
    count = rows.count()
    if count:
        store.add(VIOLATIONS, rows)
    return count


def violation_rows(fresh: DataFrame, breaks: DataFrame, malformed: DataFrame, unreadable: DataFrame) -> DataFrame:
    """Returns one row for each new finding: topic, partition and offset, `verdict`, `details`, `target`.

    `fresh` are rows of `judged_rows`, and `breaks` are the breaks of the chain. `malformed` are malformed answers, and
    `unreadable` are dead letters and records whose origin cannot be read; both have their `place`. Breaks, malformed
    answers and unreadable records are always new, since only one run reads each of them.
    """
    detail = F.lit("is no verdict of a request of this partition")
    of_origins = fresh.select(*ORIGIN, "target", F.explode("new_findings").alias("one"))
    of_chain = breaks.select(
        *(F.col("log_topic").alias("topic"), "partition", F.col("log_offset").alias("offset")),
        *_found("chain", F.col("problem")),
    )
    return reduce(
        DataFrame.unionByName,
        (
            of_origins.select(*ORIGIN, "one.verdict", F.array("one.detail").alias("details"), "target"),
            of_chain,
            malformed.select(*_located(), *_found("false-verdict", detail)),
            unreadable.select(*_located(), *_found("unreadable", F.col("problem"))),
        ),
    )


def _located() -> list[Column]:
    """Returns topic, partition and offset of a `place`."""
    place = F.split("place", "/")
    kinds = (("topic", "string"), ("partition", "int"), ("offset", "bigint"))
    return [F.get(place, number).cast(kind).alias(name) for number, (name, kind) in enumerate(kinds)]


def _found(verdict: str, detail: Column) -> list[Column]:
    return [
        F.lit(verdict).alias("verdict"),
        F.array(detail).alias("details"),
        F.lit(None).cast("string").alias("target"),
    ]


def _by_verdict(groups: Iterable[Row], column: str) -> Counter[str]:
    """Returns the number of rows for each verdict in `column`, which is null for rows that were not judged."""
    counts: Counter[str] = Counter()
    for group in groups:
        for verdict in set(group[column] or ()):
            counts[verdict] += group["rows"]
    return counts
