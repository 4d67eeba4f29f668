"""The same single node as a container of the image apache/kafka, by the docker command line: no Java, no PySpark.

The container is named after its port and removed when it stops; its data goes with it. For one caller at a time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from postdate.connectors.kafka.dev.jars import Progress, quiet
from postdate.connectors.kafka.dev.local import (
    LOG_LINES_SHOWN,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    free_port,
    require_free,
)
from postdate.connectors.kafka.dev.properties import container_environment, node_settings
from postdate.connectors.kafka.dev.readiness import wait_until_ready
from postdate.connectors.kafka.errors import DevBrokerFailed

#: The image that is started unless another is asked for, here or by POSTDATE_KAFKA_IMAGE.
IMAGE = "apache/kafka:4.1.0"
#: Inside of the container; nobody outside sees it. Two, since the broker's port may be one of them.
_CONTROLLER_PORTS = (9093, 9094)


class DockerBroker:
    """One broker in a container, reachable at 127.0.0.1:port (0: a free one). The surface of LocalBroker, as far as a
    container has it."""

    host = "127.0.0.1"

    def __init__(self, port: int, image: str | None = None, *, progress: Progress = quiet) -> None:
        self.port = port or free_port()
        self.image = image or os.environ.get("POSTDATE_KAFKA_IMAGE") or IMAGE
        self.name = f"postdate-dev-{self.port}"
        self.log_file = Path(tempfile.gettempdir(), f"{self.name}.log")
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return f"{self.host}:{self.port}"

    def is_running(self) -> bool:
        """Whether the container started here still runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns when a transaction has succeeded; fetches the image first where it is missing (docker shows how far).

        Raises DevBrokerFailed, and leaves no container behind, where docker, its engine, the image or the port is not
        to be had.
        """
        docker = find_docker()
        require_free(self.host, self.port)
        if not _succeeds([docker, "image", "inspect", self.image]):
            self._progress(f"fetching the image {self.image}", 0, 0)
            pulled = subprocess.run([docker, "pull", "--quiet", self.image], stdout=subprocess.DEVNULL, check=False)  # noqa: S603
            if pulled.returncode != 0:
                raise DevBrokerFailed(f"The image {self.image} could not be fetched; docker's reason stands above.")
        self._progress("starting the container", 0, 0)
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                run_command(docker, self.name, self.image, self.host, self.port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for us; we stop the container
            )
        try:
            wait_until_ready(self.host, self.port, timeout_s, self._check_alive)
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops and removes the container. Nothing happens where none runs."""
        if self._process is None:
            return
        _succeeds([find_docker(), "stop", "--time", str(int(timeout_s)), self.name])
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Waits for the container to end by itself; its exit status, or None where it still runs after `timeout_s`."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def last_words(self) -> str:
        """The end of what the container said, for an error message."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _check_alive(self) -> None:
        if not self.is_running():
            raise DevBrokerFailed(
                f"The container {self.name} of {self.image} ended while starting:\n{self.last_words()}"
            )


def find_docker() -> str:
    """The path of the docker command; raises DevBrokerFailed where it is missing or its engine does not answer."""
    docker = shutil.which("docker")
    if docker is None:
        raise DevBrokerFailed("There is no docker on PATH. Install Docker, or run without --docker (needs Java 17).")
    if not _succeeds([docker, "version"]):
        raise DevBrokerFailed("The Docker engine does not answer. Start it, or run without --docker (needs Java 17).")
    return docker


def run_command(docker: str, name: str, image: str, host: str, port: int) -> list[str]:
    """The command that runs the node in the foreground. Pure."""
    controller_port = next(each for each in _CONTROLLER_PORTS if each != port)
    settings = node_settings(host, port, controller_port)
    # The image formats its storage for a fixed quorum, not for one that is found by bootstrap servers.
    del settings["controller.quorum.bootstrap.servers"]
    settings["controller.quorum.voters"] = f"1@localhost:{controller_port}"
    settings["listeners"] = f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://localhost:{controller_port}"
    command = [docker, "run", "--rm", "--name", name, "--publish", f"{host}:{port}:{port}"]
    for variable, value in container_environment(settings).items():
        command += ["--env", f"{variable}={value}"]
    return [*command, image]


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603
