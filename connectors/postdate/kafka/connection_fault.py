"""Why no broker can be talked to, in the words of the client library: it refuses the connection, it has no address, it
speaks another protocol, or it does not accept these credentials.

An admin client that waits for an answer reports such errors only to a caller that polls it, and keeps them otherwise.
So a separate client listens for them, and ends with the question.

Thread rule: nothing is shared; callable from any thread.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from postdate.kafka.errors import KafkaFault, NotAuthorized, Unreachable
from postdate.kafka.listeners import protocol_mismatch
from postdate.kafka.settings import KafkaSettings

_LISTEN_S: Final = 5.0
"""s. A refusal comes at once, a failed handshake or login soon; a broker that is silent for longer drops packets."""
_TELLING: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""The most telling first."""
_DECISIVE: Final = (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN)
"""Nothing that the library reports after one of these changes the answer."""
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""A broker answered and refused. A connection that breaks during a handshake is a `_TRANSPORT` error: a listener of the
other protocol breaks it, and so does a proxy whose broker is away."""
_ALERT: Final = re.compile(r"SSL routines:.*\balert\b")
"""In the text of a `_TRANSPORT` error: the broker has ended the TLS session with a reason, such as no certificate."""
_NO_TOKEN: Final = "OAUTHBEARER token"  # noqa: S105
"""In the text of an authentication error for which no broker was asked: the token endpoint gave no token, and may be
away."""


def connection_fault(settings: KafkaSettings, over: Callable[[], bool]) -> KafkaFault | None:
    """Why not one of the brokers can be talked to: NotAuthorized if a broker refused the credentials or the TLS
    handshake, or speaks the other protocol, which only a person can change; Unreachable otherwise. None if the library
    reports nothing of the kind in some seconds, or once `over` is true."""
    heard: dict[int, str] = {}

    def hear(error: KafkaError) -> None:
        heard.setdefault(error.code(), error.str())

    try:
        client = AdminClient(settings.admin_conf() | {"error_cb": hear})
    except KafkaException:
        return None  # the caller's own client meets the same
    deadline = time.monotonic() + _LISTEN_S
    while heard.keys().isdisjoint(_DECISIVE) and not over() and time.monotonic() < deadline:
        client.poll(0.1)
    if not heard or over():
        return None
    code = next((code for code in _TELLING if code in heard), None)
    # Of a listener of the other protocol librdkafka reports a broken connection, or only that the broker is down.
    if code in (None, KafkaError._TRANSPORT) and (mismatch := protocol_mismatch(settings.admin_conf())):
        return NotAuthorized(mismatch, KafkaError._SSL)
    if code is None:
        return None
    is_refusal = (code in _REFUSALS and _NO_TOKEN not in heard[code]) or _ALERT.search(heard[code])
    return (NotAuthorized if is_refusal else Unreachable)(heard[code], code)
