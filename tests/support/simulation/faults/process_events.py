"""Faults and other events of a simulated run: each method injects one when it is called.

Thread rule: one thread; an event never waits, it only changes the state of the run.
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
from support.simulation.runtime.process import Machine, SimulatedProcess
from support.simulation.runtime.simulated_run import SimulatedRun

HOUR_MS = 3_600_000
#: Milliseconds: the retention of the requests. By the product's rule, the dispatch log is kept longer: by a segment and
#: an hour.
RETENTION_MS = int(1.5 * HOUR_MS)
LOG_RETENTION_MS = RETENTION_MS + 2 * HOUR_MS
_PAGE_BYTES = 4_096
_STORE = f"{REQUESTS}.store"


class RunEvents:
    """The events of one run. `cease` ends all faults."""

    def __init__(
        self, run: SimulatedRun, random: Random, traffic: SimulatedTraffic, partitions: int, theme: str
    ) -> None:
        self.run = run
        self.random = random
        self.traffic = traffic
        self.partitions = partitions
        self.theme = theme
        self.at_peace = False
        self._strangers: list[Callable[[bool], None]] = []
        self._clock_ahead_ms = 0.0

    def cease(self) -> None:
        """Ends all lasting faults."""
        run = self.run
        self.at_peace = True
        run.broker.transactions.away_until_ms = 0.0
        for topic in run.broker.topics.values():
            for log in topic.logs:
                log.has_leader = True
        for end in self._strangers:
            end(False)
        self._strangers.clear()
        for machine in run.machines:
            machine.cut_until_ms = 0.0
            machine.clock.stop_steady(0.0)
        run.troubles.end(UNAVAILABLE)
        for process in run.processes:
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
        return self.random.choice(self.run.machines)

    def _running(self) -> SimulatedProcess | None:
        processes = self.run.processes
        return self.random.choice(processes) if processes and not self.at_peace else None

    def kill(self) -> None:
        process = self._running()
        if process is not None:
            self.run.kill(process)

    def lose_power(self) -> None:
        process = self._running()
        if process is None:
            return
        machine, run = process.machine, self.run
        run.kill(process)
        run.reached["power lost"] += 1
        run.reached["batches lost"] += run.disks.lose_power(machine.directory, self.random)
        machine.boot()
        self._damage_wheels(machine)

    def _damage_wheels(self, machine: Machine) -> None:
        """Deletes, truncates or zeroes the wheel files, or leaves them unchanged, as a power failure may."""
        for wheel in sorted(machine.directory.glob(f"**/{WHEEL_NAME}")):
            content = bytearray(wheel.read_bytes())
            how = self.random.choice(["whole", "gone", "short", "zeroed", "torn", "torn"])
            if how == "gone":
                wheel.unlink()
            elif how == "short":
                wheel.write_bytes(content[: len(content) // 2])
            elif how == "zeroed":
                wheel.write_bytes(bytes(len(content)))
            elif how == "torn":  # only the first page was written
                wheel.write_bytes(content[:_PAGE_BYTES] + bytes(len(content) - _PAGE_BYTES))

    def stop(self) -> None:
        process = self._running()
        if process is not None:
            self.run.reached["stop"] += 1
            process.stopping = True

    def pause(self) -> None:
        process = self._running()
        if process is not None:
            self.run.pause(process, self.random.choice([300.0, 4_000.0, 25_000.0, 60_000.0]))

    def cut(self) -> None:
        machine, for_ms = self._machine(), self.random.choice([200.0, 3_000.0, 25_000.0])
        self.run.cut(machine, for_ms, answers=self.random.random() < 0.5)

    def step_clock(self) -> None:
        self.run.reached["clock stepped"] += 1
        self._machine().clock.step(self.random.choice([HOUR_MS, -HOUR_MS, 10_000.0, -10_000.0]))

    def step_broker_clock(self) -> None:
        self.run.reached["broker's clock stepped"] += 1
        self.run.troubles.clocks_are_true = False
        self.run.broker.skew_ms += self.random.choice([-10_000.0, -500.0, 500.0, 10_000.0])

    def step_broker_clock_far(self) -> None:
        """Moves the cluster's clock by almost an hour, and back some time later."""
        if self._clock_ahead_ms:
            return
        run = self.run
        run.reached["broker's clock stepped far"] += 1
        run.troubles.clocks_are_true = False
        self._clock_ahead_ms = self.random.choice([-0.9, 0.9]) * HOUR_MS
        run.broker.skew_ms += self._clock_ahead_ms
        run.time.at(run.time.now_ms + self.random.choice([300.0, 3_000.0, 12_000.0]), self._set_clock_right)

    def _set_clock_right(self) -> None:
        self.run.broker.skew_ms -= self._clock_ahead_ms
        self._clock_ahead_ms = 0.0

    def lose_disk(self) -> None:
        process = self._running()
        if process is not None:
            self.run.lose_disk(process.machine)

    def put_old_disk_back(self) -> None:
        """Makes a backup of a machine's disk. Some time later, stops the machine and restores the backup."""
        machine, run = self._machine(), self.run
        copies = run.disks.backup(machine.directory)

        def restore() -> None:
            process = run.process_on(machine)
            if self.at_peace:
                return
            if process is not None:
                run.kill(process)
            run.reached["old disk"] += 1
            run.disks.restore(copies)
            machine.boot()

        run.time.at(run.time.now_ms + self.random.uniform(500.0, 10_000.0), restore)

    def take_leader_away(self) -> None:
        run = self.run
        topic = run.broker.topics[self.random.choice([REQUESTS, f"{REQUESTS}.dispatch-log", "orders", "mails"])]
        log = self.random.choice(topic.logs)
        log.has_leader = False
        run.reached["leader gone"] += 1

        def back() -> None:
            log.has_leader = True

        for_ms = self.random.choice([100.0, 1_500.0, 8_000.0])
        run.troubles.begin(UNAVAILABLE, for_ms, target=topic.name)
        run.time.at(run.time.now_ms + for_ms, back)

    def shrink_target(self) -> None:
        """Makes a target accept only very small records for some time; the sidecar's cached settings do not show
        this."""
        run, config = self.run, self.run.broker.topics["orders"].config
        run.reached["target shrunk"] += 1
        config["max.message.bytes"] = "90"

        def grow() -> None:
            config.pop("max.message.bytes", None)

        for_ms = self.random.choice([300.0, 5_000.0])
        run.troubles.begin(TOO_LARGE, for_ms, target="orders")
        run.time.at(run.time.now_ms + for_ms, grow)

    def forbid_target(self) -> None:
        """Removes an ACL for some time."""
        run, denied = self.run, self.run.broker.denied
        run.reached["target forbidden"] += 1
        denied.add("orders")
        for_ms = self.random.choice([300.0, 5_000.0])
        run.troubles.begin(UNAUTHORIZED, for_ms, target="orders")
        run.time.at(run.time.now_ms + for_ms, lambda: denied.discard("orders"))

    def let_stranger_in(self) -> None:
        """Opens a transaction of a foreign client for some time, on one of Postdate's logs or on a target. The client
        commits it only on a target."""
        run = self.run
        own = [f"{REQUESTS}.dispatch-log"] * 3 if self.theme == "stranger" else [f"{REQUESTS}.dispatch-log"]
        name = self.random.choice([REQUESTS, *own, "orders"])
        part = Partition(name, self.random.randrange(len(run.broker.topics[name].logs)))
        if not run.broker.topics[name].logs[part.index].has_leader:
            return
        end = self.traffic.open_foreign(part, [])
        run.reached["stranger"] += 1
        self._strangers.append(end)
        commit = name == "orders"

        def leave() -> None:
            if end in self._strangers:
                self._strangers.remove(end)
                end(commit)

        run.time.at(run.time.now_ms + self.random.choice([50.0, 2_000.0, 15_000.0, 40_000.0]), leave)

    def let_stranger_in_and_kill(self) -> None:
        """Opens a foreign transaction and kills owners: the next owner must not miss records after the last stable
        offset."""
        self.let_stranger_in()
        for wait_ms in (500.0, 4_000.0):
            self.run.time.at(self.run.time.now_ms + wait_ms, self.kill)

    def take_id(self) -> None:
        """Lets a foreign client use the transactional id of a shard."""
        self.run.reached["id taken"] += 1
        self.run.broker.transactions.usurp(f"postdate/{REQUESTS}/{self.random.randrange(self.partitions)}")

    def go_away(self) -> None:
        self.run.reached["coordinator away"] += 1
        transactions = self.run.broker.transactions
        transactions.away_until_ms = self.run.time.now_ms + self.random.choice([300.0, 5_000.0, 14_000.0])

    def outage(self) -> None:
        """Kills all processes, and lets a long time pass and retention delete records, but no requests that are still
        needed."""
        if not self.at_peace:
            self.run.reached["outage"] += 1
            self.let_time_pass(self.random.choice([0.3, 1.0]) * HOUR_MS)

    def _may_expire(self, index: int) -> bool:
        """True if retention would delete no request that is needed according to the dispatch log. If it did, the shard
        would rightly halt."""
        broker = self.run.broker
        start = broker.topics[REQUESTS].logs[index].first_since(broker.now_ms() - RETENTION_MS)
        records = committed(broker, f"{REQUESTS}.dispatch-log", index)
        if not records or records[-1].timestamp_ms < broker.now_ms() - LOG_RETENTION_MS:
            return False  # an idle shard writes heartbeats, so retention never deletes the last record
        return start <= _low_water(records)

    def hand_over(self, machine: Machine) -> None:
        """Lets a new process die soon. If its machine reads many requests at once, it dies after it has ingested some.
        If its machine reads one at a time, it dies after it has committed some fates. So a later owner finds fates for
        only part of the requests that it has ingested."""
        run, steps = self.run, ["ingest.written"]
        if run.machines.index(machine) % 2 == 0:
            steps = ["dispatch.committed", "dispatch.written"]
        step = self.random.choice(steps)
        run.ambushes[step, run.reached[step] + self.random.choice([1, 2, 2, 3, 4])] = "kill"
        if self.random.random() < 0.08:  # the disk is lost after the takeover with its index
            run.ambushes["takeover.owned", run.reached["takeover.owned"] + 1] = "burn"

    def let_time_pass(self, wait_ms: float) -> None:
        """Kills all processes, advances the cluster's clock by `wait_ms`, and applies retention."""
        run = self.run
        for process in list(run.processes):
            run.kill(process)
        run.reached["time passed"] += 1
        run.broker.skew_ms += wait_ms
        if all(self._may_expire(index) for index in range(self.partitions)):
            run.expire()

    def delete_requests(self) -> None:
        """Deletes all requests that are no longer needed according to the dispatch log."""
        broker = self.run.broker
        for index in range(self.partitions):
            records, log = committed(broker, f"{REQUESTS}.dispatch-log", index), broker.topics[REQUESTS].logs[index]
            low = _low_water(records)
            if log.start < low <= log.end:
                log.delete_before(low)
                self.run.reached["requests deleted"] += 1

    def compact_store(self) -> None:
        """Compacts the store topic except its active segment."""
        gone = self.run.broker.compact(_STORE, self.random.choice([0, 1, 5]))
        self.run.reached["store compacted"] += gone > 0

    def empty_out(self) -> None:
        """Deletes the requests that are not needed, and loses all disks: the only remaining state is in Kafka."""
        if self.at_peace:
            return
        self.delete_requests()
        if self.random.random() < 0.5:
            self.compact_store()
        for machine in self.run.machines:
            self.run.lose_disk(machine)


def _low_water(records: list[Record]) -> int:
    """Returns the low-water mark of the last record of Postdate in a dispatch log; 0 if there is none."""
    for record in reversed(records):
        with suppress(FormatError):
            return decode_record(record.value).low_water
    return 0
