"""Goal: a transaction of the dispatcher uses the time that it was given, and leaves the timer index up to date.

Method: a shard on a simulated cluster that has read its requests but dispatched none; the test calls the dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
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
from support.shards.simulated_shard import OWN, Bench, parts, read_requests, refuse


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def at(now_ms: int) -> tuple[int, int]:
    """The times of a transaction at `now_ms` while the cancel gate is open."""
    return now_ms, now_ms


@pytest.mark.parametrize(("late_ms", "fate"), [(1_000, "delivered"), (1_001, "dead")])
def test_a_message_expires_one_millisecond_after_its_grace(bench: Bench, late_ms: int, fate: str) -> None:
    shard = bench.shard()
    due_ms = bench.broker.now_ms() - 10_000
    bench.schedule(due_ms, ("postdate-grace", b"1s"))
    read_requests(bench, shard)
    assert shard._dispatcher.dispatch(*parts(shard), *at(due_ms + late_ms + 1)) == (1, False)
    assert bench.fates() == [[(0, fate)]]
    shard.close()


def test_grace_ends_by_the_clock_and_not_by_the_gate(bench: Bench) -> None:
    """While a shard catches up, the gate admits what was due minutes ago."""
    shard = bench.shard()
    due_ms = bench.broker.now_ms() - 60_000
    bench.schedule(due_ms, ("postdate-grace", b"30s"))
    read_requests(bench, shard)
    assert shard._dispatcher.dispatch(*parts(shard), due_ms + 1, bench.broker.now_ms()) == (1, False)
    assert bench.fates() == [[(0, "dead")]]
    shard.close()


def test_a_transaction_that_outlasts_a_grace_is_repeated_without_the_message(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was frozen after it decided would deliver the message long after its grace."""
    shard = bench.shard()
    due_ms = bench.broker.now_ms() - 1_000
    bench.schedule(due_ms, ("postdate-grace", b"5s"))
    bench.schedule(due_ms)
    read_requests(bench, shard)
    honest, stalls = SimTransactionalProducer.begin, [60_000]

    def begin(self: SimTransactionalProducer, *arguments: Any) -> None:
        honest(self, *arguments)
        if stalls:
            bench.time.wait(stalls.pop())

    monkeypatch.setattr(SimTransactionalProducer, "begin", begin)
    now_ms = bench.broker.now_ms()
    assert shard._dispatcher.dispatch(*parts(shard), *at(now_ms)) == (0, True)
    assert shard._dispatcher.retry_at() is None
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (2, False)
    assert bench.fates() == [[(0, "dead"), (1, "delivered")]]
    shard.close()


def test_a_target_that_has_grown_since_it_was_looked_up_refuses_no_message(bench: Bench) -> None:
    """The request was written when the target had the partition, and the metadata here is three seconds old."""
    shard = bench.shard()
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    bench.time.wait(3_000)
    count = len(bench.broker.topics["orders"].logs)
    bench.admin.add_partitions({"orders": count + 1})
    bench.schedule(1, ("postdate-partition", b"%d" % count))
    bench.schedule(1, ("postdate-partition", b"%d" % (count + 1)))
    read_requests(bench, shard)
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (2, False), "in the same turn"
    assert [fate for fates in bench.fates() for _, fate in fates] == ["delivered", "delivered", "dead"]
    shard.close()


def test_a_beat_leaves_the_index_behind_its_record(bench: Bench) -> None:
    """Otherwise an index would look as if it had missed records, once retention deletes beats."""
    shard = bench.shard()
    index, ownership = parts(shard)
    assert shard._dispatcher.beat(index, ownership)
    last = bench.read(OWN.dispatch_log)[-1]
    assert (index.next_dispatch, index.seq) == (last.offset + 1, bench.log()[-1].seq)
    assert bench.log()[-1].kind == "beat"
    shard.close()


def test_nothing_begins_in_the_pause_after_aborts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = bench.shard()
    owned, dispatcher = parts(shard), shard._dispatcher
    bench.schedule(1)
    read_requests(bench, shard)
    before_ms = bench.broker.now_ms()
    refuse(monkeypatch, lambda topic, _: topic == OWN.dispatch_log)
    assert not dispatcher.beat(*owned)
    assert dispatcher.retry_at() is None, "the first one is retried at once"
    assert not dispatcher.beat(*owned)
    assert dispatcher.retry_at() is not None
    monkeypatch.undo()
    begun = len(bench.log())
    assert not dispatcher.beat(*owned)
    assert dispatcher.dispatch(*owned, *at(before_ms)) == (0, False)
    assert len(bench.log()) == begun
    bench.time.wait(1_000)
    assert dispatcher.dispatch(*owned, *at(before_ms)) == (1, False)
    shard.close()


@pytest.mark.parametrize("kind", ["beat", "message", "bulk control"])
def test_a_commit_ends_a_row_of_aborts(bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Otherwise the next abort, hours later, would be followed by a long pause."""
    bench.format_version = 2
    shard = bench.shard()
    owned, dispatcher = parts(shard), shard._dispatcher

    def attempt() -> bool:
        if kind == "beat":
            return dispatcher.beat(*owned)
        return dispatcher.dispatch(*owned, *at(bench.broker.now_ms()))[0] == 1

    for number in range(2):
        if kind == "message":
            bench.schedule(1)
        if kind == "bulk control" and not number:
            bench.ask(("postdate-action", b"cancel"), ("postdate-select-topic", b"orders"))
        read_requests(bench, shard)
        with monkeypatch.context() as fault:
            refuse(fault, lambda topic, _: topic == OWN.dispatch_log)
            assert not attempt()
            assert dispatcher.retry_at() is None, "the first one is retried at once"
            assert not attempt()
            assert dispatcher.retry_at() is not None
        bench.time.wait(1_000)
        assert attempt()
        kind = "beat" if kind == "bulk control" else kind
    shard.close()


def test_after_an_unknown_outcome_the_targets_are_looked_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted one can end the producer, and would end the next one."""
    shard = bench.shard()
    bench.schedule(1)
    read_requests(bench, shard)
    asked: list[str] = []

    def commit(_: SimTransactionalProducer) -> None:
        asked.clear()
        raise UnknownOutcome("no answer came")

    def look_again(_: Targets, names: Iterable[str]) -> None:
        asked.extend(names)

    monkeypatch.setattr(Targets, "look_again", look_again)
    monkeypatch.setattr(SimTransactionalProducer, "commit", commit)
    with pytest.raises(UnknownOutcome):
        shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms()))
    assert asked == ["orders"]
    shard.close()


@pytest.mark.parametrize("is_trial", [True, False])
def test_a_turn_in_which_nothing_may_leave_is_repeated_only_for_a_trial(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_trial: bool
) -> None:
    """A trial that finds nothing ends; then the other messages have their turn."""
    shard = bench.shard()
    bench.schedule(1)
    read_requests(bench, shard)
    trial = Isolated(OWN_NAME, 1, 0.0, 0.0, 0.0) if is_trial else None
    dispatcher, honest = shard._dispatcher, DueReader.read

    def read(*arguments: Any) -> Due:
        return replace(honest(*arguments), trial=trial)

    monkeypatch.setattr(DueReader, "read", read)
    monkeypatch.setattr(BatchBuilder, "build", lambda *_: Batch())
    assert dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (0, is_trial)
    assert trial is None or not trial.waits
    shard.close()


@pytest.mark.parametrize(
    ("passed_own", "is_trial", "notes"),
    [(True, False, [(OWN_NAME,)]), (False, False, []), (True, True, []), (False, True, [])],
)
def test_a_message_that_waits_for_an_own_topic_is_recorded_outside_of_trials(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, passed_own: bool, is_trial: bool, notes: list[tuple[str, ...]]
) -> None:
    shard = bench.shard()
    bench.schedule(1)
    read_requests(bench, shard)
    honest = DueReader.read
    parked: list[tuple[str, ...]] = []
    trial = Isolated(OWN_NAME, 1, 0.0, 0.0, 0.0) if is_trial else None

    def read(*arguments: Any) -> Due:
        return replace(honest(*arguments), trial=trial)

    monkeypatch.setattr(DueReader, "read", read)
    monkeypatch.setattr(BatchBuilder, "build", lambda *_: Batch(passed_own=passed_own))
    monkeypatch.setattr(shard._dispatcher._faults, "parked", parked.append)
    shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms()))
    assert parked == notes
    shard.close()


def test_with_nothing_due_there_is_nothing_to_do(bench: Bench) -> None:
    shard = bench.shard()
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (0, False)
    shard.close()


@pytest.mark.parametrize("why", ["goes on", "stayed", "trial"])
def test_more_may_be_due_if_something_was_left(bench: Bench, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    shard = bench.shard()
    bench.schedule(1)
    read_requests(bench, shard)
    read, build = DueReader.read, BatchBuilder.build

    def read_more(*arguments: Any) -> Due:
        return replace(
            read(*arguments),
            goes_on=why == "goes on",
            trial=Isolated("orders", 1, 0.0, 0.0, 0.0) if why == "trial" else None,
        )

    def build_less(*arguments: Any) -> Batch:
        return replace(build(*arguments), stayed=int(why == "stayed"))

    monkeypatch.setattr(DueReader, "read", read_more)
    monkeypatch.setattr(BatchBuilder, "build", build_less)
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (1, True)
    assert shard._dispatcher.has_tried == (why == "trial")
    shard.close()


@pytest.mark.parametrize(
    ("why", "grows"), [("full", True), ("short", False), ("not full", False), ("trial", False), ("parked", False)]
)
def test_only_a_full_transaction_changes_the_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, why: str, grows: bool
) -> None:
    """Full by the limit, not by a shorter one for this transaction; and without the messages that were parked."""
    shard = bench.shard()
    bench.schedule(1)
    bench.schedule(1, target=b"held" if why == "parked" else b"orders")
    read_requests(bench, shard)
    shard.ctx.held.now = Holds(targets=frozenset({"held"}))
    honest = DueReader.read

    def read(*arguments: Any) -> Due:
        trial = Isolated("orders", 1, 0.0, 0.0, 0.0) if why == "trial" else None
        return replace(honest(*arguments), full=why != "not full", short=why == "short", trial=trial)

    monkeypatch.setattr(DueReader, "read", read)
    before = shard._dispatcher._limit.entries
    shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms()))
    assert (shard._dispatcher._limit.entries > before) == grows
    shard.close()


def test_a_hold_that_comes_while_a_transaction_waits_for_its_turn_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = bench.shard()
    bench.schedule(1)
    read_requests(bench, shard)

    @contextmanager
    def slot(*_: object) -> Iterator[None]:
        shard.ctx.held.now = Holds(delivery=True)
        yield

    monkeypatch.setattr(type(shard.ctx.large_transactions), "slot", slot)
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (0, True)
    assert bench.fates() == []
    shard.close()


def test_a_turn_that_only_parks_messages_commits_nothing_and_is_followed_by_another(bench: Bench) -> None:
    shard = bench.shard()
    bench.schedule(1)
    read_requests(bench, shard)
    shard.ctx.held.now = Holds(targets=frozenset({"orders"}))
    assert not shard._dispatcher.must_tend(parts(shard)[0])
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (0, True)
    assert parts(shard)[0].parked_count == 1
    assert shard._dispatcher.must_tend(parts(shard)[0]), "the hold may end"
    shard.close()


def test_a_message_behind_a_parked_one_is_parked_although_its_target_works(bench: Bench) -> None:
    shard = bench.shard()
    shard.ctx.held.now = Holds(targets=frozenset({"orders"}))
    bench.schedule(1)
    read_requests(bench, shard)
    shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms()))
    bench.schedule(2)
    read_requests(bench, shard)
    shard.ctx.held.now = Holds()
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (0, True)
    assert parts(shard)[0].parked_count == 2
    shard.close()


@pytest.mark.parametrize("why", ["not looked up in time", "held"])
def test_only_messages_whose_target_is_in_trouble_are_parked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """The others leave in the same turn."""
    shard = bench.shard()
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    bench.schedule(1, target=b"mails")
    bench.schedule(1)
    read_requests(bench, shard)
    if why == "held":
        shard.ctx.held.now = Holds(targets=frozenset({"mails"}))
    else:
        monkeypatch.setattr(type(bench.admin), "look_up", lambda *_: lambda wait_s: bench.time.wait(wait_s * 1_000))
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (1, True)
    assert parts(shard)[0].parked_count == 1
    assert bench.fates()[-1] == [(2, "delivered")]
    shard.close()


def test_a_turn_that_parks_messages_beside_a_backlog_commits_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input of such a turn has a gap, and would have another one without the parked messages."""
    bench.admin.create_topics([NewTopic("mails", 1, 1, {})])
    shard = bench.shard()
    for target in (b"orders", b"orders", b"mails", b"orders"):
        bench.schedule(1, target=target)
    read_requests(bench, shard)
    shard.ctx.held.now = Holds(targets=frozenset({"mails"}))
    honest = DueReader.read

    def read(*arguments: Any) -> Due:
        due = honest(*arguments)
        del due.keys[1], due.values[1]
        return replace(due, apart={due.keys[1]})

    monkeypatch.setattr(DueReader, "read", read)
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (0, True)
    assert (bench.fates(), parts(shard)[0].parked_count, parts(shard)[0].count) == ([], 1, 4)
    shard.close()


def test_a_message_may_need_two_look_ups_in_a_turn(bench: Bench) -> None:
    """Of its target, and of the dead letters if the target has no such partition: a letter must not be too large."""
    shard = bench.shard()
    bench.broker.topics[OWN.dead_letters].config["max.message.bytes"] = "2000"
    bench.schedule(1, ("postdate-partition", b"99"), value=bytes(5_000))
    read_requests(bench, shard)
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (1, False)
    assert bench.fates() == [[(0, "dead")]]
    shard.close()


def test_each_delivery_is_traced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = bench.shard()
    traced: list[object] = []

    def delivered(request: Partition, sent: Iterable[tuple[int, str, Headers]], *more: Any) -> None:
        traced.append((request, [(offset, topic, dict(headers)["postdate-origin"]) for offset, topic, headers in sent]))
        traced.append((len(more[0]), len(more[1])))

    traces: Any = SimpleNamespace(delivered=delivered)
    monkeypatch.setattr(shard._dispatcher, "_ctx", replace(shard.ctx, traces=traces))
    bench.schedule(1)
    read_requests(bench, shard)
    shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms()))
    assert traced == [(shard.ctx.requests, [(0, "orders", b"requests/0/0")]), (1, 1)]
    shard.close()


def test_old_requests_are_stored_piece_by_piece(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = bench.shard()
    steps: list[int] = []
    monkeypatch.setattr(Sweep, "step", lambda _self, _index, now_ms: steps.append(now_ms))
    for now_ms in (1_000, 1_500):
        shard._dispatcher.tend(parts(shard)[0], now_ms)
    assert steps == [1_000, 1_500]
    shard.close()


def test_a_shard_with_overdue_parked_messages_rests_only_during_a_hold(bench: Bench) -> None:
    shard = bench.shard()
    isolated = shard._dispatcher._faults._isolate("orders", 1, None, shard.ctx.clock.steady_ms())
    isolated.retry_at = shard.ctx.clock.steady_ms() - 5.0
    assert shard._dispatcher.parked_in_ms() == 0
    shard.ctx.held.now = Holds(delivery=True)
    assert shard._dispatcher.parked_in_ms() == inf
    shard.close()


def test_fates_of_schedules_are_counted_as_such(bench: Bench) -> None:
    bench.format_version = 3
    shard = bench.shard()
    every = (("postdate-every", b"1s"), ("postdate-count", b"2"))
    bench.ask(("postdate-topic", b"orders"), ("postdate-id", b"c"), *every)
    bench.until(shard, lambda: bench.ended() == 4)
    counted = {name: count for name, count in shard.ctx.counts.fates.items() if count}
    assert counted == {"stored": 1, "occurred": 2, "completed": 1}
    shard.close()


def test_a_transaction_is_as_late_as_its_first_message(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By that it is judged how long a trial made others wait."""
    shard = bench.shard()
    faults, due_ms = shard._dispatcher._faults, bench.broker.now_ms() + 1_000
    faults._isolate("elsewhere", 1, None, shard.ctx.clock.steady_ms())
    bench.schedule(due_ms)
    bench.schedule(due_ms + 300)
    read_requests(bench, shard)
    late_ms: list[float] = []
    monkeypatch.setattr(faults, "committed", lambda attempt, *_: late_ms.append(attempt.late_ms))
    bench.time.wait(2_000)
    assert shard._dispatcher.dispatch(*parts(shard), *at(due_ms + 501)) == (2, False)
    assert late_ms == [500]
    shard.close()


def test_an_aborted_transaction_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = bench.shard()
    bench.schedule(1)
    read_requests(bench, shard)
    refuse(monkeypatch, lambda topic, _: topic == OWN.dispatch_log)
    assert shard._dispatcher.dispatch(*parts(shard), *at(bench.broker.now_ms())) == (0, True)
    shard.close()


def test_a_parked_message_must_be_tended_until_it_ends(bench: Bench) -> None:
    shard = bench.shard()
    index, _ = parts(shard)
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    assert not shard._dispatcher.must_tend(index)
    bench.schedule(bench.broker.now_ms(), target=b"late")
    bench.until(shard, lambda: index.parked_count == 1)
    assert shard._dispatcher.must_tend(index)
    assert shard._dispatcher.tend(index, bench.broker.now_ms()) is False, "nothing may leave"
    bench.until(shard, lambda: len(bench.letters()) == 1)
    assert index.parked_count == 0
    assert not shard._dispatcher.must_tend(index), "nothing waits for the missing target"
    shard.close()


def test_parked_entries_return_when_their_target_works(bench: Bench) -> None:
    """Long before their retry budget is used up."""
    bench.dispatch = DispatchConfig(retry_budget_ms=600_000)
    shard = bench.shard()
    index, _ = parts(shard)
    bench.schedule(bench.broker.now_ms(), target=b"late")
    bench.until(shard, lambda: index.parked_count == 1)
    bench.admin.create_topics([NewTopic("late", 1, 1, {})])
    for _ in range(60):
        bench.time.wait(1_000)
        if shard._dispatcher.tend(index, bench.broker.now_ms()):
            break
    assert index.parked_count == 0
    shard.close()
