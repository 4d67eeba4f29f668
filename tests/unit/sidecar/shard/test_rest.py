"""Goal: a shard without changes checks its duties rarely, but reacts to each event without delay.

Method: the real `Shard` runs over the simulated broker, with a clock that only waiting moves. The tests of its sleep
use the real thread and the machine's clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from postdate.sidecar.config.settings import DispatchConfig
from postdate.sidecar.dispatch.limits import MAINTENANCE_INTERVAL_MS, PROBATION_MS
from postdate.sidecar.dispatch.targets.isolated_targets import OWN as OWN_TOPICS
from postdate.sidecar.operation.instructions import RESUME, Instruction, instruct
from postdate.sidecar.operation.limits import LAG_AGE_MS_MAX, STATUS_AGE_MS_MAX
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard import housekeeping
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.limits import CONFIRM_INTERVAL_MS, REST_INTERVAL_MS
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.shard.takeover_slots import Slot, TakeoverSlots
from postdate.sidecar.states import State
from support.shards.simulated_shard import ShardEnvironment, parts
from support.waiting.timeouts import WAIT_TIMEOUT_S


def _waits(env: ShardEnvironment, shard: Shard, for_ms: float) -> list[float]:
    """Lets `for_ms` pass, and turns the shard whenever it is due; returns the wait that the shard requested after each
    turn."""
    until, waits = env.time.now_ms + for_ms, []
    while env.time.now_ms < until:
        waits.append(shard.turn())
        env.time.wait(max(waits[-1], 1.0))
    return waits


@pytest.mark.parametrize("delay_ms", [None, 3_600_000], ids=["nothing pending", "due in an hour"])
def test_a_shard_in_which_nothing_changes_comes_to_rest(env: ShardEnvironment, delay_ms: int | None) -> None:
    shard = env.shard()
    if delay_ms is not None:
        env.schedule(env.time.now_ms + delay_ms)
        env.until(shard, lambda: shard.next_request == 1)
    waits = _waits(env, shard, 120_000)
    resting = [wait for wait in waits if wait > CONFIRM_INTERVAL_MS]
    assert len(resting) >= 10
    assert max(resting) == REST_INTERVAL_MS
    shard.close()


def test_free_memory_is_returned_when_a_rest_begins_but_at_most_once_a_minute(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[float] = []
    monkeypatch.setattr(housekeeping, "return_free_memory", lambda: returned.append(env.time.now_ms))
    shard = env.shard()

    def rest(count: int, ms: int) -> None:
        env.schedule(env.time.now_ms + 3_600_000)
        env.until(shard, lambda: shard.next_request == count)
        _waits(env, shard, ms)

    rest(1, 25_000)
    assert len(returned) == 1
    rest(2, 50_000)
    assert len(returned) == 1
    rest(3, 25_000)
    assert len(returned) == 2
    shard.close()


def test_a_due_entry_ends_the_rest_in_time(env: ShardEnvironment) -> None:
    shard = env.shard()
    _waits(env, shard, 20_000)
    due_ms = env.time.now_ms + 25_300
    env.schedule(due_ms)
    env.until(shard, lambda: shard.next_request == 1)
    while env.ended() < 1:
        wait_ms = shard.turn()
        left_ms = due_ms + 1 - env.time.now_ms
        assert wait_ms <= max(left_ms, 0) + 1
        env.time.wait(max(wait_ms, 0.2))
    assert env.time.now_ms < due_ms + 20
    shard.close()


def test_a_woken_shard_checks_every_second_until_nothing_changes(env: ShardEnvironment) -> None:
    shard = env.shard()
    _waits(env, shard, 30_000)
    assert shard.turn() > CONFIRM_INTERVAL_MS
    env.time.wait(200)
    assert shard.turn() <= CONFIRM_INTERVAL_MS
    env.time.wait(CONFIRM_INTERVAL_MS)
    assert shard.turn() <= CONFIRM_INTERVAL_MS
    shard.close()


@pytest.mark.parametrize("is_isolated", [False, True], ids=["missing", "isolated before"])
def test_a_shard_rests_once_nothing_waits_for_a_failing_target(env: ShardEnvironment, is_isolated: bool) -> None:
    env.dispatch = DispatchConfig(retry_budget_ms=40_000)
    shard = env.shard()
    index = parts(shard)[0]
    if is_isolated:
        shard._dispatcher._faults._isolate("missing", 1, None, shard.ctx.clock.steady_ms())
    env.ask(("postdate-topic", b"missing"), ("postdate-at", b"1"))
    env.until(shard, lambda: index.parked_count == 1)
    assert max(_waits(env, shard, 30_000)) <= MAINTENANCE_INTERVAL_MS
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    assert max(_waits(env, shard, 60_000)) == REST_INTERVAL_MS
    shard.close()


def test_a_bulk_control_continues_soon_after_the_isolation_of_own_topics_ends(env: ShardEnvironment) -> None:
    """Only time ends the isolation of these topics, since no transaction needs them."""
    env.format_version = 2
    shard = env.shard()
    env.schedule(env.time.now_ms + 3_600_000)
    env.until(shard, lambda: shard.next_request == 1)
    shard._dispatcher._faults._isolate(OWN_TOPICS, 1, None, shard.ctx.clock.steady_ms())
    ends_ms = env.time.now_ms + PROBATION_MS
    env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
    env.until(shard, lambda: shard.next_request == 2)
    while parts(shard)[0].timer_log.bulks:
        env.time.wait(max(shard.turn(), 1.0))
    assert ends_ms <= env.time.now_ms < ends_ms + 2 * MAINTENANCE_INTERVAL_MS
    shard.close()


def test_the_beat_of_a_topic_of_short_retention_comes_in_time(env: ShardEnvironment) -> None:
    shard = env.shard()
    object.__setattr__(shard.ctx, "beat_interval_ms", 4_000)
    records = len(env.log())
    _waits(env, shard, 60_000)
    assert len(env.log()) - records >= 60_000 // (4_000 + CONFIRM_INTERVAL_MS)
    shard.close()


def test_a_resting_shard_requests_its_lag_rarely(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, queries = env.shard(), 0
    _waits(env, shard, 60_000)
    ends = env.admin.end_offsets

    def counted(*arguments: object) -> object:
        nonlocal queries
        queries += 1
        return ends(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(shard.ctx.admin, "end_offsets", counted)
    ages = []
    for _ in range(30):
        env.time.wait(shard.turn())
        status = read_status(env.directory / "0")
        assert status is not None
        assert status.lag == 0
        ages.append(env.time.now_ms - status.written_ms)
    assert max(ages) <= STATUS_AGE_MS_MAX + CONFIRM_INTERVAL_MS
    assert 300_000 // (LAG_AGE_MS_MAX + REST_INTERVAL_MS) <= queries <= 300_000 // LAG_AGE_MS_MAX + 2
    shard.close()


# ---- its thread ----------------------------------------------------------------------------------------------------


class _Resting(ShardThread):
    """The real thread of a shard that requests a rest of an hour after each turn. `turns`: the number of turns."""

    def __init__(self, directory: Path) -> None:
        self.inbox, self.turns, self.steady_ms = Inbox(), 0, 0.0
        self._released = threading.Event()
        self._slot = Slot(TakeoverSlots(1, 1.0), self._released.is_set)
        self._rests_until = 0.0
        figures = SimpleNamespace(directory=directory)
        clock = SimpleNamespace(steady_ms=lambda: self.steady_ms)
        held = SimpleNamespace(current=SimpleNamespace(intake=False))
        ctx = SimpleNamespace(clock=clock, index_queries=SimpleNamespace(figures=figures), held=held)
        self.shard = cast(Shard, SimpleNamespace(state=State.RUNNING, turn=self._turned, close=lambda: None, ctx=ctx))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _turned(self) -> float:
        self.turns += 1
        return 3_600_000.0

    def after(self, turns: int) -> None:
        """Waits until the shard has turned `turns` times and sleeps again."""
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while self.turns < turns or not self.is_resting:
            assert time.monotonic() < deadline
            time.sleep(0.001)


@pytest.fixture
def resting(tmp_path: Path) -> Iterator[_Resting]:
    thread = _Resting(tmp_path)
    yield thread
    thread.release()
    assert thread.join(WAIT_TIMEOUT_S)


def test_an_instruction_ends_the_sleep_of_a_shard(resting: _Resting, tmp_path: Path) -> None:
    resting.after(1)
    resting.wake_if_needed()
    assert resting.turns == 1
    instruct(tmp_path, Instruction(do=RESUME))
    resting.wake_if_needed()
    resting.after(2)


def test_a_shard_that_slept_with_its_machine_is_woken_when_its_time_is_over(resting: _Resting) -> None:
    resting.after(1)
    resting.steady_ms = 3_600_001.0
    resting.wake_if_needed()
    resting.after(2)
