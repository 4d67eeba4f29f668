"""Judges all origins at low cost: an expression verifies plain rows, and `judge` applies the rules to the others.

A row has all facts about an origin, in the form of `inputs.folded`. Nearly all rows are plain. A plain row is either
`delivered` or `pending`. A `delivered` row has one request, one fate, one record and no other facts, and everything
that can be compared is equal. A `pending` row has a request that has no effect and is not overdue. A plain row breaks
no rule. The rules judge the other rows. They need a shuffle only for the effects of other requests.

1. `placed`: add to each row the columns of its partition and target, and whether it is `plain`.
2. `row_counts`: count the rows, and those that are not plain, and find which rules have anything to check. One job.
3. Keep plain rows as they are, and judge the other rows by the rules.

`partitions` and `targets` are the tables of `audit.ranges`. Times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import memoized, one_of
from postdate.spark.judging.inputs import unfolded
from postdate.spark.judging.judge import is_in_range, judge
from postdate.spark.limits import AROUND_ROWS_MAX, COMMIT_MS_MAX, LEFT_SHARE_MAX
from postdate.spark.rules.claims import (
    CLAIMING,
    judged_bulks,
    judged_late_switches,
    judged_moves,
    judged_returns,
    judged_series,
    judged_switches,
    unfounded_ends,
)
from postdate.spark.rules.lost_moves import lost_moves, may_be_moved
from postdate.spark.rules.mismatches import expected_headers
from postdate.spark.rules.request_histories import history_rows
from postdate.spark.rules.schedules.backfills import judged_backfills
from postdate.spark.rules.schedules.occurrences import (
    OCCURRENCES,
    Events,
    Zones,
    is_of_schedule,
    may_have_lost_fate,
    with_occurrences,
)
from postdate.spark.rules.survivors import judged_drops, judged_survivors
from postdate.spark.rules.unanswered import Mode, unanswered_ends
from postdate.spark.rules.unread_causes import left_claims, may_be_unread
from postdate.spark.rules.verdict_checks import judged_answers
from postdate.spark.session.caching import gathered, materialised

_KEY: Final = (*PARTITION, "key")
_NO_ZONES: Final[Zones] = {}

JUDGEMENT = {
    **{"target": "string", "first_due_ms": "bigint", "last_due_ms": "bigint", "action": "string"},
    **{"request_ms": "bigint", "fate": "string", "lateness_ms": "bigint", "ended_ms": "bigint"},
    **{"records": "array<string>", "fates": "array<string>", "answers": "array<string>", "verdicts": "array<string>"},
    **{"is_fate_lost": "boolean", "details": "array<string>"},
}
"""The judgement of a row: the columns of `judge`."""


Context = Callable[[DataFrame, DataFrame], DataFrame]
"""A function of some `rows` of a history and of `wanted_keys(rows)`. It returns the other rows of the history that are
needed to judge `rows`."""


@dataclass(frozen=True)
class JudgingParameters:
    """The parameters of judging: the tables of partitions and targets, the required answers, and times.

    `snapshot_ms` is a time before the ends were fixed. If the chunks leave more than the share `left_share_max` of the
    requests unverified, all origins are judged one by one. `is_short` is True if there are probably few rows
    (`materialised`). `separate_rows_max` is the maximum number of origins that are sent to every executor.
    """

    partitions: DataFrame
    targets: DataFrame
    verdicts: Mode
    snapshot_ms: int
    slack_ms: int
    left_share_max: float = LEFT_SHARE_MAX
    is_short: bool = True
    separate_rows_max: int = 1_000_000

    @property
    def requires_all_verdicts(self) -> bool:
        """True if every delivered request must be answered, so that none of them is plain."""
        return self.verdicts == "all"

    @property
    def overdue_before_ms(self) -> int:
        """A time in epoch milliseconds: a request that was due earlier must have ended."""
        return self.snapshot_ms - self.slack_ms


@dataclass(frozen=True)
class RowCounts:
    """The number of all `rows`, the number of rows that are `left` for the rules, and flags. A flag is True if any row
    has one of these:

    `has_related`: an id, a link to another origin, or a bulk control. `has_claims`: a fate in CLAIMING, a return that
    names an attempt, a request that may continue a series, or a bulk control. `has_answers`: an answer.
    `has_request_to_reread`: a request that must be read again. `has_schedules`: a schedule, or an occurrence.
    `has_lost_controls`: a control of a schedule whose fate may have left the dispatch log. `has_lost_moves`: a message
    whose fate `moved` may have left the dispatch log.
    """

    rows: int
    left: int
    has_related: bool
    has_claims: bool
    has_answers: bool
    has_request_to_reread: bool
    has_schedules: bool
    has_lost_controls: bool
    has_lost_moves: bool


def must_reread_request() -> Column:
    """True if the request of a row must be read again.

    There are two cases. First, the facts contain a second record or a dead letter, but no digests of the request, since
    a state does not store the digests of a plain, delivered message. Second, the request is a return whose policy was
    unknown when it was read.
    """
    is_without = F.col("facts.request").isNotNull() & F.col("facts.request.value_digest").isNull()
    has_others = (F.size("facts.records") > 1) | (F.size("facts.letters") > 0)
    return (is_without & has_others) | F.coalesce(F.col("facts.request.retry.is_unknown"), F.lit(False))


def placed(rows: DataFrame, parameters: JudgingParameters) -> DataFrame:
    """Returns `rows` with the columns of `parameters.partitions` and `parameters.targets`, and three more.

    `is_judged` is True if the origin is in the audited range. `plain` is the verdict of a plain row, and null if the
    rules must judge it. `occurrences` is null until `rules.schedules.occurrences` has judged them.
    """
    placed_rows = rows.join(F.broadcast(parameters.partitions), list(PARTITION), "left")
    placed_rows = placed_rows.withColumn("target", F.col("facts.request.target")).join(
        F.broadcast(parameters.targets), "target", "left"
    )
    is_request = F.col("facts.request").isNotNull()
    return placed_rows.withColumns(
        {
            "is_judged": is_in_range(is_request),
            "plain": _plain(parameters.overdue_before_ms, parameters.requires_all_verdicts),
            "occurrences": F.lit(None).cast(OCCURRENCES),
        }
    )


def row_counts(placed_rows: DataFrame, *, few: bool = False) -> RowCounts:
    """Counts the rows of `placed`; `few` as for `gathered`. Cost: one job."""
    row = gathered(placed_rows, few=few).agg(*row_count_columns()).collect()[0]
    return RowCounts(row["rows"], row["left"], *(bool(row[name]) for name in list(RowCounts.__annotations__)[2:]))


def row_count_columns() -> list[Column]:
    """Returns the fields of RowCounts as aggregates of the rows of `placed`. A flag is null if there are no rows."""
    request = F.col("facts.request")
    names_a_cause = F.exists("facts.fates", lambda fate: one_of(fate.fate_name, CLAIMING))
    makes_a_claim = request.retry.said.isNotNull() | request.latest_ms.isNotNull() | request.selected.isNotNull()
    has_relations = F.col("id").isNotNull() | (F.size("links") > 0) | request.selected.isNotNull()
    return [
        F.count("*").alias("rows"),
        F.count_if(F.col("is_judged") & F.col("plain").isNull()).alias("left"),
        F.bool_or(has_relations).alias("has_related"),
        F.bool_or(names_a_cause | makes_a_claim).alias("has_claims"),
        F.bool_or(F.size("facts.answers") > 0).alias("has_answers"),
        F.bool_or(must_reread_request()).alias("has_request_to_reread"),
        F.bool_or(is_of_schedule()).alias("has_schedules"),
        F.bool_or(may_have_lost_fate()).alias("has_lost_controls"),
        F.bool_or(may_be_moved()).alias("has_lost_moves"),
    ]


def judged_origins(
    rows: DataFrame,
    context: Context | None,
    parameters: JudgingParameters,
    kept: Sequence[str] = (),
    requests_of: Callable[[DataFrame], DataFrame] | None = None,
    occurrences: Events | None = None,
) -> DataFrame:
    """Returns one row for each of `rows`, which are rows of `inputs.folded`: the columns of `judge`, and `kept`.

    The columns of `judge` are null for rows that are not judged. `context` is None if `rows` are a whole history.
    `requests_of` reads the requests of some origins again (`must_reread_request`); it is None if reading them again
    could show nothing new.
    """
    placed_rows = materialised(placed(rows, parameters), few=parameters.is_short)
    counts = row_counts(placed_rows, few=parameters.is_short)
    if counts.has_request_to_reread and requests_of is not None:
        placed_rows = materialised(placed(_with_requests(rows, requests_of), parameters), few=parameters.is_short)
    if counts.has_schedules:
        has_lost = counts.has_lost_controls
        judged = with_occurrences(placed_rows, occurrences, parameters.overdue_before_ms, has_lost_controls=has_lost)
        placed_rows = materialised(judged, few=parameters.is_short)
        counts = row_counts(placed_rows, few=parameters.is_short)
    return judged_placed(
        placed_rows, counts, context, parameters, kept, occurrences.zones if occurrences is not None else _NO_ZONES
    )


def judged_placed(
    placed_rows: DataFrame,
    counts: RowCounts,
    context: Context | None,
    parameters: JudgingParameters,
    kept: Sequence[str],
    zones: Zones = _NO_ZONES,
) -> DataFrame:
    """Judges rows of `placed` as `judged_origins` does. `counts` are the counts of these rows, and `zones` are the
    zones of the occurrences."""
    is_left = F.col("is_judged") & F.col("plain").isNull()
    plain = placed_rows.where(~is_left) if counts.left else placed_rows
    rows = plain.select(*ORIGIN, *_plain_judgement(), *kept)
    if not counts.left:
        return rows
    left = placed_rows.where(is_left)
    causes = _causes(placed_rows, left, counts, context, parameters, zones)
    before_ms, has_schedules, few = parameters.overdue_before_ms, counts.has_schedules, parameters.is_short
    judged = judge(left, causes, kept, overdue_before_ms=before_ms, has_schedules=has_schedules, few=few)
    return rows.unionByName(judged)


def _causes(
    placed_rows: DataFrame,
    left: DataFrame,
    counts: RowCounts,
    context: Context | None,
    parameters: JudgingParameters,
    zones: Zones,
) -> list[DataFrame]:
    """Returns the effects of other origins on the rows `left`, for `judge`."""
    if not (counts.has_claims or counts.has_answers or counts.has_lost_moves or parameters.verdicts != "none"):
        return []
    around, has_few = (
        placed_rows.select(*ORIGIN, "id", "links", "facts", "position"),
        counts.left <= parameters.separate_rows_max,
    )

    is_large = counts.rows > AROUND_ROWS_MAX

    def wanted(rows: DataFrame) -> DataFrame:
        keys = materialised(wanted_keys(rows)) if is_large else wanted_keys(rows)
        return F.broadcast(keys) if has_few else keys

    if has_few and is_large:
        around = materialised(around.join(related_origins(around, wanted(left)), list(ORIGIN), "left_semi"))
    few = parameters.is_short
    if context is not None and (counts.has_related or counts.has_lost_moves):
        related = materialised(context(around, wanted(around)).select(*around.columns), few=few)
        around, few = around.unionByName(related), few and related.isLocal()  # a state may have many related rows
    inputs = unfolded(around)
    known = history_rows(inputs.requests, inputs.fates, inputs.answers, parameters.partitions, few=few)
    known = materialised(known, few=few)
    causes = [judged_answers(known)] if counts.has_answers else []
    causes += [lost_moves(left, known)] if counts.has_lost_moves else []
    if counts.has_claims:
        claims, may_lose = claim_rules(zones), F.col("request_ms") < F.col("fates_lost_before_ms")
        aggregates = (*(F.bool_or(makes) for _, makes in claims), F.bool_or(may_lose), *may_be_unread())
        row = gathered(known, few=few).agg(*(F.coalesce(flag, F.lit(False)) for flag in aggregates)).first()
        assert row is not None
        *made, has_losses, has_unread, has_left = row
        for (judged, _), is_made in zip(claims, made, strict=True):
            rows_of_claims = judged(known, has_losses) if is_made else []
            if has_unread and has_left:
                rows_of_claims = [
                    left_claims(claims_of_kind, known) if "cause" in claims_of_kind.columns else claims_of_kind
                    for claims_of_kind in rows_of_claims
                ]
            causes += rows_of_claims
    return causes + ([unanswered_ends(known, parameters.verdicts)] if parameters.verdicts != "none" else [])


def claim_rules(zones: Zones) -> list[tuple[Callable[[DataFrame, bool], list[DataFrame]], Column]]:
    """Returns the rules for each kind of claim, each with the condition by which a row of `history_rows` makes such a
    claim.

    Most histories make few kinds of claims, and planning a rule costs more than computing it. The second argument of a
    rule is True if fates may be lost.
    """
    end = F.col("end")
    names_another = end.fate_name.isin("replaced", "kept") & end.control_offset.isNotNull()
    return [
        (lambda known, _: [unfounded_ends(known)], end.fate_name.isin("cancelled", "replaced")),
        (lambda known, _: [judged_drops(known)], end.fate_name == "dropped"),
        (lambda known, has_losses: [judged_moves(known, has_losses=has_losses)], F.size("moves") > 0),
        (lambda known, _: [judged_switches(known)], F.size("switches") > 0),
        (lambda known, _: [judged_late_switches(known)], end.bulk_offset.isNotNull() & (F.size("switches") > 0)),
        (
            lambda known, _: [judged_backfills(known, zones)],
            F.exists("switches", lambda fate: fate.fate_name == "backfilled"),
        ),
        (lambda known, _: [judged_returns(known)], F.col("named_attempt").isNotNull()),
        (lambda known, _: [judged_survivors(known)], names_another),
        (lambda known, _: [judged_series(known)], F.col("latest_ms").isNotNull()),
        (
            lambda known, has_losses: judged_bulks(known, has_losses=has_losses),
            end.bulk_offset.isNotNull() | F.col("selected").isNotNull(),
        ),
    ]


def _with_requests(rows: DataFrame, requests_of: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Returns `rows`. If a row `must_reread_request`, its facts get the request that `requests_of` reads.

    These requests include digests. A row stays as it is if its request cannot be read any more. Few rows must reread
    their request.
    """
    to_reread = rows.where(must_reread_request()).select(*ORIGIN)
    requests = requests_of(to_reread)
    again = F.struct(*(name for name in requests.columns if name not in ORIGIN)).alias("again")
    readable = to_reread.join(requests.select(*ORIGIN, again), list(ORIGIN))
    request = F.coalesce("again", "facts.request")
    both = rows.join(readable, list(ORIGIN), "left")
    return both.withColumn("facts", F.col("facts").withField("request", request)).drop("again")


def _plain(overdue_before_ms: int, requires_all_verdicts: bool) -> Column:
    request, fate, record = F.col("facts.request"), F.get("facts.fates", 0), F.get("facts.records", 0)
    fates, records = F.size("facts.fates"), F.size("facts.records")
    others = F.size("facts.letters") + F.size("facts.answers")
    # Null in rows of a state that is older than this column.
    is_in_order = F.coalesce(F.size("facts.disorders") <= 0, F.lit(True))
    is_alone = (
        request.isNotNull()
        & (others == 0)
        & is_in_order
        & (request.action == "schedule")
        & request.retry.isNull()
        & request.due_ms.isNotNull()
        & F.col("target_partitions").isNotNull()
    )
    place = F.coalesce(request.partition_asked, request.key_hash % F.col("target_partitions"))
    is_same = (
        (record.target == request.target)
        & (record.key_digest == request.key_digest)
        & (record.value_digest == request.value_digest)
        & (record.headers_digest == request.headers_digest)
        & F.coalesce(record["partition"] == place, F.lit(True))
        & (record.due_ms == request.due_ms)
        & record.id.eqNullSafe(request.id)
        & (record.own_headers == expected_headers(request.id))
    )
    is_ended = (
        (fate.fate_name == "delivered")
        & ~fate.late
        & fate.chosen_ms.isNull()
        & request.window_ms.isNull()
        & request.latest_ms.isNull()
        & (fate.first_due_ms == request.due_ms)
        & (fate.at_ms >= request.due_ms)
        & F.coalesce(fate.next_request > F.col("offset"), F.lit(True))
        & F.coalesce(fate.at_ms - request.due_ms - COMMIT_MS_MAX <= request.grace_ms, F.lit(True))
    )
    is_delivered = is_alone & (fates == 1) & (records == 1) & is_ended & is_same & F.lit(not requires_all_verdicts)
    is_pending = is_alone & (fates == 0) & (records == 0) & (request.due_ms >= overdue_before_ms)
    return F.when(is_delivered, "delivered").when(is_pending, "pending")


@memoized
def _plain_judgement() -> list[Column]:
    """Returns the columns of `judge` for a plain row; they are null for the other rows."""
    request, fate, record = F.col("facts.request"), F.get("facts.fates", 0), F.get("facts.records", 0)
    is_delivered, none = F.col("plain") == "delivered", F.array()
    spelled = F.concat_ws("/", record.target, record["partition"], record.offset)
    given = {
        "target": F.col("target"),
        "first_due_ms": request.due_ms,
        "last_due_ms": request.due_ms,
        "action": F.lit("schedule"),
        "request_ms": request.request_ms,
        "fate": F.when(is_delivered, F.lit("delivered")),
        "lateness_ms": fate.at_ms - request.due_ms,
        "ended_ms": fate.at_ms,
        "records": F.when(is_delivered, F.array(spelled)).otherwise(none),
        "fates": F.when(is_delivered, F.array(F.concat(F.lit("delivered "), fate.log_place))).otherwise(none),
        "answers": none,
        "verdicts": F.array("plain"),
        "is_fate_lost": F.lit(False),
        "details": none,
    }
    is_plain = F.col("plain").isNotNull()
    return [F.when(is_plain, given[name]).cast(kind).alias(name) for name, kind in JUDGEMENT.items()]


def stored_context(stored: DataFrame, lost: DataFrame | None, rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Returns the context of `rows` from the rows `stored` in a state. The context includes all lost controls (`lost`),
    since each of them may be related to any row."""
    origins = related_origins(stored, wanted)
    if lost is not None:
        origins = origins.unionByName(lost.select(*ORIGIN)).distinct()
    return stored.join(origins.join(rows.select(*ORIGIN), list(ORIGIN), "left_anti"), list(ORIGIN), "left_semi")


def related_origins(some: DataFrame, wanted: DataFrame) -> DataFrame:
    """Returns the origins in `some` with one of the `wanted` keys; hash collisions may add a few more.

    If a further kind of key is added for requests, `stages.read_context` must gather the requests that have such a key.
    Cost: one join, which reads only the origins, ids and links of `some`.
    """
    keys = _exploded([_id_key(), _key("at", F.col("offset"))], _keys("names", F.col("links")))
    return some.select(*ORIGIN, keys).join(wanted, list(_KEY), "left_semi").select(*ORIGIN).distinct()


def wanted_keys(rows: DataFrame) -> DataFrame:
    """Returns the keys of these rows and of the origins that are related to them: `topic`, `partition`, `key`.

    Two rows of a partition are related if they have the same id, or if one names the other. They are also related if
    both name the same origin and one has an answer, since the truth of an answer may depend on the other answers about
    the origin.
    """
    # A row that names another origin can be closed only if the other origin has begun to end. The fates of the other
    # origin may have left the log.
    is_ending = (F.size("facts.fates") > 0) | (F.size("facts.answers") > 0) | (F.size("facts.records") > 0)
    own = [_id_key(), _key("at", F.col("offset")), F.when(is_ending, _key("names", F.col("offset")))]
    of_answers = F.concat(F.array("facts.request.acts_on"), F.transform("facts.answers", lambda answer: answer.of))
    answered = F.when(F.size("facts.answers") > 0, F.array_compact(of_answers))
    keys = _exploded(own, _keys("at", F.col("links")), _keys("names", answered))
    return rows.select(*PARTITION, keys).distinct()


def _exploded(keys: list[Column], *lists: Column) -> Column:
    """Returns a column that explodes into one row for each of `keys`, and for each key in `lists`."""
    return F.explode(F.array_compact(F.concat(F.array(*keys), *lists))).alias("key")


def _keys(kind: str, offsets: Column) -> Column:
    """Returns the keys of a list of offsets, which may be null."""
    return F.when(F.size(offsets) > 0, F.transform(offsets, lambda offset: _key(kind, offset))).otherwise(F.array())


def _id_key() -> Column:
    return F.when(F.col("id").isNotNull(), _key("id", F.col("id")))


def _key(kind: str, value: Column) -> Column:
    """Returns a hash of `kind` and `value`, by which origins are found; different pairs collide only by chance."""
    return F.xxhash64(F.lit(kind), value)
