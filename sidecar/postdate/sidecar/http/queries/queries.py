"""Parses the parameters of a query and the fields of a body, and selects the shards of a query.

Thread rule: any thread but a shard's, since `HeldShard.query` waits for the thread of the shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.datastructures import QueryParams

from postdate.kafka.interface import Partition
from postdate.sidecar.http import limits
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries.deployment import PROCESS, SCOPE
from postdate.sidecar.http.queries.pending import PARKED, WAITING, BadQuery, PendingFilters
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import DELIVERING
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import DUE_MS_MAX
from postdate.wire.origins import parse_origin
from postdate.wire.topics import is_topic_name
from postdate.wire.values.instants import parse_instant_ms, parse_time_ms, resolve_time

T = TypeVar("T")

DEPLOYMENT = "deployment"

# The digits of the largest partition number, which has 32 bits in Kafka.
_DIGITS_MAX = 10

_TIMES = ("from", "until")


@dataclass(frozen=True, slots=True)
class HeldShard:
    """A shard of this process, which answers on its thread."""

    part: Partition
    thread: ShardThread

    def query(self, query: Callable[[TimerIndex], T]) -> T:
        """Implements `QueryableShard.query`."""
        thread = self.thread
        return thread.shard.ctx.index_queries.query(query, thread.inbox.wake, limits.ANSWER_TIMEOUT_S)


def known(query: QueryParams, *names: str) -> None:
    """Raises BadQuery for a parameter that is neither one of `names` nor the scope: a query would select too much if a
    mistyped filter were ignored."""
    unknown = sorted(set(query) - {*names, SCOPE})
    if unknown:
        raise BadQuery(f"unknown parameter {unknown[0]}; known: {', '.join(names)}")


def body_of(body: object, *names: str) -> dict[str, Any]:
    """Returns the JSON object of a body. Raises BadQuery if the body is no object, or has a field that is not one of
    `names`."""
    if not isinstance(body, dict):
        raise BadQuery("the body must be a JSON object")
    unknown = sorted(set(body) - {*names})
    if unknown:
        raise BadQuery(f"unknown field {unknown[0]}; known: {', '.join(names)}")
    return body


def served_topic(process: ProcessState, named: str | None) -> str:
    """Returns the request topic that a query or a body names; without a name, the only request topic of this process.
    Raises BadQuery."""
    served = process.config.request_topic_names
    if named is None and len(served) > 1:
        raise BadQuery(f"topic is needed: {', '.join(served)} are served")
    if named is not None and named not in served:
        raise BadQuery(f"this process does not serve {named}; it serves {', '.join(served)}")
    return named or served[0]


def is_for_deployment(query: QueryParams) -> bool:
    """True if the query is for the whole deployment, not only for this process. Raises BadQuery."""
    scope = query.get(SCOPE, DEPLOYMENT)
    if scope not in (DEPLOYMENT, PROCESS):
        raise BadQuery(f"{SCOPE} takes {DEPLOYMENT} or {PROCESS}")
    return scope == DEPLOYMENT


def at_fixed_times(query: QueryParams, now_ms: int) -> QueryParams:
    """Returns the query with its times in epoch milliseconds, so that all processes use the same times. Raises
    BadQuery."""
    return QueryParams(
        [(name, str(time_of(name, value, now_ms)) if name in _TIMES else value) for name, value in query.multi_items()]
    )


def time_of(name: str, text: str, now_ms: int) -> int:
    """Returns the time of a parameter or field, epoch ms. Raises BadQuery."""
    try:
        return parse_time_ms(text, now_ms)
    except ValueError as error:
        raise BadQuery(f"{name} {error}") from error


def time_text_of(name: str, text: str, now_ms: int) -> str:
    """Returns the time of a field in the form of a header. Raises BadQuery."""
    try:
        return resolve_time(text, now_ms)
    except ValueError as error:
        raise BadQuery(f"{name} {error}") from error


def filters_of(query: QueryParams) -> PendingFilters:
    """Returns the filters of a query with fixed times. Raises BadQuery."""
    state = query.get("state", WAITING)
    if state not in (WAITING, PARKED):
        raise BadQuery(f"state takes {WAITING} or {PARKED}")
    targets = frozenset(query.getlist("target"))
    for target in targets:
        if not is_topic_name(target):
            raise BadQuery(f"target {target!r} is not a topic name")
    from_ms, until_ms = _instant(query, "from", 1), _instant(query, "until", DUE_MS_MAX)
    if from_ms >= until_ms:
        raise BadQuery("from must be before until")
    recurring = query.get("recurring", "false")
    if recurring not in ("true", "false"):
        raise BadQuery("recurring takes true or false")
    prefix, key = (query.get(name, "").encode("utf-8", "surrogateescape") for name in ("id_prefix", "key"))
    return PendingFilters(
        max(from_ms, 1), until_ms, targets, state, recurring == "true", prefix, key if "key" in query else None
    )


def number_of(query: QueryParams, name: str, default: int, most: int) -> int:
    """Returns a parameter that is a whole number from 1 to `most`; `default` if it is absent. Raises BadQuery."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX or not 1 <= int(text) <= most:
        raise BadQuery(f"{name} takes a number from 1 to {most}")
    return int(text)


def wants_payload(process: ProcessState, query: QueryParams) -> bool:
    """True if the query requests keys, headers and values. Raises BadQuery if the configuration forbids them."""
    if query.get("payload", "false") != "true":
        return False
    if process.config.http.payloads != "allowed":
        raise BadQuery("payloads are not shown: http.payloads is never")
    return True


def origin_of(text: str) -> tuple[Partition, int]:
    """Returns the shard and the offset of an origin. Raises BadQuery."""
    try:
        topic, index, offset = parse_origin(text.encode())
    except ValueError as error:
        raise BadQuery(f"origin {error}") from error
    return Partition(topic, index), offset


def shards_of(process: ProcessState, query: QueryParams) -> tuple[list[HeldShard], list[dict[str, object]]]:
    """Returns the selected shards that can answer now, and the selected shards that cannot, with the reason. Raises
    BadQuery."""
    topic, index = query.get("topic"), query.get("partition")
    if topic is not None:
        served_topic(process, topic)
    if index is not None and not (index.isascii() and index.isdigit() and len(index) <= _DIGITS_MAX):
        raise BadQuery("partition takes a number")
    able, unable = [], []
    for part, thread in process.shards():
        if (topic is not None and part.topic != topic) or (index is not None and part.index != int(index)):
            continue
        shard = thread.shard
        if shard.state in DELIVERING:
            able.append(HeldShard(part, thread))
        else:
            unable.append({"topic": part.topic, "partition": part.index, "state": shard.state, "why": shard.why})
    return able, unable


def _instant(query: QueryParams, name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise BadQuery(f"{name} {error}") from error
