"""Goal: if a requirement of the development broker is missing, the error names it and the remedy.

Method: PATH and variables create an environment without the requirement. The tested functions need no JVM.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from postdate.kafka.errors import DevBrokerFailed
from postdate.tools.dev_broker.docker import DockerBroker, layers_done, node_environment, run_command
from postdate.tools.dev_broker.jars import cache_dir, find_ivy, kafka_libs
from postdate.tools.dev_broker.java import find_java, major_version
from postdate.tools.dev_broker.local_broker import LocalBroker, free_port, jvm_options, require_free
from postdate.tools.dev_broker.properties import container_environment, node_settings, write_properties
from postdate.tools.dev_broker.uninterrupted import uninterrupted
from support.deployments.sidecars import wait_until


def _script(directory: Path, name: str, text: str) -> None:
    program = directory / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no such thing", None),
    ],
)
def test_the_major_version_is_read(text: str, version: int | None) -> None:
    assert major_version(text) == version


class TestJava:
    def test_none_at_all(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(DevBrokerFailed, match=r"no java on PATH.*Install a Java runtime of version 17"):
            find_java()

    def test_a_home_without_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(DevBrokerFailed, match="JAVA_HOME is"):
            find_java()

    def test_too_old(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        _script(tmp_path, "java", "echo 'openjdk version \"11.0.2\" 2019' >&2")
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        with pytest.raises(DevBrokerFailed, match="is version 11"):
            find_java()

    def test_the_home_comes_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        _script(tmp_path / "bin", "java", "echo 'openjdk version \"21.0.1\" 2023' >&2")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert find_java() == str(tmp_path / "bin" / "java")


class TestJars:
    def test_without_pyspark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = importlib.util.find_spec

        def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
            return None if name == "pyspark" else real(name, package)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        with pytest.raises(DevBrokerFailed, match=r"pip install 'postdate\[spark\]'"):
            find_ivy()

    def test_given_libs_are_used(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("POSTDATE_KAFKA_LIBS", str(tmp_path))
        with pytest.raises(DevBrokerFailed, match="holds no kafka"):
            kafka_libs()
        (tmp_path / "kafka_2.13-4.2.1.jar").touch()
        assert kafka_libs() == tmp_path

    def test_a_failed_download_is_reported_and_leaves_nothing_behind(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        settings = tmp_path / "nowhere.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="none"/><resolvers>'
            f'<filesystem name="none"><artifact pattern="{tmp_path}/none/[artifact].[ext]"/></filesystem>'
            "</resolvers></ivysettings>"
        )
        monkeypatch.delenv("POSTDATE_KAFKA_LIBS", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("POSTDATE_IVY_SETTINGS", str(settings))
        printed: list[str] = []
        with pytest.raises(DevBrokerFailed, match="could not be fetched") as failed:
            kafka_libs(lambda what, done, total: printed.append(what))
        assert printed
        assert "kafka_2.13" in str(failed.value)
        assert not list(cache_dir().glob("kafka-4*.jar"))
        assert not (cache_dir() / "kafka-4.2.1").exists()


class TestPort:
    def test_one_in_use_is_named(self, tmp_path: Path) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            with pytest.raises(DevBrokerFailed, match=rf"Port {port} cannot be used .* --port"):
                require_free("127.0.0.1", port)

    def test_a_free_one_is_free(self) -> None:
        require_free("127.0.0.1", free_port())


class TestInterruption:
    def test_a_signal_waits_until_the_block_has_ended(self) -> None:
        given = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for background jobs
        before = signal.getsignal(signal.SIGINT)
        done: list[str] = []

        def begin() -> None:
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
                done.append("inside")
            done.append("behind")

        with pytest.raises(KeyboardInterrupt):
            begin()
        assert done == ["inside"]
        assert signal.signal(signal.SIGINT, given) is before

    def test_without_a_signal_nothing_is_raised(self) -> None:
        with uninterrupted():
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_another_thread_defers_nothing(self) -> None:
        seen: list[object] = []

        def look() -> None:
            with uninterrupted():
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [signal.getsignal(signal.SIGINT)]


class TestDataDirectory:
    def test_a_broker_that_is_running_there_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "libs").mkdir()
        (tmp_path / "libs" / "kafka_2.13-4.2.1.jar").touch()
        monkeypatch.setenv("POSTDATE_KAFKA_LIBS", str(tmp_path / "libs"))
        properties = str(tmp_path / "server.properties")
        idle = "import time; time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", idle, properties]) as other:
            (tmp_path / "broker.pid").write_text(str(other.pid))
            with pytest.raises(DevBrokerFailed, match=f"kill {other.pid}"):
                LocalBroker(0, tmp_path).start()
            other.kill()


class TestNodeOfACluster:
    def test_it_has_no_settings_but_its_own_and_is_not_formatted_as_a_lone_node(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "kafka_2.13-4.2.1.jar").touch()
        _script(tmp_path, "java", f'echo \'version "17"\'; echo "$@" >> {tmp_path}/called')
        for name, value in (("POSTDATE_KAFKA_LIBS", str(tmp_path)), ("PATH", f"{tmp_path}:/usr/bin:/bin")):
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        node = LocalBroker(0, tmp_path / "node", properties={"node.id": "2"}, cluster_id="of-three")
        node.launch()
        node.wait(30)
        properties = tmp_path / "node" / "server.properties"
        assert properties.read_text().splitlines() == [f"log.dirs={tmp_path}/node/kafka", "node.id=2"]
        formatting = next(line for line in (tmp_path / "called").read_text().splitlines() if " format " in line)
        assert formatting.endswith(f"format -t of-three -c {properties}")


class TestClassArchive:
    """Method: a substituted `java` prints its options and, like a JVM at SIGTERM, writes the archive named in them."""

    @pytest.fixture
    def new_broker(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], LocalBroker]]:
        libs = tmp_path / "libs"
        libs.mkdir()
        (libs / "kafka_2.13-4.2.1.jar").touch()
        (tmp_path / "bin").mkdir()
        _script(
            tmp_path / "bin",
            "java",
            'echo \'version "17"\'; echo "$@"\n'
            'case "$*" in *kafka.Kafka*) ;; *) exit ;; esac\n'
            'for option; do case "$option" in *AtExit=*) archive=${option#*=} ;; esac; done\n'
            'trap \'[ -z "$archive" ] || echo classes > "$archive"; exit 143\' TERM\n'
            "echo started\nwhile :; do sleep 0.05; done",
        )
        monkeypatch.setenv("POSTDATE_KAFKA_LIBS", str(libs))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        cache_dir().mkdir(parents=True)

        launched: list[LocalBroker] = []

        def launch() -> LocalBroker:
            broker = LocalBroker(0, tmp_path / f"node-{len(launched)}")
            launched.append(broker)
            broker.launch()
            wait_until(lambda: "started" in broker.log_file.read_text(), "it runs")
            return broker

        yield launch
        for broker in launched:
            broker.kill()

    def test_the_first_stop_writes_it_and_later_brokers_read_it(self, new_broker: Callable[[], LocalBroker]) -> None:
        first = new_broker()
        assert "-XX:ArchiveClassesAtExit=" in first.log_file.read_text()
        assert list(cache_dir().iterdir()) == []
        first.stop()
        (archive,) = cache_dir().iterdir()
        second = new_broker()
        assert f"-XX:SharedArchiveFile={archive}" in second.log_file.read_text()
        second.stop()
        assert list(cache_dir().iterdir()) == [archive]

    def test_a_killed_broker_leaves_none(self, new_broker: Callable[[], LocalBroker]) -> None:
        broker = new_broker()
        partial = broker.log_file.read_text().partition("-XX:ArchiveClassesAtExit=")[2].split()[0]
        Path(partial).write_text("half of the classes")
        broker.kill()
        assert list(cache_dir().iterdir()) == []


def test_a_data_directory_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-4.2.1.jar").touch()
    monkeypatch.setenv("POSTDATE_KAFKA_LIBS", str(tmp_path))
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "data"
    with pytest.raises(DevBrokerFailed, match=rf"{directory} cannot be written \(Not a directory\).*--data"):
        LocalBroker(0, directory).start()


class TestSettings:
    def test_a_properties_file(self, tmp_path: Path) -> None:
        path = tmp_path / "server.properties"
        write_properties(path, {"a.b": "1", "c": "x\\y"})
        assert path.read_text() == "a.b=1\nc=x\\\\y\n"

    def test_a_containers_environment(self) -> None:
        assert container_environment({"process.roles": "broker"}) == {"KAFKA_PROCESS_ROLES": "broker"}

    def test_every_internal_topic_has_one_replica(self) -> None:
        replicas = {name: v for name, v in node_settings("h", 1, 2).items() if name.endswith((".factor", ".isr"))}
        assert set(replicas.values()) == {"1"}
        assert len(replicas) == 5

    @pytest.mark.parametrize(("port", "controller"), [(9092, 9093), (9093, 9094)])
    def test_the_container_publishes_its_port_and_keeps_the_controllers(self, port: int, controller: int) -> None:
        command = run_command("docker", "name", "image", "127.0.0.1", port)
        assert command[-1] == "image"
        assert f"127.0.0.1:{port}:{port}" in command
        assert f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{port}" in command
        assert f"KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:{controller}" in command


_PULLED = """4.2.1: Pulling from apache/kafka
0a9a5dfd008f: Already exists
4c1d2e3f5a6b: Pulling fs layer
7d8e9f0a1b2c: Pulling fs layer
7d8e9f0a1b2c: Verifying Checksum
4c1d2e3f5a6b: Pull complete
"""


class TestDocker:
    def test_none_at_all(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(DevBrokerFailed, match="no docker on PATH"):
            DockerBroker(0).start()

    def test_an_engine_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        _script(tmp_path, "docker", "exit 1")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(DevBrokerFailed, match="engine does not answer"):
            DockerBroker(0).start()

    def test_an_image_that_cannot_be_fetched_is_named_with_the_reason(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        expected_text = tmp_path / "expected_text"
        expected_text.write_text(_PULLED + "unauthorized\n")
        _script(
            tmp_path,
            "docker",
            f'case $1 in version) exit 0 ;; pull) while read -r l; do echo "$l"; done <{expected_text} ;; esac; exit 1',
        )
        monkeypatch.setenv("PATH", str(tmp_path))
        printed: list[tuple[str, int, int]] = []
        with pytest.raises(DevBrokerFailed, match=r"(?s)some/image could not be fetched.*--image.*unauthorized"):
            DockerBroker(0, "some/image", progress=lambda *step: printed.append(step)).start()
        assert printed[-1] == ("fetching the image some/image", 2, 3)

    def test_the_image_is_a_setting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("POSTDATE_KAFKA_IMAGE", "set")
        assert DockerBroker(0).image == "set"
        assert DockerBroker(0, "asked").image == "asked"
        monkeypatch.delenv("POSTDATE_KAFKA_IMAGE")
        assert DockerBroker(0).image.startswith("apache/kafka:")

    def test_progress_counts_the_layers_that_are_there(self) -> None:
        layers: dict[str, str] = {}
        steps = [layers_done(layers, line) for line in _PULLED.splitlines(keepends=True)]
        assert steps == [(0, 0), (1, 1), (1, 2), (1, 3), (1, 3), (2, 3)]

    def test_the_jvm_gets_the_options_of_kafkas_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KAFKA_JVM_PERFORMANCE_OPTS", raising=False)
        assert "TieredStopAtLevel=1" in node_environment("127.0.0.1", 9092)["KAFKA_JVM_PERFORMANCE_OPTS"]
        monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC")
        assert node_environment("127.0.0.1", 9092)["KAFKA_JVM_PERFORMANCE_OPTS"] == jvm_options() == "-XX:+UseSerialGC"

    def test_every_container_is_a_separate_cluster(self) -> None:
        one, other = (node_environment("127.0.0.1", 9092)["CLUSTER_ID"] for _ in range(2))
        assert one != other
