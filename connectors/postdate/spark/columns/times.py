"""Times of requests as column expressions: texts of instants, durations and levels to milliseconds, and durations to
texts.

The expressions follow the format's description and share nothing with the sidecar's parser, so that a defect of that
parser shows as a mismatch; a test compares the two. Everything here is Spark SQL: no row passes through Python. An
invalid text gives null.

    epoch milliseconds   1795258284000
    RFC 3339             2026-11-21T10:51:24.5+01:00     offset or Z; :60 only at 23:59:60 UTC
    duration             1500   90s   2h30m   1d12h   1.5s   PT5M   P1DT12H   P2W

Only the last component may have a fraction, and a fraction of a millisecond rounds up. Fractions are exact to 25
digits. Plain numbers are checked first: Spark interprets the expressions for other forms, which takes about 10 µs each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.expressions import is_spelled, let, natural
from postdate.spark.limits import FRACTION_DIGITS_MAX, TIME_TEXT_LENGTH_MAX

_DAY_S = 86_400
_INTEGER_MAX = 2**63 - 1

_SHORT = r"(?=[0-9])(?:[0-9]+d)?(?:[0-9]+h)?(?:[0-9]+m)?(?:[0-9]+s)?(?:[0-9]+ms)?"
_ISO = r"P(?=[0-9T])(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+S)?)?"
_ISO_WEEKS = r"P[0-9]+W"
_DURATION = rf"\A(?:{_SHORT}|{_ISO}|{_ISO_WEEKS})\z"
_COMPONENT = r"([0-9]+)(ms|[A-Za-z])"
# ISO units are upper case, so one table serves both formats.
_UNIT_MS = {
    **{"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1},
    **{"W": 604_800_000, "D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1_000},
}

_HOUR_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_RFC3339 = (
    rf"\A[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[Tt]{_HOUR_MINUTE}:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|[+-]{_HOUR_MINUTE})\z"
)


def instant_ms(text: Column) -> Column:
    """Returns the instant `text` in epoch milliseconds, rounded up; null if it is invalid or before 1970."""
    spelled = F.when(text.rlike(_RFC3339) & (F.length(text) <= TIME_TEXT_LENGTH_MAX), let(text, _rfc3339_ms))
    return F.when(_is_number(text), natural(text)).otherwise(spelled)


def duration_ms(text: Column) -> Column:
    """Returns the duration `text` in milliseconds, rounded up; null if it is invalid or reaches 2**63."""
    spelled = F.when(F.length(text) <= TIME_TEXT_LENGTH_MAX, let(text, _spelled_duration_ms))
    return F.coalesce(natural(text), spelled)


def durations_ms(texts: Sequence[Column]) -> Column:
    """Returns an array with the durations of those `texts` that `natural` cannot read, each at the index of its text.

    Its other elements are null. The whole result is null if there is no such text. Use `duration_in` to read it.

    This expression contains the tree of `duration_ms` once for all texts. The tree is large, and Spark analyses,
    optimizes and sends each copy.
    """
    rest = [F.when(natural(text).isNull(), text) for text in texts]
    is_any = reduce(Column.__or__, (text.isNotNull() for text in rest))
    return F.when(is_any, F.transform(F.array(*rest), duration_ms))


def duration_in(durations: Column, place: int, text: Column) -> Column:
    """Returns the duration `text`: the result of `natural`, or if that is null, element `place` of `durations`, the
    result of `durations_ms`."""
    return F.coalesce(natural(text), F.get(durations, place))


def delay_of_level_ms(level: Column, levels_ms: Sequence[int]) -> Column:
    """Returns the delay of a level by the table `levels_ms`; null if `level` is invalid. Level 0 is no delay, and
    levels beyond the last count as the last."""
    table = F.array(F.lit(0).cast("bigint"), *(F.lit(delay_ms).cast("bigint") for delay_ms in levels_ms))
    number = natural(level)
    last = F.lit(len(levels_ms)).cast("bigint")
    # `least` would ignore a null.
    return F.get(table, F.when(number > last, last).otherwise(number).cast("int"))


def draw_ms(window_ms: Column, topic: Column, partition: Column, offset: Column) -> Column:
    """Returns the time from a message's due time to its chosen time, by the formula of docs/protocol.md; 0 without a
    window.

    `topic`, `partition` and `offset` are the origin of the request that set the due time.
    """
    origin = F.concat_ws("/", topic, partition, offset).cast("binary")
    drawn = F.shiftright((window_ms + 1) * F.shiftright(F.crc32(origin), 8), 24)
    return F.when(window_ms > 0, drawn).otherwise(F.lit(0).cast("bigint"))


def due_ms(
    at: Column, delay: Column, delay_ms: Column, level: Column, request_ms: Column, levels_ms: Sequence[int]
) -> Column:
    """Returns the due time of a request from `at`, `delay` or `level`; null if it is invalid, or if all three are null.
    Requires that at most one of them is not null. `delay_ms` is the duration in `delay`.

    `request_ms` is the timestamp of the request's record; if it is -1 or null, a relative delay gives null. A due time
    of 0 becomes 1: in the dispatch log, a first due time of 0 marks a request that was never pending.
    """
    after_ms = F.when(delay.isNotNull(), delay_ms).otherwise(delay_of_level_ms(level, levels_ms))
    counted_ms = let(after_ms, lambda found_ms: _bigint(request_ms.cast("decimal(20,0)") + found_ms))
    found_ms = F.when(at.isNotNull(), instant_ms(at)).otherwise(F.when(request_ms >= 0, counted_ms))
    # Spark does not compile `let`. Nearly all times are plain numbers, which need no `let`.
    return F.coalesce(_positive(at), let(found_ms, _held))


def duration_text(length_ms: Column) -> Column:
    """Returns a duration as exact text that `duration_ms` can read: 400d, 1d12h, 1m30s, 1.5s, 250ms, 0s; null for null.

    Requires a duration that is not negative.
    """
    parts, rest = [], length_ms
    for unit in ("d", "h", "m"):
        count = F.call_function("div", rest, F.lit(_UNIT_MS[unit]))
        parts.append(F.when(count > 0, F.concat(count, F.lit(unit))).otherwise(""))
        rest = rest % _UNIT_MS[unit]
    digits = F.regexp_replace(F.lpad(rest % 1_000, 3, "0"), "0+$", "")
    fraction = F.when(rest % 1_000 > 0, F.concat(F.lit("."), digits)).otherwise("")
    seconds = F.concat(F.call_function("div", rest, F.lit(1_000)), fraction, F.lit("s"))
    whole = F.concat(*parts, F.when((rest > 0) | (length_ms == 0), seconds).otherwise(""))
    brief = F.concat(length_ms, F.lit("ms"))
    return F.when((length_ms > 0) & (length_ms < 1_000), brief).when(length_ms.isNotNull(), whole)


def _held(first_ms: Column) -> Column:
    return F.when(first_ms.isNotNull(), F.greatest(first_ms, F.lit(1).cast("bigint")))


def _positive(text: Column) -> Column:
    """Returns the number of a positive decimal text without a sign or leading zeros; null for any other text."""
    number = text.try_cast("bigint")
    return F.when((number > 0) & is_spelled(text, number), number)


def _is_number(text: Column) -> Column:
    return text.rlike(r"\A[0-9]+\z")


def _rfc3339_ms(text: Column) -> Column:
    """Returns the instant of a text that matches _RFC3339. All parts but the fraction are at fixed positions from the
    start or the end."""

    def number(place: int) -> Column:
        return F.substring(text, place, 2).cast("bigint")

    sign = F.substring(text, -6, 1)
    distance_s = number(-5) * 3_600 + number(-2) * 60
    offset_s = F.when(sign == "+", distance_s).when(sign == "-", -distance_s).otherwise(F.lit(0).cast("bigint"))
    offset_s = F.when(F.lower(F.substring(text, -1, 1)) == "z", F.lit(0).cast("bigint")).otherwise(offset_s)
    # try_cast gives null for a day that does not exist.
    midnight_s = F.unix_date(F.substring(text, 1, 10).try_cast("date")).cast("bigint") * _DAY_S
    epoch_s = midnight_s + number(12) * 3_600 + number(15) * 60 + number(18) - offset_s
    fraction = F.regexp_extract(text, r"\.([0-9]+)", 1)
    rest_ms = F.when(fraction != "", let(fraction, lambda digits: _ceil_fraction(digits, F.lit(1_000)))).otherwise(0)

    def checked(parts: Column) -> Column:
        leap_is_right = (number(18) < 60) | (F.pmod(parts.epoch_s, F.lit(_DAY_S)) == 0)
        epoch_ms = parts.epoch_s * 1_000 + parts.rest_ms
        return F.when(leap_is_right & (epoch_ms >= 0), epoch_ms)

    return let(F.struct(epoch_s.alias("epoch_s"), rest_ms.alias("rest_ms")), checked)


def _spelled_duration_ms(text: Column) -> Column:
    """Returns the milliseconds of a duration with units."""
    with_fraction = let(F.regexp_replace(text, r"\.[0-9]+(?=[A-Za-z]{1,2}\z)", ""), _components_ms)
    rest = _ceil_fraction(F.regexp_extract(text, r"\.([0-9]+)", 1), _unit_ms(_last_unit(text)))
    return F.when(text.contains("."), _bigint(with_fraction + rest)).otherwise(_bigint(_components_ms(text)))


def _last_unit(text: Column) -> Column:
    return F.regexp_extract(text, r"(ms|[A-Za-z])\z", 1)


def _unit_ms(unit: Column) -> Column:
    return F.coalesce(*(F.when(unit == name, F.lit(size_ms)) for name, size_ms in _UNIT_MS.items()))


def _components_ms(text: Column) -> Column:
    """Returns the sum of whole components as a decimal; null if the text is invalid or a number has more than 20
    digits."""
    numbers = F.regexp_extract_all(text, F.lit(_COMPONENT), F.lit(1))
    units = F.regexp_extract_all(text, F.lit(_COMPONENT), F.lit(2))
    sizes = F.zip_with(
        numbers,
        units,
        lambda number, unit: number.try_cast("decimal(20,0)") * _unit_ms(unit).cast("decimal(10,0)"),
    )
    zero = F.lit(0).cast("decimal(38,0)")
    total = F.aggregate(sizes, zero, lambda sum_ms, size_ms: (sum_ms + size_ms).cast("decimal(38,0)"))
    return F.when(text.rlike(_DURATION), total)


def _ceil_fraction(digits: Column, unit_ms: Column) -> Column:
    """Returns `0.<digits>` units in milliseconds, rounded up, as bigint."""
    scale = FRACTION_DIGITS_MAX
    leading = F.rpad(F.substring(digits, 1, scale), scale, "0").try_cast(f"decimal({scale},0)")
    product = F.lpad((leading * unit_ms.cast("decimal(10,0)")).cast("string"), scale + 11, "0")
    has_rest = F.concat(F.substring(product, 12, scale), F.substring(digits, scale + 1, 64)).rlike("[1-9]")
    return F.substring(product, 1, 11).cast("bigint") + F.when(has_rest, F.lit(1)).otherwise(F.lit(0))


def _bigint(number: Column) -> Column:
    """Returns a number as bigint; null if it is 2**63 or more, which no timestamp of a record can be."""
    bounded = number.cast("decimal(38,0)")
    return F.when(bounded <= F.lit(_INTEGER_MAX).cast("decimal(20,0)"), bounded.try_cast("bigint"))
