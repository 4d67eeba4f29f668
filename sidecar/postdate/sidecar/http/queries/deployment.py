"""Queries all processes of a deployment concurrently, and merges their answers.

Each process answers for the shards that it holds. A process publishes its address as a member of the group. Any member
can do so, so requests to such an address are signed with the user's token, and the token is not sent. Requests to
several processes have `scope=process`, so that no process forwards them. If a process found through the group does not
answer, or its answer cannot be merged, this is no error as long as another process answers: `not_asked` lists the
shards of the silent process, and shards without a process.

Thread rule: a `Deployment` belongs to one thread; it queries the processes on at most PEERS_AT_ONCE_MAX other threads.
"""

from __future__ import annotations

import json
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from postdate.kafka.interface import GroupMember, Partition
from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError, PostdateError, TransientError
from postdate.sidecar.http.action_log import merged_actions
from postdate.sidecar.http.limits import (
    MERGED_TIMEOUT_S,
    PAGE_ENTRIES_DEFAULT,
    PAGE_ENTRIES_MAX,
    PEER_TIMEOUT_S,
    PEERS_AT_ONCE_MAX,
    PEERS_MAX,
)
from postdate.sidecar.http.queries.api_client import Api, JsonObject, NotKnown, Query
from postdate.sidecar.http.queries.merging import (
    merged_count,
    merged_named,
    merged_page,
    merged_selected,
    part_of,
    shards_of,
    unanswered_of,
)
from postdate.sidecar.http.queries.pending import BadQuery
from postdate.wire.origins import parse_origin

SCOPE = "scope"
PROCESS = "process"
Merge = Callable[[list[JsonObject]], JsonObject]
_ALONE = (SCOPE, PROCESS)
_SHARED_ADDRESS = "it has just received it, or another member of the group advertises the same address (http.advertise)"


@dataclass(frozen=True, slots=True)
class Peer:
    """One process. `api`: None if the process serves no port, advertises an unusable address, or is the querying
    process. `parts`: its shards according to the group. `is_self`: it advertises the address of the querying process,
    as another member may do by mistake."""

    name: str
    api: Api | None
    parts: frozenset[Partition] = frozenset()
    is_self: bool = False


def peers_of(
    members: Sequence[GroupMember],
    token: str,
    http: HttpConfig,
    own_address: str = "",
    labels: Mapping[str, str] | None = None,
) -> list[Peer]:
    """Returns the processes of the members of a group, at most PEERS_MAX. Members with the same address are one
    process; each member without a port is a separate process. The process at `own_address` has no API. `http`: the
    settings of TLS. `labels`: headers of each request."""
    by_address: dict[str, set[Partition]] = {}
    peers = []
    for member in members:
        if not member.address:
            peers.append(Peer(f"{member.client_id} on {member.host}", None, frozenset(member.partitions)))
        else:
            by_address.setdefault(member.address, set()).update(member.partitions)
    for address, parts in sorted(by_address.items()):
        is_self = address == own_address
        api = None if is_self else _api(address, token, http, labels)
        peers.append(Peer(address, api, frozenset(parts), is_self))
    return peers[:PEERS_MAX]


def _api(address: str, token: str, http: HttpConfig, labels: Mapping[str, str] | None) -> Api | None:
    """Returns the API at the address that a member advertises; None if it is not an address."""
    try:
        url = f"{http.scheme}://{address}"
        return Api(url, token, PEER_TIMEOUT_S, signs=True, ca_file=http.tls_ca_file, labels=labels)
    except ConfigError:
        return None


class Deployment:
    """The processes to query. `expected`: the shards for which a process should answer. `strict`: the user named each
    process, so every one must answer. `alone`: each process answers only for its own shards."""

    def __init__(
        self, peers: Sequence[Peer], expected: frozenset[Partition], *, strict: bool = False, alone: bool = True
    ) -> None:
        self._peers = peers
        self._expected = expected
        self._strict = strict
        self._scope = (_ALONE,) if alone else ()
        self.not_asked: list[JsonObject] = []
        """The shards without an answer in the last query of shards; after `entries`, those missing on any page."""

    def page(self, query: Query, own: Sequence[JsonObject] = ()) -> JsonObject:
        """Returns a page of pending messages, in order over all processes. `own`: the answer of the querying process,
        if it has answered for its own shards.

        Raises TransientError or ConfigError if no process answers, or if a process that the user named does not answer.
        """
        filters = dict(query)
        limit = int(filters.get("limit", PAGE_ENTRIES_DEFAULT))
        named = "id" in filters or "origin" in filters

        def merge(answers: list[JsonObject]) -> JsonObject:
            return merged_named(answers) if named else merged_page(answers, limit)

        answers, faults = self._ask("/api/v1/pending", query, merge, own)
        return self._whole(merge(answers), answers, faults, query)

    def count(self, query: Query, own: Sequence[JsonObject] = ()) -> JsonObject:
        """Returns the counts of all processes, added up. `own` and errors are as for `page`."""
        answers, faults = self._ask("/api/v1/pending/count", query, merged_count, own)
        return self._whole(merged_count(answers), answers, faults, query)

    def selected(self, query: Query, own: Sequence[JsonObject] = ()) -> JsonObject:
        """Returns the numbers of selected messages of all processes, by shard and target. `own` and errors are as for
        `page`."""
        answers, faults = self._ask("/api/v1/pending/selected", query, merged_selected, own)
        return self._whole(merged_selected(answers), answers, faults, query)

    def overview(self, own: Sequence[JsonObject] = ()) -> JsonObject:
        """Returns the state of every shard. `own` and errors are as for `page`."""

        def merge(answers: list[JsonObject]) -> JsonObject:
            return {"at_ms": max(int(answer["at_ms"]) for answer in answers), "shards": shards_of(answers)}

        answers, faults = self._ask("/api/v1/shards", [], merge, own)
        return self._whole(merge(answers), answers, faults, [])

    def change(self, path: str, body: object, shards: Query, own: Sequence[JsonObject] = ()) -> JsonObject:
        """Sends a change of shards to every process, and merges the results. `shards`: the parameters `topic` and
        `partition`, if the change is not for all shards. `own` and errors are as for `page`."""

        def merge(answers: list[JsonObject]) -> JsonObject:
            return {"shards": shards_of(answers)}

        answers, faults = self._ask(path, [], merge, own, json.dumps(body).encode())
        return self._whole(merge(answers), answers, faults, shards)

    def actions(self, query: Query, own: Sequence[JsonObject] = ()) -> JsonObject:
        """Returns the newest changes that were requested from any process. In the result, `not_asked` lists the
        processes that do not answer. `own` and errors are as for `page`."""
        limit = int(dict(query).get("limit", PAGE_ENTRIES_DEFAULT))

        def merge(answers: list[JsonObject]) -> JsonObject:
            return {"actions": merged_actions(answers, limit), "shards": []}

        answers, faults = self._ask("/api/v1/actions", query, merge, own)
        silent = [{"process": name, "why": str(fault)} for name, fault in sorted(faults.items())]
        return {"actions": merge(answers)["actions"], "not_asked": silent}

    def drain(self) -> JsonObject:
        """Makes the named process hand over its shards. Raises ConfigError unless exactly one process is named, and as
        `Api.post` does."""
        apis = [peer.api for peer in self._peers if peer.api is not None]
        if not self._strict or len(apis) != 1:
            raise ConfigError("name the process to drain: one --url")
        return apis[0].post("/api/v1/drain", (), b"{}")

    def history(self, origin: str, query: Query) -> JsonObject:
        """Returns the history of a request. Queries the process that holds its shard first, then all others.

        Raises NotKnown if all processes answer and none has a record of it. If no process returns the history, raises
        TransientError if a process does not answer, or if no reachable process holds the shard. If the user named each
        process, raises the error of the process instead.
        """
        topic, index, _ = parse_origin(origin.encode())
        part = Partition(topic, index)
        path, scoped = f"/api/v1/requests/{quote(origin)}", [*query, *self._scope]
        holders = [peer for peer in self._peers if part in peer.parts]
        others = [peer for peer in self._peers if part not in peer.parts]
        fault: PostdateError | None = None
        for peers in (holders, others):
            results = _at_once([(peer, path, scoped, None) for peer in peers])
            for result in results.values():
                if isinstance(result, dict):
                    return result
                if not isinstance(result, NotKnown) and (fault is None or peers is holders):
                    fault = result
        holder = holders[0] if holders else None
        if fault is None and part in self._expected and (holder is None or holder.api is None):
            fault = TransientError(f"{topic}/{index} was not queried, because {_missing(part, holder, {})['why']}")
        if fault is not None:
            if self._strict:
                raise fault
            raise TransientError(f"{origin} was not found, but not all processes have answered: {fault}")
        raise NotKnown(f"no record of a request {origin}")

    def entries(self, query: Query, entries_max: int) -> Iterator[JsonObject]:
        """Yields the pending messages in order, page after page, at most `entries_max`. Raises as `page` does."""
        limit = min(entries_max, PAGE_ENTRIES_MAX)
        named = any(name in ("id", "origin") for name, _ in query)
        limited = [*query] if named else [*query, ("limit", str(limit))]
        cursor: list[tuple[str, str]] = []
        remaining = entries_max
        # The shards that are missing on any page so far: their entries may belong before entries already yielded.
        unanswered: dict[Partition, JsonObject] = {}
        while True:
            shown = self.page([*limited, *cursor])
            unanswered |= {part_of(shard): shard for shard in self.not_asked}
            self.not_asked = [unanswered[part] for part in sorted(unanswered)]
            yield from shown["entries"][:remaining]
            remaining -= len(shown["entries"])
            if shown["cursor"] is None or remaining <= 0:
                return
            cursor = [("cursor", shown["cursor"])]

    def _ask(
        self, path: str, query: Query, merge: Merge, own: Sequence[JsonObject], body: bytes | None = None
    ) -> tuple[list[JsonObject], dict[str, PostdateError]]:
        results = _at_once([(peer, path, [*query, *self._scope], body) for peer in self._peers])
        results = {name: _checked(name, result, merge) for name, result in results.items()}
        faults = {name: result for name, result in results.items() if isinstance(result, PostdateError)}
        answers = [*own, *(result for result in results.values() if isinstance(result, dict))]
        if faults and (self._strict or not answers):
            raise next(iter(faults.values()))
        return answers, faults

    def _whole(
        self, merged: JsonObject, answers: list[JsonObject], faults: dict[str, PostdateError], query: Query
    ) -> JsonObject:
        """Returns the answer with `not_asked`: the expected shards for which no process has answered. Also stores them
        in `self.not_asked`."""
        unanswered = unanswered_of(answers)
        accounted = {(shard["topic"], shard["partition"]) for shard in shards_of(answers)} | set(unanswered)
        holders = {part: peer for peer in self._peers for part in peer.parts}
        filters = dict(query)
        for part in sorted((self._expected | set(holders)) - accounted):
            is_selected = filters.get("topic", part.topic) == part.topic
            if is_selected and int(filters.get("partition", part.index)) == part.index:
                unanswered[part] = _missing(part, holders.get(part), faults)
        self.not_asked = [unanswered[part] for part in sorted(unanswered)]
        return {**merged, "not_asked": self.not_asked}


def _checked(name: str, result: Any, merge: Merge) -> Any:
    """Returns the answer or the error of a process. If an answer is malformed and cannot be merged, returns an error
    instead."""
    try:
        if isinstance(result, dict):
            merge([result])
            unanswered_of([result])
    except (BadQuery, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, struct.error):
        return TransientError(f"{name} answered with something that is not Postdate's")
    return result


def _missing(part: Partition, holder: Peer | None, faults: dict[str, PostdateError]) -> JsonObject:
    """Returns the item of `not_asked` for a shard for which no process has answered: its name, state and reason."""
    item: JsonObject = {"topic": part.topic, "partition": part.index, "state": "UNKNOWN"}
    if holder is None:
        return {**item, "state": "UNASSIGNED", "why": "no other member of the group holds it now"}
    if holder.api is None and not holder.is_self:
        return {**item, "why": f"{holder.name} holds it and serves no port"}
    why = faults.get(holder.name) or _SHARED_ADDRESS
    return {**item, "why": f"{holder.name} holds it and has not answered for it: {why}"}


PeerRequest = tuple[Peer, str, Query, bytes | None]


def _at_once(requests: Sequence[PeerRequest]) -> dict[str, Any]:
    """Returns the answer or the error of each process with a port, by name, in the given order.

    Queries at most PEERS_AT_ONCE_MAX processes at a time, and waits at most MERGED_TIMEOUT_S for all of them. The
    threads are daemons, so a thread that waits for a dead process does not prevent the exit of this process.
    """
    waiting: queue.SimpleQueue[PeerRequest] = queue.SimpleQueue()
    sendable = [request for request in requests if request[0].api is not None]
    for request in sendable:
        waiting.put(request)
    results: dict[str, Any] = {}
    completed = threading.Semaphore(0)

    def work() -> None:
        while True:
            try:
                peer, path, query, body = waiting.get_nowait()
            except queue.Empty:
                return
            assert peer.api is not None, "only processes that serve a port are queried"
            try:
                results[peer.name] = _result(peer.api, path, query, body)
            finally:
                completed.release()

    _start(work, min(len(sendable), PEERS_AT_ONCE_MAX))
    deadline = time.monotonic() + MERGED_TIMEOUT_S
    for _ in sendable:
        if not completed.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            break
    late = TransientError(f"no answer within {MERGED_TIMEOUT_S:g} s")
    return {peer.name: results.get(peer.name, late) for peer, *_ in sendable}


def _start(work: Callable[[], None], count: int) -> None:
    for _ in range(count):
        threading.Thread(target=work, name="peer", daemon=True).start()


def _result(api: Api, path: str, query: Query, body: bytes | None) -> JsonObject | PostdateError:
    try:
        return api.get(path, query) if body is None else api.post(path, query, body)
    except PostdateError as error:
        return error
