"""Detects that every bootstrap address speaks TLS although the clients are configured without it, or the reverse.

The error of librdkafka does not prove it: a listener of the other protocol closes the connection, and so does a proxy
whose broker is away. So each address is asked in the other protocol: a TLS ClientHello, or a Kafka ApiVersions request.
Neither carries a credential.

Thread rule: nothing is shared; callable from any thread. The first address that does not answer ends the check.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import Final

from postdate.kafka.settings import ClientConf

_ANSWER_S: Final = 2.0
"""s. For the connection, and again for each part of the answer."""
_PORT: Final = 9092
"""The port of an address that names none, as in librdkafka."""
_TLS_RECORDS: Final = (b"\x16", b"\x15")
"""The first byte of what a TLS server sends: handshake or alert (RFC 8446, 5.1)."""
_CORRELATION: Final = b"post"
"""The broker repeats it after the length of its answer."""
_API_VERSIONS: Final = struct.pack(">ihh4sh", 10, 18, 0, _CORRELATION, -1)
"""Length, API key, version, correlation id, no client id: accepted before any authentication."""


def protocol_mismatch(conf: ClientConf) -> str:
    """A message for the user if every bootstrap address of `conf` answers in the other protocol; empty otherwise, also
    if one of them does not answer."""
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
    """Of [PROTOCOL://]HOST[:PORT]; an IPv6 address stands in brackets."""
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
    """The first `size` bytes of the answer; fewer if the connection ends or the time is over."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((host, port), _ANSWER_S) as connection:
        connection.sendall(request)
        while len(answer) < size and (part := connection.recv(size - len(answer))):
            answer += part
    return answer
