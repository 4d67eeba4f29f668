"""Goal: a wrong `security.protocol` is reported only if every bootstrap address answers in the other protocol. A
refusal is recognised by any error with which the library reports it.

Method: test servers answer as a broker or as a TLS server, close the connection, or are silent. The texts of refusals
are those of librdkafka.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from confluent_kafka import KafkaError

from postdate.kafka import connection_fault
from postdate.kafka.connection_fault import is_refusal, protocol_mismatch


def _plain(connection: socket.socket) -> None:
    """Answers as a broker: repeats the correlation id of the request."""
    request = connection.recv(64)
    if request[4:6] == b"\0\x12":
        connection.sendall(b"\0\0\0\6" + request[8:12] + b"\0\0")


def _tls(connection: socket.socket) -> None:
    """Answers a ClientHello and any other bytes with an alert, as a TLS server does."""
    connection.recv(64)
    connection.sendall(b"\x15\x03\x03\0\2\2\x28")


def _closing(connection: socket.socket) -> None:
    """Closes the connection, as a proxy does if its broker is down."""


def _silent(connection: socket.socket) -> None:
    connection.recv(64)
    connection.recv(64)


_SERVERS = {"plain": _plain, "TLS": _tls, "closing": _closing, "silent": _silent}


@contextmanager
def _server(kind: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # the listener is closed
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        _SERVERS[kind](connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("protocol", "kinds", "fits"),
    [
        ("SSL", ["plain"], "PLAINTEXT"),
        ("sasl_ssl", ["plain", "plain"], "SASL_PLAINTEXT"),
        ("PLAINTEXT", ["TLS"], "SSL"),
        ("SASL_PLAINTEXT", ["TLS", "TLS"], "SASL_SSL"),
        ("SSL", ["TLS"], ""),
        ("SSL", ["plain", "TLS"], ""),
        ("SSL", ["plain", "closing"], ""),
        ("SSL", ["silent"], ""),
        ("PLAINTEXT", ["plain"], ""),
        ("PLAINTEXT", ["TLS", "plain"], ""),
        ("PLAINTEXT", ["TLS", "closing"], ""),
        ("PLAINTEXT", ["silent"], ""),
    ],
)
def test_only_an_answer_of_every_address_counts(
    protocol: str, kinds: list[str], fits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_fault, "_ANSWER_S", 0.5)
    with ExitStack() as stack:
        servers = ",".join(stack.enter_context(_server(kind)) for kind in kinds)
        mismatch = protocol_mismatch({"bootstrap.servers": servers, "security.protocol": protocol})
    assert mismatch.endswith(f"or set security.protocol to {fits}") if fits else mismatch == ""


@pytest.mark.parametrize("servers", ["", "127.0.0.1:99999", ":9092", "127.0.0.1:1,", "no-such-host.invalid"])
@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_a_malformed_or_unknown_address_is_no_mismatch(servers: str, protocol: str) -> None:
    assert protocol_mismatch({"bootstrap.servers": servers, "security.protocol": protocol}) == ""


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("kafka-0:9093", "kafka-0", 9093),
        ("SSL://kafka-0:9093", "kafka-0", 9093),
        ("kafka-0", "kafka-0", 9092),
        ("[::1]:9093", "::1", 9093),
        ("[::1]", "::1", 9092),
    ],
)
def test_addresses_are_read_as_librdkafka_reads_them(address: str, host: str, port: int) -> None:
    assert connection_fault._host_and_port(address) == (host, port)


_UNTRUSTED = "error:0A000086:SSL routines::certificate verify failed"


@pytest.mark.parametrize(
    ("code", "text", "refuses"),
    [
        (KafkaError._SSL, f"SSL handshake failed: {_UNTRUSTED}: broker certificate could not be verified", True),
        (KafkaError._TRANSPORT, f"{_UNTRUSTED} (after 7ms in state SSL_HANDSHAKE)", True),
        (KafkaError._TRANSPORT, "error:0A00045C:SSL routines::tlsv13 alert certificate required", True),
        (KafkaError._TRANSPORT, "error:0A000126:SSL routines::unexpected eof while reading", False),
        (KafkaError._TRANSPORT, "Disconnected (after 3ms in state SSL_HANDSHAKE)", False),
        (KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed", True),
        (KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: no answer", False),
    ],
)
def test_a_refusal_is_recognised_by_code_or_text(code: int, text: str, refuses: bool) -> None:
    assert is_refusal(code, text) is refuses
