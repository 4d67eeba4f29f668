"""Faults and other events of a simulated world: each method injects one when it is called.

Thread rule: one thread; an event never waits, it only changes the state of the world.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from postdate.kafka.interface import Partition, Record
from postdate.wheel.timing_wheel.wheel_view import WHEEL_NAME
from postdate.wire.dispatch_log import decode_record
from postdate.wire.errors import FormatError
from support.simulation.faults.target_faults import TOO_LARGE, UNAUTHORIZED, UNAVAILABLE
from support.simulation.oracles.outcomes import committed
from support.simulation.requests.traffic import REQUESTS, SimulatedTraffic
from support.simulation.world.process import Machine, SimulatedProcess
from support.simulation.world.world import World

HOUR_MS = 3_600_000
#: ms. Retention of the requests. That of the dispatch log follows the rule: this, plus a segment and an hour.
RETENTION_MS = int(1.5 * HOUR_MS)
LOG_RETENTION_MS = RETENTION_MS + 2 * HOUR_MS
_PAGE_BYTES = 4_096
_STORE = f"{REQUESTS}.store"


class RunEvents:
    """The events of one run. `cease` ends all faults."""

    def __init__(self, world: World, random: Random, traffic: SimulatedTraffic, partitions: int, theme: str) -> None:
        self.world = world
        self.random = random
        self.traffic = traffic
        self.partitions = partitions
        self.theme = theme
        self.at_peace = False
        self._strangers: list[Callable[[bool], None]] = []
        self._clock_ahead_ms = 0.0

    def cease(self) -> None:
        """Ends all lasting faults."""
        world = self.world
        self.at_peace = True
        world.broker.transactions.away_until_ms = 0.0
        for topic in world.broker.topics.values():
            for log in topic.logs:
                log.has_leader = True
        for end in self._strangers:
            end(False)
        self._strangers.clear()
        for machine in world.machines:
            machine.cut_until_ms = 0.0
            machine.clock.stop_steady(0.0)
        world.troubles.end(UNAVAILABLE)
        for process in world.processes:
            process.paused_until_ms = 0.0
        self._set_clock_right()

    def menu(self) -> list[Callable[[], None]]:
        """Returns the events that any run may contain; frequent ones are listed more than once."""
        return [
            self.kill,
            self.kill,
            self.lose_power,
            self.stop,
            self.pause,
            self.pause,
            self.cut,
            self.step_clock,
            self.step_broker_clock,
            self.lose_disk,
            self.put_old_disk_back,
            self.take_leader_away,
            self.let_stranger_in,
            self.shrink_target,
            self.forbid_target,
            self.take_id,
            self.go_away,
            self.outage,
            self.delete_requests,
            self.compact_store,
            self.step_broker_clock_far,
        ]

    def _machine(self) -> Machine:
        return self.random.choice(self.world.machines)

    def _running(self) -> SimulatedProcess | None:
        processes = self.world.processes
        return self.random.choice(processes) if processes and not self.at_peace else None

    def kill(self) -> None:
        process = self._running()
        if process is not None:
            self.world.kill(process)

    def lose_power(self) -> None:
        process = self._running()
        if process is None:
            return
        machine, world = process.machine, self.world
        world.kill(process)
        world.reached["power lost"] += 1
        world.reached["batches lost"] += world.disks.lose_power(machine.directory, self.random)
        machine.boot()
        self._damage_wheels(machine)

    def _damage_wheels(self, machine: Machine) -> None:
        """Makes pages of the mapped files old, as a power failure may."""
        for wheel in sorted(machine.directory.glob(f"**/{WHEEL_NAME}")):
            content = bytearray(wheel.read_bytes())
            how = self.random.choice(["whole", "gone", "short", "zeroed", "torn", "torn"])
            if how == "gone":
                wheel.unlink()
            elif how == "short":
                wheel.write_bytes(content[: len(content) // 2])
            elif how == "zeroed":
                wheel.write_bytes(bytes(len(content)))
            elif how == "torn":  # the first page was written, the others were not
                wheel.write_bytes(content[:_PAGE_BYTES] + bytes(len(content) - _PAGE_BYTES))

    def stop(self) -> None:
        process = self._running()
        if process is not None:
            self.world.reached["stop"] += 1
            process.stopping = True

    def pause(self) -> None:
        process = self._running()
        if process is not None:
            self.world.pause(process, self.random.choice([300.0, 4_000.0, 25_000.0, 60_000.0]))

    def cut(self) -> None:
        machine, for_ms = self._machine(), self.random.choice([200.0, 3_000.0, 25_000.0])
        self.world.cut(machine, for_ms, answers=self.random.random() < 0.5)

    def step_clock(self) -> None:
        self.world.reached["clock stepped"] += 1
        self._machine().clock.step(self.random.choice([HOUR_MS, -HOUR_MS, 10_000.0, -10_000.0]))

    def step_broker_clock(self) -> None:
        self.world.reached["broker's clock stepped"] += 1
        self.world.troubles.clocks_are_true = False
        self.world.broker.skew_ms += self.random.choice([-10_000.0, -500.0, 500.0, 10_000.0])

    def step_broker_clock_far(self) -> None:
        """Sets the cluster's clock wrong by almost an hour, and corrects it some time later."""
        if self._clock_ahead_ms:
            return
        world = self.world
        world.reached["broker's clock stepped far"] += 1
        world.troubles.clocks_are_true = False
        self._clock_ahead_ms = self.random.choice([-0.9, 0.9]) * HOUR_MS
        world.broker.skew_ms += self._clock_ahead_ms
        world.time.at(world.time.now_ms + self.random.choice([300.0, 3_000.0, 12_000.0]), self._set_clock_right)

    def _set_clock_right(self) -> None:
        self.world.broker.skew_ms -= self._clock_ahead_ms
        self._clock_ahead_ms = 0.0

    def lose_disk(self) -> None:
        process = self._running()
        if process is not None:
            self.world.lose_disk(process.machine)

    def put_old_disk_back(self) -> None:
        """Makes a backup of a machine's disk now. Some time later, stops the machine and restores it."""
        machine, world = self._machine(), self.world
        copies = world.disks.backup(machine.directory)

        def restore() -> None:
            process = world.process_on(machine)
            if self.at_peace:
                return
            if process is not None:
                world.kill(process)
            world.reached["old disk"] += 1
            world.disks.restore(copies)
            machine.boot()

        world.time.at(world.time.now_ms + self.random.uniform(500.0, 10_000.0), restore)

    def take_leader_away(self) -> None:
        world = self.world
        topic = world.broker.topics[self.random.choice([REQUESTS, f"{REQUESTS}.dispatch-log", "orders", "mails"])]
        log = self.random.choice(topic.logs)
        log.has_leader = False
        world.reached["leader gone"] += 1

        def back() -> None:
            log.has_leader = True

        for_ms = self.random.choice([100.0, 1_500.0, 8_000.0])
        world.troubles.begin(UNAVAILABLE, for_ms, target=topic.name)
        world.time.at(world.time.now_ms + for_ms, back)

    def shrink_target(self) -> None:
        """Makes a target accept only very small records for some time; cached metadata does not show this."""
        world, config = self.world, self.world.broker.topics["orders"].config
        world.reached["target shrunk"] += 1
        config["max.message.bytes"] = "90"

        def grow() -> None:
            config.pop("max.message.bytes", None)

        for_ms = self.random.choice([300.0, 5_000.0])
        world.troubles.begin(TOO_LARGE, for_ms, target="orders")
        world.time.at(world.time.now_ms + for_ms, grow)

    def forbid_target(self) -> None:
        """Removes an ACL for some time."""
        world, denied = self.world, self.world.broker.denied
        world.reached["target forbidden"] += 1
        denied.add("orders")
        for_ms = self.random.choice([300.0, 5_000.0])
        world.troubles.begin(UNAUTHORIZED, for_ms, target="orders")
        world.time.at(world.time.now_ms + for_ms, lambda: denied.discard("orders"))

    def let_stranger_in(self) -> None:
        """Opens a transaction of a foreign client for some time, on one of Postdate's logs or on a target. It commits
        only on a target."""
        world = self.world
        own = [f"{REQUESTS}.dispatch-log"] * 3 if self.theme == "stranger" else [f"{REQUESTS}.dispatch-log"]
        name = self.random.choice([REQUESTS, *own, "orders"])
        part = Partition(name, self.random.randrange(len(world.broker.topics[name].logs)))
        if not world.broker.topics[name].logs[part.index].has_leader:
            return
        end = self.traffic.open_foreign(part, [])
        world.reached["stranger"] += 1
        self._strangers.append(end)
        commit = name == "orders"

        def leave() -> None:
            if end in self._strangers:
                self._strangers.remove(end)
                end(commit)

        world.time.at(world.time.now_ms + self.random.choice([50.0, 2_000.0, 15_000.0, 40_000.0]), leave)

    def let_stranger_in_and_kill(self) -> None:
        """Opens a foreign transaction and kills owners: the next owner must not miss records after the LSO."""
        self.let_stranger_in()
        for wait_ms in (500.0, 4_000.0):
            self.world.time.at(self.world.time.now_ms + wait_ms, self.kill)

    def take_id(self) -> None:
        """Lets a foreign client use the transactional id of a shard."""
        self.world.reached["id taken"] += 1
        self.world.broker.transactions.usurp(f"postdate/{REQUESTS}/{self.random.randrange(self.partitions)}")

    def go_away(self) -> None:
        self.world.reached["coordinator away"] += 1
        transactions = self.world.broker.transactions
        transactions.away_until_ms = self.world.time.now_ms + self.random.choice([300.0, 5_000.0, 14_000.0])

    def outage(self) -> None:
        """Kills all processes and lets a long time pass, retention included, but never so long that needed requests are
        deleted."""
        if not self.at_peace:
            self.world.reached["outage"] += 1
            self.let_time_pass(self.random.choice([0.3, 1.0]) * HOUR_MS)

    def _may_expire(self, index: int) -> bool:
        """True if retention would delete no request that the dispatch log shows as needed. Otherwise a shard would
        rightly halt."""
        broker = self.world.broker
        start = broker.topics[REQUESTS].logs[index].first_since(broker.now_ms() - RETENTION_MS)
        records = committed(broker, f"{REQUESTS}.dispatch-log", index)
        if not records or records[-1].timestamp_ms < broker.now_ms() - LOG_RETENTION_MS:
            return False  # the last fate is never deleted, since an idle shard writes heartbeats
        return start <= _low_water(records)

    def hand_over(self, machine: Machine) -> None:
        """Lets a new process die soon. If it reads many requests at once, it dies after it has ingested some. If it
        reads them one by one, it dies after it has committed the fates of some. So the next owner has ingested more
        requests than have ended, and only part of those have ended."""
        world, steps = self.world, ["ingest.written"]
        if world.machines.index(machine) % 2 == 0:
            steps = ["dispatch.committed", "dispatch.written"]
        step = self.random.choice(steps)
        world.ambushes[step, world.reached[step] + self.random.choice([1, 2, 2, 3, 4])] = "kill"
        if self.random.random() < 0.08:  # the process has taken over with its index; now its disk is lost
            world.ambushes["takeover.owned", world.reached["takeover.owned"] + 1] = "burn"

    def let_time_pass(self, wait_ms: float) -> None:
        """Kills all processes, advances the cluster's clock by `wait_ms`, and applies retention."""
        world = self.world
        for process in list(world.processes):
            world.kill(process)
        world.reached["time passed"] += 1
        world.broker.skew_ms += wait_ms
        if all(self._may_expire(index) for index in range(self.partitions)):
            world.expire()

    def delete_requests(self) -> None:
        """Deletes all requests that are no longer needed according to the dispatch log."""
        broker = self.world.broker
        for index in range(self.partitions):
            records, log = committed(broker, f"{REQUESTS}.dispatch-log", index), broker.topics[REQUESTS].logs[index]
            low = _low_water(records)
            if log.start < low <= log.end:
                log.delete_before(low)
                self.world.reached["requests deleted"] += 1

    def compact_store(self) -> None:
        """Compacts the store topic, except its active segment."""
        gone = self.world.broker.compact(_STORE, self.random.choice([0, 1, 5]))
        self.world.reached["store compacted"] += gone > 0

    def empty_out(self) -> None:
        """Deletes the requests that are not needed, and loses all disks: only Kafka has the remaining state."""
        if self.at_peace:
            return
        self.delete_requests()
        if self.random.random() < 0.5:
            self.compact_store()
        for machine in self.world.machines:
            self.world.lose_disk(machine)


def _low_water(records: list[Record]) -> int:
    """Returns the low-water mark of the last record of Postdate in a dispatch log; 0 if there is none."""
    for record in reversed(records):
        with suppress(FormatError):
            return decode_record(record.value).low_water
    return 0
