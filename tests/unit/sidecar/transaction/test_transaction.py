"""Goal: every transaction of a shard is settled at its end, and no transaction begins on a producer that has not
settled the last one.

Method: a real shard on the simulated broker. In some tests the client sends an EndTxn twice: the second request gets an
error as its answer, and the first one arrives late. They check what read_committed readers see. Other tests check the
order of settle and begin, for each way in which a transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import AbortRequired, KafkaFault, RecordRejected
from postdate.kafka.interface import OnDelivery, Partition
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.dispatch.aborts import Aborts
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.sidecar.transaction import transaction
from postdate.sidecar.transaction.transaction import Content, OutgoingRecord, ShardOwnership
from postdate.wire.dispatch_log import BEAT
from support.kafka_simulator.error_responses import abort_required
from support.kafka_simulator.producer import SimTransactionalProducer
from support.shards.simulated_shard import OWN, ShardEnvironment, takeovers


def _ownership_of(shard: Shard) -> ShardOwnership:
    assert shard._ownership is not None
    return shard._ownership


def test_a_late_commit_of_an_aborted_heartbeat_affects_no_other_transaction(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of a heartbeat is sent twice. The second copy fails, the heartbeat is aborted, and then the first copy
    arrives."""
    shard = env.shard()
    honest_end, honest_sent = SimTransactionalProducer._end, SimTransactionalProducer._sent
    late: list[Callable[[], object]] = []
    armed, refused = [True], []

    def end(self: SimTransactionalProducer, commit: bool) -> None:
        if not (commit and armed):
            honest_end(self, commit)
            return
        armed.clear()
        copy = (self._id, self._producer, self._epoch)
        late.append(lambda: env.broker.transactions.end(*copy, True, late=True))
        env.time.wait(600.0)
        self._end_took_ms += 600.0
        raise AbortRequired("EndTxn failed: UNKNOWN_SERVER_ERROR")

    def sent(self: SimTransactionalProducer, records: list) -> bool:  # type: ignore[type-arg]
        done = honest_sent(self, records)
        if records and records[0].topic == "orders" and late:
            try:
                late.pop()()
            except Exception as error:
                refused.append(error)
        return done

    monkeypatch.setattr(SimTransactionalProducer, "_end", end)
    monkeypatch.setattr(SimTransactionalProducer, "_sent", sent)
    shard._broker_clock.forget()  # without a clock sample, the next transaction is a heartbeat
    env.until(shard, lambda: not armed)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert [record.value for record in env.read("orders")] == [b"v"]
    assert refused, "the late copy of the commit must have met a newer epoch"
    assert takeovers(shard) == 2
    shard.close()


@pytest.mark.parametrize("given_up", [None, lambda: False], ids=["one wait", "in slices"])
def test_a_transaction_with_a_record_that_has_no_report_is_aborted(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, given_up: Callable[[], bool] | None
) -> None:
    """All records except one are acknowledged, including the dispatch-log record."""
    shard = env.shard()
    honest = SimTransactionalProducer.flush
    committed = []
    monkeypatch.setattr(SimTransactionalProducer, "flush", lambda self, timeout_s: honest(self, timeout_s) + 1)
    monkeypatch.setattr(SimTransactionalProducer, "commit", lambda self: committed.append(self))
    with pytest.raises(AbortRequired, match="1 records were not acknowledged"):
        _ownership_of(shard).run(Content(BEAT), 0, 0, must_give_up=given_up)
    assert committed == []
    assert _ownership_of(shard).log_acknowledged
    shard.close()


@pytest.mark.parametrize("fails", [False, True], ids=["commit", "abort"])
def test_an_ownership_settles_at_each_end_and_refuses_to_begin_before(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    shard = env.shard()
    ownership = _ownership_of(shard)
    if fails:

        def refuse(self: SimTransactionalProducer) -> None:
            raise AbortRequired("not now")

        monkeypatch.setattr(SimTransactionalProducer, "commit", refuse)
    monkeypatch.setattr(SimTransactionalProducer, "settle", lambda self: False)
    if fails:
        with pytest.raises(AbortRequired):
            ownership.run(Content(BEAT), 0, 0)
    else:
        ownership.run(Content(BEAT), 0, 0)
    assert not ownership.reusable
    with pytest.raises(AssertionError, match="settled"):
        ownership.run(Content(BEAT), 0, 0)
    shard.close()


@pytest.mark.parametrize(("refused", "topics", "again"), [(True, 5, False), (True, 4, True), (False, 5, True)])
def test_a_producer_whose_next_transaction_would_be_refused_is_dropped(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, refused: bool, topics: int, again: bool
) -> None:
    """One record of a transaction is refused, or the transaction fails for another reason, and the client drops the
    rest."""
    shard = env.shard()
    ownership = _ownership_of(shard)
    reports: list[OnDelivery] = []

    def produce(self: SimTransactionalProducer, topic: str, *record: Any) -> None:
        reports.append(record[-1])

    def flush(self: SimTransactionalProducer, timeout_s: float) -> int:
        purged = AbortRequired("purged", KafkaError._PURGE_QUEUE)
        first = RecordRejected("too large", KafkaError.MSG_SIZE_TOO_LARGE) if refused else purged
        for number, report in enumerate(reports):
            report(purged if number else first, -1, -1)
        raise AbortRequired("it has failed")

    monkeypatch.setattr(SimTransactionalProducer, "produce", produce)
    monkeypatch.setattr(SimTransactionalProducer, "flush", flush)
    messages: list[OutgoingRecord] = [(offset, f"target-{offset}", -1, None, b"v", []) for offset in range(topics)]
    with pytest.raises(AbortRequired):
        ownership.run(Content(BEAT, messages), 0, 0, report_all=True)
    assert ownership.reusable is again
    assert not ownership.log_acknowledged, "the client dropped it"
    shard.close()


def test_the_outcomes_name_the_topic_that_was_acknowledged_first(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    ownership = _ownership_of(shard)
    reports: list[OnDelivery] = []
    monkeypatch.setattr(SimTransactionalProducer, "produce", lambda self, *record: reports.append(record[-1]))

    def flush(self: SimTransactionalProducer, timeout_s: float) -> int:
        for number in (1, 0, 1):
            env.time.wait(5.0)
            reports[number](None, number, 0)
        raise AbortRequired("it has failed")

    monkeypatch.setattr(SimTransactionalProducer, "flush", flush)
    messages: list[OutgoingRecord] = [(offset, f"target-{offset}", -1, None, b"v", []) for offset in range(2)]
    with pytest.raises(AbortRequired):
        ownership.run(Content(BEAT, messages), 0, 0, report_all=True)
    assert {topic: outcome.is_first for topic, outcome in ownership.outcomes.items()} == {
        "target-0": False,
        "target-1": True,
    }
    shard.close()


def test_a_shard_whose_abort_is_refused_counts_nothing_as_aborted_and_takes_over_again(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first copy of the commit of a batch is delayed. The second copy and the following abort are refused. Then the
    first copy arrives: the batch is committed, and none of its messages leaves again."""
    shard = env.shard()
    coordinator = env.broker.transactions
    honest = coordinator.end
    late: list[Callable[[], object]] = []
    refused: list[bool] = []

    def end(tid: str, producer: int, epoch: int, commit: bool, late_copy: bool = False) -> None:
        if len(refused) == 2:
            honest(tid, producer, epoch, commit, late_copy)
            return
        if commit:
            late.append(lambda: honest(tid, producer, epoch, True, True))
        else:
            late.pop()()
        refused.append(commit)
        raise abort_required("UNKNOWN_SERVER_ERROR")

    aborted: list[object] = []
    monkeypatch.setattr(coordinator, "end", end)
    monkeypatch.setattr(Aborts, "aborted", lambda self, *args: aborted.append(args))
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    env.until(shard, lambda: takeovers(shard) == 2 and shard.state is State.RUNNING)
    assert refused == [True, False]
    assert aborted == []
    assert [record.value for record in env.read("orders")] == [b"v"]
    shard.close()


def test_no_transaction_of_any_kind_begins_on_a_producer_that_did_not_settle(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kinds: owner record, heartbeat, fates, an aborted heartbeat, aborted fates, and the mark after a truncated
    log."""
    unsettled: set[int] = set()
    begun: list[str] = []
    honest = {name: getattr(SimTransactionalProducer, name) for name in ("begin", "commit", "abort", "settle")}

    def begin(self: SimTransactionalProducer, created_ms: int = 0) -> None:
        assert id(self) not in unsettled, "a transaction begins before the last one was settled"
        begun.append("begin")
        unsettled.add(id(self))
        honest["begin"](self, created_ms)

    def settle(self: SimTransactionalProducer) -> bool:
        unsettled.discard(id(self))
        return bool(honest["settle"](self))

    monkeypatch.setattr(SimTransactionalProducer, "begin", begin)
    monkeypatch.setattr(SimTransactionalProducer, "settle", settle)
    shard = env.shard()
    failing = [2]

    def commit(self: SimTransactionalProducer) -> None:
        if failing[0]:
            failing[0] -= 1
            raise AbortRequired("not now")
        honest["commit"](self)

    monkeypatch.setattr(SimTransactionalProducer, "commit", commit)

    def has_beaten() -> bool:
        if env.log()[-1].kind == BEAT:
            return True
        shard._broker_clock.forget()  # the aborted record was a clock sample, too
        return False

    env.until(shard, has_beaten)
    failing[0] = 2
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert len(begun) == 7  # one owner record; a heartbeat and fates, each aborted twice and then committed
    shard.close()
    env.broker.log(Partition(OWN.dispatch_log, 0)).truncate(4)
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.HALTED)
    assert len(begun) == 8
    assert unsettled == set()
    shard.close()


def test_after_a_fault_in_settling_a_transaction_the_log_decides(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is known, but the local write is missing: the takeover finds the record, and no message is
    repeated."""
    shard = env.shard()
    honest = SimTransactionalProducer.settle
    struck: list[int] = []

    def settle(self: SimTransactionalProducer) -> bool:
        if not struck:
            struck.append(1)
            raise KafkaFault("the client failed")
        return honest(self)

    monkeypatch.setattr(SimTransactionalProducer, "settle", settle)
    env.schedule(1)
    env.until(shard, lambda: bool(struck) and shard.state is State.RUNNING)
    assert takeovers(shard) == 2
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 2)
    assert len(env.read("orders")) == 2
    shard.close()


def test_only_an_ownership_begins_commits_and_aborts() -> None:
    """`ShardOwnership.run` has one exit path, which settles every transaction."""
    calls = [f"producer.{call}()" for call in ("begin", "commit", "abort", "settle")]
    modules = Path(transaction.__file__).parent.glob("*.py")
    assert {path.name for path in modules if any(call in path.read_text() for call in calls)} == {"transaction.py"}


def test_a_log_record_without_an_offset_aborts_and_is_no_clock_sample(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    honest, unknown = ShardOwnership._log_delivered, [True]
    honest_sample, sampled = BrokerClock.sample, list[int]()

    def sample(self: BrokerClock, append_ms: int, reported_at: float) -> None:
        sampled.append(append_ms)
        honest_sample(self, append_ms, reported_at)

    monkeypatch.setattr(BrokerClock, "sample", sample)

    def delivered(self: ShardOwnership, fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
        honest(self, fault, *((-1, -1) if unknown else (offset, timestamp_ms)))
        unknown.clear()

    monkeypatch.setattr(ShardOwnership, "_log_delivered", delivered)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert not unknown
    assert -1 not in sampled
    assert [record.value for record in env.read("orders")] == [b"v"]


def test_a_shard_sleeps_until_the_retry_of_an_aborted_transaction(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()

    def refuse(self: SimTransactionalProducer) -> None:
        raise AbortRequired("not now")

    monkeypatch.setattr(SimTransactionalProducer, "commit", refuse)
    env.schedule(1)
    env.until(shard, lambda: shard._dispatcher._aborts._delay_ms > 200)
    retry_at = shard._dispatcher.retry_at()
    assert retry_at is not None
    assert shard.turn() == pytest.approx(retry_at - shard.ctx.clock.steady_ms(), abs=5)
    monkeypatch.undo()
    env.until(shard, lambda: env.ended() == 1)
    shard.close()
