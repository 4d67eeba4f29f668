"""Goal: with a certificate the HTTP port accepts only TLS. It uses a renewed certificate without a restart, and keeps
the former certificate if the new files are unusable. The process queries the other members by TLS. The bounds of the
port also apply with TLS.

Method: the real server on a port of this machine, with a certificate of the test's authority. Its files are replaced as
the kubelet replaces the files of a secret: a symbolic link is changed to another directory.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from postdate.kafka.interface import GroupMember, Partition
from postdate.sidecar.config.loader import Flags, load
from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError, TransientError
from postdate.sidecar.http.queries.deployment import Deployment, peers_of
from postdate.sidecar.http.server import acceptor, connections, serving
from support.brokers.certificates import Authority
from support.waiting.timeouts import WAIT_TIMEOUT_S
from support.web.http_server import TOKEN, HttpServerUnderTest, is_closed
from support.web.http_steps import Client

_GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class _Secret:
    """The files of a certificate as Kubernetes mounts a secret: links through the link `..data`, which is replaced."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self._directory = directory / "mounted"
        self._directory.mkdir()
        self._authority = authority
        self._renewals = 0
        self.cert, self.key = self._directory / "tls.crt", self._directory / "tls.key"
        self.renew()
        for file in (self.cert, self.key):
            file.symlink_to(Path("..data", file.name))

    def renew(self) -> None:
        """Issues a new key and a new certificate, and writes them."""
        key, cert = self._authority.issue(f"port-{self._renewals}", "IP:127.0.0.1")
        self.put(cert.read_text(), key.read_text())

    def put(self, cert: str, key: str) -> None:
        """Replaces both files at once."""
        self._renewals += 1
        version = self._directory / f"..{self._renewals}"
        version.mkdir()
        (version / "tls.crt").write_text(cert)
        (version / "tls.key").write_text(key)
        link = self._directory / "..data_tmp"
        link.symlink_to(version.name)
        os.replace(link, self._directory / "..data")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def secret(tmp_path: Path, authority: Authority) -> _Secret:
    return _Secret(tmp_path, authority)


@pytest.fixture
def client(tmp_path: Path, authority: Authority, secret: _Secret) -> Iterator[Client]:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    with ExitStack() as stack:
        yield HttpServerUnderTest(stack).serve(
            path, tls_cert_file=secret.cert, tls_key_file=secret.key, tls_ca_file=authority.ca
        )


def serial(client: Client) -> str:
    """Returns the serial number of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=client.ca)
    connection = socket.create_connection(("127.0.0.1", client.port), WAIT_TIMEOUT_S)
    with context.wrap_socket(connection, server_hostname="127.0.0.1") as secured:
        certificate = secured.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def test_the_port_answers_requests_by_tls_and_no_plain_request(client: Client) -> None:
    assert client.get("/healthz").text == "alive\n"
    assert client.get("/api/v1/pending").status == 200
    with pytest.raises((OSError, http.client.HTTPException)):
        Client(client.port).get("/healthz")


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(client: Client) -> None:
    """The server reads the end of the handshake and the first request together, and the second request later."""
    context = ssl.create_default_context(cafile=client.ca)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", client.port), WAIT_TIMEOUT_S) as connection:
        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65_536))
        for _ in range(2):
            secured.write(_GET)
            connection.sendall(outgoing.read())
            answer = b""
            while b"alive" not in answer:
                with suppress(ssl.SSLWantReadError):
                    answer += secured.read(65_536)
                    continue
                incoming.write(connection.recv(65_536))
            assert answer.startswith(b"HTTP/1.1 200")


def test_new_connections_use_a_renewed_certificate_and_open_ones_continue(client: Client, secret: _Secret) -> None:
    before, kept = serial(client), client.connection()
    kept.request("GET", "/healthz")
    assert kept.getresponse().read() == b"alive\n"
    secret.renew()
    assert serial(client) != before
    kept.request("GET", "/healthz")
    assert kept.getresponse().read() == b"alive\n", "an open connection continues"
    kept.close()


def test_broken_files_keep_the_former_certificate_and_are_logged_once(
    client: Client, secret: _Secret, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    before = serial(client)
    good_cert, good_key = secret.cert.read_text(), secret.key.read_text()
    other_key, other_cert = authority.issue("other", "IP:127.0.0.1")
    for cert, key in (("no certificate", good_key), (other_cert.read_text(), good_key), (good_cert, "")):
        caplog.clear()
        secret.put(cert, key)
        assert [serial(client) for _ in range(3)] == [before] * 3
        (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert f"http.tls_cert_file {secret.cert}, http.tls_key_file {secret.key}: " in line
        assert "keeps the former one" in line
    secret.put(other_cert.read_text(), other_key.read_text())
    assert serial(client) != before


def test_the_former_certificate_is_used_while_files_are_missing(client: Client, secret: _Secret) -> None:
    before, cert = serial(client), secret.cert.read_text()
    secret.cert.unlink()
    assert serial(client) == before
    secret.cert.write_text(cert)
    assert serial(client) == before


def test_a_member_is_queried_by_tls_and_its_certificate_is_verified(
    client: Client, tmp_path: Path, secret: _Secret
) -> None:
    member = GroupMember("", "", f"x@127.0.0.1:{client.port}", "", (Partition("requests", 0),))
    config = HttpConfig(tls_cert_file=secret.cert, tls_key_file=secret.key, tls_ca_file=client.ca)
    assert Deployment(peers_of([member], TOKEN, config), frozenset()).count([])["count"] == 0
    other_authority = HttpConfig(tls_ca_file=Authority(tmp_path / "other-authority").ca)
    for wrong in (other_authority, HttpConfig(tls_cert_file=secret.cert, tls_key_file=secret.key)):
        with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED"):
            Deployment(peers_of([member], TOKEN, wrong), frozenset()).count([])
    with pytest.raises(TransientError, match="no answer from http://"):
        Deployment(peers_of([member], TOKEN, HttpConfig()), frozenset()).count([])


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_connections_without_a_handshake_displace_only_those_of_their_client(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HTTP_WAITING_MAX", 20)
    monkeypatch.setattr(acceptor, "HTTP_REQUEST_S_MAX", 2 * WAIT_TIMEOUT_S)  # none is closed by the time-out
    with ExitStack() as stack:
        many = [stack.enter_context(socket.create_connection(("127.0.0.1", client.port))) for _ in range(100)]
        for connection in many:
            connection.settimeout(WAIT_TIMEOUT_S)
        assert is_closed(many[0])
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.settimeout(WAIT_TIMEOUT_S)
        other.connect(("127.0.0.1", client.port))
        context = ssl.create_default_context(cafile=client.ca)
        with context.wrap_socket(other, server_hostname="127.0.0.1") as secured:
            secured.sendall(_GET)
            assert secured.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01", _GET])
def test_the_connection_of_a_handshake_that_does_not_end_in_time_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch, first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (acceptor, connections):  # before the first bytes, and after them
        monkeypatch.setattr(module, "HTTP_REQUEST_S_MAX", 0.3)
    with socket.create_connection(("127.0.0.1", client.port), WAIT_TIMEOUT_S) as connection:
        connection.sendall(first)
        assert is_closed(connection)
    assert not [record for record in caplog.records if record.exc_info], "no client causes a traceback in the log"


def test_the_connection_of_a_tls_request_that_is_not_complete_in_time_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HTTP_REQUEST_S_MAX", 0.5)
    connection = client.connection()
    connection.connect()
    connection.sock.sendall(_GET[:20])
    with suppress(ssl.SSLError):
        assert is_closed(connection.sock)
    connection.close()


def test_a_server_stops_in_time_during_handshakes(
    authority: Authority, secret: _Secret, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        client = HttpServerUnderTest(stack).serve(
            tls_cert_file=secret.cert, tls_key_file=secret.key, tls_ca_file=authority.ca
        )
        silent = socket.create_connection(("127.0.0.1", client.port), WAIT_TIMEOUT_S)
        assert client.get("/healthz").status == 200
    with silent:
        assert is_closed(silent)
    assert not client.listens()
    assert caplog.records == [], "it does not wait for the handshake"


# ---- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["TLS_CERT_FILE", "TLS_KEY_FILE"])
def test_a_certificate_without_its_key_is_a_configuration_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"http\.tls_cert_file and http\.tls_key_file go together"):
        load(Flags(), {f"POSTDATE_HTTP_{name}": "/etc/x.pem"})


def test_unusable_files_are_reported_before_the_port_serves(
    tmp_path: Path, authority: Authority, secret: _Secret
) -> None:
    serving.check(HttpConfig(tls_cert_file=secret.cert, tls_key_file=secret.key, tls_ca_file=authority.ca))
    nowhere, encrypted = tmp_path / "nowhere", authority.encrypted(secret.key)
    for cert, key in (
        (nowhere, secret.key),
        (secret.cert, nowhere),
        (secret.cert, encrypted),
        (secret.key, secret.key),
    ):
        with pytest.raises(ConfigError, match=r"http\.tls_cert_file .*, http\.tls_key_file .*: "):
            serving.check(HttpConfig(tls_cert_file=cert, tls_key_file=key))
    for ca in (nowhere, secret.key):
        with pytest.raises(ConfigError, match=r"http\.tls_ca_file .*: "):
            serving.check(HttpConfig(tls_cert_file=secret.cert, tls_key_file=secret.key, tls_ca_file=ca))
    with pytest.raises(ConfigError, match="the port itself would speak no TLS"):
        serving.check(HttpConfig(tls_ca_file=authority.ca))
