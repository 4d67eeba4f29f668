"""Losses beside retention and open transactions, forged on real topics. Goal: the audit reports a loss if the message's
partition hides no records of that time, and reports no other violation; hidden records are counted. Method: handwritten
records; partitions emptied by DeleteRecords, transactions that stay open, a request topic that has lost its first
records, a target that was created again, and a target with added partitions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql import SparkSession

from postdate.spark.audit import reading
from postdate.spark.repair.job import run_repair
from postdate.spark.repair.options import RepairOptions
from support.audits.forged_topics import Forged, audited_together, expected_of, named, partition_of_key, until
from support.audits.small_spark import has_cached
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.waiting.timeouts import WAIT_TIMEOUT_S

LOST = ("missing", "contradiction")


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("bounds")) as made:
        yield made


@pytest.fixture(autouse=True)
def in_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes histories of a few requests go through the stages of a long one."""
    monkeypatch.setattr(reading, "CHUNKS_ROWS_MIN", 0)


def _key_of(partition: int) -> bytes:
    return next(key for key in (b"k%d" % number for number in range(100)) if partition_of_key(key) == partition)


def _created_again(forged: Forged, partitions: int) -> AdminClient:
    """Deletes the target and creates it again, without records."""
    admin = AdminClient({"bootstrap.servers": forged.deployment.bootstrap})
    admin.delete_topics([forged.target])[forged.target].result(WAIT_TIMEOUT_S)
    until(lambda: forged.target not in admin.list_topics(timeout=10).topics, "the target is gone")
    admin.create_topics([NewTopic(forged.target, partitions, 1)])[forged.target].result(WAIT_TIMEOUT_S)
    # A producer that has noticed the deletion refuses records until it learns of the new topic.
    until(lambda: forged.target in forged.producer.list_topics(timeout=10).topics, "the target is there again")
    return admin


def _emptied_and_capped(forged: Forged) -> Producer:
    """Empties partition 3 of the target and the dead letters, and leaves a transaction open on partition 2.

    The audit counts 3 requests as verified and 1 as capped.
    """
    keys = [_key_of(partition) for partition in range(4)]
    dead_letters = f"{forged.requests}.dead-letters"
    for topic, partition in ((forged.target, 3), (dead_letters, 0)):
        end = forged.write(topic, partition, None, b"old", [])
        forged.delete_before(topic, partition, end + 1)
    for number in range(3):
        forged.sound(key=keys[number])
    keys_of_losses: list[bytes | None] = [*keys, None]
    for key in keys_of_losses:
        forged.commit(forged.expect(forged.ask(key=key), *LOST))
    forged.commit((forged.expect(forged.ask(), "contradiction"), forged.due_ms, "dead"))
    time.sleep(0.05)  # the transaction begins in a later millisecond than the last fate
    open_still = forged.hanging(2)
    forged.commit(forged.ask(key=keys[2]))
    forged.commit(forged.expect(forged.ask(key=keys[1]), *LOST))
    return open_still


def _capped_requests(forged: Forged) -> Producer:
    """Leaves a transaction open on the request topic, with two requests behind its record.

    The audit counts 1 request as verified and 3 as capped.
    """
    forged.sound()
    open_still = forged.hanging(0, forged.requests)
    for _ in range(2):
        forged.ask()
    return open_still


def _without_requests(forged: Forged) -> None:
    """Deletes all requests but the last, which names the target. The audit still makes the checks that need no request.

    It counts 1 request as verified and 4 as expired.
    """
    ahead_ms = int(time.time() * 1000) + 3_600_000
    for _ in range(3):
        forged.sound()
    twice = forged.expect(forged.sound(), "duplicate")
    forged.deliver(twice)
    forged.expect(forged.sound(at=ahead_ms), "early")
    forged.commit(forged.ask())  # without a record: it may be on a target that no request names any more
    forged.delete_before(forged.requests, 0, forged.sound())


def _created_again_and_grown(forged: Forged) -> None:
    """Creates the target again and adds partitions.

    The audit counts 9 requests as verified, and 4 as older than the target.
    """
    for number in range(4):
        forged.sound(key=b"k%d" % number)
    admin = _created_again(forged, 2)
    moved = [
        key for key in (b"m%d" % number for number in range(40)) if partition_of_key(key, 2) != partition_of_key(key)
    ]
    for key in [*moved[:3], b"k0", b"k1"]:
        offset = forged.ask(key=key)
        forged.deliver(offset, key=key, partition=partition_of_key(key, 2))
        forged.commit(offset)
    admin.create_partitions([NewPartitions(forged.target, 4)])[forged.target].result(WAIT_TIMEOUT_S)
    until(lambda: len(forged.producer.list_topics(timeout=10).topics[forged.target].partitions) == 4, "it has grown")
    time.sleep(0.05)  # the new partitions get their first records in a later millisecond
    for partition in range(4):
        forged.sound(key=_key_of(partition))
    late = forged.expect(forged.ask(key=moved[3]), "mismatch")
    forged.deliver(late, key=moved[3], partition=partition_of_key(moved[3], 2))
    forged.commit(late)
    forged.commit(forged.expect(forged.ask(key=moved[4]), *LOST))


def _filled_by_others(forged: Forged) -> None:
    """Loses a message on the target. Then creates the target again, adds old events of another producer, and uses it.

    The audit counts 1 request as verified, and 5 as older than the target.
    """
    for number in range(4):
        forged.sound(key=_key_of(number))
    forged.commit(forged.ask(key=_key_of(1)))
    _created_again(forged, 4)
    _add_old_events(forged)
    forged.sound(key=_key_of(1))


def _add_old_events(forged: Forged) -> None:
    for partition in range(4):
        old_ms = forged.due_ms - 86_400_000
        forged.write(forged.target, partition, None, b"an old event", [], stamped_ms=old_ms)
    time.sleep(0.05)


def _capped_by_times_of_its_own(forged: Forged) -> Producer:
    """Leaves open a transaction of a producer with arbitrary timestamps, which may hide records of any time.

    The audit counts 1 request as verified and 1 as capped.
    """
    forged.sound()
    forged.commit(forged.ask())
    time.sleep(0.05)
    return forged.hanging(partition_of_key(b"k"))


@pytest.mark.timeout(900)
def test_a_loss_is_reported_unless_its_partition_may_hide_it(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """One audit reads six request topics, each with a different target."""
    stamped = Forged.on(deployment, message_timestamp_type="LogAppendTime")
    others = [Forged.on(deployment) for _ in range(5)]
    for forge, forged in zip((_without_requests, _created_again_and_grown, _filled_by_others), others, strict=False):
        forge(forged)
    producers = (_emptied_and_capped(stamped), _capped_by_times_of_its_own(others[3]), _capped_requests(others[4]))
    time.sleep(1.1)  # an audit excuses what a transaction has hidden for less than `settle_ms`
    outcome = audited_together([stamped, *others], capsys)
    for producer in producers:
        producer.abort_transaction(WAIT_TIMEOUT_S)
    assert named(outcome) == expected_of([stamped, *others])
    assert outcome["outcomes"] == {
        **{"verified": 16, "violated": len(named(outcome)), "not_verifiable": 18, "pending": 0},
        "reasons": {"capped": 5, "request-expired": 4, "target-younger": 9},
        "verified_share": 16 / (16 + len(named(outcome)) + 18),
    }
    assert (outcome["exit"], outcome["clean"]) == (4, False)


@pytest.mark.timeout(1200)
def test_runs_with_a_state_judge_hidden_records_and_topics_that_were_created_again(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One state of three request topics. The requests of `capped` lie behind an open transaction until it ends. The
    target of `recreated` is created again, which an audit without a state cannot distinguish from a loss. The target of
    `filled` loses a message, and is then created again and filled as in `_filled_by_others`; a repair runs at each
    step."""
    capped, recreated, filled = (Forged.on(deployment) for _ in range(3))
    open_still = _capped_requests(capped)
    young = capped.audited(capsys, strict=True, settle_ms=600_000)
    assert (young["exit"], young["clean"], young["outcomes"]["reasons"]) == (0, True, {}), "a producer that is alive"
    time.sleep(1.1)
    state = str(tmp_path / "state")
    recreated.sound()
    outcome = audited_together([capped, recreated], capsys, state=state, strict=True)
    assert (outcome["exit"], outcome["clean"], outcome["counts"]["delivered"]) == (5, False, 2)
    assert outcome["outcomes"]["reasons"] == {"capped": 3}
    recreated.sound()
    _created_again(recreated, 4)
    outcome = audited_together([capped, recreated], capsys, state=state, strict=True)
    assert (outcome["exit"], outcome["clean"]) == (5, False)
    assert outcome["outcomes"]["reasons"] == {"capped": 3, "target-recreated": 1}

    open_still.abort_transaction(WAIT_TIMEOUT_S)
    for offset in (capped.next - 2, capped.next - 1):
        capped.expect(offset, "missing")
    recreated.commit(recreated.expect(recreated.ask(), *LOST))  # the state knows that the target exists, still empty
    for number in range(4):
        filled.sound(key=_key_of(number))
    filled.commit(filled.expect(filled.ask(key=_key_of(1)), *LOST))
    histories = [capped, recreated, filled]
    outcome = audited_together(histories, capsys, state=state, strict=True)
    assert (named(outcome), outcome["outcomes"]["reasons"], outcome["exit"]) == (expected_of(histories), {}, 4)
    first = recreated.audited(capsys, strict=True)
    assert (first["exit"], first["clean"], first["outcomes"]["reasons"]) == (5, False, {"target-younger": 3})
    _check_repairs(filled, spark, capsys, state)


def _check_repairs(forged: Forged, spark: SparkSession, capsys: pytest.CaptureFixture[str], state: str) -> None:
    """Asserts that the loss can be repaired only until its target is created again, since the timestamps of other
    producers prove nothing."""

    def repairable() -> tuple[int, dict[str, int]]:
        run_repair(RepairOptions(forged.deployment.bootstrap, state, forged.requests, output="json", settle_ms=1_000))
        outcome = json.loads(capsys.readouterr().out)
        return outcome["repairable"], outcome["reasons"]

    assert repairable() == (1, {})
    _created_again(forged, 4)
    _add_old_events(forged)
    spark.catalog.clearCache()
    assert repairable() == (0, {"record-gone": 1})
    assert not has_cached(spark)
    forged.sound(key=_key_of(1))
    assert repairable() == (0, {"record-gone": 1})


@pytest.mark.timeout(600)
def test_strict_ends_with_5_if_a_verifiable_request_was_not_verified(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = Forged.on(deployment)
    forged.sound()
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    forged.sound()
    assert [forged.audited(capsys, strict=True)[name] for name in ("exit", "clean")] == [0, True]
    outcome = forged.audited(capsys, strict=True, from_ms=between_ms)
    assert (outcome["exit"], outcome["outcomes"]["reasons"]) == (5, {"outside-window": 1})
    outcome = forged.audited(capsys, targets=("another",))
    assert (outcome["exit"], outcome["clean"], outcome["outcomes"]["reasons"]) == (0, False, {"not-selected": 2})
