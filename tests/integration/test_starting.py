"""Goal: a process that starts while brokers are unavailable waits, alive and not ready; a refusal ends it at once.

Method: a local broker of this module's own that is paused or killed, and a secured one with wrong credentials; the
probes are asked over HTTP as Kubernetes asks them.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from postdate.tools.dev_broker.local_broker import LocalBroker
from support.brokers.broker import local_broker
from support.brokers.secured_broker import SecuredBroker, secured_broker
from support.deployments.command import run_postdate
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, wait_until
from support.web.http_steps import Client

#: The line of one attempt in vain.
_WAITS = re.compile(r"Kafka does not answer for \d+ s: .*the next attempt is in (\d+) s")
#: s. What a client waits for a silent broker, and a few times that for a busy machine: far less than the wait.
_PROMPT_S = 10.0


@pytest.fixture(scope="module")
def own() -> Iterator[LocalBroker]:
    with local_broker() as broker:
        yield broker


@pytest.fixture
def env(own: LocalBroker, tmp_path: Path) -> Iterator[SidecarDeployment]:
    made = SidecarDeployment(own.bootstrap_servers, tmp_path)
    made.new_requests(1)
    yield made
    made.close()


def _served(env: SidecarDeployment) -> tuple[Sidecar, Client]:
    sidecar, port = env.new_sidecar(), free_port()
    sidecar.http = {"port": port}
    return sidecar, Client(port)


def _wait_for_attempts(sidecar: Sidecar, count: int) -> list[int]:
    """The pauses that were logged, once there are so many."""

    def pauses() -> list[int]:
        return [int(pause) for pause in _WAITS.findall(sidecar.log_text())]

    def enough() -> bool:
        assert sidecar.is_alive(), f"it ended by itself:\n{sidecar.log_text()}"
        return len(pauses()) >= count

    wait_until(enough, f"{count} attempts are logged")
    return pauses()


@pytest.mark.parametrize("away", ["paused", "killed"])
def test_a_process_waits_alive_and_not_ready_until_the_broker_is_back(
    own: LocalBroker, env: SidecarDeployment, away: str
) -> None:
    sidecar, client = _served(env)
    if away == "paused":
        own.pause()
    else:
        own.kill()
    try:
        sidecar.start()
        assert _wait_for_attempts(sidecar, 2)[:2] == [1, 2]
        assert client.get("/healthz").status == 200
        ready = client.get("/readyz")
        assert ready.status == 503
        assert ready.text.startswith("waiting for Kafka: ")
        assert client.get("/metrics").status == 200
    finally:
        if away == "paused":
            own.resume()
        else:
            own.start()
    sidecar.wait_for_shards(1)
    wait_until(lambda: client.get("/readyz").status == 200, "it is ready")
    assert sidecar.stop() == 0


def test_a_signal_ends_the_wait(own: LocalBroker, env: SidecarDeployment) -> None:
    sidecar, client = _served(env)
    own.pause()
    try:
        sidecar.start()
        wait_until(client.listens, "the port is served")
        began = time.monotonic()
        assert sidecar.stop() == 0, "in the middle of an attempt"
        assert time.monotonic() - began < _PROMPT_S
        sidecar.start()
        _wait_for_attempts(sidecar, 1)
        began = time.monotonic()
        assert sidecar.stop() == 0, "in the pause"
        assert time.monotonic() - began < _PROMPT_S
    finally:
        own.resume()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("password", "Authentication failed"),
        ("authority", "certificate verify failed"),
        ("no certificate", "alert"),
    ],
)
def test_a_refusal_ends_the_process_at_once_with_the_reason(
    secured: SecuredBroker, tmp_path: Path, wrong: str, words: str
) -> None:
    common = secured.sasl("PLAIN", tmp_path, "not-the-password")
    servers = secured.sasl_servers
    if wrong == "authority":
        del common["ssl.ca.location"]
    elif wrong == "no certificate":
        common, servers = {**common, "security.protocol": "SSL"}, secured.tls_servers
    config = tmp_path / "postdate.toml"
    config.write_text(
        "\n".join(["[kafka.common]", *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in common.items())])
    )
    done = run_postdate("run", "-b", servers, "--config", str(config), "--data", str(tmp_path), "--http-port", "0")
    assert done.returncode == 2, done.stderr
    assert "Kafka refuses this process" in done.stderr
    assert words in done.stderr
    assert not _WAITS.search(done.stderr), "the attempt that was refused is the last one"


@pytest.mark.parametrize("listener", ["plain", "TLS"])
def test_a_listener_of_the_other_protocol_ends_the_process_at_once(
    secured: SecuredBroker, tmp_path: Path, listener: str
) -> None:
    servers = secured.super_servers if listener == "plain" else secured.tls_servers
    configured, fits = ("SSL", "PLAINTEXT") if listener == "plain" else ("PLAINTEXT", "SSL")
    options = ["-X", f"security.protocol={configured}"]
    if listener == "plain":
        options += ["-X", f"ssl.ca.location={secured.certificates.ca}"]
    done = run_postdate("run", "-b", servers, "--requests", "r", *options, "--data", str(tmp_path), "--http-port", "0")
    assert done.returncode == 2, done.stderr
    assert f"security.protocol is {configured}, but every bootstrap address answers" in done.stderr
    assert f"({servers})" in done.stderr
    assert f"set security.protocol to {fits}" in done.stderr
    assert not _WAITS.search(done.stderr), "the attempt that was refused is the last one"


@contextmanager
def _proxy_without_broker() -> Iterator[str]:
    """The address of a listener that closes each connection at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_each() -> None:
            with suppress(OSError):  # the listener is closed
                while True:
                    listener.accept()[0].close()

        closer = threading.Thread(target=close_each, daemon=True)
        closer.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        closer.join()


@pytest.mark.parametrize("also", ["", "a listener of the other protocol"])
def test_a_connection_that_breaks_in_the_handshake_is_waited_for_and_its_likely_cause_is_logged(
    secured: SecuredBroker, env: SidecarDeployment, also: str
) -> None:
    """A proxy whose broker is away breaks it; the broker may be of the right protocol."""
    sidecar, _ = _served(env)
    sidecar.common = {"security.protocol": "SSL", "ssl.ca.location": str(secured.certificates.ca)}
    with _proxy_without_broker() as proxy:
        sidecar.bootstrap = f"{secured.super_servers},{proxy}" if also else proxy
        sidecar.start()
        _wait_for_attempts(sidecar, 2)
        assert "in state SSL_HANDSHAKE" in sidecar.log_text()
        assert sidecar.stop() == 0
