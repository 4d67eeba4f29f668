"""Goal: examples/compose/compose.yaml starts a broker, Postdate with its page and a producer. Its Prometheus finds the
metrics, and its Grafana the dashboard.

Method: Docker starts each service whose image this machine can build, with the settings of the file: image, command,
variables, mounts and port. The containers share the network of the broker's container, where all names of services lead
to 127.0.0.1. The test reads the page, and the metrics under the host name that Prometheus uses. This machine cannot
build the images of Prometheus and Grafana, so the test compares the files that they mount with the metrics and the
dashboard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from postdate.sidecar.http.metrics.metrics import METRICS
from support.brokers.broker import unique_name
from support.deployments.pods import docker
from support.deployments.ports import free_port
from support.deployments.programs import need_kafka_image, need_python_image
from support.deployments.sidecars import wait_until
from support.repository import ROOT

FOLDER = ROOT / "examples/compose"
FILE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
IMAGE = "postdate:test"
_DELIVERED = re.compile(r'^postdate_fates_total\{fate="delivered".*\} (\S+)$', re.MULTILINE)


def _mounts(service: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the host path of each mount in the file (empty for a named volume), and the rest of its text."""
    mounts = []
    for mount in service.get("volumes", ()):
        source, _, rest = mount.partition(":")
        mounts.append((str((FOLDER / source).resolve()) if source.startswith(".") else "", rest))
    return mounts


def _default(image: str) -> str:
    """Returns the default value in the text of a variable, such as `${IMAGE:-default}`."""
    return re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", image)


class Composed:
    """The containers of the services that run here. The first one is the broker, whose network all containers share."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.port = free_port()

    def start(self, service: str, image: str) -> None:
        name, config = unique_name(service), SERVICES[service]
        options = ["run", "--detach", "--name", name]
        if self.names:
            options += ["--network", f"container:{self.names['kafka']}"]
        else:
            hosts = [f"--add-host={host}:127.0.0.1" for host in SERVICES]
            published = SERVICES["postdate"]["ports"][0].rpartition(":")[2]
            options += [*hosts, "--publish", f"127.0.0.1:{self.port}:{published}"]
        for variable, value in config.get("environment", {}).items():
            options += ["--env", f"{variable}={value}"]
        for source, rest in _mounts(config):
            options += ["--volume", f"{source}:{rest}" if source else rest]
        entrypoint = config.get("entrypoint", [])
        options += ["--entrypoint", entrypoint[0]] if entrypoint else []
        docker(*options, image, *entrypoint[1:], *config.get("command", ()))
        self.names[service] = name

    def state(self, service: str) -> tuple[str, int]:
        """Returns status and exit code of a container."""
        state = json.loads(docker("inspect", "--format", "{{json .State}}", self.names[service]))
        return state["Status"], state["ExitCode"]

    def get(self, path: str, token: str = "") -> str:
        """Requests a path of Postdate's port from inside its container, by the name of its service."""
        program = (
            "import urllib.request as u; print(u.urlopen(u.Request("
            f"'http://postdate:8080{path}', headers={{'Authorization': 'Bearer {token}'}})).read().decode())"
        )
        return docker("exec", self.names["postdate"], "python", "-c", program, check=False)

    def close(self) -> None:
        for name in reversed(self.names.values()):
            docker("rm", "--force", "--volumes", name, check=False)


@pytest.fixture
def composed() -> Iterator[Composed]:
    services = Composed()
    yield services
    services.close()


@pytest.mark.timeout(900)
def test_the_services_whose_images_can_be_had_here_deliver(composed: Composed) -> None:
    kafka, (base, has_wheels) = need_kafka_image(), need_python_image()
    offline = ["--build-arg", "PIP_OPTIONS=--no-index"] if has_wheels else []
    docker("build", "--quiet", *offline, "--build-arg", f"BASE={base}", "--tag", IMAGE, str(ROOT), timeout_s=900)
    composed.start("kafka", kafka)

    def created() -> bool:
        """True if the topics exist.

        The container fails until the broker answers. With the file, Docker restarts it; here the test does.
        """
        if "topics" not in composed.names:
            composed.start("topics", IMAGE)
        status, code = composed.state("topics")
        if status == "exited" and code:
            docker("rm", "--force", composed.names.pop("topics"))
        return status == "exited" and not code

    wait_until(created, "the topics are created")
    composed.start("postdate", IMAGE)
    composed.start("producer", IMAGE)
    token = (FOLDER / "token").read_text(encoding="utf-8")

    def delivered() -> bool:
        for service in ("kafka", "postdate", "producer"):
            assert composed.state(service)[0] == "running", docker("logs", composed.names[service])
        match = re.search(r'^postdate_fates_total\{fate="delivered".*\} (\S+)$', composed.get("/metrics"), re.MULTILINE)
        return match is not None and float(match[1]) >= 20

    wait_until(delivered, "messages are delivered, and Prometheus' name reaches the metrics")
    assert "<title>Postdate" in composed.get("/")
    shards = json.loads(composed.get("/api/v1/shards", token))
    assert len(shards["shards"]) == int(SERVICES["postdate"]["environment"]["POSTDATE_TOPICS_PARTITIONS"])


def test_mounted_files_and_named_services_exist() -> None:
    for name, service in SERVICES.items():
        for source, _ in _mounts(service):
            assert not source or Path(source).exists(), f"{name}: {source}"
        assert set(service.get("depends_on", ())) <= SERVICES.keys(), name
        assert "build" in service or ":" in _default(service["image"]), f"{name}: a version"
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert {_default(SERVICES[name]["image"]) for name in ("topics", "postdate", "producer")} == {
        f"postdate:{version[1]}"
    }
    assert len((FOLDER / "token").read_text(encoding="utf-8")) >= 16


def test_prometheus_scrapes_postdate_and_grafana_shows_the_dashboard_of_the_chart() -> None:
    scrape = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"][0]
    (static,) = scrape["static_configs"]
    (target,) = static["targets"]
    host, _, port = target.partition(":")
    assert host in SERVICES
    assert SERVICES[host]["environment"]["POSTDATE_HTTP_NAMES"] == host
    assert SERVICES[host]["ports"][0].endswith(f":{port}")
    dashboard = (ROOT / "charts/postdate/dashboards/postdate.json").read_text(encoding="utf-8")
    assert set(re.findall(r"\b(namespace|pod)=~?\\\"\$\w+", dashboard)) <= static["labels"].keys()
    assert {metric.name for metric in METRICS} & set(re.findall(r"postdate_\w+", dashboard))
    source = yaml.safe_load((FOLDER / "grafana/datasource.yml").read_text(encoding="utf-8"))["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    provider = yaml.safe_load((FOLDER / "grafana/dashboards.yml").read_text(encoding="utf-8"))["providers"][0]
    mounts = dict(_mounts(SERVICES["grafana"]))
    assert mounts[str(ROOT / "charts/postdate/dashboards")] == f"{provider['options']['path']}:ro"
