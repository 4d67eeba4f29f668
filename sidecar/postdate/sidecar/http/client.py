"""Asking the API of one or more processes, and making one answer of theirs.

Each process answers for the shards that it holds, so the answer for a deployment is the sum over its processes.

Thread rule: one thread.
"""

from __future__ import annotations

import heapq
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from postdate.sidecar.errors import ConfigError, TransientError
from postdate.sidecar.http.limits import ANSWER_BYTES_MAX, CLIENT_TIMEOUT_S, PAGE_ENTRIES_MAX

Query = Sequence[tuple[str, str]]


class NotKnown(TransientError):
    """The process knows nothing of what was asked for."""


class Api:
    """The API of one process."""

    def __init__(self, url: str, token: str = "") -> None:
        """Raises ConfigError: not an http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url {url}: give http://HOST:PORT")
        self.url = url
        self._parts = parts
        self._token = token

    def get(self, path: str, query: Query = ()) -> dict[str, Any]:
        """The answer. Raises NotKnown, ConfigError (the question is wrong, or the token), TransientError."""
        target = self._parts.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        connection = _connect(self._parts)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.request("GET", target, headers=headers)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException) as error:
            raise TransientError(f"no answer from {self.url}; does postdate run serve it? ({error})") from error
        finally:
            connection.close()
        return self._judge(answer.status, body)

    def _judge(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            told = json.loads(body)
        except ValueError as error:
            raise TransientError(f"{self.url} answered {status} with something that is not Postdate's") from error
        if status == 200 and isinstance(told, dict):
            return told
        why = f"{self.url}: {told.get('error', status) if isinstance(told, dict) else status}"
        if status == 404:
            raise NotKnown(why)
        raise (ConfigError if 400 <= status < 500 else TransientError)(why)


def _connect(parts: SplitResult) -> HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return HTTPSConnection(host, parts.port, timeout=CLIENT_TIMEOUT_S, context=ssl.create_default_context())
    return HTTPConnection(host, parts.port, timeout=CLIENT_TIMEOUT_S)


class Deployment:
    """Several processes as one. `not_asked` gathers the shards that could not answer, as the processes say."""

    def __init__(self, apis: Sequence[Api]) -> None:
        self._apis = apis
        self.not_asked: list[dict[str, Any]] = []

    def pending(self, query: Query, entries_max: int) -> Iterator[dict[str, Any]]:
        """Entries in order of due time over all processes, at most `entries_max`. Raises as `Api.get`."""
        streams = [self._entries(api, query, entries_max) for api in self._apis]
        merged = heapq.merge(*streams, key=lambda entry: (entry["due_ms"], entry["origin"]))
        for number, entry in enumerate(merged, 1):
            yield entry
            if number >= entries_max:
                return

    def count(self, query: Query) -> dict[str, Any]:
        """The counts of all processes, added up. Raises as `Api.get`."""
        total: dict[str, Any] = {"count": 0, "exact": True, "shards": []}
        for api in self._apis:
            told = api.get("/api/v1/pending/count", query)
            total["count"] += told["count"]
            total["exact"] &= told["exact"]
            total["shards"] += told["shards"]
            if "parked" in told:
                total["parked"] = total.get("parked", 0) + told["parked"]
            self.not_asked += told["not_asked"]
        return total

    def life(self, origin: str, query: Query) -> dict[str, Any]:
        """The life of a request, from the process that holds its shard. Raises as `Api.get`, NotKnown where none
        does."""
        refusals = []
        for api in self._apis:
            try:
                return api.get(f"/api/v1/requests/{quote(origin)}", query)
            except NotKnown as error:
                refusals.append(str(error))
        raise NotKnown("\n".join(refusals))

    def _entries(self, api: Api, query: Query, entries_max: int) -> Iterator[dict[str, Any]]:
        asked: Mapping[str, str] = {}
        if not any(name in ("id", "origin") for name, _ in query):
            asked = {"limit": str(min(entries_max, PAGE_ENTRIES_MAX))}
        while True:
            told = api.get("/api/v1/pending", [*query, *asked.items()])
            yield from told["entries"]
            if told["cursor"] is None:
                self.not_asked += told["not_asked"]
                return
            asked = {**asked, "cursor": told["cursor"]}
