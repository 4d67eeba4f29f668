"""Goal: each turn of the dispatcher runs the right transaction at the given time, parks what must wait, and leaves the
timer index up to date.

Method: a shard on a simulated cluster has read its requests but dispatched none. The test calls the dispatcher
directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from postdate.kafka.errors import UnknownOutcome
from postdate.kafka.interface import NewTopic, Partition
from postdate.sidecar.config.settings import DispatchConfig
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.due.due_reader import Due, DueReader
from postdate.sidecar.dispatch.due.sweep import Sweep
from postdate.sidecar.dispatch.targets.isolated_targets import OWN as OWN_NAME
from postdate.sidecar.dispatch.targets.isolated_targets import Isolated
from postdate.sidecar.dispatch.targets.targets import Targets
from postdate.wire.headers import Headers
from support.kafka_simulator.producer import SimTransactionalProducer
from support.shards.simulated_shard import OWN, ShardEnvironment, parts, read_requests, refuse


def times_at(now_ms: int) -> tuple[int, int]:
    """Returns the times of a transaction at `now_ms` while the cancel gate is open."""
    return now_ms, now_ms


@pytest.mark.parametrize(("late_ms", "fate"), [(1_000, "delivered"), (1_001, "dead")])
def test_a_message_expires_one_millisecond_after_its_grace(env: ShardEnvironment, late_ms: int, fate: str) -> None:
    shard = env.shard()
    due_ms = env.broker.now_ms() - 10_000
    env.schedule(due_ms, ("postdate-grace", b"1s"))
    read_requests(env, shard)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(due_ms + late_ms + 1)) == (1, False)
    assert env.fates() == [[(0, fate)]]
    shard.close()


def test_grace_ends_by_the_clock_and_not_by_the_gate(env: ShardEnvironment) -> None:
    """While a shard catches up, the cancel gate admits only messages that were due minutes ago."""
    shard = env.shard()
    due_ms = env.broker.now_ms() - 60_000
    env.schedule(due_ms, ("postdate-grace", b"30s"))
    read_requests(env, shard)
    assert shard._dispatcher.dispatch(*parts(shard), due_ms + 1, env.broker.now_ms()) == (1, False)
    assert env.fates() == [[(0, "dead")]]
    shard.close()


def test_a_transaction_that_outlasts_a_grace_is_repeated_without_the_message(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a process that was frozen after its decision would deliver the message long after its grace."""
    shard = env.shard()
    due_ms = env.broker.now_ms() - 1_000
    env.schedule(due_ms, ("postdate-grace", b"5s"))
    env.schedule(due_ms)
    read_requests(env, shard)
    honest, stalls = SimTransactionalProducer.begin, [60_000]

    def begin(self: SimTransactionalProducer, *arguments: Any) -> None:
        honest(self, *arguments)
        if stalls:
            env.time.wait(stalls.pop())

    monkeypatch.setattr(SimTransactionalProducer, "begin", begin)
    now_ms = env.broker.now_ms()
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(now_ms)) == (0, True)
    assert shard._dispatcher.retry_at() is None
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (2, False)
    assert env.fates() == [[(0, "dead"), (1, "delivered")]]
    shard.close()


def test_a_target_that_has_grown_since_it_was_looked_up_refuses_no_message(env: ShardEnvironment) -> None:
    """The target gets the partition before the request is written. The shard's metadata is three seconds old and lacks
    it."""
    shard = env.shard()
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    env.time.wait(3_000)
    count = len(env.broker.topics["orders"].logs)
    env.admin.add_partitions({"orders": count + 1})
    env.schedule(1, ("postdate-partition", b"%d" % count))
    env.schedule(1, ("postdate-partition", b"%d" % (count + 1)))
    read_requests(env, shard)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (2, False), "in the same turn"
    assert [fate for fates in env.fates() for _, fate in fates] == ["delivered", "delivered", "dead"]
    shard.close()


def test_a_heartbeat_advances_the_index_past_its_record(env: ShardEnvironment) -> None:
    """Otherwise the index would seem to have missed records once retention deletes heartbeats from the log."""
    shard = env.shard()
    index, ownership = parts(shard)
    assert shard._dispatcher.commit_beat(index, ownership)
    last = env.read(OWN.dispatch_log)[-1]
    assert (index.checkpoint.next_dispatch, index.checkpoint.seq) == (last.offset + 1, env.log()[-1].seq)
    assert env.log()[-1].kind == "beat"
    shard.close()


def test_no_transaction_begins_during_the_pause_after_aborts(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    owned, dispatcher = parts(shard), shard._dispatcher
    env.schedule(1)
    read_requests(env, shard)
    before_ms = env.broker.now_ms()
    refuse(monkeypatch, lambda topic, _: topic == OWN.dispatch_log)
    assert not dispatcher.commit_beat(*owned)
    assert dispatcher.retry_at() is None, "the first one is retried at once"
    assert not dispatcher.commit_beat(*owned)
    assert dispatcher.retry_at() is not None
    monkeypatch.undo()
    begun = len(env.log())
    assert not dispatcher.commit_beat(*owned)
    assert dispatcher.dispatch(*owned, *times_at(before_ms)) == (0, False)
    assert len(env.log()) == begun
    env.time.wait(1_000)
    assert dispatcher.dispatch(*owned, *times_at(before_ms)) == (1, False)
    shard.close()


@pytest.mark.parametrize("kind", ["beat", "message", "bulk control"])
def test_a_commit_resets_the_pause_after_aborts(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Otherwise a long pause would follow the next abort, even hours later."""
    env.format_version = 2
    shard = env.shard()
    owned, dispatcher = parts(shard), shard._dispatcher

    def attempt() -> bool:
        if kind == "beat":
            return dispatcher.commit_beat(*owned)
        return dispatcher.dispatch(*owned, *times_at(env.broker.now_ms()))[0] == 1

    for number in range(2):
        if kind == "message":
            env.schedule(1)
        if kind == "bulk control" and not number:
            env.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
        read_requests(env, shard)
        with monkeypatch.context() as fault:
            refuse(fault, lambda topic, _: topic == OWN.dispatch_log)
            assert not attempt()
            assert dispatcher.retry_at() is None, "the first one is retried at once"
            assert not attempt()
            assert dispatcher.retry_at() is not None
        env.time.wait(1_000)
        assert attempt()
        kind = "beat" if kind == "bulk control" else kind
    shard.close()


def test_the_targets_are_looked_up_after_an_unknown_outcome(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted target can end the producer, and would end the next producer as well."""
    shard = env.shard()
    env.schedule(1)
    read_requests(env, shard)
    refreshed: list[str] = []

    def commit(_: SimTransactionalProducer) -> None:
        refreshed.clear()
        raise UnknownOutcome("no answer came")

    def refresh_soon(_: Targets, names: Iterable[str]) -> None:
        refreshed.extend(names)

    monkeypatch.setattr(Targets, "refresh_soon", refresh_soon)
    monkeypatch.setattr(SimTransactionalProducer, "commit", commit)
    with pytest.raises(UnknownOutcome):
        shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    assert refreshed == ["orders"]
    shard.close()


@pytest.mark.parametrize("is_trial", [True, False])
def test_a_turn_without_a_message_that_may_leave_is_repeated_only_for_a_trial(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, is_trial: bool
) -> None:
    """A trial without messages ends, and the messages for other targets get the next turn."""
    shard = env.shard()
    env.schedule(1)
    read_requests(env, shard)
    trial = Isolated(OWN_NAME, 1, 0.0, 0.0, 0.0) if is_trial else None
    dispatcher, honest = shard._dispatcher, DueReader.read

    def read(*arguments: Any) -> Due:
        return replace(honest(*arguments), trial=trial)

    monkeypatch.setattr(DueReader, "read", read)
    monkeypatch.setattr(BatchBuilder, "build", lambda *_: Batch())
    assert dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, is_trial)
    assert trial is None or not trial.waits
    shard.close()


@pytest.mark.parametrize(
    ("skipped_own", "is_trial", "notes"),
    [(True, False, [(OWN_NAME,)]), (False, False, []), (True, True, []), (False, True, [])],
)
def test_a_message_that_waits_for_an_own_topic_is_recorded_outside_of_trials(
    env: ShardEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    skipped_own: bool,
    is_trial: bool,
    notes: list[tuple[str, ...]],
) -> None:
    shard = env.shard()
    env.schedule(1)
    read_requests(env, shard)
    honest = DueReader.read
    parked: list[tuple[str, ...]] = []
    trial = Isolated(OWN_NAME, 1, 0.0, 0.0, 0.0) if is_trial else None

    def read(*arguments: Any) -> Due:
        return replace(honest(*arguments), trial=trial)

    monkeypatch.setattr(DueReader, "read", read)
    monkeypatch.setattr(BatchBuilder, "build", lambda *_: Batch(skipped_own=skipped_own))
    monkeypatch.setattr(shard._dispatcher._faults, "parked", parked.append)
    shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    assert parked == notes
    shard.close()


def test_a_turn_without_due_entries_commits_nothing(env: ShardEnvironment) -> None:
    shard = env.shard()
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, False)
    shard.close()


@pytest.mark.parametrize("why", ["goes on", "stayed", "trial"])
def test_more_may_be_due_if_entries_stayed(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    shard = env.shard()
    env.schedule(1)
    read_requests(env, shard)
    read, build = DueReader.read, BatchBuilder.build

    def read_more(*arguments: Any) -> Due:
        return replace(
            read(*arguments),
            has_more=why == "goes on",
            trial=Isolated("orders", 1, 0.0, 0.0, 0.0) if why == "trial" else None,
        )

    def build_less(*arguments: Any) -> Batch:
        return replace(build(*arguments), stayed=int(why == "stayed"))

    monkeypatch.setattr(DueReader, "read", read_more)
    monkeypatch.setattr(BatchBuilder, "build", build_less)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (1, True)
    assert shard._dispatcher.ran_trial == (why == "trial")
    shard.close()


@pytest.mark.parametrize(
    ("why", "grows"), [("full", True), ("short", False), ("not full", False), ("trial", False), ("parked", False)]
)
def test_only_a_full_transaction_changes_the_limit(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, why: str, grows: bool
) -> None:
    """A transaction is full if it reaches the limit itself, not a limit that was reduced for this transaction. A turn
    that parked messages does not count."""
    shard = env.shard()
    env.schedule(1)
    env.schedule(1, target=b"held" if why == "parked" else b"orders")
    read_requests(env, shard)
    shard.ctx.held.current = Holds(targets=frozenset({"held"}))
    honest = DueReader.read

    def read(*arguments: Any) -> Due:
        trial = Isolated("orders", 1, 0.0, 0.0, 0.0) if why == "trial" else None
        return replace(honest(*arguments), full=why != "not full", short=why == "short", trial=trial)

    monkeypatch.setattr(DueReader, "read", read)
    before = shard._dispatcher._limit.entries
    shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    assert (shard._dispatcher._limit.entries > before) == grows
    shard.close()


def test_a_hold_that_starts_while_a_transaction_waits_for_a_slot_stops_it(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    env.schedule(1)
    read_requests(env, shard)

    @contextmanager
    def slot(*_: object) -> Iterator[None]:
        shard.ctx.held.current = Holds(delivery=True)
        yield

    monkeypatch.setattr(type(shard.ctx.large_transactions), "slot", slot)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, True)
    assert env.fates() == []
    shard.close()


def test_a_turn_that_only_parks_messages_commits_nothing_and_is_followed_by_another(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(1)
    read_requests(env, shard)
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    assert not shard._dispatcher.needs_maintenance(parts(shard)[0])
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, True)
    assert parts(shard)[0].parked_count == 1
    assert shard._dispatcher.needs_maintenance(parts(shard)[0]), "the hold may end"
    shard.close()


def test_a_message_behind_a_parked_one_is_parked_although_its_target_works(env: ShardEnvironment) -> None:
    shard = env.shard()
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    env.schedule(1)
    read_requests(env, shard)
    shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    env.schedule(2)
    read_requests(env, shard)
    shard.ctx.held.current = Holds()
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, True)
    assert parts(shard)[0].parked_count == 2
    shard.close()


@pytest.mark.parametrize("why", ["not looked up in time", "held"])
def test_only_messages_for_an_unusable_or_held_target_are_parked(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """The messages for other targets leave in the same turn."""
    shard = env.shard()
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    env.schedule(1, target=b"mails")
    env.schedule(1)
    read_requests(env, shard)
    if why == "held":
        shard.ctx.held.current = Holds(targets=frozenset({"mails"}))
    else:
        monkeypatch.setattr(type(env.admin), "look_up", lambda *_: lambda wait_s: env.time.wait(wait_s * 1_000))
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (1, True)
    assert parts(shard)[0].parked_count == 1
    assert env.fates()[-1] == [(2, "delivered")]
    shard.close()


def test_a_turn_that_parks_messages_ahead_of_a_backlog_commits_nothing(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input of such a turn has a gap after an unread key. Leaving out the parked messages would add a second
    gap."""
    env.admin.create_topics([NewTopic("mails", 1, 1, {})])
    shard = env.shard()
    for target in (b"orders", b"orders", b"mails", b"orders"):
        env.schedule(1, target=target)
    read_requests(env, shard)
    shard.ctx.held.current = Holds(targets=frozenset({"mails"}))
    honest = DueReader.read

    def read(*arguments: Any) -> Due:
        due = honest(*arguments)
        del due.keys[1], due.values[1]
        return replace(due, keys_after_gaps={due.keys[1]})

    monkeypatch.setattr(DueReader, "read", read)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, True)
    assert (env.fates(), parts(shard)[0].parked_count, parts(shard)[0].count) == ([], 1, 4)
    shard.close()


def test_a_message_may_need_two_look_ups_in_a_turn(env: ShardEnvironment) -> None:
    """The shard looks up the target first. The target lacks the partition, so the message becomes a dead letter. Then
    the shard looks up the dead-letter topic, since the dead letter must fit its size limit."""
    shard = env.shard()
    env.broker.topics[OWN.dead_letters].config["max.message.bytes"] = "2000"
    env.schedule(1, ("postdate-partition", b"99"), value=bytes(5_000))
    read_requests(env, shard)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (1, False)
    assert env.fates() == [[(0, "dead")]]
    shard.close()


def test_each_delivery_is_traced(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    traced: list[object] = []

    def delivered(request: Partition, sent: Iterable[tuple[int, str, Headers]], *more: Any) -> None:
        traced.append((request, [(offset, topic, dict(headers)["postdate-origin"]) for offset, topic, headers in sent]))
        traced.append((len(more[0]), len(more[1])))

    traces: Any = SimpleNamespace(delivered=delivered)
    monkeypatch.setattr(shard._dispatcher, "_ctx", replace(shard.ctx, traces=traces))
    env.schedule(1)
    read_requests(env, shard)
    shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms()))
    assert traced == [(shard.ctx.requests, [(0, "orders", b"requests/0/0")]), (1, 1)]
    shard.close()


def test_old_requests_are_stored_piece_by_piece(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    steps: list[int] = []
    monkeypatch.setattr(Sweep, "step", lambda _self, _index, now_ms: steps.append(now_ms))
    for now_ms in (1_000, 1_500):
        shard._dispatcher.maintain(parts(shard)[0], now_ms)
    assert steps == [1_000, 1_500]
    shard.close()


def test_a_shard_with_overdue_parked_messages_rests_only_during_a_hold(env: ShardEnvironment) -> None:
    shard = env.shard()
    isolated = shard._dispatcher._faults._isolate("orders", 1, None, shard.ctx.clock.steady_ms())
    isolated.retry_at = shard.ctx.clock.steady_ms() - 5.0
    assert shard._dispatcher.parked_in_ms() == 0
    shard.ctx.held.current = Holds(delivery=True)
    assert shard._dispatcher.parked_in_ms() == inf
    shard.close()


def test_fates_of_schedules_are_counted_by_name(env: ShardEnvironment) -> None:
    env.format_version = 3
    shard = env.shard()
    every = (("postdate-every", b"1s"), ("postdate-count", b"2"))
    env.ask(("postdate-topic", b"orders"), ("postdate-id", b"c"), *every)
    env.until(shard, lambda: env.ended() == 4)
    counted = {name: count for name, count in shard.ctx.counts.fates.items() if count}
    assert counted == {"stored": 1, "occurred": 2, "completed": 1}
    shard.close()


def test_a_transaction_is_as_late_as_its_first_message(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lateness of the first message shows how long a trial made the messages for other targets wait."""
    shard = env.shard()
    faults, due_ms = shard._dispatcher._faults, env.broker.now_ms() + 1_000
    faults._isolate("elsewhere", 1, None, shard.ctx.clock.steady_ms())
    env.schedule(due_ms)
    env.schedule(due_ms + 300)
    read_requests(env, shard)
    late_ms: list[float] = []
    monkeypatch.setattr(faults, "committed", lambda attempt, *_: late_ms.append(attempt.late_ms))
    env.time.wait(2_000)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(due_ms + 501)) == (2, False)
    assert late_ms == [500]
    shard.close()


def test_an_aborted_transaction_is_tried_again(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    env.schedule(1)
    read_requests(env, shard)
    refuse(monkeypatch, lambda topic, _: topic == OWN.dispatch_log)
    assert shard._dispatcher.dispatch(*parts(shard), *times_at(env.broker.now_ms())) == (0, True)
    shard.close()


def test_a_parked_message_needs_maintenance_until_it_ends(env: ShardEnvironment) -> None:
    shard = env.shard()
    index, _ = parts(shard)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert not shard._dispatcher.needs_maintenance(index)
    env.schedule(env.broker.now_ms(), target=b"late")
    env.until(shard, lambda: index.parked_count == 1)
    assert shard._dispatcher.needs_maintenance(index)
    assert shard._dispatcher.maintain(index, env.broker.now_ms()) is False, "nothing may leave"
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    assert index.parked_count == 0
    assert not shard._dispatcher.needs_maintenance(index), "nothing waits for the missing target"
    shard.close()


def test_parked_entries_return_when_their_target_works(env: ShardEnvironment) -> None:
    """The entries return long before their retry budget is used up."""
    env.dispatch = DispatchConfig(retry_budget_ms=600_000)
    shard = env.shard()
    index, _ = parts(shard)
    env.schedule(env.broker.now_ms(), target=b"late")
    env.until(shard, lambda: index.parked_count == 1)
    env.admin.create_topics([NewTopic("late", 1, 1, {})])
    for _ in range(60):
        env.time.wait(1_000)
        if shard._dispatcher.maintain(index, env.broker.now_ms()):
            break
    assert index.parked_count == 0
    shard.close()
