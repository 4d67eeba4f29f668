"""Signs requests to the processes of a consumer group with the token of the API. The token itself is not sent.

The members of the consumer group advertise their addresses, and any client that may join the group may advertise any
address. Therefore a request to such an address has no bearer token, but `Authorization: Postdate-HMAC-SHA256
TIME:NONCE:SIGNATURE`. The signature covers the method, the address of the receiver, the path with the query, the time,
the nonce and the body. It does not contain the token, expires after SIGNATURE_MS_MAX, and is valid only for its
receiver. Until it expires, a signed query is accepted any number of times. A signed change is accepted only once, since
the receiver remembers its nonce, and only if it was signed after the receiver started.

Thread rule: any thread may call `signed`; a `Signatures` belongs to the event loop of the server.
Source of the idea: the request signatures of AWS (SigV4) and RFC 9421.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import Final

from postdate.sidecar.http.limits import NONCES_MAX, SIGNATURE_MS_MAX
from postdate.wire.values.durations import format_duration

SCHEME: Final = "Postdate-HMAC-SHA256"
_CREDENTIALS = re.compile(r"(\d{1,15}):([0-9a-f]{32}):([0-9a-f]{64})")


class BadSignature(Exception):
    """The signature of a request is invalid, or was used before; the text gives the reason."""


class NoncesFull(Exception):
    """The receiver remembers NONCES_MAX changes already, and accepts no further one until it may forget some of
    them."""


def wall_ms() -> int:
    """Returns the time of this machine, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def signed(token: str, method: str, address: str, target: str, body: bytes) -> str:
    """Returns the Authorization header of a request. `address`: HOST:PORT of the receiver; `target`: the path and the
    query."""
    time_ms, nonce = str(wall_ms()), secrets.token_hex(16)
    return f"{SCHEME} {time_ms}:{nonce}:{_signature(token.encode(), body, method, address, target, time_ms, nonce)}"


def is_signed(header: str) -> bool:
    """True if an Authorization header has the scheme of signatures."""
    return header.partition(" ")[0].lower() == SCHEME.lower()


class Signatures:
    """The verifier of signatures in one process. `own_address`: the address that the process advertises."""

    def __init__(self, own_address: str, now_ms: Callable[[], int] = wall_ms) -> None:
        self._own_address = own_address
        self._now_ms = now_ms
        self._started_ms = now_ms()
        self._new_until_s = time.monotonic() + 2 * SIGNATURE_MS_MAX / 1_000
        self._nonces: dict[str, int] = {}  # by nonce of a change: the time until which it is remembered, epoch ms

    def check(self, token: bytes, header: str, method: str, target: str, body: bytes) -> None:
        """Verifies a signature, and remembers the nonce of a change. Raises BadSignature if the header is not a valid
        signature of this request, or if the change was accepted before. Raises NoncesFull."""
        match = _CREDENTIALS.fullmatch(header.partition(" ")[2].strip())
        if match is None:
            raise BadSignature(f"the signature does not have the form {SCHEME} TIME:NONCE:SIGNATURE")
        time_ms, nonce, signature = match.groups()
        if not hmac.compare_digest(
            signature, _signature(token, body, method, self._own_address, target, time_ms, nonce)
        ):
            raise BadSignature(f"the signature was not made with the token of {self._own_address} for this request")
        now_ms = self._now_ms()
        if abs(now_ms - int(time_ms)) > SIGNATURE_MS_MAX:
            apart = format_duration(abs(now_ms - int(time_ms)))
            raise BadSignature(f"the time of the signature is {apart} off: do the clocks of the machines agree?")
        if method != "GET":
            # The nonces that an earlier process remembered are lost. At `_new_until_s`, all signatures that it may have
            # accepted have expired.
            if int(time_ms) < self._started_ms and time.monotonic() < self._new_until_s:
                raise BadSignature("the change was signed before this process started; try again")
            self._remember(nonce, now_ms)

    def _remember(self, nonce: str, now_ms: int) -> None:
        while self._nonces and next(iter(self._nonces.values())) < now_ms:
            del self._nonces[next(iter(self._nonces))]
        if nonce in self._nonces:
            raise BadSignature("this change was already accepted")
        if len(self._nonces) >= NONCES_MAX:
            raise NoncesFull(f"{NONCES_MAX} changes came within {format_duration(2 * SIGNATURE_MS_MAX)}; try again")
        self._nonces[nonce] = now_ms + 2 * SIGNATURE_MS_MAX  # `time_ms` may be SIGNATURE_MS_MAX ahead


def _signature(token: bytes, body: bytes, *fields: str) -> str:
    """Returns the hexadecimal signature. `fields`: method, address, target, time in ms, nonce."""
    lines = ("postdate-http-1", *fields, hashlib.sha256(body).hexdigest())
    return hmac.new(token, "\n".join(lines).encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
