"""Goal: a process that starts while brokers are unavailable waits, alive and not ready. If Kafka refuses it, the
process ends at once.

Method: the tests of this module pause or kill their own local broker, and use wrong credentials for a secured broker.
They query the probes over HTTP, as Kubernetes does.
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

#: The log line of a failed attempt.
_WAITS = re.compile(r"Kafka does not answer for \d+ s: .*the next attempt is in (\d+) s")
#: Seconds: a few times the time-out of a client whose broker does not answer, and far less than the process would wait.
_PROMPT_S = 10.0


@pytest.fixture(scope="module")
def module_broker() -> Iterator[LocalBroker]:
    with local_broker() as broker:
        yield broker


@pytest.fixture
def deployment(module_broker: LocalBroker, tmp_path: Path) -> Iterator[SidecarDeployment]:
    environment = SidecarDeployment(module_broker.bootstrap_servers, tmp_path)
    environment.new_requests(1)
    yield environment
    environment.close()


def _served(deployment: SidecarDeployment) -> tuple[Sidecar, Client]:
    sidecar, port = deployment.new_sidecar(), free_port()
    sidecar.http = {"port": port}
    return sidecar, Client(port)


def _wait_for_attempts(sidecar: Sidecar, count: int) -> list[int]:
    """Waits until `count` failed attempts are logged, and returns the logged pauses in seconds."""

    def pauses() -> list[int]:
        return [int(pause) for pause in _WAITS.findall(sidecar.log_text())]

    def enough() -> bool:
        assert sidecar.is_alive(), f"the process ended unexpectedly:\n{sidecar.log_text()}"
        return len(pauses()) >= count

    wait_until(enough, f"{count} attempts are logged")
    return pauses()


@pytest.mark.parametrize("away", ["paused", "killed"])
def test_a_process_waits_alive_and_not_ready_until_the_broker_is_back(
    module_broker: LocalBroker, deployment: SidecarDeployment, away: str
) -> None:
    sidecar, client = _served(deployment)
    if away == "paused":
        module_broker.pause()
    else:
        module_broker.kill()
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
            module_broker.resume()
        else:
            module_broker.start()
    sidecar.wait_for_shards(1)
    wait_until(lambda: client.get("/readyz").status == 200, "it is ready")
    assert sidecar.stop() == 0


def test_a_signal_ends_the_wait(module_broker: LocalBroker, deployment: SidecarDeployment) -> None:
    sidecar, client = _served(deployment)
    module_broker.pause()
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
        module_broker.resume()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


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
    """Yields the address of a listener that closes each connection at once."""
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
def test_a_broken_handshake_is_retried_and_its_likely_cause_is_logged(
    secured: SecuredBroker, deployment: SidecarDeployment, also: str
) -> None:
    """A proxy without a broker breaks the connection, so the broker behind it may still have the right protocol."""
    sidecar, _ = _served(deployment)
    sidecar.common = {"security.protocol": "SSL", "ssl.ca.location": str(secured.certificates.ca)}
    with _proxy_without_broker() as proxy:
        sidecar.bootstrap = f"{secured.super_servers},{proxy}" if also else proxy
        sidecar.start()
        _wait_for_attempts(sidecar, 2)
        assert "in state SSL_HANDSHAKE" in sidecar.log_text()
        assert sidecar.stop() == 0
