"""Goal: each trial and each small transaction contains exactly the entries that it may contain.

Method: one shard on the simulated cluster. The test isolates a target as faults would, and checks the input of the next
transactions, or the committed fates.
"""

from __future__ import annotations

from math import inf

import pytest

from postdate.sidecar.config.settings import DispatchConfig, RequestTopicConfig
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due import sweep
from postdate.sidecar.dispatch.due.backlog_bypass import BacklogBypass
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.due.sweep import Sweep
from postdate.sidecar.dispatch.limits import RATE_RETRY_MS
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.isolated_targets import OWN, Isolated, RefusedEntry
from postdate.sidecar.dispatch.targets.targets import Refusal
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import LAST_KEY, entry_key, split_key
from postdate.wire.reasons import Reason
from support.shards.simulated_shard import R, ShardEnvironment, hold_controls, read_due


def _isolated(
    env: ShardEnvironment, shard: Shard, count: int, messages_max: int, due_ms: int = 1
) -> tuple[TimerIndex, Isolated]:
    """Isolates a target with `count` parked messages, from request 1 on. Returns the index and the state of the
    target."""
    index = shard._index
    assert index is not None
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)  # the target's metadata is known
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    for number in range(count):
        env.schedule(due_ms, ("postdate-id", b"%d" % (number + 1)))
    env.until(shard, lambda: index.parked_count == count)
    shard.ctx.held.current = Holds()
    return index, shard._dispatcher._faults._isolate("orders", messages_max, None, shard.ctx.clock.steady_ms())


def _trials(env: ShardEnvironment, shard: Shard, index: TimerIndex, count: int) -> list[list[int]]:
    """Reads the input `count` times, without running a transaction. Returns the requests of each trial."""
    reader, steady_ms, now_ms = shard._dispatcher._reader, shard.ctx.clock.steady_ms(), env.broker.now_ms()
    read = [reader.read(index, steady_ms, now_ms) for _ in range(count)]
    return [[split_key(key)[1] for key, _ in due.parked] for due in read if due.trial is not None]


def test_refused_and_other_messages_take_turns(env: ShardEnvironment) -> None:
    """Otherwise many messages that the target keeps refusing would hold up the messages that it accepts."""
    shard = env.shard()
    index, isolated = _isolated(env, shard, 6, messages_max=2)
    isolated.refused = {1: RefusedEntry(0.0, shard.ctx.clock.steady_ms()), 2: RefusedEntry(0.0, 0.0)}
    assert _trials(env, shard, index, 4) == [[3, 4], [1], [3, 4], [1]]
    shard.close()


def test_a_trial_is_full_although_the_first_messages_are_refused_or_condemned(env: ShardEnvironment) -> None:
    shard = env.shard()
    index, isolated = _isolated(env, shard, 8, messages_max=2)
    isolated.refused = {1: RefusedEntry(0.0, 1e12)}
    shard._dispatcher._faults.condemned = {offset: Refusal(Reason.TOO_LARGE, "") for offset in (2, 3, 4)}
    assert _trials(env, shard, index, 1) == [[5, 6]]
    shard.close()


def test_a_trial_leaves_out_messages_on_which_entries_under_key_0_act(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 4: request 4 keeps the pending request 1, which has the same id. So request 4 must end before request 1."""
    env.format_version = 2
    shard = env.shard()
    index, _ = _isolated(env, shard, 3, messages_max=2)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    env.schedule(1, ("postdate-id", b"1"), ("postdate-if-pending", b"keep"))
    env.until(shard, lambda: index.ending_count == 1)
    assert _trials(env, shard, index, 1) == [[2, 3]]
    shard.close()


def test_a_trial_stays_within_the_rate_of_its_target(env: ShardEnvironment) -> None:
    """The rate is ten messages a second, and tokens are saved for a tenth of a second. Refused messages count as
    well."""
    shard = env.shard(RequestTopicConfig(R, messages_per_second_max=("orders=10",)))
    index, isolated = _isolated(env, shard, 5, messages_max=4)
    rates = shard._dispatcher._rates
    assert rates is not None
    rates.begin(index, shard.ctx.clock.steady_ms() + 1_000)
    assert _trials(env, shard, index, 1) == [[1, 2]]
    rates.spend({"orders": 2})
    isolated.refused = {1: RefusedEntry(0.0, 0.0)}
    assert _trials(env, shard, index, 1) == []
    assert shard._dispatcher.parked_in_ms() == RATE_RETRY_MS
    shard.close()


def test_a_trial_that_must_wait_is_not_repeated_at_once(env: ShardEnvironment) -> None:
    """Otherwise the shard's thread would never rest."""
    shard = env.shard()
    index, isolated = _isolated(env, shard, 2, messages_max=2)
    isolated.refused = {1: RefusedEntry(0.0, 1e12), 2: RefusedEntry(0.0, 1e12)}
    assert _trials(env, shard, index, 1) == []
    assert shard._dispatcher.parked_in_ms() == RATE_RETRY_MS
    shard.close()


def test_no_trial_is_due_while_no_message_waits_for_it(env: ShardEnvironment) -> None:
    shard = env.shard()
    index, _ = _isolated(env, shard, 0, messages_max=1)
    assert _trials(env, shard, index, 1) == []
    assert shard._dispatcher.parked_in_ms() == inf
    shard.close()


def test_a_trial_waits_for_an_earlier_message_that_is_not_parked_yet(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the parked messages would overtake the earlier message."""
    shard = env.shard()
    index, _ = _isolated(env, shard, 2, messages_max=2, due_ms=5)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    env.schedule(1)
    env.until(shard, lambda: index.count == 3)
    assert _trials(env, shard, index, 1) == []
    assert shard._dispatcher.parked_in_ms() == RATE_RETRY_MS
    shard.close()


def test_a_message_that_waits_for_the_store_keeps_the_order_of_its_key(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard did not dispatch for two seconds; then STORE was isolated. Request 1 is not due yet."""
    shard = env.shard(RequestTopicConfig(R, store_after_ms=1_000))
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    index, started_ms = shard._index, env.time.now_ms
    assert index is not None
    env.schedule(started_ms + 1_500)
    env.schedule(started_ms + 60_000, target=b"mails")
    env.until(shard, lambda: env.time.now_ms >= started_ms + 2_000)
    env.schedule(started_ms + 1_600)
    env.until(shard, lambda: index.count == 3)
    faults, steady_ms = shard._dispatcher._faults, shard.ctx.clock.steady_ms()
    faults._isolate(OWN, 1, None, steady_ms).retry_at = inf
    due = shard._dispatcher._reader.read(index, steady_ms, env.broker.now_ms())
    assert [split_key(key)[1] for key in due.keys] == [2]
    assert due.own_filter is not None
    assert due.own_filter.waiting == {("orders", b"k"): entry_key(int(started_ms) + 1_500, 0)}
    shard.close()


def test_a_trial_waits_for_an_earlier_message_that_is_to_be_stored(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has moved the first of two parked messages under key 0."""
    shard = env.shard()
    index, _ = _isolated(env, shard, 2, messages_max=2, due_ms=5)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    monkeypatch.setattr(sweep, "SWEEP_OFFSETS_MAX", 1)
    assert Sweep(1).step(index, int(env.time.now_ms) + 100) == 1
    assert _trials(env, shard, index, 1) == []
    shard.close()


def test_a_trial_takes_the_messages_before_one_that_is_not_parked_yet(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    index, isolated = _isolated(env, shard, 1, messages_max=2, due_ms=1)
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    env.schedule(9)
    env.until(shard, lambda: index.parked_count == 2)
    shard.ctx.held.current = Holds()
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    env.schedule(5)
    env.until(shard, lambda: index.count == 3)
    isolated.retry_at = 0.0
    assert _trials(env, shard, index, 1) == [[1]]
    shard.close()


def test_only_refused_messages_that_are_still_parked_are_tried(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Request 99 has ended, request 3 was moved back and will be parked again, and request 4 was moved to a later
    time."""
    shard = env.shard()
    index, isolated = _isolated(env, shard, 2, messages_max=2)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    assert env.schedule(1) == 3
    assert env.schedule(env.broker.now_ms() + 60_000) == 4
    env.until(shard, lambda: index.count == 4)
    isolated.refused = {offset: RefusedEntry(0.0, 0.0) for offset in (99, 3, 4, 1)}
    isolated.alone_next = True
    assert _trials(env, shard, index, 1) == [[1]]
    assert list(isolated.refused) == [3, 1]
    shard.close()


def test_a_refused_message_is_not_tried_before_it_may_leave(env: ShardEnvironment) -> None:
    """No message may leave while a bulk control waits for requests before it."""
    shard = env.shard()
    index, isolated = _isolated(env, shard, 1, messages_max=1, due_ms=9)
    isolated.refused = {1: RefusedEntry(0.0, 0.0)}
    assert shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), 9).trial is None
    shard.close()


@pytest.mark.parametrize(("before_ms", "is_tried"), [(9, False), (10, True)])
def test_a_trial_contains_no_message_that_the_cancel_gate_holds_back(
    env: ShardEnvironment, before_ms: int, is_tried: bool
) -> None:
    shard = env.shard()
    index, _ = _isolated(env, shard, 1, messages_max=1, due_ms=9)
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), before_ms)
    assert (due.trial is not None) is is_tried
    shard.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_parked_messages_may_leave_up_to_the_key_to_which_their_target_was_read(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    """In a backlog of other targets, the second cursor has read further. Its position counts only if the transaction
    contains its messages."""
    shard = env.shard()
    read_to, cleared = entry_key(5, 0), entry_key(9, 0)
    monkeypatch.setattr(BacklogBypass, "cleared_up_to", lambda *_: cleared)
    due = Due([], [], read_to=read_to, ordered=ordered)
    assert shard._dispatcher._reader._release_up_to(due, "orders") == (cleared if ordered else read_to)
    shard.close()


@pytest.mark.parametrize("why", ["works", "unknown", "held", "fails", "isolated"])
def test_parked_messages_leave_unless_their_target_is_held_or_fails_or_is_isolated(
    env: ShardEnvironment, why: str
) -> None:
    shard = env.shard()
    if why != "unknown":
        env.schedule(1)
        env.until(shard, lambda: env.ended() == 1)
    target = shard._dispatcher._targets.get("orders")
    assert (target is None) == (why == "unknown")
    if why == "held":
        shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    if target is not None and why == "fails":
        target.failing_since = 0.0
    if why == "isolated":
        shard._dispatcher._faults._isolate("orders", 1, None, shard.ctx.clock.steady_ms())
    may_go = shard._dispatcher._reader._release_up_to(Due([], [], read_to=LAST_KEY), "orders")
    assert may_go == (LAST_KEY if why in ("works", "unknown") else None)
    shard.close()


@pytest.mark.parametrize("is_own_isolated", [True, False])
def test_a_trial_of_a_target_contains_no_message_for_an_isolated_own_topic(
    env: ShardEnvironment, is_own_isolated: bool
) -> None:
    shard = env.shard()
    index, _ = _isolated(env, shard, 1, messages_max=1)
    if is_own_isolated:
        own = shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms(), {"requests.verdicts"})
        own.retry_at = inf
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), env.broker.now_ms())
    assert due.trial is not None
    assert due.surplus_max == 0
    filtered = due.own_filter.topics if due.own_filter is not None else None
    assert filtered == ({"requests.verdicts"} if is_own_isolated else None)
    shard.close()


@pytest.mark.parametrize(("messages_max", "own_left"), [(2, None), (5, 2), (3, 0)])
def test_a_trial_of_own_topics_takes_controls_and_then_messages_that_write_to_them(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, messages_max: int, own_left: int | None
) -> None:
    """There are three controls. A smaller trial contains a piece of them, and more follow."""
    shard = env.shard()
    index = hold_controls(env, shard, monkeypatch, 3)
    own = shard._dispatcher._faults._isolate(
        OWN, messages_max, None, shard.ctx.clock.steady_ms(), {"requests.verdicts"}
    )
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), env.broker.now_ms())
    assert due.trial is own
    assert len(due.keys) == min(messages_max, 3)
    if own_left is None:
        assert (due.own_filter, due.has_more, due.keys_after_gaps) == (None, True, set())
    else:
        assert due.own_filter is not None
        assert (due.own_filter.own_left, due.has_more) == (own_left, False)
    shard.close()


def test_half_of_the_bytes_of_a_transaction_is_for_messages_that_waited_for_their_rate(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.dispatch = DispatchConfig(size_bytes_max=20_000)
    shard = env.shard(RequestTopicConfig(R, messages_per_second_max=("orders=1000",)))
    index, isolated = _isolated(env, shard, 30, messages_max=1)
    dispatcher = shard._dispatcher
    dispatcher._faults._return(isolated)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(30):
        env.schedule(1)
    env.until(shard, lambda: index.count == 60)
    assert dispatcher._rates is not None
    dispatcher._rates.begin(index, shard.ctx.clock.steady_ms())
    due = dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), env.broker.now_ms())
    half = dispatcher._limit.size_bytes // 2
    for values in (due.values, [raw for _, raw in due.parked]):
        assert half <= sum(map(len, values)) < half + len(values[-1])
    shard.close()


def test_entries_that_wait_for_an_isolated_own_topic_leave_space_for_messages(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan reads these entries first, since they lie under key 0, but none of them may leave."""
    env.dispatch = DispatchConfig(entries_max=20)
    shard = env.shard()
    index, faults = shard._index, shard._dispatcher._faults
    assert index is not None
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(8):
        env.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
    for _ in range(3):
        env.schedule(1)
    env.until(shard, lambda: index.count == 11)
    own = faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
    own.retry_at, own.waits = 1e12, False
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), env.broker.now_ms())
    assert [split_key(key)[1] for key in due.keys] == [8, 9, 10]
    assert due.own_filter is not None
    assert own.waits, "its next trial takes them"
    shard.close()


def test_a_hold_restarts_the_retry_budget_of_its_target(env: ShardEnvironment) -> None:
    """Otherwise the first failed trial after a long hold would end all parked messages."""
    shard = env.shard()
    index, isolated = _isolated(env, shard, 1, messages_max=1)
    isolated.failing_since = since = isolated.acknowledged_at + 5.0
    assert _trials(env, shard, index, 1) == [[1]]
    assert isolated.failing_since == since
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    assert _trials(env, shard, index, 1) == []
    assert isolated.failing_since < isolated.acknowledged_at
    assert shard._dispatcher.parked_in_ms() == inf
    shard.close()


@pytest.mark.parametrize(("entries_max", "most"), [(20, 1 + 4), (10_000, 1_000)])
def test_missed_occurrences_leave_within_the_size_of_a_transaction(
    env: ShardEnvironment, entries_max: int, most: int
) -> None:
    """The first transaction of a shard takes a fifth of the configured entries, in addition to the next due
    occurrence."""
    env.format_version, env.dispatch = 3, DispatchConfig(entries_max=entries_max)
    shard = env.shard()
    env.ask(("postdate-topic", b"orders"), ("postdate-id", b"c"), ("postdate-every", b"1s"))
    env.until(shard, lambda: env.ended() == 1)
    shard.close()
    env.time.wait(1_500_000)
    shard = env.shard()
    env.until(shard, lambda: len(env.read("orders")) > 0)
    assert len(env.read("orders")) == most
    shard.close()


def test_missed_occurrences_leave_within_the_bytes_of_a_transaction(env: ShardEnvironment) -> None:
    env.format_version, env.dispatch = 3, DispatchConfig(size_bytes_max=20_000)
    shard = env.shard()
    every = ("postdate-every", b"1s")
    env.ask(("postdate-topic", b"orders"), ("postdate-id", b"c"), every, value=bytes(1_000))
    env.until(shard, lambda: env.ended() == 1)
    shard.close()
    env.time.wait(100_000)
    shard = env.shard()
    env.until(shard, lambda: len(env.read("orders")) > 0)
    assert len(env.read("orders")) == 1 + 3  # a fifth of 20,000 bytes
    shard.close()


def test_while_a_fault_is_being_attributed_no_missed_occurrences_leave_with_the_next_one(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    assert shard._index is not None
    monkeypatch.setattr(FaultAttribution, "is_attributing", True)
    due = shard._dispatcher._reader.read(shard._index, shard.ctx.clock.steady_ms(), env.broker.now_ms())
    assert (due.short, due.surplus_max) == (True, 0)
    shard.close()


def test_a_trial_of_own_topics_needs_an_entry(env: ShardEnvironment) -> None:
    shard = env.shard()
    own = shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
    assert read_due(env, shard).trial is None
    assert not own.waits
    shard.close()


def test_controls_that_cannot_be_separated_leave_no_space_for_messages(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial of one entry contains a cancelled message and its cancel."""
    shard = env.shard()
    index = shard._index
    assert index is not None
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    env.schedule(env.broker.now_ms() + 60_000, ("postdate-id", b"a"))
    env.ask(("postdate-action", b"cancel"), ("postdate-id", b"a"))
    env.until(shard, lambda: index.ending_count == 2)
    shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
    due = read_due(env, shard)
    assert (len(due.keys), due.keys_after_gaps) == (2, ())
    assert due.own_filter is not None
    assert due.own_filter.own_left == 0
    shard.close()


@pytest.mark.parametrize(("before_ms", "ending"), [(9, []), (10, [1, 2])])
def test_parked_condemned_messages_end_if_the_gate_admits_them(
    env: ShardEnvironment, before_ms: int, ending: list[int]
) -> None:
    """Request 99 has already ended."""
    shard = env.shard()
    index, isolated = _isolated(env, shard, 2, messages_max=1, due_ms=9)
    isolated.retry_at = inf
    faults = shard._dispatcher._faults
    faults.condemned = {offset: Refusal(Reason.TOO_LARGE, "") for offset in (99, 2, 1)}
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), before_ms)
    assert [split_key(key)[1] for key, _ in due.parked] == ending
    assert sorted(faults.condemned) == [1, 2]
    shard.close()


def test_a_condemned_message_of_a_target_with_a_rate_ends_once(env: ShardEnvironment) -> None:
    """The isolation of the target may have ended while the dead-letter topic did not accept records."""
    shard = env.shard(RequestTopicConfig(R, messages_per_second_max=("orders=1000",)))
    _, isolated = _isolated(env, shard, 3, messages_max=2)
    faults = shard._dispatcher._faults
    faults._return(isolated)
    faults.condemned = {2: Refusal(Reason.TOO_LARGE, "")}
    env.until(shard, lambda: env.ended() == 4)
    assert sorted(offset for fates in env.fates() for offset, _ in fates) == [0, 1, 2, 3]
    assert [reason for reason, _ in env.dead_letters()] == [b"too-large"]
    shard.close()
