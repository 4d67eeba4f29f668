"""Judges a history in stages: consistent chunks as a whole, then origins one by one.

Each stage reads its input again: most of a long history is plain, and caching all of it costs more than reading the
other records twice. Only exceptional requests, and requests that name something, are kept for the next stage. A short
history is cached, and has one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import where_computed
from postdate.spark.judging.chunk_digests import ChunkDigests, names_something, subtracted, without_exceptional
from postdate.spark.judging.inputs import AuditInputs, folded
from postdate.spark.judging.judge import is_in_range
from postdate.spark.judging.origin_rows import Context, JudgingParameters, judged_origins, related_origins
from postdate.spark.judging.summary import Plain
from postdate.spark.records.deliveries import record_rows, with_origins_of_occurrences, without_garbled
from postdate.spark.records.fates import exceptional_fate_rows, fate_rows
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.records.requests import digested_columns, digested_requests
from postdate.spark.rules.schedules.occurrences import Events, Zones
from postdate.spark.session.caching import cached, materialised

ROW_COLUMNS = ("position", "occurrences")
"""The columns of judged rows besides those of `judge`. They are null for rows that are not schedules."""


@dataclass(frozen=True)
class History:
    """The input of one audit as rows.

    `understood` and `messages` are the requests and the deliveries with their messages. `requests` and `records` have
    digests instead of the messages. `log` has rows of `log_rows`. The other rows are as in AuditInputs. `returns` are
    the origins of requests with `postdate-retry`, or None if there are none. In an audit with a state, `requests_of`
    reads the requests of some origins once more, if their topics still have them.
    """

    understood: DataFrame
    requests: DataFrame
    messages: DataFrame
    records: DataFrame
    log: DataFrame
    dead_letters: DataFrame
    answers: DataFrame
    overtaken: tuple[DataFrame, ...] = ()
    returns: DataFrame | None = None
    requests_of: Callable[[DataFrame], DataFrame] | None = None
    occurrences: Events | None = None

    def inputs(self) -> AuditInputs:
        """Returns the inputs of all origins."""
        fates, delivered = fate_rows(self.log), without_garbled(self.records)
        effects = (self.dead_letters, self.answers, self.overtaken, self.occurrences)
        return AuditInputs(self.requests, fates, delivered, *effects)


@dataclass(frozen=True)
class Split:
    """A history in two parts: the `plain` origins of consistent chunks, and the inputs that are `left` to be judged one
    by one (None if no input is left).

    `request_chunks` are the chunks of all requests except those of `exceptional` origins. `inconsistent` are the chunks
    that are not consistent. `has_garbled` is True if the origin of a record cannot be read. `digests` made the chunks.
    `naming` are the requests that have an id or name another request of their partition, as rows of
    `digested_requests`, or None if they were not gathered.
    """

    plain: Plain
    left: AuditInputs | None
    request_chunks: DataFrame
    inconsistent: DataFrame
    exceptional: DataFrame
    has_garbled: bool
    digests: ChunkDigests
    naming: DataFrame | None = None


@dataclass(frozen=True)
class Judged:
    """The judged `rows` (None if all origins are plain), and the `plain` origins without a row.

    `has_garbled` is True if there may be records whose origin cannot be read.
    """

    rows: DataFrame | None
    plain: Plain | None = None
    has_garbled: bool = True


def with_occurrences_of(history: History, zones: Zones, recurs: bool) -> History:
    """Returns `history` with the occurrences of its schedules, if there may be any.

    `zones` as in `rules.schedules.occurrences`. `recurs` is True if this run has read the fate of an occurrence, or if
    an earlier run has read a schedule or an occurrence. Otherwise, if `zones` has a version of the time zone rules, one
    job searches the requests for schedules.
    """
    if not recurs and (not zones or history.requests.where(F.col("action") == RECURRING).isEmpty()):
        return history
    return replace(history, occurrences=Events.of(history.log, history.messages, zones))


def judged_history(
    history: History, parameters: JudgingParameters, digests: ChunkDigests, request_chunks: DataFrame | None
) -> Judged:
    """Judges `history`. `request_chunks` are the cached chunks of its requests. If they are None, or if `split` returns
    None, all origins are judged one by one."""
    parts = (
        split(history, parameters, digests, request_chunks, gathers_naming=True) if request_chunks is not None else None
    )
    if parts is None:
        return Judged(_judged(history.inputs(), None, parameters))
    if parts.left is None:
        return Judged(None, parts.plain, parts.has_garbled)
    context = partial(read_context, history, parts.naming)
    return Judged(_judged(parts.left, context, parameters), parts.plain, parts.has_garbled)


def _judged(inputs: AuditInputs, context: Context | None, parameters: JudgingParameters) -> DataFrame:
    """Returns the judged rows of `inputs` in the audited range."""
    rows = judged_origins(
        folded(inputs, few=parameters.is_short), context, parameters, ROW_COLUMNS, occurrences=inputs.occurrences
    )
    return materialised(rows.where(F.col("verdicts").isNotNull()), few=parameters.is_short)


def split(
    history: History,
    parameters: JudgingParameters,
    digests: ChunkDigests,
    request_chunks: DataFrame,
    doubtful: DataFrame | None = None,
    *,
    gathers_naming: bool = False,
) -> Split | None:
    """Returns the parts of `history`, or None if its origins must be judged one by one.

    Returns None if each delivered request must be answered, since chunks do not count answers. Also returns None if
    chunks would save nothing, because too many requests are in inconsistent chunks or too many origins are exceptional.
    But if late deliveries may be the reason for the inconsistent chunks, splits again, with chunks that expect only
    overdue messages.

    `doubtful` are further exceptional origins: the history does not contain all known facts about them. With
    `gathers_naming`, `Split.naming` is gathered while the exceptional requests are read. It stays None if no origin is
    exceptional, or if more than `parameters.separate_rows_max` requests name something.
    """
    if parameters.requires_all_verdicts:
        return None
    excluded = _exceptional(history, parameters, digests, doubtful)
    if excluded is None:
        return None
    exceptional, exceptional_count = excluded
    fates = fate_rows(history.log)
    messages = history.messages
    if history.occurrences is not None:
        messages = with_origins_of_occurrences(messages)
    regular_chunks, regular_fates, regular_messages = request_chunks, fates, messages
    exceptional_requests = gathered_requests = history.requests.where(F.lit(False))
    naming = None
    if exceptional_count:
        gathers = gathers_naming and _count_of_naming(request_chunks) <= parameters.separate_rows_max
        gathered_requests = _exceptional_and_naming(history.understood, exceptional, gathers=gathers)
        exceptional_messages = gathered_requests.where("is_exceptional")
        regular_chunks = subtracted(request_chunks, digests.of_requests(exceptional_messages))
        regular_fates, regular_messages = (without_exceptional(rows, exceptional) for rows in (fates, messages))
        exceptional_requests = exceptional_messages.select(*history.requests.columns)
        naming = gathered_requests.where(names_something()).select(*history.requests.columns) if gathers else None
    sides = (regular_chunks, digests.of_fates(regular_fates), digests.of_records(regular_messages, parameters.targets))
    sums = cached(digests.together(*sides, parameters.targets))
    inconsistent = sums.where("NOT is_consistent AND topic IS NOT NULL")
    totals = _totals(sums)
    left_max = parameters.left_share_max * (totals["requests"] + exceptional_count)
    if totals["left"] + exceptional_count > left_max:
        gathered_requests.unpersist()
        if totals["left"] - totals["late"] + exceptional_count > left_max:
            return None
        return _split_by_overdue(history, parameters, digests, doubtful, gathers_naming=gathers_naming)
    lateness = digests.lateness(regular_fates, inconsistent, exceptional)
    plain = Plain({name: totals[name] for name in ("delivered", "pending")}, lateness)
    left = None
    if totals["inconsistent"] or exceptional_count:
        requests = exceptional_requests
        if totals["inconsistent"]:
            requests = digested_requests(digests.left_of(history.understood, inconsistent, exceptional))
        left = _left(history, requests, lambda rows: digests.left_of(rows, inconsistent, exceptional))
    return Split(plain, left, regular_chunks, inconsistent, exceptional, totals["garbled"] > 0, digests, naming)


def _totals(sums: DataFrame) -> Row:
    """Returns the totals of all chunks.

    `delivered` and `pending` count requests of consistent chunks, and `requests` the requests of all chunks. `left`
    counts requests of inconsistent chunks, and `late` those of chunks with fewer fates than expected. `inconsistent` is
    the number of inconsistent chunks, and `garbled` the number of records whose origin cannot be read.
    """
    is_consistent = F.col("is_consistent")
    return sums.agg(
        *(
            F.coalesce(F.sum(F.when(is_consistent, F.col(name))), F.lit(0)).alias(verdict)
            for name, verdict in (("asked", "delivered"), ("ahead", "pending"))
        ),
        F.coalesce(F.sum("requests"), F.lit(0)).alias("requests"),
        F.coalesce(F.sum(F.when(is_consistent, 0).otherwise(F.col("requests"))), F.lit(0)).alias("left"),
        F.coalesce(F.sum(F.when(F.col("asked") > F.col("fates"), F.col("requests"))), F.lit(0)).alias("late"),
        F.count_if(~is_consistent & F.col("topic").isNotNull()).alias("inconsistent"),
        F.coalesce(F.sum("garbled"), F.lit(0)).alias("garbled"),
    ).collect()[0]


def _split_by_overdue(
    history: History,
    parameters: JudgingParameters,
    digests: ChunkDigests,
    doubtful: DataFrame | None,
    *,
    gathers_naming: bool,
) -> Split | None:
    """Returns `split` with chunks that expect only overdue messages; None if `digests` already do so.

    Cost: reads requests, fates and deliveries once more.
    """
    if digests.expected_before_ms <= parameters.overdue_before_ms:
        return None
    digests = replace(digests, expected_before_ms=parameters.overdue_before_ms)
    chunks = cached(digests.of_requests(history.understood))
    return split(history, parameters, digests, chunks, doubtful, gathers_naming=gathers_naming)


def _exceptional(
    history: History, parameters: JudgingParameters, digests: ChunkDigests, doubtful: DataFrame | None
) -> tuple[DataFrame, int] | None:
    """Returns the exceptional origins, cached, and their number.

    If there are more than `parameters.separate_rows_max`, leaves out the origins of delivered messages that are not
    expected yet, so that their chunks are inconsistent. Returns None if there are still too many.
    """
    sound = history.answers.where(~F.col("malformed"))
    some = (rows for rows in (history.returns, doubtful) if rows is not None)
    others = [history.dead_letters, sound, *history.overtaken, *some]
    for has_recent in (True, False):
        all_origins = digests.exceptional_origins(history.log, others, has_recent=has_recent)
        origins = materialised(_in_range(all_origins, parameters.partitions, has_unread=doubtful is not None))
        count = origins.count()
        if count <= parameters.separate_rows_max:
            return origins, count
        origins.unpersist()
    return None


def _left(history: History, requests: DataFrame, left_of: Callable[[DataFrame], DataFrame]) -> AuditInputs:
    """Returns the inputs that are left to be judged: `requests`, and the rows of the other inputs that `left_of` keeps.

    A chunk with a schedule or an occurrence is inconsistent, so all occurrences are left.
    """
    return AuditInputs(
        requests,
        left_of(fate_rows(history.log)),
        without_garbled(record_rows(left_of(history.messages))),
        left_of(history.dead_letters),
        left_of(history.answers.where(~F.col("malformed"))),
        tuple(left_of(rows) for rows in history.overtaken),
        history.occurrences,
    )


def _count_of_naming(request_chunks: DataFrame) -> int:
    """Returns the number of requests in these chunks that name something."""
    row = request_chunks.agg(F.sum("naming")).first()
    return (row[0] or 0) if row is not None else 0


def _exceptional_and_naming(understood: DataFrame, exceptional: DataFrame, *, gathers: bool) -> DataFrame:
    """Returns the `exceptional` requests; with `gathers`, also the requests that name something.

    The rows have the columns of `digested_requests` and `is_exceptional`; exceptional requests also have their message.
    Cost: reads requests once.
    """
    if not gathers:
        rows = understood.join(F.broadcast(exceptional), list(ORIGIN), "left_semi")
        rows = rows.withColumn("is_exceptional", F.lit(True))
    else:
        marks = exceptional.select(*ORIGIN, F.lit(True).alias("is_exceptional"))
        rows = understood.join(F.broadcast(marks), list(ORIGIN), "left")
        is_one = F.coalesce("is_exceptional", F.lit(False))
        rows = where_computed(rows.withColumn("is_exceptional", is_one), is_one | names_something())
    message = (F.when(F.col("is_exceptional"), F.col(name)).alias(name) for name in ("key", "value", "data"))
    return materialised(rows.select(*digested_columns(), "is_exceptional", *message))


def read_context(history: History, naming: DataFrame | None, rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Returns the context of `rows` from a history that is read once more; `naming` as in `Split`.

    The origins of the context have their request, fates and answers. Deliveries and dead letters are left out, since
    they have no effect on other origins.

    A request that has no id and names nothing is related only by its offset, or by its own fates and answers. The only
    wanted offsets are those that `rows` name. So the function searches only `naming`, and adds the requests that `rows`
    name and the requests whose fates or answers are related.

    Cost: without `naming`, reads the requests twice. With `naming`, reads them once if the context has an origin that
    is not in `naming`.
    """
    inputs = history.inputs()
    fates, answers = inputs.fates, inputs.answers
    no_id, control = F.lit(None).cast("binary").alias("id"), F.coalesce("fate.control_offset", "fate.bulk_offset")
    candidates = inputs.requests if naming is None else naming
    named_fates = exceptional_fate_rows(history.log, None)
    links = (
        candidates.select(*ORIGIN, "id", F.array_compact(F.array("acts_on")).alias("links")),
        named_fates.where(control.isNotNull()).select(*ORIGIN, no_id, F.array(control).alias("links")),
        answers.where("of is not null").select(*ORIGIN, no_id, F.array("of").alias("links")),
    )
    named = rows.select(*PARTITION, F.explode("links").alias("offset"))
    related = related_origins(reduce(DataFrame.unionByName, links), wanted).unionByName(named).distinct()
    near = materialised(related.join(rows.select(*ORIGIN), list(ORIGIN), "left_anti"))

    def near_rows(side: DataFrame) -> DataFrame:
        return side.join(near, list(ORIGIN), "left_semi")

    requests = near_rows(candidates)
    if naming is not None:
        unnamed = materialised(near.join(naming.select(*ORIGIN), list(ORIGIN), "left_anti"))
        if not unnamed.isEmpty():
            requests = requests.unionByName(inputs.requests.join(unnamed, list(ORIGIN), "left_semi"))
    delivered, dead_letters = (side.where(F.lit(False)) for side in (inputs.delivered, inputs.dead_letters))
    return folded(AuditInputs(requests, near_rows(fates), delivered, dead_letters, near_rows(answers)))


def _in_range(exceptional: DataFrame, partitions: DataFrame, *, has_unread: bool) -> DataFrame:
    """Returns the exceptional origins that may be judged. Any number of other exceptional origins may be outside a
    window.

    With `has_unread`, also returns origins whose requests only the next audit reads. The next audit does not reread the
    records that name these origins.
    """
    placed = exceptional.join(F.broadcast(partitions), list(PARTITION), "left")
    is_wanted = is_in_range(F.lit(False))
    if has_unread:
        is_wanted |= F.col("offset") >= F.col("request_end")
    return placed.where(is_wanted).select(*ORIGIN)
