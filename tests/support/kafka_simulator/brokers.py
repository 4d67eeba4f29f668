"""The brokers of the simulated cluster: the leader of each log, the clocks, and the stale view of a deposed leader.

A cluster has one broker by default. If there are several, each log has one leader, and the others replicate it. A
broker may

- be killed: its connections break, and its logs have no leader that responds until its session ends;
- freeze, as by SIGSTOP: its connections stay open, but it does not respond. While its session lasts, nothing is
  replicated, so no high watermark rises and nothing is acknowledged. Then it is deposed: the other brokers lead its
  logs. After it resumes, it considers itself the leader for some time, and reports the ends from before the freeze;
- hand its logs over to another broker.

At most one broker has a fault at a time, so no acknowledged record is lost.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from postdate.kafka.interface import Partition
from support.kafka_simulator.faults import Faults
from support.kafka_simulator.log import PartitionLog
from support.kafka_simulator.time import SimTime

#: Milliseconds: the other brokers depose a broker that does not respond for this long (broker.session.timeout.ms).
SESSION_MS = 9_000.0
#: Milliseconds: after a deposed leader resumes, it considers itself the leader for this long, until it has read the
#: metadata log.
BELIEF_MS_MIN, BELIEF_MS_MAX = 200.0, 4_000.0

#: All logs of the cluster.
Logs = Callable[[], Iterable[tuple[Partition, PartitionLog]]]


class Tail(NamedTuple):
    """The ends of a log in the view of its leader when it froze."""

    end: int
    stable_end: int


@dataclass
class Node:
    """One broker. `believes`: the logs that it led when it froze, and still considers its own; `spell` counts its
    faults."""

    number: int
    skew_ms: float = 0.0
    drift: float = 0.0
    is_frozen: bool = False
    is_down: bool = False
    is_deposed: bool = False
    spell: int = 0
    believes: dict[Partition, Tail] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        """True while it runs and responds."""
        return not (self.is_frozen or self.is_down)


class Brokers:
    """All brokers and their faults. `coordinators_away`: called with the ms for which no coordinator will respond."""

    def __init__(self, time: SimTime, faults: Faults, logs: Logs, coordinators_away: Callable[[float], None]) -> None:
        self.nodes = [Node(0)]
        self._time = time
        self._faults = faults
        self._logs = logs
        self._coordinators_away = coordinators_away
        self._began_ms = time.now_ms
        self._placed = 0

    def grow(self, count: int) -> None:
        """Sets the number of brokers. REQUIRES: no topic exists yet."""
        self.nodes += [Node(number) for number in range(len(self.nodes), count)]

    def place(self, log: PartitionLog) -> None:
        """Assigns a leader to a new log, round robin."""
        log.leader = self._placed % len(self.nodes)
        self._placed += 1

    def leader(self, log: PartitionLog) -> Node:
        """Returns the broker that leads a log."""
        return self.nodes[log.leader]

    def error_ms(self, log: PartitionLog) -> float:
        """Returns the difference between the clock of a log's leader and that of the cluster."""
        return self._error_ms(self.leader(log))

    def apart_ms(self) -> float:
        """Returns the largest difference between the clocks of two brokers."""
        errors = [self._error_ms(node) for node in self.nodes]
        return max(errors) - min(errors)

    def _error_ms(self, node: Node) -> float:
        return node.skew_ms + node.drift * (self._time.now_ms - self._began_ms)

    def all_well(self) -> bool:
        """True if every broker runs, and none has a stale view."""
        return all(node.answers and not node.believes for node in self.nodes)

    def move(self, log: PartitionLog, number: int) -> bool:
        """Moves the leadership of a log to a broker; False if any broker has a fault, or this one already leads the
        log."""
        if not self.all_well() or log.leader == number:
            return False
        log.leader = number
        return True

    def freeze(self, number: int) -> bool:
        """Freezes a broker like SIGSTOP; False if a broker already has a fault."""
        if not self._strike(number):
            return False
        node = self.nodes[number]
        node.is_frozen = True
        node.believes = {
            part: Tail(log.high_watermark, min(log.stable_end, log.high_watermark))
            for part, log in self._logs()
            if log.leader == number
        }
        return True

    def resume(self, number: int) -> None:
        """Resumes a frozen broker. If the broker was deposed meanwhile, it learns this only after a while."""
        node = self.nodes[number]
        if not node.is_frozen:
            return
        node.is_frozen = False
        if not node.is_deposed:  # it is still the leader
            self._recover(node)
            return
        spell = node.spell

        def learn() -> None:
            if node.spell == spell:
                node.believes.clear()

        self._time.at(self._time.now_ms + self._faults.between(BELIEF_MS_MIN, BELIEF_MS_MAX), learn)

    def kill(self, number: int) -> bool:
        """Kills a broker; False if a broker already has a fault."""
        if not self._strike(number):
            return False
        self.nodes[number].is_down = True
        return True

    def restart(self, number: int) -> None:
        """Starts a killed broker; other brokers lead its logs from then on."""
        node = self.nodes[number]
        if node.is_down:
            self._depose(node, node.spell)
            node.is_down = False
            node.spell += 1

    def recover(self) -> None:
        """Ends all faults: every broker runs and has a current view."""
        for node in self.nodes:
            if node.is_frozen or node.is_down or node.believes:
                self._recover(node)

    def _strike(self, number: int) -> bool:
        if len(self.nodes) < 2 or not self.all_well():
            return False
        node = self.nodes[number]
        node.is_deposed = False
        node.spell += 1
        spell = node.spell
        for _, log in self._logs():
            log.hold()
        self._coordinators_away(SESSION_MS)
        self._time.at(self._time.now_ms + SESSION_MS, lambda: self._depose(node, spell))
        return True

    def _depose(self, node: Node, spell: int) -> None:
        """Ends the session of a broker that does not respond: the next broker leads its logs, and the in-sync sets
        shrink to the brokers that respond."""
        if node.spell != spell or node.is_deposed:
            return
        node.is_deposed = True
        for _, log in self._logs():
            if log.leader == node.number:
                log.leader = (node.number + 1) % len(self.nodes)
        self._release()

    def _recover(self, node: Node) -> None:
        node.is_frozen = node.is_down = False
        node.believes.clear()
        node.spell += 1
        self._release()

    def _release(self) -> None:
        for _, log in self._logs():
            log.release()
        self._coordinators_away(0.0)
