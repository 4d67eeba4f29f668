"""Goal: during faults of one of three brokers, each message is delivered once, none early, and none much too late.

Method: three broker processes hold three replicas of each partition, and a write needs two of them. Two sidecars, one
of them a static member, deliver a steady stream. A broker is killed, frozen until other brokers lead, or restarted;
some faults hit the active controller. A sidecar is killed during each fault and after it. Then the oracle checks all
records that Kafka holds. POSTDATE_TEST_BROKER_FAULTS=N adds N random faults, and POSTDATE_TEST_BROKER_SEED repeats
their order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom

import pytest

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import Unreachable
from postdate.kafka.interface import Admin, Isolation, LogReader, NewTopic, Partition
from postdate.kafka.settings import KafkaSettings
from support.brokers.broker import unique_name
from support.brokers.broker_faults import FAULTS, SCENARIOS, SHARDS, BrokerFaultRig
from support.brokers.broker_traffic import Traffic
from support.brokers.kafka_steps import Member, append, poll_for, poll_until
from support.brokers.three_brokers import NODES, ThreeBrokers, three_brokers
from support.deployments.sidecar_deployment import new_deployment
from support.deployments.sidecars import Sidecar
from support.waiting.contention import watch_contention
from support.waiting.timeouts import WAIT_TIMEOUT_S

_RANDOM_FAULTS = int(os.environ.get("POSTDATE_TEST_BROKER_FAULTS", "0"))
#: Requests a second, five for each of the four shards. Three brokers with three replicas of each partition need half a
#: core for this rate.
_PER_SECOND = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeBrokers]:
    """A cluster that all tests share. Each test must leave all brokers running."""
    with three_brokers() as running:
        yield running


@pytest.mark.timeout(1_800 + 120 * _RANDOM_FAULTS)
def test_brokers_fail_during_dispatch(cluster: ThreeBrokers, tmp_path: Path) -> None:
    seed = int(os.environ.get("POSTDATE_TEST_BROKER_SEED", "0")) or SystemRandom().randrange(1, 10**6)
    chance = Random(seed)
    print(f"seed {seed}")
    names = [*SCENARIOS, *(chance.choice(sorted(FAULTS)) for _ in range(_RANDOM_FAULTS))]
    with new_deployment(cluster.bootstrap_servers, tmp_path, replicas=3) as deployment, watch_contention() as watch:
        requests = deployment.new_requests(SHARDS)
        target = deployment.new_target(4, message_timestamp_type="LogAppendTime")
        sidecars = [deployment.new_sidecar("static", static=True), deployment.new_sidecar("dynamic")]
        for sidecar in sidecars:
            sidecar.start()
        for sidecar in sidecars:
            sidecar.wait_for_shards(SHARDS // 2)
        traffic = Traffic(cluster.bootstrap_servers, requests, target, _PER_SECOND, Random(seed + 1))
        rig = BrokerFaultRig(cluster, deployment, requests, traffic, sidecars, chance, watch)
        traffic.start()
        try:
            for name in names:
                print(rig.run(name), flush=True)
            requested = traffic.stop()
            rig.wait(lambda: traffic.overdue() == 0, "the last request has ended")
            deployment.wait_for_ends(len(requested), WAIT_TIMEOUT_S)
        finally:
            traffic.close()
        exits = [sidecar.stop() for sidecar in sidecars]
        outcome = deployment.judge(requested)
        assert exits == [0, 0]
    assert rig.exits == []
    assert outcome.takeovers() > len(names), "no shard was taken over: the run proves nothing"
    for sidecar in sidecars:
        _check_logs(sidecar)


#: Seconds: within this time after another broker leads, clients must continue, while the previous leader stays frozen.
#: It is half of the client library's request time-out (a minute), and a tenth of its interval between metadata
#: requests.
_CONTINUE_WITHIN_S = 30.0
#: The tests below do not measure their writers, so each record may take a minute.
_PATIENT = {"message.timeout.ms": 60_000}


def test_clients_continue_while_a_broker_stays_frozen(cluster: ThreeBrokers) -> None:
    kafka = ConfluentKafka(KafkaSettings(cluster.bootstrap_servers, producer=_PATIENT, admin_timeout_s=2.0))
    making = kafka.admin()
    topic = unique_name("frozen")
    making.create_topics([NewTopic(topic, 6, 3, {})])
    making.close()
    cluster.wait_until_whole()
    admins = [kafka.admin() for _ in range(6)]  # each chooses a random broker for its controller requests
    for admin in admins:
        admin.describe([topic])
    victim = next(node for node in NODES if node != cluster.controller())
    part = next(Partition(topic, index) for index in range(6) if cluster.leader(topic, index) == victim)
    append(kafka, topic, b"before", partition=part.index)
    readers = [kafka.log_reader(part, 0, Isolation.READ_COMMITTED) for _ in range(3)]
    values_by_reader = [_values_until(reader, 1, WAIT_TIMEOUT_S) for reader in readers]
    cluster.freeze(victim)
    try:
        cluster.wait_until_deposed(victim)
        append(kafka, topic, b"after", partition=part.index)
        began = time.monotonic()
        for values, reader in zip(values_by_reader, readers, strict=True):
            values += _values_until(reader, 1, began + _CONTINUE_WITHIN_S - time.monotonic())
        print(f"the readers continue {time.monotonic() - began:.1f} s after a record at the new leader")
        for admin in admins:
            _until_described(admin, topic)
    finally:
        cluster.thaw(victim)
    cluster.wait_until_whole()
    for reader in readers:
        reader.close()
    for admin in admins:
        admin.close()
    assert values_by_reader == [[b"before", b"after"]] * len(readers)


def test_members_continue_while_the_leader_of_their_partition_stays_frozen(cluster: ThreeBrokers) -> None:
    kafka = ConfluentKafka(KafkaSettings(cluster.bootstrap_servers, producer=_PATIENT))
    making = kafka.admin()
    victim = next(node for node in NODES if node != cluster.controller())
    members: list[tuple[Member, Partition]] = []
    while len(members) < 3:  # one partition each, so that no other leader answers the member
        part = Partition(unique_name("frozen"), 0)
        making.create_topics([NewTopic(part.topic, 1, 3, {})])
        if cluster.leader(part.topic, 0) == victim:
            members.append((Member(kafka.group_consumer(unique_name("group"))), part))
    making.close()
    everyone = [member for member, _ in members]
    for member, part in members:
        member.consumer.subscribe([part.topic], member)
        append(kafka, part.topic, b"before")

    def have_read(offset: int) -> bool:
        return all(offset in member.offsets(part) for member, part in members)

    poll_until(everyone, lambda: have_read(0), "the first record")
    cluster.wait_until_whole()
    cluster.freeze(victim)
    try:
        cluster.wait_until_deposed(victim, lambda: poll_for(everyone, 0.1))
        for _, part in members:
            append(kafka, part.topic, b"after")
        began = time.monotonic()
        poll_until(everyone, lambda: have_read(1), "the second record")
        took_s = time.monotonic() - began
    finally:
        cluster.thaw(victim)
    cluster.wait_until_whole()
    for member in everyone:
        member.consumer.close()
    assert took_s < _CONTINUE_WITHIN_S, f"the members continued after {took_s:.1f} s"


def _values_until(reader: LogReader, count: int, timeout_s: float) -> list[bytes | None]:
    """Reads until the reader has returned `count` records or the time is over, and returns their values."""
    deadline, values = time.monotonic() + timeout_s, list[bytes | None]()
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value for record in reader.read(10, 0.2)]
    return values


def _until_described(admin: Admin, topic: str) -> None:
    """Returns after the admin client has described the topic, and fails after `_CONTINUE_WITHIN_S`."""
    deadline, answered = time.monotonic() + _CONTINUE_WITHIN_S, False
    while not answered:
        assert time.monotonic() < deadline, "an admin client still waits for the frozen broker"
        with suppress(Unreachable):
            answered = topic in admin.describe([topic])


def _check_logs(sidecar: Sidecar) -> None:
    assert "HALTED" not in sidecar.all_logs()
    assert "Traceback" not in sidecar.all_logs()
