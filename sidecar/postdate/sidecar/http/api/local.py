"""Answers API queries for the shards of this process, without a query to other processes.

Thread rule: a thread of the HTTP server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from starlette.datastructures import QueryParams

from postdate.sidecar.http import limits
from postdate.sidecar.http.access.access import Refused
from postdate.sidecar.http.action_log import merged_actions, without_keys
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries import pending, queries
from postdate.sidecar.http.queries.api_client import JsonObject
from postdate.sidecar.http.queries.pending import PARKED, WAITING, BadQuery, PageCursor, PendingFilters
from postdate.sidecar.http.queries.request_history import request_history
from postdate.sidecar.states import DELIVERING, State

_FILTERS = ("topic", "partition", "target", "from", "until", "state", "recurring", "id_prefix", "key")


def page(process: ProcessState, query: QueryParams) -> JsonObject:
    """Returns a page of pending messages. Raises BadQuery, Unanswered."""
    queries.known(query, *_FILTERS, "id", "origin", "limit", "cursor", "payload")
    payload = queries.wants_payload(process, query)
    able, unable = queries.shards_of(process, query)
    cursor = None
    if "id" in query or "origin" in query:
        found = _named(able, query.get("id"), query.get("origin"))
    else:
        after = PageCursor.decode(query["cursor"]) if "cursor" in query else None
        limit = queries.number_of(query, "limit", limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
        shown = pending.page(list(able), queries.filters_of(query), after, limit, payload)
        found, cursor = shown.entries, shown.cursor
    now_ms = process.clock.wall_ms()
    entries = [pending.as_json(part, key, entry, now_ms, payload) for key, part, entry in found]
    shards = [_shard(shard) for shard in able]
    return {"entries": entries, "cursor": cursor, "shards": shards, "not_asked": unable}


def count(process: ProcessState, query: QueryParams) -> JsonObject:
    """Returns the number of pending messages, in total and for each shard. Without `state`, the count includes both
    states, and `parked` is the number of parked messages. Raises BadQuery, Unanswered."""
    queries.known(query, *_FILTERS)
    able, unable = queries.shards_of(process, query)
    filters = queries.filters_of(query)
    counts_both = "state" not in query
    count_shard = _count_both if counts_both else _count
    shards = [{**_shard(shard), **count_shard(shard, filters)} for shard in able]
    total: JsonObject = {
        "count": sum(shard["count"] for shard in shards),
        "exact": all(shard["exact"] for shard in shards),
    }
    if counts_both:
        total["parked"] = sum(shard["parked"] for shard in shards)
    return {**total, "shards": shards, "not_asked": unable}


def silent(process: ProcessState, query: QueryParams, why: str) -> JsonObject:
    """Returns an answer for a page, a count or a selection in which no shard of this process has answered. Raises
    BadQuery."""
    able, unable = queries.shards_of(process, query)
    unable += [{**_shard(shard), "state": shard.thread.shard.state, "why": why} for shard in able]
    none: JsonObject = {"entries": [], "cursor": None, "count": 0, "exact": True, "targets": {}}
    return {**none, "shards": [], "not_asked": unable}


def actions(process: ProcessState, query: QueryParams) -> JsonObject:
    """Returns the changes in the log of actions, which the processes with the same data directory share, the newest
    first. Raises BadQuery, and Refused if the log cannot be read."""
    queries.known(query, "from", "until", "limit", "payload")
    payload = queries.wants_payload(process, query)
    limit = queries.number_of(query, "limit", limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    filters = queries.filters_of(query)
    try:
        entries = process.actions.read()
    except OSError as error:
        raise Refused(503, f"the log of actions cannot be read: {error.strerror}") from error
    chosen = [entry for entry in entries if filters.from_ms <= entry["at_ms"] < filters.until_ms]
    shown = chosen if payload else map(without_keys, chosen)
    return {"actions": merged_actions([{"actions": list(shown)}], limit), "shards": [], "not_asked": []}


def holds(process: ProcessState, origin: str) -> bool:
    """True if this process holds the shard of a request. Raises BadQuery."""
    return queries.origin_of(origin)[0] in dict(process.shards())


def history(process: ProcessState, query: QueryParams, origin: str) -> JsonObject:
    """Returns the history of one request. Raises BadQuery, Refused, Unanswered, KafkaFault."""
    queries.known(query, "payload")
    payload = queries.wants_payload(process, query)
    part, offset = queries.origin_of(origin)
    thread = dict(process.shards()).get(part)
    if thread is None:
        raise Refused(404, f"{part.topic}/{part.index} is not held by this process")
    if thread.shard.state not in DELIVERING:
        raise Refused(503, f"{part.topic}/{part.index} is {thread.shard.state}: it answers no queries now")
    result = request_history(process, queries.HeldShard(part, thread), offset, payload)
    if result is None:
        raise Refused(404, f"no record of a request {origin}")
    return result


def _shard(shard: queries.HeldShard) -> JsonObject:
    return {"topic": shard.part.topic, "partition": shard.part.index}


def _count_both(shard: queries.HeldShard, filters: PendingFilters) -> JsonObject:
    """Returns the count of waiting and parked messages of one shard. `exact` is as for `_count`."""
    if filters == PendingFilters():
        total, parked_total = shard.query(lambda index: (index.count - index.ending_count, index.parked_count))
        return {"count": total, "exact": _is_complete(shard), "parked": parked_total}
    waiting, parked = (_count(shard, dataclasses.replace(filters, state=state)) for state in (WAITING, PARKED))
    exact = waiting["exact"] and parked["exact"]
    return {"count": waiting["count"] + parked["count"], "exact": exact, "parked": parked["count"]}


def _is_complete(shard: queries.HeldShard) -> bool:
    return shard.thread.shard.state is not State.CATCHING_UP


def _count(shard: queries.HeldShard, filters: PendingFilters) -> JsonObject:
    """Returns the count of one shard. `exact` is False if the count reached its bound, and until the shard has read all
    requests from before its takeover. The count is then a lower bound."""
    is_complete = _is_complete(shard)
    if filters == PendingFilters():  # only `state=waiting`: the index has the number, so no scan is needed
        number = shard.query(lambda index: index.count - index.parked_count - index.ending_count)
        return {"count": number, "exact": is_complete}
    number, exact = pending.count([shard], filters)
    return {"count": number, "exact": exact and is_complete}


def _named(shards: Iterable[queries.HeldShard], caller_id: str | None, origin: str | None) -> list[pending.Found]:
    """Returns the pending messages with this id, or the message with this origin, in these shards. Raises BadQuery."""
    if caller_id is not None and origin is not None:
        raise BadQuery("give one of id and origin")
    if caller_id is not None:
        results = ((shard.part, pending.find_id(shard, caller_id.encode())) for shard in shards)
    else:
        part, offset = queries.origin_of(origin or "")
        results = ((shard.part, pending.find_offset(shard, offset)) for shard in shards if shard.part == part)
    return [(found[0], part, found[1]) for part, found in results if found is not None]
