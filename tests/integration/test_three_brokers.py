"""Goal: during faults of one of three brokers, each message is delivered once, none early, and none late for long.

Method: three broker processes with three replicas of everything, two of which must hold a write; two sidecars, one of
them a static member, deliver a steady stream all the time. A broker is killed, frozen until others lead, or restarted,
the active controller among them, and a sidecar is killed during each fault and after it. Then the oracle judges all
that Kafka holds. POSTDATE_TEST_BROKER_FAULTS=N adds N random faults, POSTDATE_TEST_BROKER_SEED repeats their order.
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
#: Requests a second: every second has five for each of the four shards. Three brokers with three replicas of everything
#: need half a core for it.
_PER_SECOND = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeBrokers]:
    """Shared: each test leaves it whole."""
    with three_brokers() as running:
        yield running


@pytest.mark.timeout(1_800 + 120 * _RANDOM_FAULTS)
def test_brokers_fail_during_dispatch(cluster: ThreeBrokers, tmp_path: Path) -> None:
    seed = int(os.environ.get("POSTDATE_TEST_BROKER_SEED", "0")) or SystemRandom().randrange(1, 10**6)
    chance = Random(seed)
    print(f"seed {seed}")
    names = [*SCENARIOS, *(chance.choice(sorted(FAULTS)) for _ in range(_RANDOM_FAULTS))]
    with new_deployment(cluster.bootstrap_servers, tmp_path, replicas=3) as env, watch_contention() as watch:
        requests = env.new_requests(SHARDS)
        target = env.new_target(4, message_timestamp_type="LogAppendTime")
        sidecars = [env.new_sidecar("static", static=True), env.new_sidecar("dynamic")]
        for sidecar in sidecars:
            sidecar.start()
        for sidecar in sidecars:
            sidecar.wait_for_shards(SHARDS // 2)
        traffic = Traffic(cluster.bootstrap_servers, requests, target, _PER_SECOND, Random(seed + 1))
        rig = BrokerFaultRig(cluster, env, requests, traffic, sidecars, chance, watch)
        traffic.start()
        try:
            for name in names:
                print(rig.run(name), flush=True)
            asked = traffic.stop()
            rig.wait(lambda: traffic.overdue() == 0, "the last request has ended")
            env.wait_for_ends(len(asked), WAIT_TIMEOUT_S)
        finally:
            traffic.close()
        exits = [sidecar.stop() for sidecar in sidecars]
        outcome = env.judge(asked)
        assert exits == [0, 0]
    assert rig.exits == []
    assert outcome.takeovers() > len(names), "no shard was taken over: the run proves nothing"
    for sidecar in sidecars:
        _look_through(sidecar)


#: s. Clients continue within this time after another broker leads, while the broker that led stays frozen: half of the
#: minute for which the library waits for an answer, a tenth of the five after which it asks by itself who leads.
_WITHOUT_IT_S = 30.0
#: The writers of the tests below, new clients each, are not judged: each record has a minute.
_PATIENT = {"message.timeout.ms": 60_000}


def test_clients_continue_while_a_broker_stays_frozen(cluster: ThreeBrokers) -> None:
    kafka = ConfluentKafka(KafkaSettings(cluster.bootstrap_servers, producer=_PATIENT, admin_timeout_s=2.0))
    making = kafka.admin()
    topic = unique_name("frozen")
    making.create_topics([NewTopic(topic, 6, 3, {})])
    making.close()
    cluster.wait_until_whole()
    admins = [kafka.admin() for _ in range(6)]  # each takes one broker, by chance, for the controller
    for admin in admins:
        admin.describe([topic])
    victim = next(node for node in NODES if node != cluster.controller())
    part = next(Partition(topic, index) for index in range(6) if cluster.leader(topic, index) == victim)
    append(kafka, topic, b"before", partition=part.index)
    readers = [kafka.log_reader(part, 0, Isolation.READ_COMMITTED) for _ in range(3)]
    found = [_values_until(reader, 1, WAIT_TIMEOUT_S) for reader in readers]
    cluster.freeze(victim)
    try:
        cluster.wait_until_deposed(victim)
        append(kafka, topic, b"after", partition=part.index)
        began = time.monotonic()
        for values, reader in zip(found, readers, strict=True):
            values += _values_until(reader, 1, began + _WITHOUT_IT_S - time.monotonic())
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
    assert found == [[b"before", b"after"]] * len(readers)


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
    assert took_s < _WITHOUT_IT_S, f"the members continued after {took_s:.1f} s"


def _values_until(reader: LogReader, count: int, timeout_s: float) -> list[bytes | None]:
    """What the reader returns until it has returned `count` records or the time is over."""
    deadline, values = time.monotonic() + timeout_s, list[bytes | None]()
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value for record in reader.read(10, 0.2)]
    return values


def _until_described(admin: Admin, topic: str) -> None:
    """Returns when the admin client has answered; fails where it does not."""
    deadline, answered = time.monotonic() + _WITHOUT_IT_S, False
    while not answered:
        assert time.monotonic() < deadline, "an admin client still waits for the frozen broker"
        with suppress(Unreachable):
            answered = topic in admin.describe([topic])


def _look_through(sidecar: Sidecar) -> None:
    assert "HALTED" not in sidecar.all_logs()
    assert "Traceback" not in sidecar.all_logs()
