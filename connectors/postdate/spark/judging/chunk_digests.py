"""Verifies chunks of consecutive requests by digests, so that their origins need not be compared one by one.

A chunk is 1,024 consecutive offsets of a request partition. For each chunk, the audit aggregates three sets while it
reads them: the requests that are expected to be delivered, the fates `delivered`, and the delivered records. It counts
each set. Requests and records have a hash of the message, requests and fates a hash of the fate; the audit combines the
hashes of each kind by exclusive or. A chunk is consistent if the three counts are equal, the hashes of both kinds
cancel out, all other requests are due later, and no other fact about them exists. The origin is part of each hash. So
if the hashes cancel out, each request has exactly one fate and one record, and these match the request: every origin of
the chunk is plain in the sense of `origin_rows`. The origins of inconsistent chunks are judged one by one.

Certainty: a hash is two xxHash64 numbers, with secrets of 126 bits that each audit draws at random. The hash of a
message is computed from a SHA-256 digest over its key, value, headers, id, target, origin, due time and a further
secret of 128 bits. The hash of a fate is computed from its origin and its due time. So a forger cannot construct
records that cancel out. A wrong chunk passes only by chance, with a probability of about 2**-128.

Grace: a chunk is inconsistent if a fate was later than the shortest grace among its requests allows.

An origin is exceptional in each of these cases:

- It has a fate other than a plain `delivered`, or a dead letter, or an answer. Examples are cancelled, moved and dead
  messages, messages that left within a window, and controls.
- Its message is out of order.
- It is a return.
- The state of the audit has a row in doubt for it.
- It was delivered, but is not expected yet. The sums of requests are computed without the fates, so they do not count
  it.

Exceptional origins are known before the comparison. They are excluded from all three sets, since one exceptional origin
in a thousand would leave no chunk consistent, and they are judged one by one. All other requests that are due later are
pending. If a pending request has a record, or a fate is early, the chunk is inconsistent. Times are epoch milliseconds.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.murmur2 import positive_murmur2
from postdate.spark.limits import CHUNK_BITS, COMMIT_MS_MAX
from postdate.spark.records.fates import exceptional_fate_rows
from postdate.spark.rules.mismatches import expected_headers

CHUNK: Final = (*PARTITION, "chunk")
_REQUEST_COUNTS: Final = ("requests", "asked", "ahead", "others", "ids", "naming", "returns")
_COUNTS: Final = (*_REQUEST_COUNTS, "fates", "records", "garbled")
_PARTS: Final = ("target", "due_ms", "id", "key", "value", "data")
_MESSAGE: Final = ("message_one", "message_other")
_FATE: Final = ("fate_one", "fate_other")
_GRACE, _LATE = "grace_min_ms", "late_max_ms"
# Header names, and their values, are joined with secret separators, which no writer of records knows.
_BETWEEN_BYTES: Final = 16


def _secret_numbers() -> tuple[int, int]:
    return secrets.randbits(63), secrets.randbits(63)


def _secret_texts() -> tuple[str, str]:
    return secrets.token_urlsafe(_BETWEEN_BYTES), secrets.token_urlsafe(_BETWEEN_BYTES)


@dataclass(frozen=True)
class ChunkDigests:
    """The secrets and parameters of one audit's aggregation.

    A chunk is consistent only if its plain requests due before `expected_before_ms` were delivered. Requests due later
    count as pending. A pending request must not be overdue, so `expected_before_ms` is not before the snapshot minus
    the slack.
    """

    expected_before_ms: int
    bits: int = CHUNK_BITS
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    secret_numbers: tuple[int, int] = field(default_factory=_secret_numbers, repr=False)
    secret_texts: tuple[str, str] = field(default_factory=_secret_texts, repr=False)

    def of_requests(self, understood: DataFrame) -> DataFrame:
        """Returns the aggregates of requests by chunk and target; `understood` are rows of `understood_rows`."""
        is_plain = (
            (F.col("action") == "schedule") & F.col("due_ms").isNotNull() & F.col("partition_asked").isNull()
        ) & (F.col("target").isNotNull() & F.col("retry").isNull())
        is_ahead = F.col("due_ms") >= self.expected_before_ms
        # Only the rules can judge a chosen time within a window, and a due time that depends on other requests.
        has_rules = (F.col("window_ms").isNotNull() | F.col("latest_ms").isNotNull()) & ~is_ahead
        is_known = F.coalesce(is_plain & ~has_rules, F.lit(False))
        kinds = {"asked": is_known & ~is_ahead, "ahead": is_known & is_ahead, "others": ~is_known}
        kinds |= {"ids": F.col("id").isNotNull(), "naming": names_something()}
        kinds["returns"] = F.col("retry").isNotNull()
        rows = understood.select(*PARTITION, "offset", *_PARTS, *_flags(kinds), "grace_ms")
        hashed = [*self._message(), *self._fate(F.col("offset"), F.col("due_ms")), F.col("grace_ms")]
        folded = self._folded(rows, hashed, list(kinds), "asked", "target", measured=F.min("grace_ms").alias(_GRACE))
        return folded.withColumnRenamed("named", "requests")

    def of_fates(self, fates: DataFrame) -> DataFrame:
        """Returns the aggregates of fates by chunk; `fates` are rows of `fate_rows`."""
        fate = F.col("fate")
        is_timely = (fate.at_ms >= fate.first_due_ms) & self._is_expected(fate.first_due_ms)
        is_sound = _is_plain(fate) & is_timely & (F.col("offset") < fate.next_request)
        kinds = _sound_or_not(is_sound, "fates")
        late = (fate.at_ms - fate.first_due_ms).alias("late_ms")
        rows = fates.select(*PARTITION, "offset", fate.first_due_ms.alias("due_ms"), *_flags(kinds), late)
        hashed = [*self._fate(F.col("offset"), F.col("due_ms")), F.col("late_ms")]
        folded = self._folded(rows, hashed, list(kinds), "fates", measured=F.max("late_ms").alias(_LATE))
        return folded.drop("named")

    def of_records(self, messages: DataFrame, targets: DataFrame) -> DataFrame:
        """Returns the aggregates of deliveries by chunk. `messages` are rows of `delivered_messages`, and `targets` is
        the table of `audit.ranges`."""
        sizes = targets.select("target", "target_partitions")
        by_key = positive_murmur2(F.col("key")) % F.col("target_partitions")
        is_in_place = F.col("key").isNull() | (by_key == F.col("place"))
        is_own = F.col("own_headers") == expected_headers(F.col("id"))
        is_sound = is_in_place & is_own & self._is_expected(F.col("due_ms"))
        kinds = _sound_or_not(is_sound, "records")
        placed = messages.join(F.broadcast(sizes), "target", "left")
        garbled = _flags({"garbled": F.col("is_garbled")})
        rows = placed.select(*PARTITION, "offset", *_PARTS, *_flags(kinds), *garbled)
        hashed = [*self._message(), F.col("garbled")]
        folded = self._folded(rows, hashed, list(kinds), "records", measured=F.sum("garbled").alias("garbled"))
        # The condition does not use the grouping columns: Spark would evaluate it for each record, and parse the origin
        # twice.
        return folded.where("named > 0 or garbled > 0").drop("named")

    def exceptional_origins(self, log: DataFrame, others: Sequence[DataFrame], *, has_recent: bool = True) -> DataFrame:
        """Returns the origins of fates that are not plain, and all origins in `others`.

        With `has_recent`, also returns the origins of delivered messages that are not expected yet, unless they were
        early. `log` has rows of `log_rows`.
        """
        fate = F.col("fate")
        is_regular = _is_plain(fate) & (self._is_expected(fate.first_due_ms) if has_recent else F.lit(True))
        fates = exceptional_fate_rows(log, self.expected_before_ms if has_recent else None)
        irregular = fates.where(~F.coalesce(is_regular, F.lit(False)))
        return reduce(DataFrame.unionByName, (rows.select(*ORIGIN) for rows in (irregular, *others))).distinct()

    def together(
        self, request_chunks: DataFrame, fates: DataFrame, records: DataFrame, targets: DataFrame
    ) -> DataFrame:
        """Returns one row for each chunk with data: its counts, and whether it `is_consistent`.

        Records whose origin cannot be read are counted in one more row, without a chunk. The first three arguments are
        aggregates from the methods of this class. A chunk with a target that does not exist is inconsistent.
        """
        known = request_chunks.join(F.broadcast(targets.select("target", "target_partitions")), "target", "left")
        rest = F.when(F.col("target_partitions").isNull(), F.col("asked") + F.col("ahead")).otherwise(0)
        parts = (known.withColumn("others", F.col("others") + rest).drop("target", "target_partitions"), fates, records)
        union = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
        folded = union.groupBy(*CHUNK).agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS),
            *(F.coalesce(F.bit_xor(name), F.lit(0)).alias(name) for name in (*_MESSAGE, *_FATE)),
            *(F.min(_GRACE).alias("grace_ms"), F.max(_LATE).alias("late_ms")),
        )
        # If no fate was later than the shortest grace allows, no fate was later than its own grace.
        is_in_time = F.coalesce(F.col("late_ms") - COMMIT_MS_MAX <= F.col("grace_ms"), F.lit(True))
        counts_agree = (
            (F.col("asked") == F.col("fates")) & (F.col("asked") == F.col("records")) & (F.col("others") == 0)
        )
        cancels_out = reduce(Column.__and__, (F.col(name) == 0 for name in (*_MESSAGE, *_FATE)))
        return folded.select(*CHUNK, *_COUNTS, (counts_agree & cancels_out & is_in_time).alias("is_consistent"))

    def left_of(self, rows: DataFrame, inconsistent: DataFrame, exceptional: DataFrame) -> DataFrame:
        """Returns the rows that the digests do not verify: the rows of `inconsistent` chunks and of `exceptional`
        origins."""
        marked = _marked(rows.withColumn("chunk", self._chunk()), inconsistent, CHUNK, "is_left")
        return (
            _marked(marked, exceptional, ORIGIN, "is_exceptional")
            .where("is_left or is_exceptional")
            .select(*rows.columns)
        )

    def lateness(self, fates: DataFrame, inconsistent: DataFrame, exceptional: DataFrame) -> DataFrame:
        """Returns the `lateness_ms` of each message delivered in a consistent chunk; `fates` as for `of_fates`."""
        fate = F.col("fate")
        return self.consistent_rows(fates, inconsistent, exceptional).select(
            (fate.at_ms - fate.first_due_ms).alias("lateness_ms")
        )

    def consistent_rows(self, rows: DataFrame, inconsistent: DataFrame, exceptional: DataFrame) -> DataFrame:
        """Returns the rows in consistent chunks with their `chunk`, without those of exceptional origins."""
        chunks = rows.withColumn("chunk", self._chunk())
        return without_exceptional(
            chunks.join(F.broadcast(inconsistent.select(*CHUNK)), list(CHUNK), "left_anti"), exceptional
        )

    def _chunk(self) -> Column:
        return F.shiftright("offset", self.bits)

    def _is_expected(self, due_ms: Column) -> Column:
        return due_ms < self.expected_before_ms

    def _message(self) -> list[Column]:
        """Returns the two hashes of a message, over the columns `_PARTS` and its origin."""
        data, (between, null) = F.col("data"), self.secret_texts
        header_names = F.array_join(data.getField("key"), between).cast("binary")
        header_values = F.array_join(data.getField("value").cast("array<string>"), between, null).cast("binary")
        texts = [F.col(name).cast("binary") for name in ("topic", "target", "key", "value", "id")]
        sizes = (F.coalesce(F.octet_length(part), F.lit(-1)) for part in (*texts, header_names))
        numbers = F.concat_ws(",", *map(F.col, ("partition", "offset", "due_ms")), *sizes, F.size(data)).cast("binary")
        # `numbers` has the size of each part except the last, so different messages have different bytes.
        whole = F.concat(
            F.lit(self.secret),
            *(numbers, F.lit(b";")),
            *(F.coalesce(part, F.lit(b"")) for part in texts),
            *(header_names, header_values),
        )
        digest = F.sha2(whole, 256)
        return [
            F.xxhash64(F.lit(number), digest).alias(name)
            for number, name in zip(self.secret_numbers, _MESSAGE, strict=True)
        ]

    def _fate(self, offset: Column, due_ms: Column) -> list[Column]:
        parts: list[Column | str] = [*PARTITION, offset, due_ms]
        return [
            F.xxhash64(F.lit(number), *parts).alias(name)
            for number, name in zip(self.secret_numbers, _FATE, strict=True)
        ]

    def _folded(
        self,
        rows: DataFrame,
        hashes: Sequence[Column],
        kinds: Sequence[str],
        hashed: str,
        *by: str,
        measured: Column | None = None,
    ) -> DataFrame:
        """Returns the aggregates of each chunk, or of each chunk and value of `by`.

        The aggregates are the number of rows of each kind, the combined hashes of the kind `hashed`, and `named`, the
        number of rows with an origin. `measured` is one more aggregate.
        """
        folded = rows.select(*PARTITION, self._chunk().alias("chunk"), *by, *kinds, *hashes)
        names = [name for name in folded.columns if name in (*_MESSAGE, *_FATE)]
        # A mask instead of a condition: Spark would compute the digest again in each branch of a condition.
        mask = F.negate(F.col(hashed))
        return folded.groupBy(*CHUNK, *by).agg(
            *(F.sum(kind).alias(kind) for kind in kinds),
            F.count("topic").alias("named"),
            *(F.bit_xor(F.col(name).bitwiseAND(mask)).alias(name) for name in names),
            *([] if measured is None else [measured]),
        )


def _sound_or_not(is_sound: Column, name: str) -> dict[str, Column]:
    """Returns two conditions by column name: sound rows under `name`, and all other rows under `others`."""
    is_known_sound = F.coalesce(is_sound, F.lit(False))
    return {name: is_known_sound, "others": ~is_known_sound}


def _flags(kinds: Mapping[str, Column]) -> list[Column]:
    """Returns one column for each kind: 1 for the rows of this kind, otherwise 0."""
    return [is_kind.cast("bigint").alias(kind) for kind, is_kind in kinds.items()]


def names_something() -> Column:
    """True if a request has an id or names another request of its partition."""
    return F.col("id").isNotNull() | F.col("acts_on").isNotNull()


def without_exceptional(rows: DataFrame, exceptional: DataFrame) -> DataFrame:
    """Returns the rows without those of `exceptional` origins. These origins are broadcast to every executor."""
    marked = _marked(rows, exceptional, ORIGIN, "is_exceptional")
    return marked.where("is_exceptional is null").select(*rows.columns)


def subtracted(request_chunks: DataFrame, exceptional: DataFrame) -> DataFrame:
    """Returns the aggregates of requests without the `exceptional` requests; both come from the same `ChunkDigests`."""
    negative = (F.negate(name).alias(name) if name in _REQUEST_COUNTS else F.col(name) for name in exceptional.columns)
    return request_chunks.unionByName(exceptional.select(*negative))


def _is_plain(fate: Column) -> Column:
    return (fate.fate_name == "delivered") & ~fate.late & fate.chosen_ms.isNull()


def _marked(rows: DataFrame, some: DataFrame, by: Sequence[str], mark: str) -> DataFrame:
    """Returns `rows` with the column `mark`: true if `some` has a row with the same columns `by`, otherwise null."""
    marks = some.select(*(F.col(name).alias(f"{mark}_{name}") for name in by), F.lit(True).alias(mark))
    # A partition number that no topic can have is read as null. Rows with such an origin must match, too.
    same = reduce(Column.__and__, (F.col(name).eqNullSafe(F.col(f"{mark}_{name}")) for name in by))
    return rows.join(F.broadcast(marks), same, "left")
