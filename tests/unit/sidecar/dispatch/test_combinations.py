"""Goal: the mechanisms of dispatch work in combination: isolation, holds, rates, controls, STORE.

Method: one shard on the simulated cluster. The test brings it into a state that involves two mechanisms, and reads the
deliveries from the topics.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from postdate.kafka.interface import NewTopic
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.dispatch.limits import PROBATION_MS
from postdate.sidecar.dispatch.targets.isolated_targets import OWN as OWN_TOPICS
from postdate.sidecar.dispatch.targets.isolated_targets import Isolated, RefusedEntry
from postdate.sidecar.dispatch.targets.targets import Refusal
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.index import TimerIndex
from postdate.wire.reasons import Reason
from support.shards.simulated_shard import OWN, ShardEnvironment

HOUR_MS = 3_600_000


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    made = ShardEnvironment(tmp_path)
    made.admin.create_topics([NewTopic("mails", 1, 1, {})])
    return made


def _index(shard: Shard) -> TimerIndex:
    assert shard._index is not None
    return shard._index


def _isolate(shard: Shard, name: str) -> Isolated:
    return shard._dispatcher._faults._isolate(name, 1, None, shard.ctx.clock.steady_ms())


def _park(env: ShardEnvironment, shard: Shard) -> None:
    """Parks request 1 for an isolated target whose metadata is known."""
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    env.schedule(1, ("postdate-id", b"order"))
    env.until(shard, lambda: _index(shard).parked_count == 1)
    shard.ctx.held.current = Holds()
    _isolate(shard, "orders").retry_at = inf


def test_a_refused_message_that_was_moved_does_not_keep_its_target_isolated(env: ShardEnvironment) -> None:
    shard = env.shard()
    _park(env, shard)
    isolated = _isolate(shard, "orders")
    isolated.refused = {1: RefusedEntry(0.0, 0.0)}
    later_ms = b"%d" % (env.broker.now_ms() + HOUR_MS)
    env.ask(("postdate-action", b"reschedule"), ("postdate-id", b"order"), ("postdate-at", later_ms))
    env.until(shard, lambda: [(1, "moved"), (2, "applied")] in env.fates())
    isolated.retry_at = 0.0
    env.until(shard, lambda: shard._dispatcher.parked_in_ms() == inf, 1_000)
    shard.close()


def test_a_condemned_message_leaves_with_a_trial_of_own_topics(env: ShardEnvironment) -> None:
    """The dead letter of the message goes to one of Postdate's own topics."""
    shard = env.shard()
    _park(env, shard)
    shard._dispatcher._faults.condemned = {1: Refusal(Reason.TOO_LARGE, "")}
    _isolate(shard, OWN_TOPICS).topics = {OWN.dead_letters}
    env.until(shard, lambda: env.fates()[1:] == [[(1, "dead")]], 1_000)
    shard.close()


@pytest.mark.parametrize("topic", [OWN.store, OWN.dead_letters])
def test_a_condemned_message_leaves_at_once_if_nothing_waits_for_own_topics(env: ShardEnvironment, topic: str) -> None:
    """The message leaves in a common transaction if its dead letter needs no isolated topic, otherwise in a trial."""
    shard = env.shard()
    _park(env, shard)
    own = _isolate(shard, OWN_TOPICS)
    own.topics, own.waits = {topic}, False
    assert shard.turn() > 100
    shard._dispatcher._faults.condemned = {1: Refusal(Reason.TOO_LARGE, "")}
    env.until(shard, lambda: env.fates()[1:] == [[(1, "dead")]], 1_000)
    shard.close()


def test_a_condemned_message_waits_for_the_next_trial_of_own_topics(env: ShardEnvironment) -> None:
    """Until then the shard's thread rests: no other transaction can contain the dead letter."""
    shard = env.shard()
    _park(env, shard)
    shard._dispatcher._faults.condemned = {1: Refusal(Reason.TOO_LARGE, "")}
    own = _isolate(shard, OWN_TOPICS)
    own.topics, own.retry_at = {OWN.dead_letters}, shard.ctx.clock.steady_ms() + 500
    assert shard.turn() > 100
    shard.close()


def test_a_held_target_does_not_hold_up_others_while_own_topics_are_tried(env: ShardEnvironment) -> None:
    """A trial of Postdate's own topics takes messages for all targets, and parks those for held targets."""
    shard = env.shard()
    shard.ctx.held.current = Holds(targets=frozenset({"mails"}))
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    now_ms = int(env.time.now_ms)
    for number in range(1_000):
        env.schedule(now_ms + 200 + number, target=b"mails")
    env.schedule(now_ms + 500)
    env.until(shard, lambda: _index(shard).parked_count > 0)
    own = _isolate(shard, OWN_TOPICS)
    own.topics, own.waits, own.retry_at = {OWN.dead_letters}, True, 0.0
    assert env.ended() == 1
    env.until(shard, lambda: env.ended() == 2, 300)
    shard.close()


def test_a_bulk_control_does_not_wait_for_work_that_tries_own_topics(env: ShardEnvironment) -> None:
    """After a failed trial, no entry that writes to Postdate's own topics is left, so no further trial can end the
    isolation."""
    env.format_version = 2
    shard = env.shard()
    own, now_ms = _isolate(shard, OWN_TOPICS), shard.ctx.clock.steady_ms()
    own.acknowledged_at = now_ms - 1
    env.schedule(env.broker.now_ms() + HOUR_MS)
    env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
    env.until(shard, lambda: env.ended() > 1, 2 * PROBATION_MS)
    shard.close()
