"""Goal: one shard's turns over a whole cluster's answers: what it does with damage, refusals, limits and gates.

Method: the real `Shard` over the simulated broker and a clock that only waiting moves; the test offers what the poll
thread would, and looks at what read_committed readers see.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import Retriable
from postdate.kafka.interface import NewTopic, Partition
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.states import State
from postdate.sidecar.takeover import store_reading
from postdate.wheel.errors import Corrupt
from postdate.wire.dispatch_log import OWNER
from postdate.wire.stored import BOUND_KEY
from postdate.wire.verdicts import decode_verdict
from support.shards.simulated_shard import OWN, Bench, R, refuse, takeovers


def _has_ended(bench: Bench, count: int) -> bool:
    return bench.ended() == count


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_refused_request_above_the_clients_own_limit_leaves_as_a_dead_letter(bench: Bench) -> None:
    shard = bench.shard()
    body = b"x" * 1_048_448
    bench.admin.alter_topic_config(R, {"max.message.bytes": "2000000"})
    bench.ask(("postdate-dealy", b"1"), value=body)
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 2)
    assert bench.letters() == [(b"unknown-header", body)]
    shard.close()


@pytest.mark.parametrize(
    ("code", "kept"), [(KafkaError.MSG_SIZE_TOO_LARGE, False), (KafkaError.POLICY_VIOLATION, True)]
)
def test_only_a_refusal_for_its_size_makes_a_dead_letter_leave_without_its_value(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, code: int, kept: bool
) -> None:
    """The topic takes less than its configuration says: its limit is learned from the refusal."""
    shard = bench.shard()
    body = b"x" * 2_000
    ends_ms = bench.time.now_ms + (10_000 if kept else 1_000_000)

    def is_refused(topic: str, value: bytes | None) -> bool:
        return topic == OWN.dead_letters and value == body and bench.time.now_ms < ends_ms

    refuse(monkeypatch, is_refused, code)
    bench.ask(("postdate-dealy", b"1"), value=body)
    bench.until(shard, lambda: bench.ended() == 1)
    assert bench.letters() == [(b"unknown-header", body if kept else None)]
    shard.close()


def test_requests_that_wait_are_read_with_one_transaction(bench: Bench) -> None:
    """Otherwise a shard whose transactions take longer than a poll falls behind, further and further."""
    shard = bench.shard()
    bench.until(shard, lambda: shard.state is State.RUNNING)
    for _ in range(60):
        bench.schedule(1)
        bench.poll(shard)
    turns = 0
    while bench.ended() < 60:
        shard.turn()
        turns += 1
        assert turns < 5
    shard.close()


def test_damage_that_is_met_while_reading_is_rebuilt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = bench.shard()
    bench.schedule(bench.time.now_ms + 5_000)
    bench.until(shard, lambda: shard.next_request == 1)
    index = shard._index
    assert index is not None

    def corrupt(*_: object) -> None:
        raise Corrupt("block checksum mismatch")

    monkeypatch.setattr(index, "scan_due", corrupt)
    bench.until(shard, lambda: bench.ended() == 1)
    assert len(bench.read("orders")) == 1
    assert [path.name for path in (bench.directory).glob("0.*")] == ["0.unusable-1"]
    assert takeovers(shard) == 2
    shard.close()


def test_a_refused_message_and_the_control_that_ends_it_leave_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 1: in a trial, the end of the message would leave first, and its cancel would find nothing."""
    shard = bench.shard()
    refuse(monkeypatch, lambda topic, _: topic == "orders")
    refused = bench.schedule(bench.time.now_ms + 100)
    bench.until(shard, lambda: shard._index is not None and shard._index.parked_count == 1)
    cancel = bench.ask(("postdate-action", b"cancel"), ("postdate-origin", b"%s/0/%d" % (R.encode(), refused)))
    bench.until(shard, lambda: bench.ended() == 2)
    assert bench.fates() == [[(refused, "cancelled"), (cancel, "applied")]]
    assert [decode_verdict(record.value).verdict for record in bench.read(OWN.verdicts)] == ["cancelled"]
    assert bench.letters() == []
    shard.close()


def test_a_target_of_small_batches_gets_them_and_loses_nothing(bench: Bench) -> None:
    bench.admin.create_topics([NewTopic("small", 1, 1, {"max.message.bytes": "5000"})])
    shard = bench.shard()
    for _ in range(100):
        bench.schedule(1, target=b"small")
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 101)
    assert len(bench.read("small")) == 100
    assert bench.letters() == []
    most = max(sum(fate == "delivered" for _, fate in fates) for fates in bench.fates())
    assert 2 <= most < 40
    shard.close()


def test_a_narrowed_allow_list_applies_to_parked_messages(bench: Bench) -> None:
    shard = bench.shard()
    bench.schedule(1, target=b"later")
    bench.until(shard, lambda: shard.next_request == 1)
    bench.until(shard, lambda: shard._index is not None and shard._index.parked_count == 1)
    shard.close()
    bench.admin.create_topics([NewTopic("later", 1, 1, {})])
    shard = bench.shard(RequestTopicConfig(R, allow=("orders",)))
    bench.until(shard, lambda: bench.ended() == 1)
    assert bench.letters() == [(b"forbidden-target", b"v")]
    shard.close()


def test_a_limit_refuses_nothing_that_was_accepted_when_it_is_read_again(bench: Bench) -> None:
    topic = RequestTopicConfig(R, pending_max=3)
    shard = bench.shard(topic)
    soon = bench.time.now_ms + 5_000
    bench.schedule(soon)  # held all the time: a rebuild reads everything behind it
    for count in range(1, 7):
        bench.schedule(1)
        bench.until(shard, partial(_has_ended, bench, count))
    for _ in range(2):
        bench.schedule(soon)
    bench.until(shard, lambda: shard.next_request == 9)
    bench.schedule(1, ("postdate-grace", b"1"))
    bench.until(shard, lambda: bench.ended() == 7)
    shard.close()
    (bench.directory / "0").rename(bench.directory / "lost")
    shard = bench.shard(topic)
    bench.until(shard, lambda: bench.ended() == 10)
    assert [reason for reason, _ in bench.letters()] == [b"limit-exceeded"]
    assert len(bench.read("orders")) == 9
    shard.close()


def test_a_limit_refuses_nothing_on_an_old_disk_that_another_owner_accepted(bench: Bench) -> None:
    topic = RequestTopicConfig(R, pending_max=2)
    shard = bench.shard(topic)
    soon = bench.time.now_ms + 60_000
    bench.schedule(soon)
    bench.until(shard, lambda: shard.next_request == 1)
    shard.close()
    other = bench.new_shard(topic, place="elsewhere/0")
    for count in (1, 2):
        bench.schedule(1)
        bench.until(other, partial(_has_ended, bench, count))
    bench.schedule(soon)
    bench.until(other, lambda: other.next_request == 4)
    bench.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
    bench.until(other, partial(_has_ended, bench, 3))
    other.close()
    shard = bench.shard(topic)
    bench.until(shard, partial(_has_ended, bench, 5), 120_000)
    assert bench.letters() == []
    assert [said.takeover for said in bench.log() if said.kind == OWNER] == [1, 2, 3]
    shard.close()


def test_without_a_store_a_reschedule_beyond_the_requests_horizon_is_refused(bench: Bench) -> None:
    topic = RequestTopicConfig(R, horizon_ms=10_000, store_after_ms=0)
    shard = bench.shard(topic)
    first = bench.time.now_ms
    bench.schedule(first + 5_000, ("postdate-id", b"a"))
    bench.time.wait(4_000)
    late = ("postdate-at", b"%d" % int(first + 11_000))
    bench.ask(("postdate-action", b"reschedule"), ("postdate-id", b"a"), late)
    bench.until(shard, lambda: bench.ended() == 2)
    assert bench.letters() == [(b"beyond-horizon", b"v")]
    assert len(bench.read("orders")) == 1
    shard.close()


def test_an_interrupted_rebuild_from_the_store_starts_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = RequestTopicConfig(R, store_after_ms=1_000)
    shard = bench.shard(topic)
    for number in range(3):
        bench.schedule(bench.time.now_ms + 60_000, ("postdate-id", b"%d" % number))
    bench.until(shard, lambda: bench.fates() == [[(0, "stored"), (1, "stored"), (2, "stored")]])
    cancel = bench.ask(("postdate-action", b"cancel"), ("postdate-id", b"0"))
    bench.until(shard, lambda: bench.fates()[-1] == [(0, "cancelled"), (cancel, "applied")])
    bench.until(shard, lambda: bench.ask(("postdate-action", b"cancel"), ("postdate-id", b"x")) > 0)
    bench.until(shard, lambda: bench.log()[-1].low_water == cancel + 1)
    shard.close()
    shutil.rmtree(bench.directory / "0")
    bench.admin.delete_records({Partition(R, 0): cancel + 1})
    take_stored = store_reading.take_stored
    struck: list[int] = []

    def strike(*given: Any) -> None:
        take_stored(*given)
        if not struck:
            struck.append(1)
            raise Retriable("the connection was lost")

    monkeypatch.setattr(store_reading, "take_stored", strike)
    shard = bench.shard(topic)
    assert struck
    assert list(bench.directory.glob("0.*")) == []  # a half of an index is of no use to anybody
    bench.until(shard, lambda: len(bench.read("orders")) == 2, 90_000)
    kept = {record.key: record.value for record in bench.read(OWN.store)}
    assert kept == {b"0": None, b"1": None, b"2": None, BOUND_KEY: None}
    shard.close()


def test_one_owner_record_is_enough_without_another_writer(bench: Bench) -> None:
    shard = bench.shard()
    shard._drop_ownership()
    bench.until(shard, lambda: shard.state is State.RUNNING)
    assert [said.kind for said in bench.log()] == ["owner"]
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    assert [(said.kind, said.seq, said.takeover) for said in bench.log()] == [("owner", 1, 1), ("fates", 2, 1)]
    shard.close()


def test_a_resting_shard_passes_markers_and_reports_its_position(bench: Bench) -> None:
    """Else retention, once it has deleted them, would look like a loss."""
    shard = bench.shard()
    producer = bench.kafka.producer("somebody")
    producer.init(10)
    producer.begin()
    producer.produce(R, b"v", b"k", [("postdate-topic", b"orders"), ("postdate-at", b"1")], 0)
    producer.commit()
    bench.until(shard, lambda: bench.ended() == 1)
    assert shard.next_request == 1
    bench.until(shard, lambda: shard.next_request == 2, 200_000)
    bench.until(shard, lambda: bench.log()[-1].low_water == 2, 200_000)
    assert bench.log()[-1].kind == "beat"
    shard.close()


def test_a_gate_that_is_always_closed_passes_messages_that_nothing_can_change(bench: Bench) -> None:
    shard = bench.shard(RequestTopicConfig(R, cancel_gate="always"))
    bench.schedule(bench.time.now_ms + 2_000)
    bench.until(shard, lambda: bench.ended() == 1, 4_000)
    shard.close()


def test_a_dispatch_log_that_retention_has_emptied_halts_a_shard_without_its_disk(bench: Bench) -> None:
    """Nothing says any more what was delivered, and `seq` would begin again."""
    shard = bench.shard()
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)
    shard.close()
    bench.admin.delete_records({Partition(OWN.dispatch_log, 0): -1})
    (bench.directory / "0").rename(bench.directory / "lost")
    with pytest.raises(AssertionError, match=r"HALTED .*holds no record, but requests/0 was served before"):
        bench.shard()


def test_after_a_fence_the_owner_writes_a_new_owner_record(bench: Bench) -> None:
    shard = bench.shard()
    stranger = bench.kafka.producer(shard.ctx.transactional_id)
    stranger.init(10)
    bench.schedule(1)
    bench.until(shard, lambda: shard.state is State.FENCED)
    shard.reassure()
    bench.until(shard, lambda: bench.ended() == 1)
    assert [(said.kind, said.takeover) for said in bench.log()] == [("owner", 1), ("owner", 2), ("fates", 2)]
    shard.close()
