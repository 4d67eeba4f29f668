"""Asking the API of one process.

Thread rule: an `Api` may be shared; each question has a connection of its own.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from postdate.sidecar.errors import ConfigError, TransientError
from postdate.sidecar.http.limits import ANSWER_BYTES_MAX, CLIENT_TIMEOUT_S, PEER_CONNECT_S

Query = Sequence[tuple[str, str]]


class NotKnown(TransientError):
    """The process knows nothing of what was asked for."""


class Api:
    """The API of one process. `timeout_s`: how long it may be silent before it is taken for gone."""

    def __init__(self, url: str, token: str = "", timeout_s: float = CLIENT_TIMEOUT_S) -> None:
        """Raises ConfigError: not an http or https URL."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url {url}: give http://HOST:PORT")
        self.url = url
        self._parts = parts
        self._token = token
        self._timeout_s = timeout_s

    def get(self, path: str, query: Query = ()) -> dict[str, Any]:
        """The answer. Raises NotKnown, ConfigError (the question is wrong, or the token), TransientError."""
        return self._ask("GET", path + (f"?{urlencode(query)}" if query else ""), None)

    def post(self, path: str, query: Query, body: bytes) -> dict[str, Any]:
        """The answer to a change. Raises as `get`."""
        return self._ask("POST", path + (f"?{urlencode(query)}" if query else ""), body)

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        connection = _connection(self._parts)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.connect()
            connection.sock.settimeout(self._timeout_s)
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            answer = connection.getresponse()
            told = answer.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException) as error:
            raise TransientError(f"no answer from {self.url}; does postdate run serve it? ({error})") from error
        finally:
            connection.close()
        return self._judge(answer.status, told)

    def _judge(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            told = json.loads(body)
        except ValueError as error:
            raise TransientError(f"{self.url} answered {status} with something that is not Postdate's") from error
        if status in (200, 202) and isinstance(told, dict):
            return told
        why = f"{self.url}: {told.get('error', status) if isinstance(told, dict) else status}"
        if status == 404:
            raise NotKnown(why)
        raise (ConfigError if 400 <= status < 500 else TransientError)(why)


def _connection(parts: SplitResult) -> HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return HTTPSConnection(host, parts.port, timeout=PEER_CONNECT_S, context=ssl.create_default_context())
    return HTTPConnection(host, parts.port, timeout=PEER_CONNECT_S)
