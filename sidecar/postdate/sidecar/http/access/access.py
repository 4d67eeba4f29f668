"""The access rules of the API.

- Metrics, probes, the page and the description of the API are open to every client that reaches the port. They contain
  no payloads, ids or keys.
- Queries are open to every client of a loopback port. On other ports they need the token.
- Changes need the token on every port.

A client sends the token to an address that its user has named. A client that found the address through the consumer
group signs the request with the token instead (`signing`).

The process reads the token file for each request that needs the token, so the token can be replaced while the process
runs.

The port answers only to its own host names (`Hosts`), on every path. Otherwise the owner of a web page could let the
host name of the page resolve to an address of this network (DNS rebinding), and read the port through the browser of a
local user. If the host name is an address, this attack is impossible: the browser sends the requests to the server from
which the page came. So addresses are allowed: the probes of Kubernetes and the scrapes of Prometheus use them.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from pathlib import Path

from starlette.requests import Request

from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.access.signing import BadSignature, NoncesFull, Signatures, is_signed
from postdate.sidecar.http.limits import TOKEN_CHARS_MIN, TOKEN_FILE_BYTES_MAX

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:@\[\]]+?)\.?)(?::[0-9]*)?")


class Refused(Exception):
    """A refused request. `status`: the HTTP status of the answer; the text is its message."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def is_loopback(host: str) -> bool:
    """True if `host` is a loopback address or `localhost`, so that only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_token(http: HttpConfig) -> None:
    """Raises ConfigError if the configured token file has no usable token."""
    if http.token_file is None:
        return
    try:
        _read_token(http.token_file)
    except Refused as refused:
        raise ConfigError(
            f"http.token_file {http.token_file}: {refused}. Write one: "
            f"(umask 077; head -c 24 /dev/urandom | base64 > {http.token_file})"
        ) from refused


class Hosts:
    """The host names and addresses for which the port answers."""

    def __init__(self, config: HttpConfig) -> None:
        self._local = is_loopback(config.host)
        names = ["localhost", config.host, config.advertise, socket.gethostname(), *config.names]
        self._names = frozenset(name.lower() for name in names if name)

    def knows(self, header: str) -> bool:
        """True if a Host header has a name of this port, or an address. A loopback port allows only loopback addresses,
        and the address at which it listens."""
        name = _host_name(header)
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return address.is_loopback or not self._local or name in self._names


class Access:
    """The access rules of one configuration. `own_address`: the address that the process advertises."""

    def __init__(self, config: HttpConfig, own_address: str) -> None:
        self._token_file = config.token_file
        self._signatures = Signatures(own_address)
        self._local = is_loopback(config.host)

    def may_read(self, request: Request, body: bytes) -> None:
        """Raises Refused if the request needs the token and does not prove that the client has it. `body`: as for
        `may_change`."""
        if not self._local:
            self.may_change(request, body)

    def may_change(self, request: Request, body: bytes) -> None:
        """Raises Refused unless a token is configured, and the request has the token or is signed with it.
        `body`: the body of a signed request; empty if the request is not signed."""
        if self._token_file is None:
            raise Refused(403, "this needs a token, and the process has none: set http.token_file")
        authorization = request.headers.get("authorization", "")
        if is_signed(authorization):
            self._check(request, body, authorization)
            return
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused(401, "a bearer token is needed: Authorization: Bearer TOKEN; in a command: --token-file FILE")
        if not hmac.compare_digest(token.strip().encode("utf-8", "replace"), _read_token(self._token_file)):
            raise Refused(401, "the token is not the one in http.token_file")

    def _check(self, request: Request, body: bytes, authorization: str) -> None:
        assert self._token_file is not None, "the caller has checked this"
        target = request.scope["raw_path"] + (b"?" + request.scope["query_string"]).removesuffix(b"?")
        try:
            token = _read_token(self._token_file)
            self._signatures.check(token, authorization, request.method, target.decode("latin-1"), body)
        except BadSignature as error:
            raise Refused(401, str(error)) from error
        except NoncesFull as error:
            raise Refused(503, str(error)) from error


def _host_name(header: str) -> str:
    """Returns the name or address in a Host header, without the port, the brackets of an address and a final dot; empty
    if the header is malformed."""
    match = _HOST.fullmatch(header.strip().lower())
    return "" if match is None else match[1] or match[2]


def _read_token(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_FILE_BYTES_MAX).strip()
    except OSError as error:
        raise Refused(503, f"the token file cannot be read: {error.strerror}") from error
    if len(token) < TOKEN_CHARS_MIN:
        raise Refused(503, f"the token in the token file has fewer than {TOKEN_CHARS_MIN} characters")
    return token
