"""Judges a history in stages: whole spans, then the sieve, then the rules, each for what the one before has left.

Each stage reads its input again: most of the history is plain, and caching it costs more than reading the rest twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.judging.inputs import AuditInputs, narrowed
from postdate.spark.judging.judge import is_in_range, judge
from postdate.spark.judging.sieve import asked_rows, kin, plain_rows, sieved
from postdate.spark.judging.spans import Spans, even, less, odd_origins
from postdate.spark.judging.summary import Plain
from postdate.spark.limits import LEFT_SHARE_MAX, SIFTED_ROWS_MAX
from postdate.spark.records.deliveries import digested_records
from postdate.spark.records.fates import fate_rows, odd_fate_rows
from postdate.spark.records.requests import digested_requests
from postdate.spark.rules.answers import judged_answers
from postdate.spark.rules.claims import judged_moves, unfounded_ends
from postdate.spark.rules.request_histories import known_rows
from postdate.spark.rules.unanswered import Mode, unanswered_ends
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
class Sifting:
    """The parameters of judging: required answers, times, and whether there are causes to check.

    Up to `sifted_max` origins that the sieve leaves are judged separately; more are judged together with all others. If
    the spans leave more than `left_share_max` of the requests, all origins go through the sieve.
    """

    partitions: DataFrame
    targets: DataFrame
    has_claims: bool
    has_answers: bool
    verdicts: Mode
    snapshot_ms: int
    slack_ms: int
    sifted_max: int = SIFTED_ROWS_MAX
    left_share_max: float = LEFT_SHARE_MAX

    @property
    def owes_all(self) -> bool:
        return self.verdicts == "all"

    @property
    def needs_known(self) -> bool:
        """Whether other origins than the judged one must be examined."""
        return self.has_claims or self.has_answers or self.verdicts != "none"


@dataclass(frozen=True)
class History:
    """The input of one audit as rows: requests and deliveries with their messages, dispatch logs as of `log_rows`, all
    others as in `AuditInputs`.

    `requests_of`, in an audit with a state, reads the requests of some origins once more, as far as their topics still
    have them; its rows are those of `digested_requests`.
    """

    understood: DataFrame
    messages: DataFrame
    log: DataFrame
    letters: DataFrame
    answers: DataFrame
    overtaken: tuple[DataFrame, ...] = ()
    requests_of: Callable[[DataFrame], DataFrame] | None = None

    def sides(self) -> AuditInputs:
        """The same with digests."""
        requests, delivered = digested_requests(self.understood), digested_records(self.messages)
        return AuditInputs(requests, fate_rows(self.log), delivered, self.letters, self.answers, self.overtaken)


@dataclass(frozen=True)
class Split:
    """A history in two parts: whole spans, and the rest `left` for the sieve and the rules, None if there is none.

    `asked` are the spans of the requests without the `odd` origins, which spans exclude; `broken` are the spans that
    are not whole. `kept`: cached DataFrames to release. `has_garbled`: whether the origin of a record cannot be read.
    """

    plain: Plain
    left: AuditInputs | None
    asked: DataFrame
    broken: DataFrame
    odd: DataFrame
    kept: tuple[DataFrame, ...]
    has_garbled: bool


def judged_history(history: History, how: Sifting, spans: Spans, asked: DataFrame) -> Judged:
    """Judges `history`; `asked` are the cached spans of its requests.

    If most spans are not whole, or too many origins odd, every origin goes through the sieve and has a row.
    """
    found = split(history, how, spans, asked)
    if found is None:
        return judged_each(history, how)
    if found.left is None:
        return Judged(None, found.kept, found.plain, found.has_garbled)
    judged = judged_sides(asked_rows(found.left.requests), found.left, how, history.sides())
    kept = (*found.kept, *judged.kept)
    return replace(judged, kept=kept, plain=found.plain, has_garbled=found.has_garbled)


def split(
    history: History, how: Sifting, spans: Spans, asked: DataFrame, doubtful: DataFrame | None = None
) -> Split | None:
    """The parts of `history`; None if most spans are not whole, or too many origins odd.

    `doubtful`: further odd origins, about which something is known that the history does not contain.
    """
    sound = history.answers.where(~F.col("malformed"))
    others = [history.letters, sound, *history.overtaken, *([] if doubtful is None else [doubtful])]
    odd = _in_range(odd_origins(odd_fate_rows(history.log), others), how.partitions).localCheckpoint()
    odd_count, fates = odd.count(), fate_rows(history.log)
    if odd_count > how.sifted_max:
        return None
    odd_ones = _with(history.understood, odd, odd_count)
    even_asked = less(asked, spans.of_requests(odd_ones)) if odd_count else asked
    even_fates, even_messages = (even(rows, odd) if odd_count else rows for rows in (fates, history.messages))
    folded = (even_asked, spans.of_fates(even_fates), spans.of_records(even_messages, how.targets))
    sums = cached(spans.together(*folded, how.targets))
    is_whole = F.col("is_whole")
    is_broken = ~is_whole & F.col("topic").isNotNull()
    broken = sums.where(is_broken)
    found = sums.agg(
        *(
            F.coalesce(F.sum(F.when(is_whole, F.col(name))), F.lit(0)).alias(verdict)
            for name, verdict in (("asked", "delivered"), ("ahead", "pending"))
        ),
        F.coalesce(F.sum("requests"), F.lit(0)).alias("requests"),
        F.coalesce(F.sum(F.when(is_whole, 0).otherwise(F.col("requests"))), F.lit(0)).alias("left"),
        F.count_if(is_broken).alias("broken"),
        F.coalesce(F.sum("garbled"), F.lit(0)).alias("garbled"),
    ).collect()[0]
    if found["left"] + odd_count > how.left_share_max * (found["requests"] + odd_count):
        sums.unpersist()
        return None
    lateness = spans.lateness(even_fates, broken, odd)
    plain = Plain({name: found[name] for name in ("delivered", "pending")}, lateness)
    if not found["broken"] and not odd_count:
        return Split(plain, None, even_asked, broken, odd, (sums,), found["garbled"] > 0)
    requests = spans.left_of(history.understood, broken, odd) if found["broken"] else odd_ones
    left = AuditInputs(
        digested_requests(requests),
        spans.left_of(fates, broken, odd),
        digested_records(spans.left_of(history.messages, broken, odd)),
        spans.left_of(history.letters, broken, odd),
        spans.left_of(sound, broken, odd),
        tuple(spans.left_of(rows, broken, odd) for rows in history.overtaken),
    )
    return Split(plain, left, even_asked, broken, odd, (sums,), found["garbled"] > 0)


def _in_range(odd: DataFrame, partitions: DataFrame) -> DataFrame:
    """The odd origins that may be judged; around a window there may be any number of others."""
    placed = odd.join(F.broadcast(partitions), list(PARTITION), "left")
    return placed.where(is_in_range(F.lit(False))).select(*ORIGIN)


def _with(rows: DataFrame, odd: DataFrame, count: int) -> DataFrame:
    """The rows whose origins are `odd`, cached."""
    if not count:
        return rows.where(F.lit(False))
    return rows.join(F.broadcast(odd), list(ORIGIN), "left_semi").localCheckpoint()


def judged_each(history: History, how: Sifting) -> Judged:
    """The same with a row for each origin."""
    sides = history.sides()
    asked = cached(asked_rows(sides.requests))
    judged = judged_sides(asked, sides, how)
    return replace(judged, kept=(asked, *judged.kept))


def judged_sides(asked: DataFrame, sides: AuditInputs, how: Sifting, of: AuditInputs | None = None) -> Judged:
    """The judged rows of `sides`; `asked` as of `asked_rows`, of the same requests.

    Plain origins pass the sieve; the others are read again and judged by the rules. If `sides` are only a part `of` a
    history, causes are searched in the whole.
    """
    marks = cached(
        sieved(
            *(asked, sides, how.partitions, how.targets),
            overdue_before_ms=how.snapshot_ms - how.slack_ms,
            owes_all=how.owes_all,
        )
    )
    plain, kept = plain_rows(marks, how.partitions, how.targets), [marks]
    rest = marks.where("plain is null")
    found = rest.agg(F.count("*").alias("rows"), F.coalesce(F.sum("records"), F.lit(0)).alias("records")).collect()[0]
    if not found["rows"]:
        return Judged(plain, tuple(kept))
    around = sides if of is None or not how.needs_known else of
    few = found["rows"] <= how.sifted_max
    if few:
        left = rest.select(*ORIGIN).localCheckpoint()
        near = left
        if how.needs_known:
            near = kin(marks, asked if of is None else asked_rows(of.requests), around.answers).localCheckpoint()
        few = near.count() <= how.sifted_max
    if few:
        around = narrowed(around, near, has_records=found["records"] > 0)
        judged = _judged(around, around, how, kept)
        judged = cached(judged.join(F.broadcast(left), list(ORIGIN), "left_semi"))
        return Judged(plain.unionByName(judged), (*kept, judged))
    judged = _judged(sides, around, how, kept)
    if of is not None:
        judged = judged.join(marks.select(*ORIGIN), list(ORIGIN), "left_semi")
    judged = cached(judged)
    return Judged(judged, (*kept, judged))


@dataclass(frozen=True)
class Caused:
    """Results about causes, which lie in other origins: `causes` as for `judge`, and the cached DataFrames."""

    causes: list[DataFrame]
    cached: list[DataFrame]


def caused(around: AuditInputs, how: Sifting) -> Caused:
    """The causes in the origins `around`."""
    known = cached(known_rows(around.requests, around.fates, around.answers, how.partitions))
    causes = [unfounded_ends(known), judged_moves(known)] if how.has_claims else []
    causes += [judged_answers(known)] if how.has_answers else []
    causes += [unanswered_ends(known, how.verdicts)] if how.verdicts != "none" else []
    return Caused(causes, [known])


def _judged(sides: AuditInputs, around: AuditInputs, how: Sifting, kept: list[DataFrame]) -> DataFrame:
    """Judges `sides` by the rules, with causes from `around`; cached DataFrames are added to `kept`."""
    found = caused(around, how) if how.needs_known else Caused([], [])
    kept += found.cached
    return judge(
        *(sides.requests, sides.fates, sides.delivered, sides.letters),
        *([*found.causes, *around.overtaken], how.partitions, how.targets),
        snapshot_ms=how.snapshot_ms,
        slack_ms=how.slack_ms,
    )
