"""The deployment of an integration test: request topics and targets on a real broker, and sidecars that serve them.

All names are unique, so one broker serves all tests. All processes end with the deployment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.wire.dispatch_log import FINAL, decode_record
from support.brokers.broker import unique_name
from support.deployments.command import command_output
from support.deployments.sidecars import QUICK_SESSION, Sidecar
from support.oracles.exactly_once import Outcome, Reader, Sender, Sent, gather, judge
from support.waiting.timeouts import WAIT_TIMEOUT_S


@dataclass
class SidecarDeployment:
    """Request topics, targets, and the sidecars that serve them."""

    bootstrap: str
    directory: Path
    replicas: int = 1
    group_id: str = field(default_factory=lambda: unique_name("group"))
    requests: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    sidecars: list[Sidecar] = field(default_factory=list)
    others: list[SidecarDeployment] = field(default_factory=list)

    def another(self) -> SidecarDeployment:
        """Returns a new deployment, which ends with this one: for a scenario that starts from the beginning."""
        self.others.append(
            SidecarDeployment(self.bootstrap, self.directory / f"environment-{len(self.others)}", self.replicas)
        )
        return self.others[-1]

    def new_requests(self, partitions: int = 1, *options: str) -> str:
        """Creates a request topic and the topics beside it with the operators' command; returns its name."""
        return self.new_request_topics(1, partitions, *options)[0]

    def new_request_topics(self, count: int, partitions: int = 1, *options: str) -> list[str]:
        """Creates several request topics with one command; returns their names."""
        names = [unique_name("requests") for _ in range(count)]
        named = [word for name in names for word in ("--requests", name)]
        size = ("--partitions", str(partitions), "--replication-factor", str(self.replicas))
        command_output("topics", "create", "-b", self.bootstrap, *named, *size, *options)
        self.requests += names
        return names

    def new_target(self, partitions: int = 1, **config: str) -> str:
        name = unique_name("target")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, self.replicas, config=settings)])[name].result(WAIT_TIMEOUT_S)
        self.targets.append(name)
        return name

    def new_sidecar(
        self,
        name: str = "",
        dispatch: Mapping[str, int] | None = None,
        consumer: Mapping[str, str] = QUICK_SESSION,
        allow: Sequence[str] = ("*",),
        static: bool = False,
        topic: Mapping[str, object] | None = None,
        group_protocol: str = "classic",
    ) -> Sidecar:
        """Returns a process that serves all request topics of this deployment; it is not started yet."""
        name = name or f"sidecar-{len(self.sidecars)}"
        made = Sidecar(
            name,
            self.bootstrap,
            list(self.requests),
            self.directory,
            self.group_id,
            dispatch=dispatch or {},
            consumer=consumer,
            allow=allow,
            static=static,
            topic=topic or {},
            group_protocol=group_protocol,
        )
        self.sidecars.append(made)
        return made

    def sender(self, **properties: str | int) -> Sender:
        return Sender(self.bootstrap, **properties)

    def reader(self, *topics: str) -> Reader:
        """Returns a read_committed reader of these topics, or of all targets and dead-letter topics."""
        return Reader(self.bootstrap, topics or [*self.targets, *(f"{name}.dead-letters" for name in self.requests)])

    def wait_for_ends(self, count: int, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Waits until `count` different requests have ended, according to the dispatch logs."""
        reader = self.reader(*(f"{name}.dispatch-log" for name in self.requests))
        ended: set[tuple[str, int, int]] = set()

        def enough() -> bool:
            for seen in reader.forgotten():
                fates = decode_record(seen.value).fates
                ended.update((seen.topic, seen.partition, fate.offset) for fate in fates if fate.name in FINAL)
            return len(ended) >= count

        try:
            reader.until(enough, f"{count} requests have ended; see {self.directory}", timeout_s)
        finally:
            reader.close()

    def judge(self, expected: Sequence[Sent], dead: Sequence[Sent] = (), silent: Sequence[Sent] = ()) -> Outcome:
        """Compares all topics with the requests; fails and lists the differences."""
        outcome = gather(self.bootstrap, self.requests, self.targets)
        judge(outcome, expected, dead, silent)
        return outcome

    def close(self) -> None:
        for sidecar in self.sidecars:
            sidecar.kill()
        for other in self.others:
            other.close()


@contextmanager
def new_deployment(bootstrap: str, directory: Path, replicas: int = 1) -> Iterator[SidecarDeployment]:
    deployment = SidecarDeployment(bootstrap, directory, replicas)
    try:
        yield deployment
    finally:
        deployment.close()
