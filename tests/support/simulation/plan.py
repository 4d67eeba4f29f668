"""What happens to a world besides the sidecar's own doing: processes, power, disks, clocks, networks, strangers.

A plan is drawn from the seed before anything runs, as events at times. `peace` ends it all: every fault stops, what was
killed is started again, and whoever has to wait is given the time.

Thread rule: one thread; an event never waits, it only changes what others will find.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from random import Random

from postdate.connectors.kafka.seam import NewTopic, Partition
from postdate.connectors.kafka.sim import FAULTS
from postdate.connectors.wire.dispatch_log import decode_record
from postdate.sidecar.config import Config, DispatchConfig, IndexConfig, RequestTopicConfig
from postdate.sidecar.failpoints import NAMES
from postdate.wheel.wheel_view import WHEEL_NAME
from support.simulation.judge import committed
from support.simulation.process import Machine, Process
from support.simulation.traffic import LEVELS_MS, REQUESTS, SMALL_BYTES_MAX, TARGETS, Traffic
from support.simulation.world import World

GROUP = "postdate"
HOUR_MS = 3_600_000
_PAGE_BYTES = 4_096
#: What a schedule may mostly be about; the empty one about nothing in particular.
THEMES = ("", "", "torn", "unknown", "stranger", "power", "outage", "controls")
#: ms. Retention of the requests; the dispatch log keeps what the rule asks: that, a segment and an hour more.
RETENTION_MS = int(1.5 * HOUR_MS)
LOG_RETENTION_MS = RETENTION_MS + 2 * HOUR_MS
#: Target -> its settings, where they are not the usual ones.
_SPECIAL = {"small": {"max.message.bytes": str(SMALL_BYTES_MAX)}, "compacted": {"cleanup.policy": "compact"}}


class Plan:
    """One schedule: sets the world up, fills it with events, and ends them."""

    def __init__(self, world: World, seed: int, theme: str | None = None) -> None:
        """`theme`: what this schedule is mostly about, one of THEMES; drawn where it is None."""
        self.world = world
        self.random = Random(f"{seed}/plan")
        choose = self.random
        drawn = choose.choice(THEMES)
        self.theme = drawn if theme is None else theme
        self.partitions = choose.choice([1, 1, 2])
        # Without a group everybody is assigned everything, and they fence each other all the time.
        self.by_hand = choose.random() < (0.6 if self.theme in ("controls", "stranger") else 0.2)
        self.duration_ms = choose.choice([4_000.0, 12_000.0, 30_000.0])
        controls = 4 if self.theme == "controls" else 1
        self.traffic = Traffic(world.broker, Random(f"{seed}/traffic"), self.partitions, controls)
        self._strangers: list[Callable[[bool], None]] = []
        self._numbers = 0
        self._at_peace = False
        world.retention_ms = RETENTION_MS
        world.polled_max = choose.choice([3, 5_000])
        world.replayed_max = choose.choice([1, 200])
        world.tail_offsets = choose.choice([1, 64])
        world.on_exit = self._start_later

    def prepare(self) -> None:
        """Topics, machines, processes, and the events to come."""
        world, choose = self.world, self.random
        self._create_topics()
        for number in range(choose.choice([1, 2, 2, 3])):
            world.new_machine(f"m{number}")
        for machine in world.machines:
            self.start(machine)
        world.switch_rate = choose.choice([0.0, 0.05, 0.3])
        if choose.random() < 0.4:
            world.kill_rate = choose.choice([0.0005, 0.003])
        if choose.random() < 0.4:
            world.pause_rate = choose.choice([0.0005, 0.003])
        for name in FAULTS:
            if choose.random() < 0.4:
                high = 0.4 if name in ("markers-late", "any-order", "sent-early", "end-copied", "added-apart") else 0.03
                world.faults.rates[name] = choose.uniform(0.0, high)
        for _ in range(choose.choice([0, 1, 2, 4])):
            world.ambushes[choose.choice(sorted(NAMES)), choose.randrange(1, 12)] = choose.choice(["kill", "pause"])
        self._plan_traffic()
        for _ in range(choose.choice([0, 2, 5, 9])):
            self._plan(choose.choice(self._menu()))
        self._set_theme()

    def start(self, machine: Machine) -> None:
        """Start a process on a machine that has none."""
        world = self.world
        if world.process_on(machine) is not None or (self._at_peace and self.by_hand and self._another(machine)):
            return
        self._numbers += 1
        config = self._config(f"{machine.name}.{self._numbers}")
        group = f"by hand {self._numbers}" if self.by_hand else GROUP
        world.processes.append(Process(world, machine, self._numbers, config, group))
        world.trace(f"start {machine.name}.{self._numbers}")

    def _another(self, machine: Machine) -> bool:
        """True where another machine has a process already."""
        return any(process.machine is not machine for process in self.world.processes)

    def peace(self) -> None:
        """Nothing goes wrong any more, and everybody is there; by hand, only the first."""
        world = self.world
        self._at_peace = True
        world.faults.rates.clear()
        world.kill_rate = world.pause_rate = 0.0
        world.ambushes.clear()
        world.broker.transactions.away_until_ms = 0.0
        for topic in world.broker.topics.values():
            for log in topic.logs:
                log.has_leader = True
        for end in self._strangers:
            end(False)
        self._strangers.clear()
        for machine in world.machines:
            machine.cut_until_ms = 0.0
        for process in world.processes:
            process.paused_until_ms = 0.0
        if self.by_hand:
            for process in world.processes[1:]:
                world.kill(process)
        for machine in world.machines:
            self.start(machine)

    def _plan(self, event: Callable[[], None]) -> None:
        self.world.time.at(self.world.time.now_ms + self.random.uniform(0.0, self.duration_ms), event)

    def _set_theme(self) -> None:
        """More of what belongs together, since it is rare that it comes together by chance."""
        world, choose = self.world, self.random
        if self.theme == "torn":
            world.faults.rates |= {"end-copied": 0.5, "added-apart": 0.7, "sent-early": 0.3, "slow": 0.02}
            for _ in range(4):
                world.ambushes[choose.choice(["dispatch.flushed", "dispatch.produced"]), choose.randrange(1, 20)] = (
                    "kill"
                )
                self._plan(self._step_broker_clock)
        elif self.theme == "controls":
            for _ in range(6):
                world.ambushes["dispatch.written", choose.randrange(2, 60)] = "kill"
        elif self.theme == "unknown":
            for _ in range(4):
                step = choose.choice(["commit.sent", "commit.done"])
                world.ambushes[step, choose.randrange(1, 15)] = choose.choice(["cut", "cut answers"])
        elif self.theme == "stranger":
            for _ in range(3):
                self._plan(self._let_stranger_in_and_kill)
        elif self.theme == "outage":
            for _ in range(5):
                self._plan(self._outage)
        elif self.theme == "power":
            for _ in range(4):
                self._plan(self._lose_power)

    # ---- set-up ----------------------------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        create = self.world.broker.create
        stamped = {"message.timestamp.type": "LogAppendTime"}
        create(NewTopic(REQUESTS, self.partitions, 1, stamped | {"retention.ms": str(RETENTION_MS)}))
        kept = {"retention.ms": str(LOG_RETENTION_MS)}
        create(NewTopic(f"{REQUESTS}.dispatch-log", self.partitions, 1, stamped | kept))
        for name in ("store", "dead-letters", "verdicts"):
            create(NewTopic(f"{REQUESTS}.{name}", self.partitions, 1, {}))
        for name, partitions in TARGETS.items():
            if name != "later":
                create(NewTopic(name, partitions, 1, _SPECIAL.get(name, {})))
        self.world.broker.denied.add("secret")

    def _config(self, instance: str) -> Config:
        choose = self.random
        return Config(
            group_id=GROUP,
            instance=instance,
            request_topics=(RequestTopicConfig(name=REQUESTS, levels_ms=LEVELS_MS, verdicts="all"),),
            dispatch=DispatchConfig(entries_max=choose.choice([1, 3, 1_000]), retry_budget_ms=2_500),
            index=IndexConfig(tick_ms=100, sync_interval_ms=choose.choice([50, 200, 2_000])),
        )

    def _plan_traffic(self) -> None:
        choose, time = self.random, self.world.time
        for _ in range(choose.choice([5, 20, 60])):
            when = time.now_ms + choose.uniform(0.0, self.duration_ms)
            if self.theme == "controls":  # in bursts, so that one owner reads together what another reads apart
                when -= when % 2_000.0
            time.at(max(when, time.now_ms), self.traffic.send)
        if choose.random() < 0.7:
            when = time.now_ms + choose.uniform(0.0, self.duration_ms)
            time.at(when, lambda: self.world.broker.create(NewTopic("later", TARGETS["later"], 1, {})))

    # ---- events ----------------------------------------------------------------------------------------------------

    def _menu(self) -> list[Callable[[], None]]:
        return [
            self._kill,
            self._kill,
            self._lose_power,
            self._stop,
            self._pause,
            self._pause,
            self._cut,
            self._step_clock,
            self._step_broker_clock,
            self._lose_disk,
            self._put_old_disk_back,
            self._take_leader_away,
            self._let_stranger_in,
            self._shrink_target,
            self._forbid_target,
            self._take_id,
            self._go_away,
            self._outage,
        ]

    def _machine(self) -> Machine:
        return self.random.choice(self.world.machines)

    def _start_later(self, machine: Machine) -> None:
        world = self.world
        world.time.at(
            world.time.now_ms + self.random.choice([1.0, 300.0, 5_000.0, 20_000.0]), lambda: self.start(machine)
        )

    def _running(self) -> Process | None:
        processes = self.world.processes
        return self.random.choice(processes) if processes and not self._at_peace else None

    def _kill(self) -> None:
        process = self._running()
        if process is not None:
            self.world.kill(process)

    def _lose_power(self) -> None:
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
        """Any part of a mapped file may be old after a loss of power."""
        for wheel in sorted(machine.directory.glob(f"**/{WHEEL_NAME}")):
            content = bytearray(wheel.read_bytes())
            how = self.random.choice(["whole", "gone", "short", "zeroed", "torn", "torn"])
            if how == "gone":
                wheel.unlink()
            elif how == "short":
                wheel.write_bytes(content[: len(content) // 2])
            elif how == "zeroed":
                wheel.write_bytes(bytes(len(content)))
            elif how == "torn":  # the first page is as it was, the others were never written
                wheel.write_bytes(content[:_PAGE_BYTES] + bytes(len(content) - _PAGE_BYTES))

    def _stop(self) -> None:
        process = self._running()
        if process is not None:
            self.world.reached["stop"] += 1
            process.stopping = True

    def _pause(self) -> None:
        process = self._running()
        if process is not None:
            self.world.pause(process, self.random.choice([300.0, 4_000.0, 25_000.0, 60_000.0]))

    def _cut(self) -> None:
        machine = self._machine()
        self.world.reached["cut"] += 1
        machine.cut_until_ms = self.world.time.now_ms + self.random.choice([200.0, 3_000.0, 25_000.0])
        machine.cut_answers = self.random.random() < 0.5

    def _step_clock(self) -> None:
        self.world.reached["clock stepped"] += 1
        self._machine().clock.step(self.random.choice([HOUR_MS, -HOUR_MS, 10_000.0, -10_000.0]))

    def _step_broker_clock(self) -> None:
        self.world.reached["broker's clock stepped"] += 1
        self.world.broker.skew_ms += self.random.choice([-10_000.0, -500.0, 500.0, 10_000.0])

    def _lose_disk(self) -> None:
        process = self._running()
        if process is not None:
            self.world.kill(process)
            self.world.reached["disk lost"] += 1
            shutil.rmtree(process.machine.directory)
            process.machine.directory.mkdir()

    def _put_old_disk_back(self) -> None:
        """Now a backup is made; some time later the machine stops and gets it back."""
        machine, world = self._machine(), self.world
        copies = world.disks.backup(machine.directory)

        def restore() -> None:
            process = world.process_on(machine)
            if self._at_peace:
                return
            if process is not None:
                world.kill(process)
            world.reached["old disk"] += 1
            world.disks.restore(copies)
            machine.boot()

        world.time.at(world.time.now_ms + self.random.uniform(500.0, 10_000.0), restore)

    def _take_leader_away(self) -> None:
        world = self.world
        topic = world.broker.topics[self.random.choice([REQUESTS, f"{REQUESTS}.dispatch-log", "orders", "mails"])]
        log = self.random.choice(topic.logs)
        log.has_leader = False
        world.reached["leader gone"] += 1

        def back() -> None:
            log.has_leader = True

        world.time.at(world.time.now_ms + self.random.choice([100.0, 1_500.0, 8_000.0]), back)

    def _shrink_target(self) -> None:
        """A target takes next to nothing for a while, and nobody who has looked at it before knows."""
        world, config = self.world, self.world.broker.topics["orders"].config
        world.reached["target shrunk"] += 1
        config["max.message.bytes"] = "90"

        def grow() -> None:
            config.pop("max.message.bytes", None)

        world.time.at(world.time.now_ms + self.random.choice([300.0, 5_000.0]), grow)

    def _forbid_target(self) -> None:
        """An ACL is taken away for a while."""
        world, denied = self.world, self.world.broker.denied
        world.reached["target forbidden"] += 1
        denied.add("orders")
        world.time.at(world.time.now_ms + self.random.choice([300.0, 5_000.0]), lambda: denied.discard("orders"))

    def _let_stranger_in(self) -> None:
        """A stranger's transaction is open for a while, on a log of ours or a target; it never commits on our own."""
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

    def _let_stranger_in_and_kill(self) -> None:
        """Who takes over must not be deceived by what the stranger holds back."""
        self._let_stranger_in()
        for wait_ms in (500.0, 4_000.0):
            self.world.time.at(self.world.time.now_ms + wait_ms, self._kill)

    def _take_id(self) -> None:
        """A stranger's producer takes a shard's transactional id."""
        self.world.reached["id taken"] += 1
        self.world.broker.transactions.usurp(f"postdate/{REQUESTS}/{self.random.randrange(self.partitions)}")

    def _go_away(self) -> None:
        self.world.reached["coordinator away"] += 1
        transactions = self.world.broker.transactions
        transactions.away_until_ms = self.world.time.now_ms + self.random.choice([300.0, 5_000.0, 14_000.0])

    def _outage(self) -> None:
        """Everybody is away for long, and retention goes on; but never so long that it takes what is still needed."""
        if self._at_peace:
            return
        world = self.world
        world.reached["outage"] += 1
        for process in list(world.processes):
            world.kill(process)
        world.broker.skew_ms += self.random.choice([0.3, 1.0]) * HOUR_MS
        if all(self._may_expire(index) for index in range(self.partitions)):
            world.expire()

    def _may_expire(self, index: int) -> bool:
        """True where retention would take nothing that the dispatch log says is needed: a shard would rightly halt."""
        broker = self.world.broker
        start = broker.topics[REQUESTS].logs[index].first_since(broker.now_ms() - RETENTION_MS)
        said = committed(broker, f"{REQUESTS}.dispatch-log", index)
        if not said or said[-1].timestamp_ms < broker.now_ms() - LOG_RETENTION_MS:
            return False  # the last fate is never taken: an idle shard says so again and again
        return start <= decode_record(said[-1].value).low_water
