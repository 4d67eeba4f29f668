"""Requests of topics with dialects (headers of other schedulers), read by the parser of the wire format, in Python.

Column expressions for a dozen dialects would duplicate the parser's table. So on a topic with dialects, `parse_request`
parses in a Python worker each request that has other headers than Postdate's, no header, or no value, except returns.
This is slower. No verdict can reveal a defect of the parser, since the audit compares deliveries with the result of the
parser. The Python workers need the `postdate` package. The limits on targets and the horizon are disabled here, since
the audit does not judge refusals on topics with dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.digests import EMPTY_HEADERS, headers_or_empty
from postdate.spark.records.recurrences import BACKFILL, RECURRING, recurrence_of
from postdate.spark.records.returns import RETRY
from postdate.spark.records.selections import SELECTED, read_selection
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import ACTION, ID, SCHEDULE, Headers
from postdate.wire.limits import FORMAT_VERSION_MAX
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.rules import RequestRules

_READ = (
    "struct<action:string,target:string,id:binary,due_ms:bigint,grace_ms:bigint,window_ms:bigint,"
    f"latest_ms:bigint,keeps:boolean,drops:boolean,acts_on:bigint,partition_asked:bigint,key:binary,data:{EMPTY_HEADERS},"
    f"recurrence:{EMPTY_HEADERS}>"
)
_WITHOUT_END_MS = 2**63 - 1


class ReadRequest(NamedTuple):
    """A request as a row of `_READ`, in the order of its columns. A field is None if the request does not have it. A
    refused request has only `action`, `id`, `key` and `data`."""

    action: str
    target: str | None = None
    id: bytes | None = None
    due_ms: int | None = None
    grace_ms: int | None = None
    window_ms: int | None = None
    latest_ms: int | None = None
    keeps: bool = False
    drops: bool = False
    acts_on: int | None = None
    partition_asked: int | None = None
    key: bytes | None = None
    data: Headers | None = None
    recurrence: Headers | None = None


@dataclass(frozen=True)
class DialectOptions:
    """The settings of a request topic for reading dialects, as in its configuration.

    `names`: the dialects. `default_target`: the target of requests that name no target; "" if there is no default.
    """

    names: tuple[str, ...] = ()
    default_target: str = ""

    @property
    def are_on(self) -> bool:
        """True if requests must be read in Python."""
        return bool(self.names)


NO_DIALECTS = DialectOptions()


def rules_of(topic: str, levels_ms: Sequence[int], dialects: DialectOptions) -> RequestRules:
    """Returns the rules by which the requests of a topic are parsed. Raises ValueError for an unknown dialect
    or an invalid level table."""
    return RequestRules(
        topic=topic,
        levels_ms=tuple(levels_ms),
        horizon_ms=_WITHOUT_END_MS,
        dialects=dialects.names,
        default_target=dialects.default_target,
        format_version=FORMAT_VERSION_MAX,
    )


def read_by_the_parser(records: DataFrame, levels_ms: Sequence[int], dialects: DialectOptions) -> DataFrame:
    """Returns one row for each record: its parsed request, in the columns of `understood_rows`."""
    rules_for = _Rules(tuple(levels_ms), dialects)
    read = F.udf(rules_for.reader(), _READ, useArrow=False)  # Arrow would pass types that `read_request` does not take
    headers = headers_or_empty(F.col("headers"))
    request_ms = F.unix_millis("timestamp")
    parsed = records.select(
        *("topic", "partition", "offset", "value"),
        request_ms.alias("request_ms"),
        F.col("key").alias("own_key"),
        headers.alias("headers"),
        read("topic", "partition", request_ms, "key", headers, F.col("value").isNull()).alias("request"),
    )
    return parsed.select(
        *("topic", "partition", "offset", "request_ms", "value", "own_key", "headers"),
        *("request.action", "request.target", "request.id", "request.due_ms", "request.grace_ms"),
        *("request.window_ms", "request.latest_ms", "request.keeps", "request.drops"),
        *("request.acts_on", "request.partition_asked", "request.key", "request.data"),
        F.lit(None).cast(RETRY).alias("retry"),
        F.when(F.col("request.action").isin("cancel", "reschedule"), read_selection(headers))
        .cast(SELECTED)
        .alias("selected"),
        F.when(F.col("request.action") == BACKFILL, recurrence_of(headers))
        .otherwise(F.col("request.recurrence"))
        .alias("recurrence"),
    )


@dataclass(frozen=True)
class _Rules:
    """The serializable inputs of `rules_of`. The rules cache texts, so each worker builds its own rules."""

    levels_ms: tuple[int, ...]
    dialects: DialectOptions

    def reader(self) -> Callable[..., ReadRequest]:
        """Returns a function that reads one record, for the workers."""
        levels_ms, dialects = self.levels_ms, self.dialects

        def read(topic: str, partition: int, request_ms: int, key: Any, headers: Any, is_null: bool) -> ReadRequest:
            return read_request(_kept_rules(topic, levels_ms, dialects), partition, request_ms, key, headers, is_null)

        return read


@cache
def _kept_rules(topic: str, levels_ms: tuple[int, ...], dialects: DialectOptions) -> RequestRules:
    return rules_of(topic, levels_ms, dialects)


def read_request(
    rules: RequestRules, partition: int, request_ms: int, key: Any, headers: Any, is_tombstone: bool
) -> ReadRequest:
    """Returns one request as a row of `_READ`. A refused request has only its action, id, key and headers as sent."""
    sent: Headers = [(name, None if value is None else bytes(value)) for name, value in headers]
    own_key = None if key is None else bytes(key)
    try:
        request = parse_request(rules, partition, request_ms, own_key, sent, is_tombstone)
    except RequestRefused:
        action = next((value for name, value in reversed(sent) if name == ACTION), None)
        action_name = "schedule" if action is None else action.decode("utf-8", "replace")
        identifier = next((value for name, value in sent if name == ID), None)
        return ReadRequest(action_name, id=identifier, key=own_key, data=sent)
    return _row(request, request_ms)


def _row(request: Request, request_ms: int) -> ReadRequest:
    action, due_ms = Action(request.action).name.lower(), request.due_ms
    grace_ms, window_ms = request.grace_ms, request.window_ms
    if request.schedule is not None:
        action, due_ms = RECURRING, -1
        grace_ms, window_ms = request.schedule.grace_ms, request.schedule.window_ms
    if request.latest_ms:  # the latest possible due time, since the request may continue a series
        due_ms = min(due_ms, request_ms + request.latest_ms)
    return ReadRequest(
        action=action,
        target=request.target or None,
        id=request.id or None,
        due_ms=due_ms if due_ms >= 0 else None,
        grace_ms=grace_ms if grace_ms >= 0 else None,
        window_ms=window_ms or None,
        latest_ms=request.latest_ms or None,
        keeps=request.keeps,
        drops=request.drops,
        acts_on=request.acts_on if request.acts_on >= 0 else None,
        partition_asked=request.partition if request.partition >= 0 else None,
        key=request.key,
        data=request.headers,
        recurrence=[(name, value) for _, name, value in request.stripped if name in SCHEDULE]
        if action == RECURRING
        else None,
    )
