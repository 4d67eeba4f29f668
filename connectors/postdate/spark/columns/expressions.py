"""Building blocks of larger column expressions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Made = TypeVar("Made")

_REMEMBERED_MAX = 16
_KEPT = "_is_kept"


def memoized(make: Callable[..., Made]) -> Callable[..., Made]:
    """Memoizes `make`, a function that creates columns from its arguments alone.

    A column is a tree in the JVM, and each node costs a call to the JVM. Without the memo, a step of a continuous audit
    spends more time on building its columns than on computing them. A memo has at most _REMEMBERED_MAX results: before
    it exceeds them, it is cleared, so a process that keeps auditing new topics forgets earlier topics. Requires that
    one thread at a time calls the function.
    """
    made: dict[tuple[Hashable, ...], tuple[Any, Made]] = {}

    @wraps(make)
    def wrapper(*arguments: Hashable) -> Made:
        gateway = SparkContext._gateway  # columns belong to the JVM that made them
        if arguments not in made or made[arguments][0] is not gateway:
            if len(made) >= _REMEMBERED_MAX:
                made.clear()
            made[arguments] = (gateway, make(*arguments))
        return made[arguments][1]

    return wrapper


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Returns `body(value)`. Spark computes `value` once for each row, however often the body uses it.

    Without `let`, Spark repeats an expression at each use, and detects repeats only outside of conditions. So the code
    size and cost of nested conditions grow exponentially (measured: parsing an instant is 22 times slower).
    """
    return F.get(F.transform(F.array(value), body), 0)


def byte_length(data: Column) -> Column:
    """Returns the number of bytes; 0 for null."""
    return F.coalesce(F.octet_length(data), F.lit(0))


def where_computed(rows: DataFrame, condition: Column) -> DataFrame:
    """Returns the rows that satisfy `condition`, which names computed columns; like `where`, a null condition drops the
    row.

    Spark moves a filter below the projections that compute its columns, and repeats their expressions in the filter,
    step by step. For parsed records that is a million characters of code, too many for the JVM to compile. Spark does
    not move a generator, so this filter is an `explode`.
    """
    kept = F.explode(F.when(condition, F.array(F.lit(True))))
    return rows.select("*", kept.alias(_KEPT)).drop(_KEPT)


def natural(text: Column) -> Column:
    """Returns a non-negative number in at most 19 ASCII digits below 2**63, as bigint; null for anything else.

    The regular expression applies only to a text that is not in the usual form of a number, since matching takes a
    microsecond.
    """
    number = text.try_cast("bigint")
    return F.when(is_spelled(text, number) | text.rlike(r"\A[0-9]{1,19}\z"), number)


def is_spelled(text: Column, number: Column) -> Column:
    """True if `text` is Spark's own text form of this non-negative `number`."""
    return (number >= 0) & (number.cast("string") == text)


def one_of(value: Column, texts: Iterable[str]) -> Column:
    """True if `value` is one of `texts`, null for null: `isin` for the body of a higher-order function.

    Spark interprets such bodies, and its `In` walks its own tree for each row (measured: a sixth of all judging).
    """
    return F.array_contains(F.array(*(F.lit(text) for text in texts)), value)
