"""The plan of a run: settings, machines, requests and faults.

The seed determines the plan before the run begins: a list of events and their times. `peace` ends all faults, restarts
killed processes, and advances the time to distant due times.

Thread rule: one thread; an event never waits, it only changes the state of the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import inf
from random import Random

from postdate.kafka.interface import NewTopic
from postdate.sidecar.config.settings import Config, DispatchConfig, IndexConfig, RequestTopicConfig
from postdate.sidecar.failpoints import NAMES
from support.kafka_simulator import FAULTS
from support.simulation.faults.holds import Holding
from support.simulation.faults.losses import Losses
from support.simulation.faults.process_events import HOUR_MS, LOG_RETENTION_MS, RETENTION_MS, RunEvents
from support.simulation.faults.target_events import GOOD
from support.simulation.faults.target_faults import UNKNOWN
from support.simulation.oracles.interpretations import Readings
from support.simulation.requests.bulk import BULK
from support.simulation.requests.expiry import EXPIRED, Expiry
from support.simulation.requests.returns import CONFIGURED
from support.simulation.requests.traffic import REQUESTS, SMALL_BYTES_MAX, TARGETS, SimulatedTraffic
from support.simulation.requests.volume import VOLUME, Volume
from support.simulation.runtime.patches import STORE_APPLIED
from support.simulation.runtime.process import Machine, SimulatedProcess
from support.simulation.runtime.settings import Operators, Settings
from support.simulation.runtime.simulated_run import SimulatedRun
from support.simulation.themes import BROKERS, CALM, Themes

GROUP = "postdate"
#: The main subject of a run; empty: none.
THEMES = ("", "", "torn", "unknown", "stranger", "power", "outage", "controls", "moves", "clocks", "store", "store")
#: A theme that no seed draws: records are lost or forged, and a shard that needs them must halt.
LOST = "lost"
#: A theme that no seed draws: frequent holds and releases, while owners change.
HELD = "held"
#: Milliseconds: entries with at least this delay are stored; 0: none. The retention of the requests also limits the
#: delay.
STORE_AFTER_MS = (0, 1, 300, 2_000, 6_000, HOUR_MS)
#: A theme that no seed draws: bursts for two targets, small transactions, and often rates for targets.
BURST = "burst"
#: A theme that no seed draws: all runs have messages with windows, which only some runs of other themes have.
WINDOWS = "windows"
#: A theme that no seed draws: in all runs most messages have ids, with policies for pending messages.
IDS = "ids"
#: A theme that no seed draws: all runs have recurring requests, which only some runs of other themes have.
CALENDAR = "calendar"
#: Themes that no seed draws: every start of a process draws separate settings. Theme -> the theme of the rest of the
#: run.
DIFFERING = {"settings": "", "settings, moves": "moves", "settings, controls": "controls", "settings, store": "store"}
#: Theme -> the settings that differ, so that one process accepts a move that another refuses. In the other themes these
#: settings are drawn.
_DIFFER_IN = {"settings, moves": ("horizon_ms", "levels_ms")}
#: The rates of targets, in messages per second and shard; two of five runs have none. Every rate is high enough for a
#: run to finish, and for three messages within a second to be in time.
RATES = ((), (), ("orders=3",), ("mails=4", "orders=20"), ("*=5",))
#: Milliseconds: if a request is due later than this after the faults, time jumps to its due time.
_LATENESS_MS_MAX = 25_000
#: Milliseconds: how long ids are remembered in runs that may drop a request because of an earlier delivery.
_ENDED_WINDOWS_MS = (1_000, 5_000, 20_000, HOUR_MS)
#: The faults that any run may have; other faults belong to themes.
_USUAL_FAULTS = tuple(name for name in FAULTS if name != "end-refused")
#: For topics with producer timestamps: the clocks of machines are wrong by hours in most runs.
_ANY_STAMP = {"message.timestamp.after.max.ms": str(2**62)}
#: The steps at which an event may be planned: the steps of the protocol, and one that only the simulation has.
_AMBUSHED = (*sorted(NAMES), STORE_APPLIED)
#: Target -> its settings that differ from the defaults.
_SPECIAL = {"small": {"max.message.bytes": str(SMALL_BYTES_MAX)}, "compacted": {"cleanup.policy": "compact"}}


class RunPlan:
    """The plan of one run: creates its state, plans its events, and ends its faults."""

    def __init__(self, run: SimulatedRun, seed: int, theme: str | None = None) -> None:
        """`theme`: the main subject of this run, one of THEMES; drawn if None."""
        self.run = run
        self.random = Random(f"{seed}/plan")
        choose = self.random
        drawn = choose.choice(THEMES)
        self._seed, self._asked_theme = seed, theme
        self.theme = drawn if theme is None else DIFFERING.get(theme, theme)
        self.partitions = choose.choice([1, 1, 2]) if self.theme != VOLUME else 1
        moves_in_bulk = self.theme == BULK and Random(f"{seed}/moving").random() < 0.5  # rather than cancels
        # Without a group every process is assigned all partitions, and they fence each other repeatedly.
        shares = {"controls": 0.6, "stranger": 0.6, "moves": 1.0, IDS: 1.0}
        self.by_hand = choose.random() < shares.get(self.theme, 0.2) or moves_in_bulk
        self.duration_ms = choose.choice(
            [30_000.0] if self.theme in ("moves", IDS, HELD, BULK, CALENDAR) else [4_000.0, 12_000.0, 30_000.0]
        )
        # Only one process runs at a time, and continues where the last one died.
        self.relay = self.theme in ("moves", IDS) or moves_in_bulk
        stores = self.theme in ("store", "moves", IDS, BROKERS)
        self.store_after_ms = choose.choice(STORE_AFTER_MS[1:5] if stores else STORE_AFTER_MS)
        if self.theme == VOLUME:
            self.store_after_ms = HOUR_MS // 3
        elif self.theme == EXPIRED:
            self.partitions, self.by_hand, self.store_after_ms = 1, True, 0
        # A separate random stream: the rest of a run is the same with and without rates.
        rates = Random(f"{seed}/rates")
        self.rates = rates.choice(RATES[2:] if self.theme == BURST and rates.random() < 0.5 else RATES)
        is_plain = self.theme in (VOLUME, EXPIRED) or self.theme in CALM
        if is_plain:
            self.rates = ()
        # Another separate stream draws the settings of each start of a process; in most runs they are the defaults.
        by_operators = Random(f"{seed}/settings")
        self.differ = theme in DIFFERING or (not is_plain and by_operators.random() < 0.25)
        self._usual = Settings(store_after_ms=self.store_after_ms, messages_per_second_max=self.rates)
        self._operators = Operators(by_operators, self._usual, STORE_AFTER_MS, RATES, _DIFFER_IN.get(theme or "", ()))
        self._settings: list[Settings] = []
        self._readings = Readings([], RETENTION_MS // 2)
        self.traffic = SimulatedTraffic(run.broker, Random(f"{seed}/traffic"), self.partitions, self.theme, self.differ)
        self._policies = Random(f"{seed}/policies")
        self.traffic.names_policies = self.theme != LOST
        self._draw_features(is_plain, moves_in_bulk)
        self.entries_max = {BURST: [5, 20, 40], VOLUME: [10_000]}.get(self.theme, [1, 3, 1_000])
        self.stamps = _ANY_STAMP
        self.events = RunEvents(run, choose, self.traffic, self.partitions, self.theme)
        self.losses = Losses(run, choose)
        # a separate stream: the rest of a run is the same with and without holds
        self._by_people = Random(f"{seed}/people")
        self.holding = Holding(run, self._by_people, self.partitions)
        self._numbers = 0
        self.themes = Themes(self, seed)
        run.retention_ms = RETENTION_MS
        run.polled_max = choose.choice([3, 5_000])
        if self.theme in CALM:  # lateness is judged here, so no other cause of it is permitted
            run.polled_min, run.polled_max, run.clocks_drift = 5_000, 5_000, False
        run.replayed_max = choose.choice([1, 200])
        run.store_records_max = choose.choice([1, 3] if self.theme == "store" else [1, 3, 1_000])
        run.tail_offsets = choose.choice([1, 64])
        if self.theme == VOLUME:
            run.replayed_max, run.store_records_max = 200, 1_000
        run.on_exit = self._start_later

    def prepare(self) -> None:
        """Creates topics, machines and processes, and plans the events."""
        run, choose = self.run, self.random
        self.themes.before_topics()
        self._create_topics()
        run.readers_differ = self.relay
        for number in range(2 if self.relay or self.theme == EXPIRED else choose.choice([1, 2, 2, 3])):
            run.new_machine(f"m{number}")
        if self.theme == EXPIRED:
            self.duration_ms = Expiry(run, choose, self.traffic, self.losses).plan(self.start)
            return
        if self.theme == VOLUME:
            self._plan_volume()
        for machine in run.machines[: 1 if self.relay else None]:
            self.start(machine)
        if self.theme == VOLUME:
            return
        self._plan_recurrences()
        run.switch_rate = choose.choice([0.0, 0.05, 0.3])
        if self.themes.is_calm:
            self.themes.plan_events()
            return
        if choose.random() < 0.4 and not self.relay:
            run.kill_rate = choose.choice([0.0005, 0.003])
        if choose.random() < 0.4:
            run.pause_rate = choose.choice([0.0005, 0.003])
        for name in _USUAL_FAULTS:
            if choose.random() < 0.4:
                high = 0.4 if name in ("markers-late", "any-order", "sent-early", "end-copied", "added-apart") else 0.03
                run.faults.rates[name] = choose.uniform(0.0, high)
        for _ in range(choose.choice([0, 1, 2, 4])):
            run.ambushes[choose.choice(_AMBUSHED), choose.randrange(1, 12)] = choose.choice(["kill", "pause"])
        self._plan_traffic()
        for _ in range(choose.choice([0, 2, 5, 9])):
            self._plan(choose.choice(self.events.menu()))
        self._set_theme()
        self.themes.plan_events()
        self._plan_holds()

    def _draw_features(self, is_plain: bool, moves_in_bulk: bool) -> None:
        """Draws the features that the traffic uses. Each feature has a separate random stream, so runs without it stay
        the same."""
        seed, theme, traffic = self._seed, self._asked_theme, self.traffic
        windows = Random(f"{seed}/windows")
        if theme == WINDOWS or (not is_plain and windows.random() < 0.25):
            traffic.windows = windows
        bulks = Random(f"{seed}/bulks")
        if theme == BULK or (not is_plain and bulks.random() < 0.15):
            traffic.bulks = bulks
            traffic.moves_in_bulk = moves_in_bulk
        self.run.swept_max = bulks.choice([1, 1, 2] if theme == BULK else [1, 2, 1_000])
        policies = Random(f"{seed}/ids")
        if theme == IDS or (not is_plain and policies.random() < 0.25):
            traffic.policies = policies
        drops = Random(f"{seed}/drops")
        if traffic.policies is not None and theme != LOST:
            traffic.drops = drops
            traffic.ended_window_ms = drops.choice(_ENDED_WINDOWS_MS)

    def _plan_recurrences(self) -> None:
        """Plans recurring schedules, in some runs of each theme, and in all runs of two themes."""
        drawn = Random(f"{self._seed}/recurrences")  # a separate stream: the rest stays the same
        if self.theme in CALM:
            self.traffic.recurrences.target = GOOD  # the other target has the fault
        counts = [5, 9, 14] if self._asked_theme == CALENDAR else [2, 5, 9]
        if self._asked_theme in (CALENDAR, BULK) or drawn.random() < 0.3:
            share = 0.5 if self._asked_theme == CALENDAR else 0.8
            pauses = Random(f"{self._seed}/pauses")
            if self._asked_theme == CALENDAR or pauses.random() < 0.3:
                self.traffic.recurrences.pauses = pauses
            triggers = Random(f"{self._seed}/triggers")
            if triggers.random() < (0.6 if self._asked_theme == CALENDAR else 0.3):
                self.traffic.recurrences.triggers = triggers
            backfills = Random(f"{self._seed}/backfills")
            if backfills.random() < (0.6 if self._asked_theme == CALENDAR else 0.3):
                self.traffic.recurrences.backfills = backfills
                self.traffic.recurrences.fills_far = not self.rates and not self.differ  # drawn settings may have rates
            self.traffic.recurrences.plan(self.run, share * self.duration_ms, drawn.choice(counts))

    def _plan_volume(self) -> None:
        """Plans many requests, and few other events."""
        run = self.run
        run.polled_min, run.polled_max = self.random.choice([2_000, 5_000, 5_000]), 5_000
        self.duration_ms = Volume(run, self.random, self.traffic, self.events).plan()

    def start(self, machine: Machine) -> None:
        """Starts a process on a machine that has none."""
        run = self.run
        if run.process_on(machine) is not None or (self.events.at_peace and self.by_hand and self._another(machine)):
            return
        self._numbers += 1
        machine.clock.stop_steady(0.0)
        config = self._config(f"{machine.name}.{self._numbers}", self._new_settings())
        run.gates[config.instance] = config.request_topics[0].cancel_gate
        group = f"by hand {self._numbers}" if self.by_hand else GROUP
        run.processes.append(SimulatedProcess(run, machine, self._numbers, config, group))
        run.trace(f"start {machine.name}.{self._numbers}")
        if self.relay and not self.events.at_peace:
            self.events.hand_over(machine)

    def _another(self, machine: Machine) -> bool:
        """True if another machine already has a process."""
        return any(process.machine is not machine for process in self.run.processes)

    def peace(self) -> None:
        """Ends all faults, and starts a process on every machine; without a group, only on the first one."""
        run = self.run
        run.faults.rates.clear()
        run.kill_rate = run.pause_rate = 0.0
        run.ambushes.clear()
        self.events.cease()
        self.themes.cease()
        self.traffic.is_last = True
        late_ms = self.traffic.last_due_ms() - run.broker.now_ms()
        if late_ms > _LATENESS_MS_MAX:
            self.events.let_time_pass(late_ms)
        if self.by_hand:
            for process in run.processes[1:]:
                run.kill(process)
        for machine in run.machines:
            self.start(machine)

    def _plan(self, event: Callable[[], None]) -> None:
        self.run.time.at(self.run.time.now_ms + self.random.uniform(0.0, self.duration_ms), event)

    def _set_theme(self) -> None:
        """Sets rates of faults and plans events that occur together too rarely by chance."""
        run, choose = self.run, self.random
        if self.theme == "torn":
            run.faults.rates |= {"end-copied": 0.5, "added-apart": 0.7, "sent-early": 0.3, "slow": 0.02}
            for _ in range(4):
                run.ambushes[choose.choice(["dispatch.flushed", "dispatch.produced"]), choose.randrange(1, 20)] = "kill"
                self._plan(self.events.step_broker_clock)
        elif self.theme == "controls":
            for _ in range(6):
                run.ambushes["dispatch.written", choose.randrange(2, 60)] = "kill"
        elif self.theme == BULK:  # an owner dies during the takeover, and the next one has another disk
            for _ in range(8):
                run.ambushes["dispatch.written", choose.randrange(2, 80)] = "kill"
            for _ in range(2):
                self._plan(self.events.empty_out)
        elif self.theme == "unknown":
            for _ in range(4):
                step = choose.choice(["commit.sent", "commit.done"])
                run.ambushes[step, choose.randrange(1, 15)] = choose.choice(["cut", "cut answers"])
        elif self.theme == "stranger":
            for _ in range(3):
                self._plan(self.events.let_stranger_in_and_kill)
        elif self.theme == "outage":
            for _ in range(5):
                self._plan(self.events.outage)
        elif self.theme == "store":
            for _ in range(4):
                self._plan(choose.choice([self.events.empty_out, self.events.empty_out, self.events.lose_power]))
                self._plan(self.events.compact_store)
            for _ in range(3):
                run.ambushes[STORE_APPLIED, choose.randrange(1, 8)] = "kill"
        elif self.theme == "clocks":
            for _ in range(6):
                self._plan(choose.choice([self.events.step_clock, self.events.step_broker_clock]))
            for _ in range(2):
                self._plan(self.events.step_broker_clock_far)
        elif self.theme == CALENDAR:  # schedules continue after the last request: then only STORE has them
            for _ in range(3):
                run.time.at(run.time.now_ms + choose.uniform(0.6, 1.0) * self.duration_ms, self.events.empty_out)
        elif self.theme == LOST:
            for _ in range(4):  # the first time at which there are records to lose
                run.time.at(run.time.now_ms + choose.uniform(0.5, 1.0) * self.duration_ms, self.losses.strike)
        elif self.theme == "power":
            for _ in range(4):
                self._plan(self.events.lose_power)

    # ---- set-up ----------------------------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        create = self.run.broker.create
        stamped = {"message.timestamp.type": "LogAppendTime"}
        create(NewTopic(REQUESTS, self.partitions, 1, stamped | {"retention.ms": str(RETENTION_MS)}))
        kept = {"retention.ms": str(LOG_RETENTION_MS)}
        create(NewTopic(f"{REQUESTS}.dispatch-log", self.partitions, 1, stamped | kept))
        compacted = {"cleanup.policy": "compact", "delete.retention.ms": str(HOUR_MS // 4)}
        create(NewTopic(f"{REQUESTS}.store", self.partitions, 1, compacted | self.stamps))
        for name in ("dead-letters", "verdicts"):
            create(NewTopic(f"{REQUESTS}.{name}", self.partitions, 1, stamped))
        for name, partitions in TARGETS.items():
            if name != "later":
                create(NewTopic(name, partitions, 1, _SPECIAL.get(name, {}) | self.stamps))
        self.run.broker.denied.add("secret")

    def readings(self) -> Readings:
        """Returns the interpretations of requests by the processes that were started so far."""
        return self._readings

    def _new_settings(self) -> Settings:
        """Returns the settings of the next process."""
        settings = self._usual
        if self.differ:
            settings = self._operators.draw()
        self.run.reached["settings differ"] += bool(self._settings) and settings not in self._settings
        if settings not in self._settings:
            self._settings.append(settings)
            self._readings = Readings(self._settings, RETENTION_MS // 2)
        return settings

    def _config(self, instance: str, settings: Settings) -> Config:
        choose = self.random
        requests = RequestTopicConfig(
            name=REQUESTS,
            verdicts="all",
            allow=settings.allow,
            levels_ms=settings.levels_ms,
            horizon_ms=settings.horizon_ms,
            ended_window_ms=self.traffic.ended_window_ms,
            store_after_ms=settings.store_after_ms,
            cancel_gate=settings.cancel_gate,
            pending_max=settings.pending_max,
            pending_size_bytes_max=settings.pending_size_bytes_max,
            requests_per_second_max=settings.requests_per_second_max,
            messages_per_second_max=settings.messages_per_second_max,
            dialects=settings.dialects,
            default_target=settings.default_target,
            retry_policies=self._policies.choice(CONFIGURED if self.theme != IDS else CONFIGURED[:1]),
        )
        return Config(
            format_version=3,
            group_id=GROUP,
            instance=instance,
            request_topics=(requests,),
            dispatch=DispatchConfig(
                entries_max=choose.choice(self.entries_max), retry_budget_ms=settings.retry_budget_ms
            ),
            index=IndexConfig(tick_ms=100, sync_interval_ms=choose.choice([50, 200, 2_000])),
        )

    def _plan_traffic(self) -> None:
        choose, time = self.random, self.run.time
        if self.theme == CALENDAR and choose.random() < 0.5:
            return
        counts = {
            "store": [60],
            "moves": [60],
            IDS: [120],
            HELD: [60],
            BULK: [60],
            BURST: [200],
            BROKERS: [60, 150],
        }.get(self.theme, [5, 20, 60])
        for _ in range(choose.choice(counts)):
            when = time.now_ms + choose.uniform(0.0, self.duration_ms)
            # Bursts: one owner reads their requests in one batch, another in several.
            if self.theme in ("controls", "moves", IDS, BURST, BULK):
                when -= when % 2_000.0
            time.at(max(when, time.now_ms), self.traffic.send)
        self.run.troubles.begin(UNKNOWN, inf, target="later")
        if choose.random() < 0.7:
            time.at(time.now_ms + choose.uniform(0.0, self.duration_ms), self._create_later)

    def _create_later(self) -> None:
        self.run.broker.create(NewTopic("later", TARGETS["later"], 1, self.stamps))
        self.run.troubles.end(UNKNOWN)

    def _plan_holds(self) -> None:
        """Plans holds if the processes have a group, whose offsets store the holds."""
        choose = self._by_people
        if self.by_hand or self.theme == LOST:
            return
        if self.theme == HELD:
            self.holding.plan(8, self.duration_ms, choose.choice([self.events.kill, self.events.stop]))
        elif choose.random() < 0.3:
            self.holding.plan(choose.choice([1, 3]), self.duration_ms)

    def _start_later(self, machine: Machine) -> None:
        """Restarts a process that has ended, as a supervisor does."""
        time, machines = self.run.time, self.run.machines
        wait_ms = self.random.choice([1.0, 300.0, 2_000.0] if self.relay else [1.0, 300.0, 5_000.0, 20_000.0])
        if self.relay:
            machine = machines[(machines.index(machine) + 1) % len(machines)]
        time.at(time.now_ms + wait_ms, functools.partial(self.start, machine))
