"""Finds out why no broker can be reached: a refused connection, an unknown host, rejected credentials, or bootstrap
addresses that use TLS although the clients are configured without it, or the reverse.

An admin client that waits for an answer reports such errors only to a caller that polls it. So a separate client
collects them for some seconds. The errors of librdkafka do not prove that one side uses TLS and the other does not: a
listener with the other protocol closes the connection, and so does a proxy whose broker is down. So the module then
queries each address in the other protocol, with a TLS ClientHello or a Kafka ApiVersions request. Neither carries a
credential.

Thread rule: nothing is shared; callable from any thread.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from postdate.kafka.errors import KafkaFault, NotAuthorized, Unreachable
from postdate.kafka.settings import ClientConf, KafkaSettings

_LISTEN_S: Final = 5.0
"""Seconds: a refusal arrives immediately, a failed handshake or login soon; a longer silence means that packets are
dropped."""
_SPECIFIC: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""The most specific error first."""
_DECISIVE: Final = (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN)
"""After one of these, later errors of the library do not change the result."""
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Errors that mean that a broker answered, and one side refused the other. A connection that breaks during a handshake
is not a refusal but a `_TRANSPORT` error: a listener of the other protocol breaks it, and so does a proxy whose broker
is down."""
_REFUSED_TLS: Final = re.compile(r"SSL routines:.*(\balert\b|certificate verify failed)")
"""The text of a `_TRANSPORT` error if the broker has ended the TLS session with a reason, such as a missing client
certificate, or if its own certificate is not trusted. For an untrusted certificate, librdkafka 2.16 reports `_SSL` or
`_TRANSPORT`, depending on the call in which OpenSSL reads the certificate (`rd_kafka_transport_ssl_connect`,
`_io_event`, `_handshake`)."""
_NO_TOKEN: Final = "OAUTHBEARER token"  # noqa: S105
"""Part of the text of an authentication error before any request to a broker: the token endpoint returned no token, and
may be down."""


def connection_fault(settings: KafkaSettings, over: Callable[[], bool]) -> KafkaFault | None:
    """Returns the reason why no broker can be reached. It is NotAuthorized if only an operator can correct it: a broker
    refused the credentials, one side refused the TLS handshake, or every bootstrap address answers in the other
    protocol. Otherwise it is Unreachable. Returns None if no reason is known after some seconds, if the settings make
    no client, or once `over` returns True."""
    errors: dict[int, str] = {}

    def on_error(error: KafkaError) -> None:
        errors.setdefault(error.code(), error.str())

    try:
        client = AdminClient(settings.admin_conf() | {"error_cb": on_error})
    except KafkaException:
        return None  # the caller's own client gets the same error
    deadline = time.monotonic() + _LISTEN_S
    while errors.keys().isdisjoint(_DECISIVE) and not over() and time.monotonic() < deadline:
        client.poll(0.1)
    if not errors or over():
        return None
    code = next((code for code in _SPECIFIC if code in errors), None)
    # For a listener of the other protocol, librdkafka reports a broken connection, or only that the broker is down.
    if code in (None, KafkaError._TRANSPORT) and (mismatch := protocol_mismatch(settings.admin_conf())):
        return NotAuthorized(mismatch, KafkaError._SSL)
    if code is None:
        return None
    return (NotAuthorized if is_refusal(code, errors[code]) else Unreachable)(errors[code], code)


def is_refusal(code: int, text: str) -> bool:
    """True if an error of the library means that a broker and this client do not accept each other, so that only an
    operator can help."""
    return (code in _REFUSALS and _NO_TOKEN not in text) or _REFUSED_TLS.search(text) is not None


_ANSWER_S: Final = 2.0
"""Seconds: the time-out for the connection, and for each part of the answer."""
_PORT: Final = 9092
"""The port of an address without one, as in librdkafka."""
_TLS_RECORDS: Final = (b"\x16", b"\x15")
"""The first byte from a TLS server: handshake or alert (RFC 8446, 5.1)."""
_CORRELATION: Final = b"post"
"""The broker repeats this number after the length of its answer."""
_API_VERSIONS: Final = struct.pack(">ihh4sh", 10, 18, 0, _CORRELATION, -1)
"""Length, API key, version, correlation id, no client id: accepted before any authentication."""


def protocol_mismatch(conf: ClientConf) -> str:
    """Returns a message for the user if every bootstrap address of `conf` answers in the other protocol: with TLS if
    `conf` has none, otherwise without TLS. Returns "" if at least one address does not, or is malformed."""
    protocol = str(conf.get("security.protocol", "PLAINTEXT")).upper()
    is_tls = protocol.endswith("SSL")
    addresses = [address.strip() for address in str(conf["bootstrap.servers"]).split(",")]
    answers_otherwise = _answers_plain if is_tls else _answers_tls
    try:
        if not all(answers_otherwise(*_host_and_port(address)) for address in addresses):
            return ""
    except (ValueError, OverflowError):  # no host name, or no port: librdkafka reports it
        return ""
    fits = protocol.replace("SSL", "PLAINTEXT") if is_tls else protocol.replace("PLAINTEXT", "SSL")
    return (
        f"security.protocol is {protocol}, but every bootstrap address answers {'without' if is_tls else 'with'} TLS "
        f"({', '.join(addresses)}): name other addresses, or set security.protocol to {fits}"
    )


def _host_and_port(address: str) -> tuple[str, int]:
    """Splits [PROTOCOL://]HOST[:PORT]; an IPv6 address has brackets."""
    named = address.rpartition("://")[2]
    host, _, port = named.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() else (named.strip("[]"), _PORT)


def _answers_tls(host: str, port: int) -> bool:
    """True if a ClientHello gets an answer, even a refusal. The handshake goes no further."""
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), hello, server_hostname=host).do_handshake()
    return _answer(host, port, hello.read(), 1) in _TLS_RECORDS


def _answers_plain(host: str, port: int) -> bool:
    return _answer(host, port, _API_VERSIONS, 8)[4:] == _CORRELATION


def _answer(host: str, port: int, request: bytes, size: int) -> bytes:
    """Returns the first `size` bytes of the answer, or fewer if the connection ends or times out."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((host, port), _ANSWER_S) as connection:
        connection.sendall(request)
        while len(answer) < size and (part := connection.recv(size - len(answer))):
            answer += part
    return answer
