"""Returns: requests with `postdate-retry`, which request redelivery of their message after a backoff.

The expressions follow the format's description and share nothing with the sidecar's parser, so that a defect of that
parser shows as a mismatch; a test compares the two. Spark interprets these expressions, but only for returns, which are
rare.

`postdate-retry` holds a policy, or the name of a policy. A name contains no `=`. The dispatch log has the text of a
named policy (`policies`). The column `retry` of a request is null if the request is not a return; otherwise it has
these fields:

    name               the name of the policy; null if the policy is in the header
    is_unknown         true if the dispatch log has no row of this name for the request
    is_readable        true if the policy, the attempt, the root and the first due time of the return are well-formed
    attempts           the maximum number of attempts by the policy; null if the policy is unknown or not readable
    `said`             the attempt that the return names; null if it names none. A state stores it by this name
    attempt            the attempt of the redelivery
    first_origin       the origin of the root, which is the return itself if it names no other origin
    first_due_ms       the first due time of the root; null if the return names none, so that its own due time counts
    has_error error    true if the return has `postdate-error`; the last value of this header
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.digests import count_of, first_value, has, last_value
from postdate.spark.columns.expressions import let, natural
from postdate.spark.columns.times import duration_ms
from postdate.spark.limits import BACKOFF_MS_MAX
from postdate.wire import headers as names
from postdate.wire.limits import POLICY_TEXT_LENGTH_MAX

RETRY: Final = (
    "struct<name:string,is_unknown:boolean,is_readable:boolean,attempts:bigint,said:bigint,attempt:bigint,"
    "first_origin:string,first_due_ms:bigint,has_error:boolean,error:binary>"
)
_ONCE: Final = (
    *(names.RETRY, names.ATTEMPT, names.FIRST_ORIGIN, names.FIRST_DUE, names.ORIGIN),
    *(names.TOPIC, names.KEY, names.PARTITION, names.ID, names.GRACE, names.ACTION),
)
_KEYS: Final = ("base", "factor", "max", "attempts", "jitter")
_KEY: Final = f"({'|'.join(_KEYS)}) *="
_PART: Final = f" *{_KEY} *[^ ,=]+ *"
_POLICY: Final = rf"\A{_PART}(?:,{_PART})*\z"
_NAME: Final = r"\A[A-Za-z0-9._-]{1,64}\z"
_ORIGIN: Final = r"\A[A-Za-z0-9._-]{1,249}/(?:0|[1-9][0-9]{0,9})/(?:0|[1-9][0-9]{0,18})\z"
_ATTEMPTS_DIGITS_MAX: Final = 4
_INTEGER_MAX: Final = 2**63 - 1
_DEFAULTS: Final = {"factor": "2", "max": "1h", "attempts": "12", "jitter": "0%"}


def return_texts(headers: Column) -> Column:
    """Returns the texts of a return, from its headers; null for other requests. A header without a value gives an empty
    text.

    `is_single` is true if no header of _ONCE is repeated, and no header names a time.
    """

    def text(name: str, value: Callable[[Column, str], Column] = first_value) -> Column:
        return F.when(has(headers, name), F.coalesce(value(headers, name).cast("string"), F.lit("")))

    found = reduce(Column.__add__, (has(headers, name).cast("int") for name in _ONCE))
    texts = F.struct(
        text(names.RETRY).alias("policy"),
        text(names.ORIGIN).alias("origin"),
        text(names.ATTEMPT).alias("attempt"),
        text(names.FIRST_ORIGIN).alias("first_origin"),
        text(names.FIRST_DUE).alias("first_due"),
        text(names.DUE, last_value).alias("due"),
        has(headers, names.ERROR).alias("has_error"),
        last_value(headers, names.ERROR).alias("error"),
        ((count_of(headers, _ONCE) == found) & (count_of(headers, names.TIMES) == 0)).alias("is_single"),
    )
    return F.when(has(headers, names.RETRY), texts)


def policy_name(texts: Column) -> Column:
    """Returns the name of a return's policy; null if the header contains the policy itself, or an invalid name."""
    name = F.trim(texts.policy, F.lit(" "))
    return F.when(name.rlike(_NAME) & (F.octet_length(texts.policy) <= POLICY_TEXT_LENGTH_MAX), name)


def read_return(texts: Column, named_policy: Column, own_origin: Column, request_ms: Column) -> Column:
    """Returns `retry` as described above, or null if `texts` is null. An additional field `due_ms` is null if the
    return must be refused or its policy is unknown.

    `named_policy` is the text of the policy that the return names; empty if the policy was removed, null if it is
    unknown, or if the return names no policy.
    """
    policy = _policy(F.coalesce(named_policy, texts.policy))
    return F.when(
        texts.isNotNull(), let(policy, lambda policy: _read(texts, named_policy, policy, own_origin, request_ms))
    )


def _read(texts: Column, named_policy: Column, policy: Column, own_origin: Column, request_ms: Column) -> Column:
    named_attempt, first_due = natural(texts.attempt), F.coalesce(texts.first_due, texts.due)
    first_due_ms, root = natural(first_due), F.coalesce(texts.first_origin, texts.origin)
    are_headers_readable = (
        (texts.attempt.isNull() | named_attempt.isNotNull())
        & (root.isNull() | _is_origin(root))
        & (first_due.isNull() | first_due_ms.isNotNull())
    )
    name = policy_name(texts)
    # The largest integer has no successor. A number this large exceeds the attempts of every policy.
    after = F.when(named_attempt.isNotNull(), F.least(named_attempt, F.lit(_INTEGER_MAX - 1)) + 1)
    attempt = F.coalesce(after, F.when(texts.attempt.isNull(), F.lit(1).cast("bigint")))
    is_readable = policy.isNotNull() & are_headers_readable
    is_sound = is_readable & texts.is_single & (attempt <= policy.attempts) & (request_ms >= 0)
    return F.struct(
        name.alias("name"),
        (name.isNotNull() & named_policy.isNull()).alias("is_unknown"),
        is_readable.alias("is_readable"),
        policy.attempts.alias("attempts"),
        named_attempt.alias("said"),
        attempt.alias("attempt"),
        F.coalesce(root, own_origin).alias("first_origin"),
        first_due_ms.alias("first_due_ms"),
        texts.has_error.alias("has_error"),
        texts.error.alias("error"),
        F.when(is_sound, request_ms + _backoff_ms(policy, attempt, own_origin)).alias("due_ms"),
    )


def _is_origin(text: Column) -> Column:
    is_spelled = F.coalesce(text.rlike(_ORIGIN), F.lit(False))
    partition, offset = F.split_part(text, F.lit("/"), F.lit(2)), F.split_part(text, F.lit("/"), F.lit(3))
    exists = partition.try_cast("int").isNotNull() & offset.try_cast("bigint").isNotNull()
    return is_spelled & exists & ~F.coalesce(text.rlike(r"\A\.\.?/"), F.lit(False))


def _policy(text: Column) -> Column:
    """Parses the text of a policy to a struct of numbers; null if the text is not a policy."""
    keys = F.regexp_extract_all(text, F.lit(_KEY), F.lit(1))
    is_spelled = (
        text.rlike(_POLICY)
        & (F.octet_length(text) <= POLICY_TEXT_LENGTH_MAX)
        & (F.size(F.array_distinct(keys)) == F.size(keys))
    )
    return F.when(F.coalesce(is_spelled, F.lit(False)), let(_policy_texts(text), _policy_numbers))


def _policy_texts(text: Column) -> Column:
    def value(key: str) -> Column:
        found = F.regexp_extract(text, rf"(?:\A|,) *{key} *= *([^ ,=]+)", 1)
        return F.when(found != "", found).otherwise(F.lit(_DEFAULTS.get(key)).cast("string")).alias(key)

    return F.struct(*map(value, _KEYS))


def _policy_numbers(texts: Column) -> Column:
    """Returns the numbers of a policy, with the factor in hundredths and the jitter in percent; null if one of them is
    out of bounds."""
    factor = F.when(texts.factor.rlike(r"\A[0-9]{1,3}(?:\.[0-9]{1,2})?\z"), texts.factor.try_cast("decimal(20,2)"))
    jitter = F.when(texts.jitter.rlike(r"\A[0-9]{1,3}%\z"), natural(F.rtrim(texts.jitter, F.lit("%"))))
    durations = F.transform(F.array(texts.base, texts.max), duration_ms)
    numbers = F.struct(
        F.get(durations, 0).alias("base_ms"),
        (factor * 100).try_cast("bigint").alias("factor"),
        F.get(durations, 1).alias("max_ms"),
        F.when(F.length(texts.attempts) <= _ATTEMPTS_DIGITS_MAX, natural(texts.attempts)).alias("attempts"),
        jitter.alias("jitter"),
    )

    def checked(policy: Column) -> Column:
        is_sound = (
            (policy.base_ms >= 1)
            & (policy.base_ms <= policy.max_ms)
            & (policy.max_ms <= BACKOFF_MS_MAX)
            & policy.factor.between(100, 10_000)
            & policy.attempts.between(1, 1_000)
            & policy.jitter.between(0, 100)
        )
        return F.when(is_sound, policy)

    return let(numbers, checked)


def _backoff_ms(policy: Column, attempt: Column, own_origin: Column) -> Column:
    """Returns the time from a return to its redelivery. All products stay below 2**63."""

    def longer(delay_ms: Column, _: Column) -> Column:
        grown = delay_ms * policy.factor
        up = F.pmod(F.negate(grown), F.lit(100))
        return F.least(policy.max_ms, _whole(grown + up, 100))

    steps = F.when(attempt >= 2, F.sequence(F.lit(2).cast("bigint"), attempt)).otherwise(
        F.array().cast("array<bigint>")
    )
    chance = F.shiftright(F.crc32(own_origin.cast("binary")), 16)

    def with_jitter(delay_ms: Column) -> Column:
        return delay_ms + _whole(delay_ms * policy.jitter * chance, 100 * 65_536)

    return let(F.aggregate(steps, policy.base_ms, longer), with_jitter)


def _whole(number: Column, by: int) -> Column:
    """Returns the integer quotient of a natural number and `by`."""
    return F.call_function("div", number, F.lit(by).cast("bigint"))
