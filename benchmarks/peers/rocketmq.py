"""RocketMQ 5: a name server and a broker with a timer wheel of 100 ms, from the jars that Maven fetches.

The settings are the defaults of the broker (asynchronous flush, one replica), except for ports, paths and the wheel.
The broker stores and delays, so it is the process that is killed.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from benchmarks.peers.errors import PeerFailed
from benchmarks.peers.system import CLIENTS, FETCH_TIMEOUT_S, START_TIMEOUT_S, Clients, Server, environment, need, run
from postdate.tools.dev_broker.jars import cache_dir
from postdate.tools.dev_broker.local_broker import free_port

VERSION = "5.5.0"
PRECISION_MS = 100
#: Kafka's broker has the same heap here.
BROKER_JVM = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g"]
SMALL_JVM = ["-Xmx512m", "-XX:+UseSerialGC"]
#: RocketMQ on Java 17 reflects into these packages; its own start scripts open them too.
OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio", "sun.nio.ch", "java.util")]
OPENED += ["--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"]

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>postdate</groupId><artifactId>peers</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


class RocketMQ:
    """One name server and one broker in `directory`; both end with the stack."""

    name = "RocketMQ"
    version = VERSION

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        java, javac, jars = need("java"), need("javac"), _jars()
        directory.mkdir()
        classes, path = directory / "classes", f"{jars}/*"
        run(
            [javac, "-cp", path, "-d", str(classes), str(CLIENTS / "RocketClient.java")],
            "the compiler for RocketClient.java",
            directory=directory,
            environment=environment(),
            timeout_s=START_TIMEOUT_S,
        )
        names_port = free_port()
        port = _broker_port(names_port)
        self._names = f"127.0.0.1:{names_port}"
        self._environment = environment(ROCKETMQ_HOME=str(directory), NAMESRV_ADDR=self._names, JAVA_TOOL_OPTIONS="")
        self._client = [java, *SMALL_JVM, *OPENED, f"-Duser.home={directory}", "-cp", f"{path}:{classes}"]
        self._client += ["RocketClient", self._names]
        self._numbers = count()
        names_file, broker_file = directory / "namesrv.conf", directory / "broker.conf"
        names_file.write_text(f"listenPort={names_port}\n")
        broker_file.write_text(_broker_settings(directory, self._names, port))
        program = [java, *OPENED, f"-Duser.home={directory}", "-cp", path]
        servers = [
            ([*program, *SMALL_JVM, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(names_file)], names_port),
            ([*program, *BROKER_JVM, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(broker_file)], port),
        ]
        for command, listens in servers:
            log = directory / f"server-{listens}.log"
            self._broker = Server(f"RocketMQ ({command[-3]})", command, listens, log, self._environment)
            stack.callback(self._broker.kill)
            self._broker.start()

    @contextmanager
    def target(self) -> Iterator[Clients]:
        """A topic with eight queues, RocketMQ's default; the receiver creates it."""
        topic = f"target-{next(self._numbers)}"
        yield Clients([*self._client, "send", topic], [*self._client, "receive", topic], self._environment)

    def pending(self) -> int | None:
        """Returns None: RocketMQ does not report this number."""
        return None

    def kill(self) -> None:
        """Kills the broker."""
        self._broker.kill()

    def restart(self) -> None:
        """Starts the broker again."""
        self._broker.start()


def _broker_settings(directory: Path, names: str, port: int) -> str:
    settings = {
        "brokerClusterName": "peers",
        "brokerName": "peers",
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(free_port()),
        "namesrvAddr": names,
        "storePathRootDir": f"{directory}/store",
        "storePathCommitLog": f"{directory}/store/commitlog",
        "timerWheelEnable": "true",
        "timerPrecisionMs": str(PRECISION_MS),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _broker_port(names_port: int) -> int:
    """Returns a free port. The port two below it is free too, since the broker listens on both."""
    while True:
        port = free_port()
        if port - 2 != names_port:
            with suppress(OSError), socket.socket() as probe:
                probe.bind(("127.0.0.1", port - 2))
                return port


def _jars() -> Path:
    """Returns the directory of RocketMQ's jars. If this machine has none, fetches them with Maven (94 MB)."""
    jars = cache_dir() / f"rocketmq-{VERSION}"
    if jars.is_dir():
        return jars
    partial = jars.with_name(jars.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    wanted = ("rocketmq-namesrv", "rocketmq-broker")
    (partial / "pom.xml").write_text(_POM.format("".join(_DEPENDENCY.format(name, VERSION) for name in wanted)))
    repository = cache_dir() / "maven"
    command = [need("mvn"), "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    command.append(f"-Dmaven.repo.local={repository}")
    run(command, "Maven", directory=partial, environment=environment(), timeout_s=FETCH_TIMEOUT_S)
    if not any(partial.glob("rocketmq-broker-*.jar")):
        raise PeerFailed(f"Maven fetched no rocketmq-broker {VERSION}")
    (partial / "pom.xml").unlink()
    partial.rename(jars)
    shutil.rmtree(repository, ignore_errors=True)  # a second copy of everything
    return jars
