"""Judges a history in stages: consistent chunks, then the prefilter, then the rules, each for what the one before has
left.

Each stage reads its input again: most of the history is plain, and caching it costs more than reading the rest twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.judging.chunk_digests import ChunkDigests, exceptional_origins, regular, subtracted
from postdate.spark.judging.inputs import AuditInputs, narrowed
from postdate.spark.judging.judge import is_in_range, judge
from postdate.spark.judging.prefilter import asked_rows, plain_rows, prefiltered, related_origins
from postdate.spark.judging.summary import Plain
from postdate.spark.limits import LEFT_SHARE_MAX, SEPARATE_ROWS_MAX
from postdate.spark.records.deliveries import digested_records
from postdate.spark.records.fates import exceptional_fate_rows, fate_rows
from postdate.spark.records.requests import digested_requests
from postdate.spark.rules.claims import (
    judged_bulks,
    judged_moves,
    judged_returns,
    judged_series,
    judged_survivors,
    unfounded_ends,
)
from postdate.spark.rules.drops import judged_drops
from postdate.spark.rules.request_histories import history_rows
from postdate.spark.rules.unanswered import Mode, unanswered_ends
from postdate.spark.rules.verdict_checks import judged_answers
from postdate.spark.session.caching import cached


@dataclass(frozen=True)
class Judged:
    """The judged `rows`, None if all origins are plain; `plain` origins without a row; the cached DataFrames `kept`;
    and whether there may be records whose origin cannot be read."""

    rows: DataFrame | None
    kept: tuple[DataFrame, ...] = ()
    plain: Plain | None = None
    has_garbled: bool = True

    def forget(self) -> None:
        """Releases cached rows; after that, the rows would be computed again."""
        for one in self.kept:
            one.unpersist()


@dataclass(frozen=True)
class JudgingParameters:
    """The parameters of judging: required answers, times, and whether there are causes to check.

    Up to `separate_rows_max` origins that the prefilter leaves are judged separately; more are judged together with all
    others. If the chunks leave more than `left_share_max` of the requests, all origins go through the prefilter.
    """

    partitions: DataFrame
    targets: DataFrame
    has_claims: bool
    has_answers: bool
    verdicts: Mode
    snapshot_ms: int
    slack_ms: int
    separate_rows_max: int = SEPARATE_ROWS_MAX
    left_share_max: float = LEFT_SHARE_MAX

    @property
    def owes_all(self) -> bool:
        return self.verdicts == "all"

    @property
    def needs_histories(self) -> bool:
        """Whether other origins than the judged one must be examined."""
        return self.has_claims or self.has_answers or self.verdicts != "none"


@dataclass(frozen=True)
class History:
    """The input of one audit as rows: requests and deliveries with their messages, dispatch logs as of `log_rows`, all
    others as in `AuditInputs`.

    `returns`: the origins of requests with `postdate-retry`; None if there are none, or if nobody looked for them.
    `requests_of`, in an audit with a state, reads the requests of some origins once more, as far as their topics still
    have them; its rows are those of `digested_requests`.
    """

    understood: DataFrame
    messages: DataFrame
    log: DataFrame
    letters: DataFrame
    answers: DataFrame
    overtaken: tuple[DataFrame, ...] = ()
    returns: DataFrame | None = None
    requests_of: Callable[[DataFrame], DataFrame] | None = None

    def inputs(self) -> AuditInputs:
        """The same with digests."""
        requests, delivered = digested_requests(self.understood), digested_records(self.messages)
        return AuditInputs(requests, fate_rows(self.log), delivered, self.letters, self.answers, self.overtaken)


@dataclass(frozen=True)
class Split:
    """A history in two parts: consistent chunks, and the rest `left` for the prefilter and the rules, None if there is
    none.

    `asked` are the chunks of the requests without the `exceptional` origins, which chunks exclude; `inconsistent` are
    those that are not consistent. `kept`: cached DataFrames to release. `has_garbled`: whether the origin of a record
    cannot be read.
    """

    plain: Plain
    left: AuditInputs | None
    asked: DataFrame
    inconsistent: DataFrame
    exceptional: DataFrame
    kept: tuple[DataFrame, ...]
    has_garbled: bool


def judged_history(history: History, how: JudgingParameters, digests: ChunkDigests, asked: DataFrame) -> Judged:
    """Judges `history`; `asked` are the cached chunks of its requests.

    If most chunks are inconsistent, or too many origins exceptional, every origin goes through the prefilter and has a
    row.
    """
    found = split(history, how, digests, asked)
    if found is None:
        return judged_each(history, how)
    if found.left is None:
        return Judged(None, found.kept, found.plain, found.has_garbled)
    judged = judged_inputs(asked_rows(found.left.requests), found.left, how, history.inputs())
    kept = (*found.kept, *judged.kept)
    return replace(judged, kept=kept, plain=found.plain, has_garbled=found.has_garbled)


def split(
    history: History, how: JudgingParameters, digests: ChunkDigests, asked: DataFrame, doubtful: DataFrame | None = None
) -> Split | None:
    """The parts of `history`; None if most chunks are inconsistent, or too many origins exceptional. Requires that not
    every delivered request must be answered (`how.owes_all`): chunks do not count answers.

    `doubtful`: further exceptional origins, about which something is known that the history does not contain.
    """
    sound = history.answers.where(~F.col("malformed"))
    some = (rows for rows in (history.returns, doubtful) if rows is not None)
    others = [history.letters, sound, *history.overtaken, *some]
    exceptional = _in_range(
        exceptional_origins(exceptional_fate_rows(history.log), others), how.partitions
    ).localCheckpoint()
    exceptional_count, fates = exceptional.count(), fate_rows(history.log)
    if exceptional_count > how.separate_rows_max:
        return None
    exceptional_requests = _with(history.understood, exceptional, exceptional_count)
    regular_asked = subtracted(asked, digests.of_requests(exceptional_requests)) if exceptional_count else asked
    regular_fates, regular_messages = (
        regular(rows, exceptional) if exceptional_count else rows for rows in (fates, history.messages)
    )
    folded = (regular_asked, digests.of_fates(regular_fates), digests.of_records(regular_messages, how.targets))
    sums = cached(digests.together(*folded, how.targets))
    is_consistent = F.col("is_consistent")
    is_inconsistent = ~is_consistent & F.col("topic").isNotNull()
    inconsistent = sums.where(is_inconsistent)
    found = sums.agg(
        *(
            F.coalesce(F.sum(F.when(is_consistent, F.col(name))), F.lit(0)).alias(verdict)
            for name, verdict in (("asked", "delivered"), ("ahead", "pending"))
        ),
        F.coalesce(F.sum("requests"), F.lit(0)).alias("requests"),
        F.coalesce(F.sum(F.when(is_consistent, 0).otherwise(F.col("requests"))), F.lit(0)).alias("left"),
        F.count_if(is_inconsistent).alias("inconsistent"),
        F.coalesce(F.sum("garbled"), F.lit(0)).alias("garbled"),
    ).collect()[0]
    if found["left"] + exceptional_count > how.left_share_max * (found["requests"] + exceptional_count):
        sums.unpersist()
        return None
    lateness = digests.lateness(regular_fates, inconsistent, exceptional)
    plain = Plain({name: found[name] for name in ("delivered", "pending")}, lateness)
    if not found["inconsistent"] and not exceptional_count:
        return Split(plain, None, regular_asked, inconsistent, exceptional, (sums,), found["garbled"] > 0)
    requests = (
        digests.left_of(history.understood, inconsistent, exceptional)
        if found["inconsistent"]
        else exceptional_requests
    )
    left = AuditInputs(
        digested_requests(requests),
        digests.left_of(fates, inconsistent, exceptional),
        digested_records(digests.left_of(history.messages, inconsistent, exceptional)),
        digests.left_of(history.letters, inconsistent, exceptional),
        digests.left_of(sound, inconsistent, exceptional),
        tuple(digests.left_of(rows, inconsistent, exceptional) for rows in history.overtaken),
    )
    return Split(plain, left, regular_asked, inconsistent, exceptional, (sums,), found["garbled"] > 0)


def _in_range(exceptional: DataFrame, partitions: DataFrame) -> DataFrame:
    """The exceptional origins that may be judged; around a window there may be any number of others."""
    placed = exceptional.join(F.broadcast(partitions), list(PARTITION), "left")
    return placed.where(is_in_range(F.lit(False))).select(*ORIGIN)


def _with(rows: DataFrame, exceptional: DataFrame, count: int) -> DataFrame:
    """The rows whose origins are `exceptional`, cached."""
    if not count:
        return rows.where(F.lit(False))
    return rows.join(F.broadcast(exceptional), list(ORIGIN), "left_semi").localCheckpoint()


def judged_each(history: History, how: JudgingParameters) -> Judged:
    """The same with a row for each origin."""
    inputs = history.inputs()
    asked = cached(asked_rows(inputs.requests))
    judged = judged_inputs(asked, inputs, how)
    return replace(judged, kept=(asked, *judged.kept))


def judged_by_rules(history: History, how: JudgingParameters) -> Judged:
    """The same by the rules alone, for a short history: it needs the fewest plans."""
    inputs, kept = history.inputs(), list[DataFrame]()
    rows = cached(_judged(inputs, inputs, how, kept))
    return Judged(rows, (*kept, rows))


def judged_inputs(
    asked: DataFrame, inputs: AuditInputs, how: JudgingParameters, of: AuditInputs | None = None
) -> Judged:
    """The judged rows of `inputs`; `asked` as of `asked_rows`, of the same requests.

    Plain origins pass the prefilter; the others are read again and judged by the rules. If `inputs` are only a part
    `of` a history, causes are searched in the whole.
    """
    marks = cached(
        prefiltered(
            *(asked, inputs, how.partitions, how.targets),
            overdue_before_ms=how.snapshot_ms - how.slack_ms,
            owes_all=how.owes_all,
        )
    )
    plain, kept = plain_rows(marks, how.partitions, how.targets), [marks]
    rest = marks.where("plain is null")
    found = rest.agg(F.count("*").alias("rows"), F.coalesce(F.sum("records"), F.lit(0)).alias("records")).collect()[0]
    if not found["rows"]:
        return Judged(plain, tuple(kept))
    around = inputs if of is None or not how.needs_histories else of
    few = found["rows"] <= how.separate_rows_max
    if few:
        left = rest.select(*ORIGIN).localCheckpoint()
        near = left
        if how.needs_histories:
            near = related_origins(
                marks, asked if of is None else asked_rows(of.requests), around.fates, around.answers
            ).localCheckpoint()
        few = near.count() <= how.separate_rows_max
    if few:
        around = narrowed(around, near, has_records=found["records"] > 0)
        judged = _judged(around, around, how, kept)
        judged = cached(judged.join(F.broadcast(left), list(ORIGIN), "left_semi"))
        return Judged(plain.unionByName(judged), (*kept, judged))
    judged = _judged(inputs, around, how, kept)
    if of is not None:
        judged = judged.join(marks.select(*ORIGIN), list(ORIGIN), "left_semi")
    judged = cached(judged)
    return Judged(judged, (*kept, judged))


@dataclass(frozen=True)
class Caused:
    """Results about causes, which lie in other origins: `causes` as for `judge`, and the cached DataFrames."""

    causes: list[DataFrame]
    cached: list[DataFrame]


def caused(around: AuditInputs, how: JudgingParameters) -> Caused:
    """The causes in the origins `around`. Claims that no origin makes need no plan."""
    known = cached(history_rows(around.requests, around.fates, around.answers, how.partitions))
    causes: list[DataFrame] = []
    if how.has_claims:
        made = known.agg(*(F.coalesce(F.bool_or(makes), F.lit(False)) for _, makes in _claims())).first()
        assert made is not None
        causes = [
            rows for (judged, _), is_made in zip(_claims(), made, strict=True) if is_made for rows in judged(known)
        ]
    causes += [judged_answers(known)] if how.has_answers else []
    causes += [unanswered_ends(known, how.verdicts)] if how.verdicts != "none" else []
    return Caused(causes, [known])


def _claims() -> list[tuple[Callable[[DataFrame], list[DataFrame]], Column]]:
    """The rules for each kind of claim, and whether a row of `history_rows` makes one."""
    end = F.col("end")
    names_another = end.fate_name.isin("replaced", "kept") & end.control_offset.isNotNull()
    return [
        (lambda known: [unfounded_ends(known)], end.fate_name.isin("cancelled", "replaced")),
        (lambda known: [judged_drops(known)], end.fate_name == "dropped"),
        (lambda known: [judged_moves(known)], F.size("moves") > 0),
        (lambda known: [judged_returns(known)], F.col("said").isNotNull()),
        (lambda known: [judged_survivors(known)], names_another),
        (lambda known: [judged_series(known)], F.col("latest_ms").isNotNull()),
        (judged_bulks, end.bulk_offset.isNotNull() | F.col("selected").isNotNull()),
    ]


def _judged(inputs: AuditInputs, around: AuditInputs, how: JudgingParameters, kept: list[DataFrame]) -> DataFrame:
    """Judges `inputs` by the rules, with causes from `around`; cached DataFrames are added to `kept`."""
    found = caused(around, how) if how.needs_histories else Caused([], [])
    kept += found.cached
    return judge(
        *(inputs.requests, inputs.fates, inputs.delivered, inputs.letters),
        *([*found.causes, *around.overtaken], how.partitions, how.targets),
        snapshot_ms=how.snapshot_ms,
        slack_ms=how.slack_ms,
    )
