"""Goal: the image of the sidecar, started as in the pods of the chart, needs nothing else, answers its probes, and
delivers exactly once even if one of two containers is killed.

Method: the test builds the image from the Dockerfile and renders the chart with Helm. Docker starts each container with
the settings of the rendered pod: user, read-only root, no capabilities, mounts, variables. Kafka runs in a container,
too, and the oracle checks its topics. `postdate.testing` starts the same image for the tests of users.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from postdate.sidecar.errors import Exit
from postdate.testing import NotDelivered
from postdate.testing.container import PostdateContainer
from postdate.wire.headers import AT, DELAY, DUE, TOPIC, Headers
from support.brokers.broker import unique_name
from support.brokers.containers import ContainerBroker, container_broker
from support.deployments.helm import NEEDED, RELEASE, Helm, merged, of_kind, pod_specs, running_helm
from support.deployments.pods import Pod, docker, image_config
from support.deployments.programs import need_python_image
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.deployments.sidecars import QUICK_SESSION, wait_until
from support.oracles.exactly_once import Sent, gather
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S

IMAGE = "postdate:test"
#: A program that prints every path that its user may write, except the file systems of the kernel.
WRITABLE = """import os
for directory, _, files in os.walk("/"):
    if not directory.startswith(("/proc", "/sys", "/dev")):
        for path in [directory, *(os.path.join(directory, name) for name in files)]:
            if os.access(path, os.W_OK):
                print(path)"""


@pytest.fixture(scope="module")
def image() -> str:
    """The image of the present source. `make engine` has built most of its layers."""
    base, has_wheels = need_python_image()
    offline = ["--build-arg", "PIP_OPTIONS=--no-index"] if has_wheels else []
    options = ["--quiet", "--label", "stage=postdate-test", "--build-arg", f"BASE={base}", *offline, "--tag", IMAGE]
    docker("build", *options, str(ROOT), timeout_s=900)
    return IMAGE


@dataclass
class Release:
    """Pods of one release of the chart."""

    helm: Helm
    broker: ContainerBroker
    requests: str
    target: str
    group_id: str = field(default_factory=lambda: unique_name("group"))
    pods: list[Pod] = field(default_factory=list)
    token: str = ""

    def pod(self, name: str, workload: str, port: int = 8080, container: int = 0) -> Pod:
        """Returns a pod of the workload (kind and name), not started. Pods share a network, but not their `port`."""
        objects = self.helm.render(self._values(port))
        files = {config["metadata"]["name"]: config["data"] for config in of_kind(objects, "ConfigMap")}
        for secret in of_kind(objects, "Secret"):
            texts = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
            files[secret["metadata"]["name"]] = texts
            self.token = texts["token"]
        spec = pod_specs(objects)[workload]
        pod = Pod(unique_name(name), spec, files, self.broker.network, container)
        self.pods.append(pod)
        return pod

    def _values(self, port: int) -> dict[str, Any]:
        return merged(
            NEEDED,
            {
                "image": {"repository": IMAGE.partition(":")[0], "tag": IMAGE.partition(":")[2]},
                "kafka": {"bootstrapServers": self.broker.bootstrap, "consumer": dict(QUICK_SESSION)},
                "requestTopics": [{"name": self.requests, "allow": [self.target]}],
                "config": {
                    "group_id": self.group_id,
                    "topics": {"partitions": 2, "replication_factor": 1, "min_insync_replicas": 1},
                },
                "http": {"port": port, "probePort": port + 10},
                "tests": {"targetTopic": self.target, "delay": "1s"},
            },
        )


@pytest.fixture(scope="module")
def broker() -> Iterator[ContainerBroker]:
    with container_broker() as running:
        yield running


@pytest.fixture
def deployment(broker: ContainerBroker, tmp_path: Path) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap, tmp_path) as environment:
        yield environment


def test_the_image_is_not_root_and_has_nothing_to_write_to(image: str) -> None:
    config = image_config(image)
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == ("65532:65532", ["postdate"], ["run"])
    assert not [variable for variable in config["Env"] if variable.startswith("POSTDATE_")]
    bare = ["run", "--rm", "--network", "none", "--cap-drop", "ALL"]
    version = docker(*bare, "--read-only", image, "version")
    assert version.startswith("postdate ")
    assert "pyspark not installed" in version
    writable = docker(*bare, "--entrypoint", "python", image, "-c", WRITABLE).split()
    assert sorted(writable) == ["/tmp", "/var/lib/postdate"]  # noqa: S108 - inside the container
    installed = docker(
        *bare,
        "--entrypoint",
        "python",
        image,
        "-c",
        "import os, sys; print(*os.listdir(os.path.dirname(sys.executable)))",
    )
    assert "postdate" in installed.split()
    assert "pip" not in installed.split()


def test_two_pods_deliver_exactly_once_even_if_one_is_killed(
    image: str, broker: ContainerBroker, deployment: SidecarDeployment
) -> None:
    target = deployment.new_target(3)
    requests = unique_name("requests")
    with running_helm() as helm:
        release = Release(helm, broker, requests, target)
        try:
            _deliver(release, deployment)
        finally:
            for pod in release.pods:
                pod.remove()


def test_the_container_of_other_peoples_tests_delivers(
    image: str, broker: ContainerBroker, deployment: SidecarDeployment
) -> None:
    target = deployment.new_target()
    postdate = PostdateContainer(broker.bootstrap, image=image, partitions=2)
    with postdate.with_kwargs(network_mode=broker.network):
        producer = Producer({"bootstrap.servers": postdate.bootstrap_servers})
        half = timedelta(milliseconds=500)
        producer.produce(**postdate.requests.schedule(target, b"v", key=b"k", delay=half))
        forbidden: Headers = [(TOPIC, b"__forbidden"), (DELAY, b"0")]
        producer.produce(postdate.requests.name, b"never", headers=[*forbidden])
        assert producer.flush(WAIT_TIMEOUT_S) == 0
        (message,), (dead_letter,) = postdate.delivered(target, 1), postdate.dead_letters(1)
        with pytest.raises(NotDelivered, match=r"(?s)has [01] of 2 records after 0 s.\n.*takeover 1 complete"):
            postdate.delivered(target, 2, timeout_s=0.0)
        container = postdate.get_container_id()
    assert (message.key, message.value, dead_letter.value) == (b"k", b"v", b"never")
    assert docker("ps", "--all", "--quiet", "--filter", f"id={container}") == ""


def test_a_container_that_cannot_serve_gives_the_reason(
    image: str, broker: ContainerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    postdate = PostdateContainer(broker.bootstrap, image=image, options=["--unknown-option"])
    with pytest.raises(NotDelivered, match="unknown-option"), postdate.with_kwargs(network_mode=broker.network):
        pass
    monkeypatch.delenv("POSTDATE_TEST_IMAGE", raising=False)
    with pytest.raises(ValueError, match="POSTDATE_TEST_IMAGE"):
        PostdateContainer("kafka:9092")


def _deliver(release: Release, deployment: SidecarDeployment) -> None:
    output = release.pod("topics", f"Job {RELEASE}-postdate-topics").run()
    assert release.requests in output.split()
    deployment.requests.append(release.requests)
    first, second = (release.pod(f"postdate-{n}", f"StatefulSet {RELEASE}-postdate", 8080 + n) for n in (0, 1))
    first.start()
    second.start()
    for pod in (first, second):
        _wait_for(pod, 1)
        for kind in ("startup", "liveness", "readiness"):
            assert pod.probe(kind)[0] == 200, pod.probe(kind)
    _judge_http(second, release.token)
    smoke = _helm_test(release)
    requested = _traffic(deployment, release, 200)
    deployment.wait_for_ends(60)
    before = gather(*_topics(deployment)).takeovers()
    first.kill()
    _wait_for(second, 2)
    deployment.wait_for_ends(len(requested) + 1)
    (seen,) = [record for record in gather(*_topics(deployment)).delivered if record.origin == smoke.origin]
    smoke.due_ms = int(seen.last(DUE))
    outcome = deployment.judge([*requested, smoke])
    assert outcome.takeovers() > before, "another pod took over the shard of the killed pod"
    assert second.stop() == Exit.OK, second.logs()[-2000:]


def _topics(deployment: SidecarDeployment) -> tuple[str, list[str], list[str]]:
    return deployment.bootstrap, deployment.requests, deployment.targets


def _wait_for(pod: Pod, shards: int) -> None:
    def reached() -> bool:
        lines = [line for line in pod.logs().splitlines() if line.startswith("running: ")]
        return bool(lines) and lines[-1].removesuffix("s") == f"running: {shards} shard"

    wait_until(reached, f"{pod.name} delivers for {shards} shards:\n{pod.logs()[-2000:]}")


def _judge_http(pod: Pod, token: str) -> None:
    """Fails unless the pod serves metrics without a token, and the API only with the token of the secret."""
    base = "http://127.0.0.1:8081"
    status, text = pod.ask(f"{base}/metrics")
    assert (status, "postdate_build_info{" in text) == (200, True), text[:500]
    assert pod.ask(f"{base}/api/v1/pending/count")[0] == 401
    assert pod.ask(f"{base}/api/v1/pending/count", token)[0] == 200
    command = ["postdate", "pending", "count", "--url", base, "--token-file", "/etc/postdate/api/token"]
    # The pods share one network here. The pod that finds the port in use serves no HTTP and is not queried.
    assert docker("exec", pod.name, *command).removesuffix(" or more") == "0"


def _helm_test(release: Release) -> Sent:
    """Runs the pod of `helm test`, and returns its request."""
    lines = release.pod("test", f"Pod {RELEASE}-postdate-test", container=1).run().splitlines()
    assert lines[1].startswith("delivered "), lines
    headers: Headers = [(TOPIC, release.target.encode()), (DELAY, b"1s")]
    return Sent(release.target, None, b"a message of helm test", headers, origin=lines[0].encode())


def _traffic(deployment: SidecarDeployment, release: Release, count: int) -> list[Sent]:
    """Sends messages that fall due one after another over the next seconds, and returns them."""
    target = release.target.encode()
    due_ms = int(time.time() * 1000) + 1000
    requested = [
        Sent(release.target, b"%d" % n, b"v%d" % n, [(TOPIC, target), (AT, b"%d" % (due_ms + 15 * n))], due_ms + 15 * n)
        for n in range(count)
    ]
    sender = deployment.sender()
    for sent in requested:
        sender.send(release.requests, sent)
    sender.flush()
    return requested
