"""Goal: the probe port answers probes, also during a flood of the main port, and no other request.

Method: the real servers of both ports, the main port with TLS. All clients have one address. A client opens hundreds of
connections to the main port with the beginning of a handshake, which the port cannot distinguish from probes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from postdate.sidecar.config.loader import Flags, load
from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http import port
from postdate.sidecar.http.server import serving
from postdate.sidecar.http.server.server import HttpServer
from support.brokers.certificates import Authority
from support.deployments.ports import free_port
from support.deployments.sidecars import wait_until
from support.waiting.timeouts import WAIT_TIMEOUT_S
from support.web.http_server import HttpServerUnderTest
from support.web.http_steps import Client

_HANDSHAKE = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    """Yields a client of the main port and a client of the probe port."""
    authority = Authority(tmp_path / "authority")
    key, cert = authority.issue("port", "IP:127.0.0.1")
    config = HttpConfig(port=free_port(), probe_port=free_port(), tls_cert_file=cert, tls_key_file=key)
    with ExitStack() as stack:
        process = HttpServerUnderTest(stack).process(config)
        stack.enter_context(serving.serving(process, port.claim(config)))
        clients = Client(config.port, ca=authority.ca), Client(config.probe_port)
        wait_until(lambda: all(client.listens() for client in clients), "both ports are served")
        yield clients


@contextmanager
def begun_handshakes(client: Client) -> Iterator[None]:
    """Opens connections until the block ends, and keeps the last thousand of them open."""
    over, opened = Event(), Event()

    def flood() -> None:
        connections: list[socket.socket] = []
        while not over.is_set():
            with suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", client.port), WAIT_TIMEOUT_S)
                connections.append(connection)
                connection.sendall(_HANDSHAKE)
            if len(connections) > 1_000:
                opened.set()
                connections.pop(0).close()
        for connection in connections:
            connection.close()

    flooding = Thread(target=flood)
    flooding.start()
    try:
        assert opened.wait(WAIT_TIMEOUT_S)
        yield
    finally:
        over.set()
        flooding.join()


def test_probes_are_answered_while_the_port_with_tls_is_flooded(ports: tuple[Client, Client]) -> None:
    flooded, probed = ports
    with begun_handshakes(flooded):
        for _ in range(30):
            assert [probed.get(path).status for path in ("/healthz", "/readyz")] == [200, 200]
    wait_until(flooded.listens, "the flood is over")


def test_the_probe_port_answers_no_other_request(ports: tuple[Client, Client]) -> None:
    main, probed = ports
    assert main.get("/metrics").status == 200
    for path in ("/metrics", "/", "/api/v1/pending", "/api/v1/openapi.json"):
        assert probed.get(path).status == 404
    assert probed.post("/api/v1/drain", {}).status == 404
    assert probed.get("/healthz", Host="evil.example").status == 421


def test_a_taken_probe_port_is_logged_and_served_once_it_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("postdate.sidecar.http.server.server.HTTP_BIND_RETRY_S", 0.1)
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as taken:
        config = HttpConfig(port=0, probe_port=taken.getsockname()[1])
        stack.enter_context(serving.serving(HttpServerUnderTest(stack).process(config), None))
        warning = f"port {config.probe_port} of 127.0.0.1 is taken"
        assert f"{warning}: probes are not answered until it is free" in caplog.text
        taken.close()
        wait_until(Client(config.probe_port).listens, "it is served")


def test_probes_fail_if_the_thread_of_the_main_port_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a probe port, nothing answers probes in this case."""
    real_run = HttpServer._run

    def run(self: HttpServer) -> None:
        if self._probes_only:
            real_run(self)
        elif self._first is not None:
            self._first.close()

    monkeypatch.setattr(HttpServer, "_run", run)
    config = HttpConfig(port=free_port(), probe_port=free_port())
    with ExitStack() as stack:
        process = HttpServerUnderTest(stack).process(config)
        stack.enter_context(serving.serving(process, port.claim(config)))
        probes = Client(config.probe_port)
        wait_until(probes.listens, "the probe port is served")
        for path in ("/healthz", "/readyz"):
            answer = probes.get(path)
            assert (answer.status, "the thread of an HTTP port has ended" in answer.text) == (503, True)


def test_a_stopped_port_does_not_fail_the_probes_of_the_other_port(tmp_path: Path) -> None:
    """At the end of the process, the probe port stops first."""
    config = HttpConfig(port=free_port(), probe_port=free_port())
    with ExitStack() as stack:
        process = HttpServerUnderTest(stack).process(config)
        probes = HttpServer(process, port.claim_probes(config), probes_only=True)
        probes.start()
        probes.stop()
        stack.enter_context(serving.serving(process, port.claim(config)))
        client = Client(config.port)
        wait_until(client.listens, "the port is served")
        assert "thread of an HTTP port" not in client.get("/healthz").text


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"POSTDATE_HTTP_PROBE_PORT": "8080"}, r"http\.probe_port is 8080, which is also http\.port"),
        ({"POSTDATE_HTTP_PROBE_PORT": "8090", "POSTDATE_WORKERS": "2"}, r"http\.probe_port is set, and workers is 2"),
        ({"POSTDATE_HTTP_PROBE_PORT": "65536"}, r"http\.probe_port must be at most 65535"),
    ],
)
def test_an_invalid_probe_port_is_a_configuration_error(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(Flags(), environment)
