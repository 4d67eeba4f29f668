"""Who may ask the API, and who may change what is pending.

- Metrics and probes: whoever reaches the port. They hold no payloads, ids or keys.
- Reading what is pending: whoever reaches a port of a loopback address; else only with the token.
- Changes: only with the token, wherever they come from.

The token is read from its file for each question, so that it can be replaced while the process runs. A browser on this
machine must not be talked into reading for others (DNS rebinding): a loopback port answers to its own names only.
"""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path
from typing import Final

from starlette.requests import Request

from postdate.sidecar.config import HttpConfig
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.limits import TOKEN_CHARS_MIN, TOKEN_FILE_BYTES_MAX

_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Refused(Exception):
    """The request is answered with `status` and this sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def is_loopback(host: str) -> bool:
    """True where an address, or `localhost`, is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_token(http: HttpConfig) -> None:
    """Raises ConfigError if a token file is configured that holds no usable token now."""
    if http.token_file is None:
        return
    try:
        _read_token(http.token_file)
    except Refused as refused:
        raise ConfigError(f"http.token_file {http.token_file}: {refused}") from refused


class Access:
    """The rules of one configuration."""

    def __init__(self, config: HttpConfig) -> None:
        self._token_file = config.token_file
        self._local = is_loopback(config.host)
        self._names = _LOCAL_NAMES | {config.host.lower(), config.advertise.lower()} - {""}

    def may_reach(self, request: Request) -> None:
        """Raises Refused where a name of somebody else's led here."""
        if self._local and _host_name(request.headers.get("host", "")) not in self._names:
            raise Refused(421, "this port answers to localhost and its addresses only")

    def may_read(self, request: Request) -> None:
        """Raises Refused where the question needs a token and has none."""
        if not self._local:
            self.may_change(request)

    def may_change(self, request: Request) -> None:
        """Raises Refused where the request has not the token, or there is none."""
        if self._token_file is None:
            raise Refused(403, "no token is configured (http.token_file), so nothing may be asked or changed from here")
        given = request.headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused(401, "a bearer token is needed: Authorization: Bearer TOKEN; in a command: --token-file FILE")
        if not hmac.compare_digest(token.strip().encode("utf-8", "replace"), _read_token(self._token_file)):
            raise Refused(401, "the token is not the one in http.token_file")


def _host_name(header: str) -> str:
    """The name in a Host header, without the port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


def _read_token(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_FILE_BYTES_MAX).strip()
    except OSError as error:
        raise Refused(503, f"the token file cannot be read: {error.strerror}") from error
    if len(token) < TOKEN_CHARS_MIN:
        raise Refused(503, f"the token in the token file has fewer than {TOKEN_CHARS_MIN} characters")
    return token
