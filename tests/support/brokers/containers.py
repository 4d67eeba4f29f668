"""A real Kafka in a container, by testcontainers; the image and its settings are those of `postdate dev --docker`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from postdate.kafka.errors import DevBrokerFailed
from postdate.tools.dev_broker.docker import node_environment
from postdate.tools.dev_broker.readiness import wait_until_ready
from support.deployments.ports import free_port
from support.deployments.programs import need_kafka_image
from support.waiting.timeouts import WAIT_TIMEOUT_S

_HOST = "127.0.0.1"


@dataclass(frozen=True)
class ContainerBroker:
    """A broker in a container: its address, which is the same inside and outside, and the network that other containers
    join."""

    bootstrap: str
    network: str


@contextmanager
def container_broker() -> Iterator[ContainerBroker]:
    """Yields a new broker in a container, and removes it afterwards; skips the test if containers are unavailable.

    The port is chosen before the container starts, because the broker needs its advertised address as a setting.
    """
    image, port = need_kafka_image(), free_port()
    # The exit handler removes the container. The reaper, which also cleans up after a killed session, needs another
    # image.
    testcontainers_config.ryuk_disabled = True
    patient = {"timeout": WAIT_TIMEOUT_S}  # by default a start that takes a minute on a busy machine is an error
    container = DockerContainer(image, docker_client_kw=patient, env=node_environment(_HOST, port))
    container.with_bind_ports(port, port)

    def check_alive() -> None:
        container.reload()
        if container.status == "exited":
            raise DevBrokerFailed(f"the container of {image} has ended:\n{container.get_wrapped_container().logs()!r}")

    with container:
        wait_until_ready(_HOST, port, WAIT_TIMEOUT_S, check_alive)
        yield ContainerBroker(f"{_HOST}:{port}", f"container:{container.get_wrapped_container().id}")
