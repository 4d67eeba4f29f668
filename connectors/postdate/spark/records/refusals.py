"""Checks refusals: a request must justify the reason of its dead letter.

The checks cover the reasons that follow from the headers, the timestamp and the partition of the request, and from the
named retry policies: `missing-target`, `missing-time`, `conflicting-time`, `bad-time`, `bad-window`, `bad-if-pending`,
`bad-if-ended`, `bad-latest`, `bad-selection`, `bad-spread`, `bad-id`, `unknown-header`, `duplicate-header`, `bad-retry`
and `attempts-exhausted`. The checks read the headers of the dead letter without those that Postdate has appended; the
remaining headers must equal those of the request. Times and returns come from the audit's interpretation of the
request. All functions create columns over a dead letter or its request.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.digests import first_value, has, is_postdate_header, last_value
from postdate.spark.columns.expressions import byte_length, one_of
from postdate.spark.records.recurrences import BACKFILL, filled_range, recurs
from postdate.spark.records.requests import parsed_origin
from postdate.spark.records.selections import has_selector
from postdate.wire import headers as names
from postdate.wire.limits import ID_BYTES_MAX, WINDOW_MS_MAX
from postdate.wire.reasons import Reason

_DROPPED = (names.ORIGIN, names.DUE, names.MOVED)
_DEAD = f"{names.PREFIX}dead-"


def unfounded_refusal(reason: Column, headers: Column, topic: Column, partition: Column) -> Column:
    """Returns the reason of a dead letter if the `headers` of its request do not justify it; otherwise null.

    `topic` and `partition` are those of the request. For `bad-window` and `bad-latest`, only the presence of the header
    is checked here. `is_time_readable` checks both values and `bad-time`, `is_range_readable` checks the `bad-time` of
    a backfill, and `is_return_sound` checks `bad-retry` and `attempts-exhausted`. The audit does not know the setting
    `format_version`, so a header of format 2 may be unknown.
    """
    ours = F.filter(headers, is_postdate_header)
    our_names = F.transform(ours, lambda header: header.key)
    single = F.array_remove(our_names, names.ERROR)
    times = reduce(Column.__add__, (has(headers, name).cast("int") for name in names.TIMES))
    given = times + has(headers, names.RETRY).cast("int")
    is_timed_schedule = (given > 0) & F.exists(our_names, lambda name: one_of(name, sorted(names.SCHEDULE)))
    spread = first_value(headers, names.SPREAD).cast("string")
    is_backfill = F.coalesce(last_value(headers, names.ACTION).cast("string") == BACKFILL, F.lit(False))
    is_bounded = has(headers, names.START) & has(headers, names.END)
    is_even = F.coalesce(spread == "even", F.lit(False)) & has(headers, names.WINDOW)
    holds = {
        Reason.MISSING_TARGET: ~has(headers, names.TOPIC),
        Reason.MISSING_TIME: (given == 0) & ~recurs(headers) & ~(is_backfill & is_bounded),
        Reason.CONFLICTING_TIME: (given + has(headers, names.BY).cast("int") > 1) | is_timed_schedule,
        Reason.BAD_WINDOW: has(headers, names.WINDOW),
        Reason.BAD_SELECTION: has_selector(headers),
        Reason.BAD_SPREAD: has(headers, names.SPREAD) & ~is_even,
        Reason.BAD_LATEST: has(headers, names.LATEST),
        Reason.BAD_IF_PENDING: has(headers, names.IF_PENDING) & (has(headers, names.RETRY) | ~_is_if_pending(headers)),
        Reason.BAD_IF_ENDED: has(headers, names.IF_ENDED) & (has(headers, names.RETRY) | ~_is_if_ended(headers)),
        Reason.BAD_ID: _is_bad_id(headers, topic, partition),
        Reason.UNKNOWN_HEADER: F.exists(our_names, lambda name: ~_is_known(name)),
        Reason.DUPLICATE_HEADER: F.size(F.array_distinct(single)) < F.size(single),
    }
    judged = reduce(
        lambda conditions, rule: conditions.when(reason == rule[0].value, ~rule[1]),
        holds.items(),
        F.when(F.lit(False), F.lit(False)),
    )
    return F.when(F.coalesce(judged, F.lit(False)), reason)


def is_time_readable(dead_letter: Column, request: Column) -> Column:
    """True if the refusal `bad-time`, `bad-window` or `bad-latest` is unfounded, since the request has a valid due time
    and grace, a valid window, or a valid limit, respectively."""
    grace = ~dead_letter.has_grace | request.grace_ms.isNotNull()
    # A record without a timestamp is refused as `bad-time`, whatever its headers are.
    due = request.due_ms.isNotNull() & (request.request_ms >= 0)
    # A return must have neither a window nor a limit.
    window = F.coalesce(_is_length(request.window_ms) & ~dead_letter.has_retry, F.lit(False))
    latest = F.coalesce(_is_length(request.latest_ms) & ~dead_letter.has_retry & ~request.keeps, F.lit(False))
    is_readable = F.when(dead_letter.reason == Reason.BAD_TIME.value, due & grace)
    is_readable = is_readable.when(dead_letter.reason == Reason.BAD_WINDOW.value, window)
    return is_readable.when(dead_letter.reason == Reason.BAD_LATEST.value, latest).otherwise(F.lit(False))


def is_range_readable(request: Column) -> Column:
    """True if a request is a backfill of past times, for which the refusal `bad-time` is unfounded."""
    start_ms, end_ms = filled_range(request.recurrence)
    is_passed = (start_ms <= end_ms) & (end_ms <= request.request_ms)
    return F.when(request.action == BACKFILL, F.coalesce(is_passed, F.lit(False))).otherwise(F.lit(False))


def _is_length(length_ms: Column) -> Column:
    return (length_ms > 0) & (length_ms <= WINDOW_MS_MAX)


def _is_if_pending(headers: Column) -> Column:
    value = first_value(headers, names.IF_PENDING).cast("string")
    return F.coalesce(value.isin("keep", "replace"), F.lit(False))


def _is_if_ended(headers: Column) -> Column:
    return F.coalesce(first_value(headers, names.IF_ENDED).cast("string") == "drop", F.lit(False))


def is_return_sound(dead_letter: Column, request: Column) -> Column:
    """True if the refusal `bad-retry` or `attempts-exhausted` of a return is unfounded, since the return is well-formed
    or has attempts left, respectively.

    The audit does not know the horizon, so it does not judge a `bad-retry` whose detail names the horizon.
    """
    retry = request.retry
    is_malformed = retry.isNull() | ~retry.is_readable | retry.is_unknown | dead_letter.names_horizon
    is_exhausted = F.coalesce(retry.attempt > retry.attempts, retry.is_unknown)
    return ((dead_letter.reason == Reason.BAD_RETRY.value) & ~is_malformed) | (
        (dead_letter.reason == Reason.ATTEMPTS_EXHAUSTED.value) & ~F.coalesce(is_exhausted, F.lit(False))
    )


def _is_known(name: Column) -> Column:
    return one_of(name, sorted((names.REQUEST | {*_DROPPED}) - names.FORMAT_2)) | F.startswith(name, F.lit(_DEAD))


def _is_bad_id(headers: Column, topic: Column, partition: Column) -> Column:
    """True if the id is empty, too long or not UTF-8, or the named origin is unreadable or not in this partition."""
    id_, origin = first_value(headers, names.ID), parsed_origin(first_value(headers, names.ORIGIN).cast("string"))
    length = byte_length(id_)
    is_bad = (length < 1) | (length > ID_BYTES_MAX) | ~F.coalesce(F.is_valid_utf8(id_.cast("string")), F.lit(True))
    is_here = (origin.topic == topic) & (origin.partition == partition) & origin.offset.isNotNull()
    of_origin = has(headers, names.ORIGIN) & ~F.coalesce(is_here, F.lit(False))
    return (has(headers, names.ID) & is_bad) | of_origin
