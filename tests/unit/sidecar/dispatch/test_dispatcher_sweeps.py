"""Goal: the sweep of a bulk control takes turns with due entries, and waits, continues and ends at the right times.

Method: as `test_dispatcher`.
"""

from __future__ import annotations

from math import inf

import pytest

from postdate.sidecar.dispatch import dispatcher as dispatcher_module
from postdate.sidecar.dispatch.due import bulk_sweep
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.isolated_targets import OWN as OWN_NAME
from postdate.wheel.keys import split_key
from postdate.wire.dispatch_log import SWEPT, BulkProgress
from postdate.wire.limits import DUE_MS_MIN
from support.shards.simulated_shard import OWN, ShardEnvironment, parts, read_requests, refuse


def times_at(now_ms: int) -> tuple[int, int]:
    """Returns the times of a transaction at `now_ms` while the cancel gate is open."""
    return now_ms, now_ms


def test_a_bulk_control_whose_first_transaction_is_aborted_begins_again(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.format_version = 2
    shard = env.shard()
    env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
    read_requests(env, shard)
    with monkeypatch.context() as fault:
        refuse(fault, lambda topic, _: topic == OWN.dispatch_log)
        assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, False)
    shard._dispatcher.ran_trial = True
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (1, True)
    assert not shard._dispatcher.ran_trial
    assert env.log()[-1].fates == [BulkProgress(0, 0, SWEPT, 0)]
    shard.close()


def test_while_a_bulk_control_is_unread_only_entries_under_key_0_may_leave(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.format_version = 2
    shard = env.shard()
    index, ownership = parts(shard)
    env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
    read_requests(env, shard)
    assert shard._dispatcher.dispatch(index, ownership, *times_at(env.broker.now_ms())) == (1, True)
    assert shard._dispatcher.before_ms(index, 5) == 5
    monkeypatch.setattr(dispatcher_module, "read_up_to", lambda _: 0)
    assert shard._dispatcher.before_ms(index, 5) == DUE_MS_MIN
    assert shard._dispatcher.before_ms(index, 0) == 0, "the cancel gate admits nothing"
    shard.close()


def test_a_sweep_waits_while_own_topics_are_isolated_and_goes_on_where_it_finds_nothing(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.format_version = 2
    shard = env.shard()
    dispatcher, faults = shard._dispatcher, shard._dispatcher._faults
    for number in range(4):
        env.schedule(env.broker.now_ms() + 60_000 + number)
    env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"mails"))
    read_requests(env, shard)
    assert dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (1, True)
    own = faults._isolate(OWN_NAME, 1, None, shard.ctx.clock.steady_ms())
    own.retry_at = inf
    for _ in range(2):
        assert dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, False)
    faults._return(own)
    monkeypatch.setattr(bulk_sweep, "SWEPT_VISITED_MAX", 2)
    for _ in range(4):
        assert dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, True)
    while len(env.fates()) < 2:
        dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    assert env.fates()[1] == [(4, "applied")]
    shard.close()


def test_a_piece_of_a_sweep_that_is_aborted_is_repeated(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    env.format_version = 2
    shard = env.shard()
    env.schedule(env.broker.now_ms() + 60_000)
    env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
    read_requests(env, shard)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (1, True)
    with monkeypatch.context() as fault:
        refuse(fault, lambda topic, _: topic == OWN.dispatch_log)
        for _ in range(4):  # in turn with due entries, and parked entries first
            assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, True)
    assert shard.ctx.counts.transactions["aborted"] == 1
    assert env.log()[-1].fates == [BulkProgress(1, 0, SWEPT, 0)]
    while len(env.fates()) < 2:
        shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    assert env.fates()[1] == [(0, "cancelled"), (1, "applied")]
    shard.close()


def test_a_bulk_control_moves_an_even_spread_to_no_time_that_has_passed(env: ShardEnvironment) -> None:
    """The new window began ten minutes ago, and is almost over."""
    env.format_version = 3
    shard = env.shard()
    index, ownership = parts(shard)
    even = (("postdate-window", b"10m"), ("postdate-spread", b"even"))
    env.schedule(env.broker.now_ms() + 1_200_000, *even)
    env.ask(("postdate-action", b"reschedule"), ("postdate-delay", b"0s"), ("postdate-select-topic", b"orders"))
    read_requests(env, shard)
    assert shard._dispatcher.dispatch(index, ownership, *times_at(env.broker.now_ms())) == (1, True)
    env.time.wait(599_000)
    now_ms = env.broker.now_ms()
    while len(env.fates()) < 2:
        shard._dispatcher.dispatch(index, ownership, *times_at(now_ms))
    key = index.timer_log.find(0)
    assert key is not None
    assert split_key(key)[0] == now_ms
    shard.close()


@pytest.mark.parametrize("is_attributing", [True, False])
def test_a_full_piece_of_a_sweep_lets_transactions_grow_unless_a_fault_is_being_attributed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, is_attributing: bool
) -> None:
    env.format_version = 2
    shard = env.shard()
    for number in range(3):
        env.schedule(env.broker.now_ms() + 60_000 + number)
    env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
    read_requests(env, shard)
    monkeypatch.setattr(bulk_sweep, "SWEPT_ENTRIES_MAX", 2)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (1, True)
    before = shard._dispatcher._limit.entries
    monkeypatch.setattr(FaultAttribution, "is_attributing", is_attributing)
    while len(env.fates()) < 2:
        shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    assert [name for _, name in env.fates()[-1]] == ["cancelled", "cancelled", "swept"]
    assert (shard._dispatcher._limit.entries > before) is not is_attributing
    shard.close()
