"""Goal: mechanisms of dispatch that are right alone are right together: isolation, holds, rates, controls, STORE.

Method: one shard on the simulated cluster. The test brings it into a state that two mechanisms share, and reads from
the topics what was delivered.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from postdate.kafka.interface import NewTopic
from postdate.sidecar.config.settings import DispatchConfig, RequestTopicConfig
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.dispatch.fault_attribution import OWN as OWN_TOPICS
from postdate.sidecar.dispatch.fault_attribution import Isolated, Refused
from postdate.sidecar.dispatch.limits import PROBATION_MS
from postdate.sidecar.dispatch.targets import Refusal
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.index import TimerIndex
from postdate.wire.reasons import Reason
from support.shard_bench import OWN, Bench, R, refuse

HOUR_MS = 3_600_000


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.admin.create_topics([NewTopic("mails", 1, 1, {})])
    return made


def _index(shard: Shard) -> TimerIndex:
    assert shard._index is not None
    return shard._index


def _isolate(shard: Shard, name: str) -> Isolated:
    return shard._dispatcher._faults._isolate(name, 1, None, shard.ctx.clock.steady_ms())


def _park(bench: Bench, shard: Shard) -> None:
    """Request 1 is parked for an isolated target that is known."""
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    shard.ctx.held.now = Holds(targets=frozenset({"orders"}))
    bench.schedule(1, ("postdate-id", b"order"))
    bench.until(shard, lambda: _index(shard).parked_count == 1)
    shard.ctx.held.now = Holds()
    _isolate(shard, "orders").retry_at = inf


def test_messages_that_are_parked_all_the_time_do_not_stop_the_trials_of_own_topics(bench: Bench) -> None:
    shard = bench.shard()
    bench.schedule(1, target=b"mails")
    bench.until(shard, lambda: bench.ended() == 1)  # the target is known
    shard.ctx.held.now = Holds(targets=frozenset({"mails"}))
    _isolate(shard, OWN_TOPICS)
    bench.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))

    def is_applied() -> bool:
        bench.schedule(1, target=b"mails")
        return bench.ended() == 2

    bench.until(shard, is_applied, 2_000)
    shard.close()


def test_messages_that_wait_for_an_own_topic_do_not_fill_the_transactions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten stored messages wait for their tombstones, and a transaction takes four."""
    bench.dispatch = DispatchConfig(entries_max=20)
    shard = bench.shard(RequestTopicConfig(R, store_after_ms=1_000))
    for _ in range(10):
        bench.schedule(bench.broker.now_ms() + 3_000)
    bench.until(shard, lambda: len(bench.read(OWN.store)) == 10)
    refuse(monkeypatch, lambda topic, _: topic == OWN.store)
    bench.until(shard, lambda: shard._dispatcher._faults.get(OWN_TOPICS) is not None)
    bench.schedule(bench.broker.now_ms(), target=b"mails")
    bench.until(shard, lambda: len(bench.read("mails")) == 1, 5_000)
    shard.close()


def test_a_refused_message_that_was_moved_does_not_keep_its_target_isolated(bench: Bench) -> None:
    shard = bench.shard()
    _park(bench, shard)
    isolated = _isolate(shard, "orders")
    isolated.refused = {1: Refused(0.0, 0.0)}
    later_ms = b"%d" % (bench.broker.now_ms() + HOUR_MS)
    bench.ask(("postdate-action", b"reschedule"), ("postdate-id", b"order"), ("postdate-at", later_ms))
    bench.until(shard, lambda: [(1, "moved"), (2, "applied")] in bench.fates())
    isolated.retry_at = 0.0
    bench.until(shard, lambda: shard._dispatcher.parked_in_ms() == inf, 1_000)
    shard.close()


def test_a_condemned_message_leaves_with_a_trial_of_own_topics(bench: Bench) -> None:
    """Its dead letter writes to one of them."""
    shard = bench.shard()
    _park(bench, shard)
    shard._dispatcher._faults.condemned = {1: Refusal(Reason.TOO_LARGE, "")}
    _isolate(shard, OWN_TOPICS).topics = {OWN.dead_letters}
    bench.until(shard, lambda: bench.fates()[1:] == [[(1, "dead")]], 1_000)
    shard.close()


def test_a_bulk_control_does_not_wait_for_work_that_tries_own_topics(bench: Bench) -> None:
    """After a failed trial of Postdate's own topics no work for them is left."""
    bench.format_version = 2
    shard = bench.shard()
    own, now_ms = _isolate(shard, OWN_TOPICS), shard.ctx.clock.steady_ms()
    own.acknowledged_at = now_ms - 1
    bench.schedule(bench.broker.now_ms() + HOUR_MS)
    bench.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
    bench.until(shard, lambda: bench.ended() > 1, 2 * PROBATION_MS)
    shard.close()
