"""The state of one simulated run: machines, processes, the cluster, the time, and the counters.

The seed determines everything. One actor runs at a time, until it waits or sends a request. At that point other actors
may run first (`scheduler`), and the actor's process may be stopped for a while, or die.

There are no threads and no real time: the same seed gives the same run, with the same `digest`.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from postdate.kafka.interface import Isolation, Partition, Record
from postdate.wheel.index import TimerIndex
from postdate.wheel.options import IndexOptions
from support.kafka_simulator import Faults, SimBroker, SimClock, SimTime
from support.simulation.faults.target_faults import UNAVAILABLE, Troubles
from support.simulation.runtime.disk import Disks, MemoryDatabase
from support.simulation.runtime.process import Actor, Machine, SimulatedProcess
from support.simulation.runtime.scheduler import Scheduler

#: Milliseconds: shorter waits are the time of a request and its response, and do not let other actors run.
SHORT_MS = 5.0

#: The fine ring is so small that it wraps within a run, and hours are so short that they are often loaded. The hour
#: ring spans more than any step of the clocks, since a larger jump would rebuild the wheel.
FINE_SLOTS, HOUR_MS, HOUR_SLOTS = 64, 3_200, 12_000

#: The rates of the steady clocks of machines: correct, or wrong by more than on any real machine.
RATES = (1.0, 1.0, 1.0, 0.99, 1.01, 0.9, 1.1)


class _MachineClock(SimClock):
    """The clocks of a machine. `sleep` stops only the acting thread."""

    def __init__(self, run: SimulatedRun, skew_ms: float, rate: float) -> None:
        super().__init__(run.time, skew_ms, rate)
        self._run = run

    def sleep(self, wait_ms: float) -> None:
        self._run.acting().wait(wait_ms)


class SimulatedRun:
    """Machines, processes and the cluster. `wrong` collects the violations."""

    #: Milliseconds: the minimum and maximum interval between two polls of a poll thread.
    POLL_MS = (5.0, 60.0)

    def __init__(self, seed: int, directory: Path) -> None:
        self.directory = directory
        self.random = Random(f"{seed}/schedule")
        self.time = SimTime()
        self.faults = Faults(Random(f"{seed}/faults"))
        self.broker = SimBroker(self.time, self.faults)
        self.disks = Disks()
        self.retention_ms = -1
        self.machines: list[Machine] = []
        self.processes: list[SimulatedProcess] = []
        self.reached: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.kill_rate = 0.0
        self.pause_rate = 0.0
        self.switch_rate = 0.1
        self.poll_ms = self.POLL_MS
        # (step, n) -> the event when a process reaches the step for the n-th time: kill, burn (the disk is lost),
        # pause, cut, cut answers, or a function.
        self.ambushes: dict[tuple[str, int], str | Callable[[], None]] = {}
        self.rest_ms = 0.0
        self.polled_min = 1  # the number of requests per poll differs between processes
        self.polled_max, self.replayed_max, self.tail_offsets = 5_000, 200, 64
        self.swept_max = 1_000
        self.store_records_max = 1_000
        self.clocks_drift = True
        self.readers_differ = False  # some machines read one request at a time
        self.tell: Callable[[str], None] | None = None
        self.archive: dict[Partition, list[Record]] = {}
        self.on_exit: Callable[[Machine], None] = lambda _: None
        self.encore: set[tuple[int, int]] = set()  # the requests that were sent after the recovery
        self.known: dict[tuple[int, int], int] = {}  # (partition, takeover) -> the end of the requests before it
        self.gates: dict[str, str] = {}  # instance -> its cancel gate
        # (partition, offset) of each message that a target refused and that is therefore tried alone
        self.refused: set[tuple[int, int]] = set()
        self.troubles = Troubles(self.time)
        self.halts: list[tuple[int, str]] = []  # (partition, process and reason)
        # True if Postdate's own topics were isolated at some time: then only the order of each key is promised
        self.key_zero_isolated = False
        # checks an index when it must agree with the logs
        self.check_index: Callable[[int, TimerIndex, str], None] = lambda *_: None
        self.scheduler = Scheduler(self.time, self.random, self.processes, self._ended)
        self._hash = hashlib.blake2b(digest_size=8)

    # ---- machines and processes ------------------------------------------------------------------------------------

    def new_machine(self, name: str) -> Machine:
        skew_ms, rate = self.random.choice([0.0, -90.0, 3_600_000.0, -3_600_000.0]), self.random.choice(RATES)
        rate = rate if self.clocks_drift else 1.0
        clock = _MachineClock(self, skew_ms, rate)
        self.reached["clock drifts"] += rate != 1.0
        self.troubles.clocks_are_true &= rate <= 1.0
        machine = Machine(name, self.directory / name, clock)
        machine.directory.mkdir()
        self.machines.append(machine)
        return machine

    def process_on(self, machine: Machine) -> SimulatedProcess | None:
        return next((process for process in self.processes if process.machine is machine), None)

    def kill(self, process: SimulatedProcess) -> None:
        """Kills a process like SIGKILL: its written data stay on the disk, its locks are released."""
        if process.dead:
            return
        self.reached["kill"] += 1
        self.trace(f"kill {process.name}")
        self.exited(process)

    def lose_disk(self, machine: Machine) -> None:
        """Kills the machine, and deletes the content of its disk."""
        process = self.process_on(machine)
        if process is not None:
            self.kill(process)
        self.reached["disk lost"] += 1
        shutil.rmtree(machine.directory)
        machine.directory.mkdir()

    def exited(self, process: SimulatedProcess) -> None:
        """Removes a process that has ended."""
        process.dead = True
        for database in process.databases:
            database.release()
        process.actors.clear()
        if process in self.processes:
            self.processes.remove(process)
            self.on_exit(process.machine)

    def make_database(self, path: Path, options: IndexOptions) -> MemoryDatabase:
        """Returns the database of a directory, for the acting process."""
        process = self.acting()
        database = MemoryDatabase(self.disks, process.check_alive, path, options)
        process.databases.append(database)
        return database

    # ---- scheduling ------------------------------------------------------------------------------------------------

    def acting(self) -> SimulatedProcess:
        """Returns the process whose step is running."""
        return self.scheduler.current.process

    def run_until(self, end_ms: float) -> None:
        """Runs all actors until that time."""
        self.scheduler.run_until(end_ms)

    def wait_within(self, process: SimulatedProcess, wait_ms: float) -> None:
        """Lets the acting process wait; others may run meanwhile."""
        if wait_ms < SHORT_MS:
            self.time.wait(wait_ms)
        else:
            self.scheduler.suspend(self.time.now_ms + wait_ms)
        self._stall(process)
        process.check_alive()

    def at_step(self, process: SimulatedProcess, step: str) -> None:
        """Called when a process sends a request or gets its response. Other processes may overtake it there, and it may
        stop or die."""
        process.check_alive()
        self.trace(f"{process.name} {step}")
        if step in ("commit.sent", "commit.done", "abort.sent", "init.done"):
            self.reached[step] += 1
            self._spring(process, step)
        self._strike(process, step)
        if self.switch_rate and self.random.random() < self.switch_rate and self.scheduler.others_may_act():
            self.scheduler.suspend(self.time.now_ms)
        self._stall(process)
        process.check_alive()

    def failpoint(self, name: str) -> None:
        """Called when the acting process reaches a step of the protocol."""
        process = self.acting()
        process.check_alive()
        self.reached[name] += 1
        self.trace(f"{process.name} reached {name}")
        self._spring(process, name)
        self._strike(process, name)
        self._stall(process)
        process.check_alive()

    def _ended(self, actor: Actor, why: str) -> None:
        """Called when a step raised an error; `why` is empty if its process is dead."""
        if not why:
            self.trace(f"{actor.name} is gone")
            return
        self.wrong.append(f"O10: {actor.name} fails with {why}")
        self.kill(actor.process)

    def _spring(self, process: SimulatedProcess, name: str) -> None:
        """Runs the event that is planned for this occurrence of a step, if there is one."""
        ambush = self.ambushes.pop((name, self.reached[name]), None)
        if ambush is None:
            return
        self.reached["ambush"] += 1
        if not isinstance(ambush, str):
            ambush()
        elif ambush == "kill":
            self.kill(process)
        elif ambush == "burn":
            self.lose_disk(process.machine)
        elif ambush == "pause":
            self.pause(process, self.random.uniform(200.0, 40_000.0))
        else:
            self.cut(process.machine, self.random.uniform(8_000.0, 25_000.0), ambush == "cut answers")

    def cut(self, machine: Machine, for_ms: float, answers: bool) -> None:
        """Cuts a machine off from the cluster, or loses only the responses to it."""
        self.reached["cut"] += 1
        machine.cut_until_ms, machine.cut_answers = self.time.now_ms + for_ms, answers
        self.troubles.begin(UNAVAILABLE, for_ms, machine=machine.name)

    def pause(self, process: SimulatedProcess, wait_ms: float) -> None:
        """Stops a process now, and resumes it after this time."""
        self.reached["pause"] += 1
        self.trace(f"pause {process.name} for {wait_ms:.0f}")
        process.paused_until_ms = max(process.paused_until_ms, self.time.now_ms + wait_ms)

    def _strike(self, process: SimulatedProcess, step: str) -> None:
        if self.kill_rate and self.random.random() < self.kill_rate:
            self.kill(process)
        elif self.pause_rate and self.random.random() < self.pause_rate:
            self.pause(process, self.random.choice([30.0, 400.0, 3_000.0, 20_000.0, 40_000.0]))

    def _stall(self, process: SimulatedProcess) -> None:
        while self.time.now_ms < process.paused_until_ms and not process.dead:
            self.scheduler.suspend(self.time.now_ms)  # until the end of the pause

    # ---- disks and logs --------------------------------------------------------------------------------------------

    def watched(self, index: TimerIndex) -> TimerIndex:
        """Returns a timer index whose wheel must pass every check, once a second. A failed check is a violation: a
        damaged wheel was trusted."""
        confirm = index.confirm

        def watching(now_ms: int) -> bool:
            agrees = confirm(now_ms)
            if not agrees:
                self.wrong.append(f"O9: {self.acting().name} believed a wheel that is wrong")
            return agrees

        setattr(index, "confirm", watching)  # noqa: B010  # mypy forbids the plain form, for good reasons elsewhere
        self.reached["wheel rebuilt" if index.rebuilds else "index opened"] += 1
        return index

    def expire(self) -> None:
        """Applies retention; keeps the deleted records for the judges."""
        before = {Partition(t.name, n): log for t in self.broker.topics.values() for n, log in enumerate(t.logs)}
        old = {part: log.read(log.start, Isolation.READ_COMMITTED, 1_000_000)[0] for part, log in before.items()}
        for part, start in self.broker.expire().items():
            self.reached["retention"] += 1
            self.trace(f"{part.topic}/{part.index} begins at {start}")
            self.archive.setdefault(part, []).extend(record for record in old[part] if record.offset < start)

    # ---- trace -----------------------------------------------------------------------------------------------------

    def trace(self, what: str) -> None:
        """Records an event; the digest of a run covers all events."""
        line = f"{self.time.now_ms:.3f} {what}"
        self._hash.update(line.encode())
        if self.tell is not None:
            self.tell(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
