"""Finds out why no broker can be reached, from the errors of the client library: a refused connection, an unknown host,
another protocol, or rejected credentials.

An admin client that waits for an answer reports such errors only to a caller that polls it. So a separate client
listens for them for some seconds.

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
"""s. A refusal arrives immediately, a failed handshake or login soon; a longer silence means that packets are
dropped."""
_TELLING: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""The most specific error first."""
_DECISIVE: Final = (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN)
"""After one of these, later errors of the library do not change the result."""
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""A broker answered and refused. A connection that breaks during a handshake is a `_TRANSPORT` error: a listener of the
other protocol breaks it, and so does a proxy whose broker is down."""
_ALERT: Final = re.compile(r"SSL routines:.*\balert\b")
"""In the text of a `_TRANSPORT` error: the broker has ended the TLS session with a reason, such as no certificate."""
_NO_TOKEN: Final = "OAUTHBEARER token"  # noqa: S105
"""In the text of an authentication error before any request to a broker: the token endpoint returned no token, and may
be down."""


def connection_fault(settings: KafkaSettings, over: Callable[[], bool]) -> KafkaFault | None:
    """The reason why no broker can be reached: NotAuthorized if a broker refused the credentials or the TLS handshake,
    or speaks the other protocol, which only an operator can correct; otherwise Unreachable. None if the library
    reports no such error for some seconds, or once `over` returns True."""
    heard: dict[int, str] = {}

    def hear(error: KafkaError) -> None:
        heard.setdefault(error.code(), error.str())

    try:
        client = AdminClient(settings.admin_conf() | {"error_cb": hear})
    except KafkaException:
        return None  # the caller's own client gets the same error
    deadline = time.monotonic() + _LISTEN_S
    while heard.keys().isdisjoint(_DECISIVE) and not over() and time.monotonic() < deadline:
        client.poll(0.1)
    if not heard or over():
        return None
    code = next((code for code in _TELLING if code in heard), None)
    # For a listener of the other protocol, librdkafka reports a broken connection, or only that the broker is down.
    if code in (None, KafkaError._TRANSPORT) and (mismatch := protocol_mismatch(settings.admin_conf())):
        return NotAuthorized(mismatch, KafkaError._SSL)
    if code is None:
        return None
    is_refusal = (code in _REFUSALS and _NO_TOKEN not in heard[code]) or _ALERT.search(heard[code])
    return (NotAuthorized if is_refusal else Unreachable)(heard[code], code)
