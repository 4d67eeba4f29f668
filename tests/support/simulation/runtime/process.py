"""Machines and their sidecar processes: the poll thread and the shard threads are actors that run one at a time.

A process runs the sidecar's own `Poller` and `Shard`. Its threads are actors: each runs one step when the scheduler
selects it. Every wait passes `SimulatedProcess.wait`, and every request to the cluster `SimulatedProcess.step`. There
other actors may run first, and the process may stop for a while or die. If it dies, `Crashed` unwinds its step, and its
handles become unusable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from postdate.kafka.errors import FatalClient, Fenced
from postdate.kafka.interface import Partition, Record
from postdate.sidecar.config.settings import Config
from postdate.sidecar.context.pacing import TransactionBudget, TransactionThrottle
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import DELIVERING
from postdate.wire.topics import OwnTopics
from support.kafka_simulator import Link, SimBroker, SimClock, SimKafka
from support.kafka_simulator.group_consumer import SimGroupConsumer
from support.shards.fake_platform import FakePlatform
from support.simulation.runtime.disk import MemoryDatabase

if TYPE_CHECKING:
    from support.simulation.runtime.simulated_run import SimulatedRun

#: Milliseconds: the duration of a step without a request.
STEP_MS = 0.05
#: Milliseconds: the interval at which a thread that joins a shard's thread checks for its end.
JOIN_POLL_MS = 5.0


class Crashed(BaseException):
    """The acting process is dead. Not an Exception, so that the code under test cannot catch it and continue."""


@dataclass
class Machine:
    """A host: its disk, its clock, and its boot id."""

    name: str
    directory: Path
    clock: SimClock
    platform: FakePlatform = field(default_factory=lambda: FakePlatform("boot-0"))
    boots: int = 0
    cut_until_ms: float = 0.0
    cut_answers: bool = False

    def boot(self) -> None:
        """Starts the machine again after a power failure."""
        self.boots += 1
        self.platform = FakePlatform(f"boot-{self.boots}")


class Actor:
    """A thread of a process: `step` runs its next step, not before `next_at_ms`."""

    def __init__(self, process: SimulatedProcess, name: str) -> None:
        self.process = process
        self.name = f"{process.name}/{name}"
        self.next_at_ms = process.run.time.now_ms

    def step(self) -> None:
        raise AssertionError("an actor says what it does")


class ShardActor(Actor):
    """Replaces `ShardThread` for the poller: the same methods and the same steps, which run when the scheduler selects
    them."""

    def __init__(self, process: SimulatedProcess, part: Partition) -> None:
        super().__init__(process, f"shard {part.index}")
        self.part = part
        self.released = False
        self.closed = False
        self.inbox = Inbox()
        pace = TransactionThrottle(process.budget, process.config.dispatch.pace_ms)
        self.shard = Shard(process.context(part, lambda: self.released), self.inbox, pace)

    def release(self) -> None:
        self.released = True
        self.next_at_ms = 0.0

    def join(self, timeout_s: float) -> bool:
        time = self.process.run.time
        deadline = time.now_ms + timeout_s * 1000
        while not self.closed:
            if time.now_ms >= deadline:
                return False
            self.process.wait(JOIN_POLL_MS)
        return True

    is_resting = False

    def wake_if_needed(self) -> None:
        """Does nothing: a simulation needs no such check after a suspension or for requests of operators."""

    def is_due(self, now_ms: float) -> bool:
        """True if the shard's thread would wake up now: for its deadline, a wake-up, or requests."""
        takes = self.shard.state in DELIVERING and not self.shard.ctx.held.current.intake
        return now_ms >= self.next_at_ms or self.inbox._woken or (takes and not self.inbox.empty)

    def step(self) -> None:
        run = self.process.run
        self.inbox._woken = False
        if self.released:
            self.shard.close()
            self.closed = True
            self.process.actors.remove(self)
            return
        wait_ms = self.shard.turn()
        run.time.wait(STEP_MS)
        self.next_at_ms = run.time.now_ms + wait_ms


class PollActor(Actor):
    """The poll thread."""

    def __init__(self, process: SimulatedProcess) -> None:
        super().__init__(process, "poll")

    def is_due(self, now_ms: float) -> bool:
        return now_ms >= self.next_at_ms

    def step(self) -> None:
        process, run = self.process, self.process.run
        try:
            if process.stopping:
                process.end()
                return
            process.poller._serve()
        except (Fenced, FatalClient) as fault:
            run.trace(f"{process.name} ends: {type(fault).__name__}")
            run.kill(process)
            return
        if process.poller.shards and all(thread.shard.foreign for thread in process.poller.shards.values()):
            run.reached["foreign"] += 1
            process.end()
            return
        self.next_at_ms = run.time.now_ms + run.random.uniform(*run.poll_ms)


class _Consumer(SimGroupConsumer):
    """A member whose polls return at most `limit` records, so that owners read batches of different sizes."""

    def __init__(self, broker: SimBroker, link: Link, group_id: str, limit: int) -> None:
        super().__init__(broker, link, group_id, None)
        self._limit = limit

    def poll(self, records_max: int, timeout_s: float) -> list[tuple[Partition, list[Record]]]:
        return super().poll(min(records_max, self._limit), 0.0)  # its waits take no time, since nothing happens in them


class SimulatedProcess:
    """One run of the sidecar on a machine."""

    def __init__(self, run: SimulatedRun, machine: Machine, number: int, config: Config, member_group: str) -> None:
        self.run = run
        self.machine = machine
        self.name = f"{machine.name}.{number}"
        self.config = config
        self.dead = False
        self.stopping = False
        self.paused_until_ms = 0.0
        self.databases: list[MemoryDatabase] = []
        self.budget = TransactionBudget(config.dispatch.transactions_per_second)
        self.link = Link(run.time, run.faults, self.wait, self.step)
        self.kafka = SimKafka(run.broker, self.link, machine.clock)
        self.admin = self.kafka.admin()
        poll_link = Link(run.time, run.faults, self._poll_wait, self.step)
        self.links = (self.link, poll_link)
        limits = [run.polled_min, run.polled_max]
        limit = limits[run.machines.index(machine) % 2] if run.readers_differ else run.random.choice(limits)
        consumer = _Consumer(run.broker, poll_link, member_group, limit)
        # A ShardActor has the methods of a ShardThread that the poller uses, but no thread.
        self.poller = Poller(consumer, lambda part: cast(ShardThread, self.start_shard(part)), lambda _: None)
        consumer.subscribe(config.request_topic_names, self.poller)
        self.consumer = consumer
        self.actors: list[PollActor | ShardActor] = [PollActor(self)]

    def start_shard(self, part: Partition) -> ShardActor:
        actor = ShardActor(self, part)
        self.actors.append(actor)
        return actor

    def shards(self) -> list[ShardActor]:
        """Returns the shards that the process owns or has not released yet."""
        return [actor for actor in self.actors if isinstance(actor, ShardActor)]

    def context(self, part: Partition, stopping: object) -> ShardContext:
        """Returns the context for the shard of a partition."""
        assert callable(stopping)
        directory = self.machine.directory / part.topic / str(part.index)
        directory.parent.mkdir(parents=True, exist_ok=True)
        return ShardContext(
            config=self.config,
            topic=self.config.request_topic(part.topic),
            own=OwnTopics.of(part.topic),
            rules=rules_of(self.config, part.topic, self.run.retention_ms),
            partition=part.index,
            cluster_id=self.run.broker.cluster_id,
            directory=directory,
            kafka=self.kafka,
            admin=self.admin,
            clock=self.machine.clock,
            instance=self.name,
            stopping=lambda: bool(stopping()),
            retention_ms=self.run.retention_ms,
        )

    def end(self) -> None:
        """Handles SIGTERM: leaves the group, releases every shard within the poller's time-out, and exits."""
        self.consumer.close()
        self.poller._release(list(self.poller.shards), 5.0)
        self.run.exited(self)

    def check_alive(self) -> None:
        """Raises Crashed if this process is dead."""
        if self.dead:
            raise Crashed(self.name)

    def wait(self, wait_ms: float) -> None:
        """Lets the acting thread wait; others run meanwhile."""
        self.run.wait_within(self, wait_ms)

    def step(self, step: str) -> None:
        """Marks a step of a request of the acting thread to the cluster."""
        self.run.at_step(self, step)
        self._feel_cut()

    def _poll_wait(self, wait_ms: float) -> None:
        """Replaces the poll thread's wait: it takes no time, and the scheduler decides when the thread polls again."""
        self.check_alive()

    def _feel_cut(self) -> None:
        for link in self.links:
            link.cut_until_ms, link.cut_answers = self.machine.cut_until_ms, self.machine.cut_answers
