"""The development broker as one container of the image apache/kafka, started with the docker command: no Java, no
PySpark.

The container is named after its port. When it stops, it is removed with its data. The engine must be on this machine,
since clients connect to 127.0.0.1. For one caller at a time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path

from postdate.kafka.errors import DevBrokerFailed
from postdate.tools.dev_broker.jars import KAFKA_VERSION, Progress, quiet
from postdate.tools.dev_broker.local_broker import (
    HEAP_MB,
    LOG_LINES_SHOWN,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    DevBroker,
    jvm_options,
    new_cluster_id,
    require_free,
)
from postdate.tools.dev_broker.properties import container_environment, node_settings
from postdate.tools.dev_broker.readiness import wait_until_ready
from postdate.tools.dev_broker.uninterrupted import uninterrupted

#: The default image; the caller or POSTDATE_KAFKA_IMAGE may name another.
IMAGE = f"apache/kafka:{KAFKA_VERSION}"
#: The image that scripts/container-image builds from Kafka's jars if `IMAGE` cannot be pulled; same settings.
LOCAL_IMAGE = f"postdate-kafka:{KAFKA_VERSION}"
#: Candidates for the controller's port inside the container. The second is used if the broker's port is the first.
_CONTROLLER_PORTS = (9093, 9094)
_POLL_S = 0.1
#: The output of `docker pull` for a layer: its id and its state.
_LAYER = re.compile(r"([0-9a-f]{12}): (.+)")
_LAYER_IS_THERE = ("Pull complete", "Already exists")


class DockerBroker(DevBroker):
    """One broker in a container, reachable at 127.0.0.1:port."""

    def __init__(self, port: int, image: str | None = None, *, progress: Progress = quiet) -> None:
        super().__init__(port, progress)
        self.image = image or os.environ.get("POSTDATE_KAFKA_IMAGE") or IMAGE
        self.name = f"postdate-dev-{self.port}"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns when a transaction has succeeded; pulls the image first if it is missing.

        Raises DevBrokerFailed, and leaves no container behind, if docker, its engine, the image or the port is
        unavailable, or if the broker does not start.
        """
        if self.is_running():
            return
        docker = find_docker()
        require_free(self.host, self.port)
        if not has_image(docker, self.image):
            self._pull(docker)
        # A leftover container with this name cannot be running, since its port is free.
        _succeeds([docker, "rm", self.name])
        self._progress("starting the container", 0, 0)
        try:
            with uninterrupted():
                self._spawn(docker)
            wait_until_ready(self.host, self.port, timeout_s, self._check_alive)
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Kills and removes the container with its data. Does nothing if none was started.

        Waits at most `timeout_s` for the end of `docker run`, and then kills that command.
        """
        if self._process is None:
            return
        docker = shutil.which("docker") or "docker"
        deadline = time.monotonic() + timeout_s
        # Repeated until `docker run` has ended, since it may be about to create or start the container.
        while self._process.poll() is None and time.monotonic() < deadline:
            _succeeds([docker, "rm", "--force", self.name])
            time.sleep(_POLL_S)
        self._process.kill()
        self._process.wait()
        self._process = None
        if self.log_file is not None:
            self.log_file.unlink(missing_ok=True)

    def _pull(self, docker: str) -> None:
        what = f"fetching the image {self.image}"
        self._progress(what, 0, 0)
        layers: dict[str, str] = {}
        last_lines: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
        command = [docker, "pull", self.image]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pull:  # noqa: S603
            try:
                for line in pull.stdout or ():
                    last_lines.append(line.rstrip())
                    self._progress(what, *layers_done(layers, line))
            except BaseException:
                pull.terminate()
                raise
        if pull.returncode != 0:
            raise DevBrokerFailed(
                f"The image {self.image} could not be fetched. Name one that this machine has or can reach (--image, "
                "POSTDATE_KAFKA_IMAGE), or run without --docker (needs Java 17). The end of Docker's output:\n"
                + "\n".join(last_lines)
            )

    def _spawn(self, docker: str) -> None:
        descriptor, path = tempfile.mkstemp(prefix=f"{self.name}-", suffix=".log")
        self.log_file = Path(path)
        with open(descriptor, "wb") as log:
            self._spawn_process(run_command(docker, self.name, self.image, self.host, self.port), log)

    def _check_alive(self) -> None:
        if not self.is_running():
            raise DevBrokerFailed(f"The container {self.name} of {self.image} ended while starting:\n{self.log_tail()}")


def find_docker() -> str:
    """Returns the path of the docker command; raises DevBrokerFailed if it is missing or its engine does not answer."""
    docker = shutil.which("docker")
    if docker is None:
        raise DevBrokerFailed("There is no docker on PATH. Install Docker, or run without --docker (needs Java 17).")
    if not _succeeds([docker, "version"]):
        raise DevBrokerFailed("The Docker engine does not answer. Start it, or run without --docker (needs Java 17).")
    return docker


def has_image(docker: str, image: str) -> bool:
    """True if the engine already has this image. Costs one call of the docker command."""
    return _succeeds([docker, "image", "inspect", image])


def layers_done(layers: dict[str, str], line: str) -> tuple[int, int]:
    """Updates `layers`, the state of each layer by its id, from one line of the output of `docker pull`.

    Returns the number of finished layers, and the number of known layers. Ignores lines that are not about a layer.
    """
    layer = _LAYER.match(line)
    if layer is not None:
        layers[layer[1]] = layer[2].strip()
    return sum(state.startswith(_LAYER_IS_THERE) for state in layers.values()), len(layers)


def node_environment(host: str, port: int) -> dict[str, str]:
    """Returns the environment that makes a container of the image a single node, which clients reach at host:port.

    The port is the same inside and outside, so the advertised address is valid in both places. Every container is a new
    cluster with a random id, since the image's id is always the same.
    """
    controller_port = next(each for each in _CONTROLLER_PORTS if each != port)
    settings = node_settings(host, port, controller_port)
    # The image formats its storage for a fixed quorum, not for a quorum that is found by bootstrap servers.
    del settings["controller.quorum.bootstrap.servers"]
    settings["controller.quorum.voters"] = f"1@localhost:{controller_port}"
    settings["listeners"] = f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://localhost:{controller_port}"
    heap = f"-Xmx{HEAP_MB}m -Xms{HEAP_MB // 2}m"
    jvm = {"KAFKA_HEAP_OPTS": heap, "KAFKA_JVM_PERFORMANCE_OPTS": jvm_options()}
    return {**container_environment(settings), "CLUSTER_ID": new_cluster_id(), **jvm}


def run_command(docker: str, name: str, image: str, host: str, port: int) -> list[str]:
    """Returns the command that runs the node in the foreground and removes the container when the node ends."""
    command = [docker, "run", "--rm", "--name", name, "--publish", f"{host}:{port}:{port}"]
    for variable, value in node_environment(host, port).items():
        command += ["--env", f"{variable}={value}"]
    return [*command, image]


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603
