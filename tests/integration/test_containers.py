"""Goal: Kafka in a container works like a local broker, and `postdate dev --docker` leaves no container behind.

Method: testcontainers starts a broker. The test checks transactions and the deliveries of a sidecar on its topics. The
command runs as a process that is interrupted before and after it is ready. Then the test lists the containers that are
left.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import Isolation, Partition
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.errors import Exit
from postdate.wire.headers import AT, ID, TOPIC
from support.brokers.containers import container_broker
from support.brokers.kafka_steps import abort_values, commit_values, new_topic, open_producer, read_to_end
from support.deployments.command import start_postdate
from support.deployments.ports import free_port
from support.deployments.programs import need_kafka_image, need_program
from support.deployments.sidecar_deployment import new_deployment
from support.oracles.exactly_once import Sent
from support.waiting.timeouts import WAIT_TIMEOUT_S


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with container_broker() as broker:
        yield broker.bootstrap


def test_committed_records_are_read_back_and_aborted_ones_are_not(bootstrap: str) -> None:
    kafka = ConfluentKafka(KafkaSettings(bootstrap))
    part = Partition(new_topic(kafka), 0)
    producer = open_producer(kafka)
    commit_values(producer, part.topic, [b"one", b"two"])
    abort_values(producer, part.topic, [b"never"])
    commit_values(producer, part.topic, [b"three"])
    producer.destroy()
    committed, position = read_to_end(kafka, part, Isolation.READ_COMMITTED)
    assert [record.value for record in committed] == [b"one", b"two", b"three"]
    assert [record.value for record in read_to_end(kafka, part, Isolation.READ_UNCOMMITTED)[0]][2] == b"never"
    assert position == 7, "four records and three markers"


def test_a_sidecar_delivers_through_it(bootstrap: str, tmp_path: Path) -> None:
    with new_deployment(bootstrap, tmp_path) as deployment:
        requests, target = deployment.new_requests(2), deployment.new_target(3)
        sidecar = deployment.new_sidecar()
        sidecar.start()
        sidecar.wait_for_shards(2)
        due_ms = int(time.time() * 1000) + 1000
        requested = [
            Sent(target, b"%d" % n, b"value", [(TOPIC, target.encode()), (AT, b"%d" % at_ms), (ID, b"%d" % n)], at_ms)
            for n, at_ms in enumerate(range(due_ms, due_ms + 500, 25))
        ]
        sender = deployment.sender()
        for sent in requested:
            sender.send(requests, sent)
        sender.flush()
        deployment.wait_for_ends(len(requested))
        deployment.judge(requested)
        assert sidecar.stop() == Exit.OK


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
def test_the_command_leaves_no_container_when_it_is_interrupted(ready: bool) -> None:
    image, docker, port = need_kafka_image(), need_program("docker", "docker.io"), free_port()
    process = start_postdate("dev", "--docker", "--image", image, "--port", str(port))
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == "starting the container\n", line + process.stderr.read()
        if ready:
            assert process.stdout.readline() == f"ready: 127.0.0.1:{port}\n", process.stderr.read()
            assert _containers(docker, port) != ""
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=WAIT_TIMEOUT_S)
        assert (process.returncode, stdout) == (Exit.OK, ""), stderr
        assert "Traceback" not in stderr
    finally:
        process.kill()
        process.communicate()
    assert _containers(docker, port) == ""


def _containers(docker: str, port: int) -> str:
    """Returns the ids of the containers of `postdate dev --docker` at this port, running or not."""
    command = [docker, "ps", "--all", "--quiet", "--filter", f"name=postdate-dev-{port}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
