"""A client of the HTTP API of one process.

Thread rule: an `Api` may be shared; each request opens a connection.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from postdate.sidecar.errors import ConfigError, TransientError
from postdate.sidecar.http.access.signing import signed
from postdate.sidecar.http.access.tls import client_context
from postdate.sidecar.http.limits import ANSWER_BYTES_MAX, CLIENT_TIMEOUT_S, PEER_CONNECT_S

Query = Sequence[tuple[str, str]]
JsonObject = dict[str, Any]
"""An answer of the API, or an object in it."""


class NotKnown(TransientError):
    """The process has no record of the requested item."""


class Api:
    """The API of one process. `timeout_s`: the longest wait for an answer. `signs`: each request is signed with the
    token, and the token itself is not sent, since only the group vouches for the address. `ca_file`: the CAs that
    verify an https URL; if it is None, the CAs of the system. The file is read for each request, so that it can be
    replaced. `labels`: headers of each request, which the signature does not cover."""

    def __init__(
        self,
        url: str,
        token: str = "",
        timeout_s: float = CLIENT_TIMEOUT_S,
        *,
        signs: bool = False,
        ca_file: Path | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ConfigError if `url` is not an http or https URL with a host."""
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            raise ConfigError(f"--url {url}: give http://HOST:PORT")
        self._signs = signs
        self._labels = {**(labels or {})}
        self._ca_file = ca_file
        self.url = url
        self._parts = parts
        self._token = token
        self._timeout_s = timeout_s

    def get(self, path: str, query: Query = ()) -> dict[str, Any]:
        """Returns the answer. Raises NotKnown for the status 404, ConfigError for an invalid request or token, and
        TransientError if the process does not answer or reports a fault."""
        return self._ask("GET", path + (f"?{urlencode(query)}" if query else ""), None)

    def post(self, path: str, query: Query, body: bytes) -> dict[str, Any]:
        """Sends a change and returns the answer. Raises as `get` does."""
        return self._ask("POST", path + (f"?{urlencode(query)}" if query else ""), body)

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        connection = cut = None
        target = self._parts.path.rstrip("/") + path
        try:
            connection = _connection(self._parts, self._ca_file)
            connection.connect()
            cut = _cut_after(self._timeout_s, connection.sock)
            connection.request(method, target, body, self._headers(method, target, body or b""))
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a name that no resolver accepts
            raise TransientError(f"no answer from {self.url}; does postdate run serve it? ({error})") from error
        finally:
            if cut is not None:
                cut.cancel()
            if connection is not None:
                connection.close()
        return self._judge(answer.status, body)

    def _headers(self, method: str, target: str, body: bytes) -> dict[str, str]:
        if not self._token:
            return self._labels
        if not self._signs:
            return {**self._labels, "Authorization": f"Bearer {self._token}"}
        address = self._parts.netloc
        return {**self._labels, "Host": address, "Authorization": signed(self._token, method, address, target, body)}

    def _judge(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"{self.url} answered {status} with something that is not Postdate's") from error
        if status in (200, 202) and isinstance(decoded, dict):
            return decoded
        why = f"{self.url}: {decoded.get('error', status) if isinstance(decoded, dict) else status}"
        if status == 401 and self._signs and self._token:
            why += " (it may be an earlier version, which accepts no signed requests, or have another token or time)"
        if status == 404:
            raise NotKnown(why)
        raise (ConfigError if 400 <= status < 500 else TransientError)(why)


def _cut_after(seconds: float, connection: socket.socket) -> threading.Timer:
    """Starts a timer that ends a connection after this time, even if the peer still sends; returns the timer."""

    def cut() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    connection.settimeout(seconds)
    return timer


def _connection(parts: SplitResult, ca_file: Path | None) -> HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return HTTPSConnection(host, parts.port, timeout=PEER_CONNECT_S, context=client_context(ca_file))
    return HTTPConnection(host, parts.port, timeout=PEER_CONNECT_S)
