"""The plain delivery: one fate, one record, nothing else, and all that can be compared is equal.

Nearly every request ends so. The condition implies that no rule of `endings` and `mismatches` is broken, and that the
verdict is `delivered`; it is compiled by Spark, while the rules, which are about lists, are interpreted. What is not
plain is not wrong yet: the rules say.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.connectors.wire import headers as names

# The names of the headers that a delivery adds; one with an id has `postdate-id` behind them.
_OWN_HEADERS = f"{names.ORIGIN},{names.DUE}"

_DIGESTS = ("key_digest", "value_digest", "headers_digest")


def is_plain() -> Column:
    """Whether a row is a plain delivery; never null. Speaks of the columns that `judge` has brought together."""
    request, fate, record = F.col("request"), F.get("fates", F.lit(0)), F.get("records", F.lit(0))
    alone = [F.size(name) == 1 for name in ("fates", "records")]
    alone += [F.size(name) == 0 for name in ("letters", "claims", "answers", "unanswered")]
    ended = [
        request.action == "schedule",
        fate.fate_name == "delivered",
        ~fate.late,
        fate.first_due_ms == request.due_ms,
        fate.at_ms >= request.due_ms,
    ]
    same = [getattr(record, name) == getattr(request, name) for name in _DIGESTS]
    same += [
        record.target == F.col("target"),
        record["partition"] == expected_partition(),
        record.due_ms == request.due_ms,
        record.id.eqNullSafe(request.id),
        record.own_headers == expected_headers(),
    ]
    holds = F.lit(True)
    for condition in (*alone, *ended, *same):
        holds = holds & condition
    return F.coalesce(holds, F.lit(False))


def expected_partition() -> Column:
    """The partition of the target that a message belongs to: the one asked for, else that of its key."""
    by_key = F.col("request.key_hash") % F.col("target_partitions")
    return F.coalesce(F.col("request.partition_asked"), by_key)


def expected_headers() -> Column:
    """The names of the headers that a delivery of this request adds."""
    return F.when(F.col("request.id").isNull(), F.lit(_OWN_HEADERS)).otherwise(F.lit(f"{_OWN_HEADERS},{names.ID}"))
