"""Goal: a shard handles damage, refusals, limits and gates correctly, turn by turn.

Method: the real `Shard` runs over the simulated broker, with a clock that only waiting moves. The test offers records
like the poll thread, and reads the topics with read_committed.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import Fenced, Retriable
from postdate.kafka.interface import NewTopic, Partition
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.states import State
from postdate.sidecar.takeover import store_reading
from postdate.wheel.errors import Corrupt
from postdate.wire.dispatch_log import OWNER
from postdate.wire.stored import BOUND_KEY
from postdate.wire.verdicts import decode_verdict
from support.kafka_simulator.producer import SimTransactionalProducer
from support.shards.simulated_shard import OWN, R, ShardEnvironment, refuse, takeovers


def _has_ended(env: ShardEnvironment, count: int) -> bool:
    return env.ended() == count


def test_a_refused_request_above_the_clients_own_limit_leaves_as_a_dead_letter(env: ShardEnvironment) -> None:
    shard = env.shard()
    body = b"x" * 1_048_448
    env.admin.alter_topic_config(R, {"max.message.bytes": "2000000"})
    env.ask(("postdate-dealy", b"1"), value=body)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 2)
    assert env.dead_letters() == [(b"unknown-header", body)]
    shard.close()


@pytest.mark.parametrize(
    ("code", "kept"), [(KafkaError.MSG_SIZE_TOO_LARGE, False), (KafkaError.POLICY_VIOLATION, True)]
)
def test_only_a_refusal_for_its_size_makes_a_dead_letter_leave_without_its_value(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, code: int, kept: bool
) -> None:
    """The topic accepts less than its configuration allows: the shard learns the limit from the refusal."""
    shard = env.shard()
    body = b"x" * 2_000
    ends_ms = env.time.now_ms + (10_000 if kept else 1_000_000)

    def is_refused(topic: str, value: bytes | None) -> bool:
        return topic == OWN.dead_letters and value == body and env.time.now_ms < ends_ms

    refuse(monkeypatch, is_refused, code)
    env.ask(("postdate-dealy", b"1"), value=body)
    env.until(shard, lambda: env.ended() == 1)
    assert env.dead_letters() == [(b"unknown-header", body if kept else None)]
    shard.close()


def test_requests_that_wait_are_read_with_one_transaction(env: ShardEnvironment) -> None:
    """Otherwise a shard would fall behind whenever its transactions take longer than a poll."""
    shard = env.shard()
    env.until(shard, lambda: shard.state is State.RUNNING)
    for _ in range(60):
        env.schedule(1)
        env.poll(shard)
    turns = 0
    while env.ended() < 60:
        shard.turn()
        turns += 1
        assert turns < 5
    shard.close()


def test_damage_that_is_met_while_reading_is_rebuilt(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    env.schedule(env.time.now_ms + 5_000)
    env.until(shard, lambda: shard.next_request == 1)
    index = shard._index
    assert index is not None

    def corrupt(*_: object) -> None:
        raise Corrupt("block checksum mismatch")

    monkeypatch.setattr(index, "scan_due", corrupt)
    env.until(shard, lambda: env.ended() == 1)
    assert len(env.read("orders")) == 1
    assert [path.name for path in (env.directory).glob("0.*")] == ["0.unusable-1"]
    assert takeovers(shard) == 2
    shard.close()


def test_a_refused_message_and_the_control_that_ends_it_leave_together(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 1: in a trial, the end of the message would leave first, and its cancel would find nothing."""
    shard = env.shard()
    refuse(monkeypatch, lambda topic, _: topic == "orders")
    refused = env.schedule(env.time.now_ms + 100)
    env.until(shard, lambda: shard._index is not None and shard._index.parked_count == 1)
    cancel = env.ask(("postdate-action", b"cancel"), ("postdate-origin", b"%s/0/%d" % (R.encode(), refused)))
    env.until(shard, lambda: env.ended() == 2)
    assert env.fates() == [[(refused, "cancelled"), (cancel, "applied")]]
    assert [decode_verdict(record.value).verdict for record in env.read(OWN.verdicts)] == ["cancelled"]
    assert env.dead_letters() == []
    shard.close()


def test_a_target_of_small_batches_gets_them_and_loses_nothing(env: ShardEnvironment) -> None:
    env.admin.create_topics([NewTopic("small", 1, 1, {"max.message.bytes": "5000"})])
    shard = env.shard()
    for _ in range(100):
        env.schedule(1, target=b"small")
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 101)
    assert len(env.read("small")) == 100
    assert env.dead_letters() == []
    most = max(sum(fate == "delivered" for _, fate in fates) for fates in env.fates())
    assert 2 <= most < 40
    shard.close()


def test_a_narrowed_allow_list_applies_to_parked_messages(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(1, target=b"later")
    env.until(shard, lambda: shard.next_request == 1)
    env.until(shard, lambda: shard._index is not None and shard._index.parked_count == 1)
    shard.close()
    env.admin.create_topics([NewTopic("later", 1, 1, {})])
    shard = env.shard(RequestTopicConfig(R, allow=("orders",)))
    env.until(shard, lambda: env.ended() == 1)
    assert env.dead_letters() == [(b"forbidden-target", b"v")]
    shard.close()


def test_a_limit_refuses_nothing_that_was_accepted_when_it_is_read_again(env: ShardEnvironment) -> None:
    topic = RequestTopicConfig(R, pending_max=3)
    shard = env.shard(topic)
    soon = env.time.now_ms + 5_000
    env.schedule(soon)  # pending all the time: a rebuild reads all requests after it
    for count in range(1, 7):
        env.schedule(1)
        env.until(shard, partial(_has_ended, env, count))
    for _ in range(2):
        env.schedule(soon)
    env.until(shard, lambda: shard.next_request == 9)
    env.schedule(1, ("postdate-grace", b"1"))
    env.until(shard, lambda: env.ended() == 7)
    shard.close()
    (env.directory / "0").rename(env.directory / "lost")
    shard = env.shard(topic)
    env.until(shard, lambda: env.ended() == 10)
    assert [reason for reason, _ in env.dead_letters()] == [b"limit-exceeded"]
    assert len(env.read("orders")) == 9
    shard.close()


def test_a_limit_refuses_nothing_on_an_old_disk_that_another_owner_accepted(env: ShardEnvironment) -> None:
    topic = RequestTopicConfig(R, pending_max=2)
    shard = env.shard(topic)
    soon = env.time.now_ms + 60_000
    env.schedule(soon)
    env.until(shard, lambda: shard.next_request == 1)
    shard.close()
    other = env.new_shard(topic, place="elsewhere/0")
    for count in (1, 2):
        env.schedule(1)
        env.until(other, partial(_has_ended, env, count))
    env.schedule(soon)
    env.until(other, lambda: other.next_request == 4)
    env.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
    env.until(other, partial(_has_ended, env, 3))
    other.close()
    shard = env.shard(topic)
    env.until(shard, partial(_has_ended, env, 5), 120_000)
    assert env.dead_letters() == []
    assert [record.takeover for record in env.log() if record.kind == OWNER] == [1, 2, 3]
    shard.close()


def test_without_a_store_a_reschedule_beyond_the_requests_horizon_is_refused(env: ShardEnvironment) -> None:
    topic = RequestTopicConfig(R, horizon_ms=10_000, store_after_ms=0)
    shard = env.shard(topic)
    first = env.time.now_ms
    env.schedule(first + 5_000, ("postdate-id", b"a"))
    env.time.wait(4_000)
    late = ("postdate-at", b"%d" % int(first + 11_000))
    env.ask(("postdate-action", b"reschedule"), ("postdate-id", b"a"), late)
    env.until(shard, lambda: env.ended() == 2)
    assert env.dead_letters() == [(b"beyond-horizon", b"v")]
    assert len(env.read("orders")) == 1
    shard.close()


def test_an_interrupted_rebuild_from_the_store_starts_again(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = RequestTopicConfig(R, store_after_ms=1_000)
    shard = env.shard(topic)
    for number in range(3):
        env.schedule(env.time.now_ms + 60_000, ("postdate-id", b"%d" % number))
    env.until(shard, lambda: env.fates() == [[(0, "stored"), (1, "stored"), (2, "stored")]])
    cancel = env.ask(("postdate-action", b"cancel"), ("postdate-id", b"0"))
    env.until(shard, lambda: env.fates()[-1] == [(0, "cancelled"), (cancel, "applied")])
    env.until(shard, lambda: env.ask(("postdate-action", b"cancel"), ("postdate-id", b"x")) > 0)
    env.until(shard, lambda: env.log()[-1].low_water == cancel + 1)
    shard.close()
    shutil.rmtree(env.directory / "0")
    env.admin.delete_records({Partition(R, 0): cancel + 1})
    apply_stored = store_reading.apply_stored
    struck: list[int] = []

    def strike(*given: Any) -> None:
        apply_stored(*given)
        if not struck:
            struck.append(1)
            raise Retriable("the connection was lost")

    monkeypatch.setattr(store_reading, "apply_stored", strike)
    shard = env.shard(topic)
    assert struck
    assert list(env.directory.glob("0.*")) == []  # a partial index is not kept
    env.until(shard, lambda: len(env.read("orders")) == 2, 90_000)
    kept = {record.key: record.value for record in env.read(OWN.store)}
    assert kept == {b"0": None, b"1": None, b"2": None, BOUND_KEY: None}
    shard.close()


def test_one_owner_record_is_enough_without_another_writer(env: ShardEnvironment) -> None:
    shard = env.shard()
    shard._drop_ownership()
    env.until(shard, lambda: shard.state is State.RUNNING)
    assert [record.kind for record in env.log()] == ["owner"]
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert [(record.kind, record.seq, record.takeover) for record in env.log()] == [("owner", 1, 1), ("fates", 2, 1)]
    shard.close()


def test_a_resting_shard_passes_markers_and_reports_its_position(env: ShardEnvironment) -> None:
    """Otherwise the deletion of the markers by retention would look like a loss."""
    shard = env.shard()
    producer = env.kafka.producer("somebody")
    producer.init(10)
    producer.begin()
    producer.produce(R, b"v", b"k", [("postdate-topic", b"orders"), ("postdate-at", b"1")], 0)
    producer.commit()
    env.until(shard, lambda: env.ended() == 1)
    assert shard.next_request == 1
    env.until(shard, lambda: shard.next_request == 2, 200_000)
    env.until(shard, lambda: env.log()[-1].low_water == 2, 200_000)
    assert env.log()[-1].kind == "beat"
    shard.close()


def test_a_gate_that_is_always_closed_passes_messages_that_nothing_can_change(env: ShardEnvironment) -> None:
    shard = env.shard(RequestTopicConfig(R, cancel_gate="always"))
    env.schedule(env.time.now_ms + 2_000)
    env.until(shard, lambda: env.ended() == 1, 4_000)
    shard.close()


def test_a_dispatch_log_that_retention_has_emptied_halts_a_shard_without_its_disk(env: ShardEnvironment) -> None:
    """No record shows the delivered messages any more, and `seq` would begin again at its first value."""
    shard = env.shard()
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    shard.close()
    env.admin.delete_records({Partition(OWN.dispatch_log, 0): -1})
    (env.directory / "0").rename(env.directory / "lost")
    with pytest.raises(AssertionError, match=r"HALTED .*holds no record, but requests/0 was served before"):
        env.shard()


def test_after_a_fence_the_owner_writes_a_new_owner_record(env: ShardEnvironment) -> None:
    shard = env.shard()
    stranger = env.kafka.producer(shard.ctx.transactional_id)
    stranger.init(10)
    env.schedule(1)
    env.until(shard, lambda: shard.state is State.FENCED)
    shard.note_ownership_confirmed()
    env.until(shard, lambda: env.ended() == 1)
    assert [(record.kind, record.takeover) for record in env.log()] == [("owner", 1), ("owner", 2), ("fates", 2)]
    shard.close()


def test_a_takeover_whose_init_is_reported_as_fenced_is_repeated(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka 4.2 reports this if the older owner ends its transaction while the coordinator prepares to abort it."""
    init = SimTransactionalProducer.init
    fenced: list[str] = []

    def fenced_once(producer: SimTransactionalProducer, timeout_s: float, topic: str = "") -> None:
        if not fenced:
            fenced.append(topic)
            raise Fenced("reported as fenced")
        init(producer, timeout_s, topic)

    monkeypatch.setattr(SimTransactionalProducer, "init", fenced_once)
    shard = env.new_shard()
    env.schedule(1)
    env.until(shard, lambda: shard.state is State.FENCED)
    shard.note_ownership_confirmed()
    env.until(shard, lambda: env.ended() == 1)
    assert [(record.kind, record.takeover) for record in env.log()] == [("owner", 1), ("fates", 1)]
    shard.close()
