"""Goal: if the broker is paused, killed or restarted, each client call ends in time, with the fault that determines
what the caller does next.

Method: the tests of this module share one local broker and stop it with SIGSTOP or SIGKILL while clients use it. Each
test leaves the broker running. Only the real clients are tested, since the simulated broker has other faults.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import pytest

from postdate.kafka import limits
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import AbortRequired, FatalClient, KafkaFault, Unreachable
from postdate.kafka.interface import Isolation, LogReader, NewTopic, Partition, TopicInfo
from postdate.kafka.settings import KafkaSettings
from postdate.kafka.settings import log as client_log
from postdate.tools.dev_broker.local_broker import LocalBroker
from postdate.tools.dev_broker.readiness import wait_until_ready
from support.brokers.broker import local_broker, unique_name
from support.brokers.kafka_steps import (
    Member,
    append,
    commit_until_settled,
    commit_values,
    new_topic,
    open_producer,
    poll_until,
    read_committed,
)
from support.deployments.ports import free_port
from support.deployments.sidecars import environment
from support.waiting.rounds import LONGER, expect, first_round_in_time
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: Seconds: the limit for a call that ends in time. The tests set time-outs of at most ten seconds. Without them, the
#: client library gives up an unanswered request only after a minute.
_PROMPT_S = 30.0
#: Seconds: within this time a client without a broker logs dozens of refused connections.
_OUTAGE_S = 3.0
#: A program that sends a group request while the broker is paused. Once it reads a line from its standard input, it
#: sends more requests with the same client.
_GROUP_REQUESTS = """
import sys
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import Unreachable
from postdate.kafka.settings import KafkaSettings

admin = ConfluentKafka(KafkaSettings(sys.argv[1], admin_timeout_s=1)).admin()
try:
    admin.group_members("nobody")
except Unreachable:
    print("no answer", flush=True)
sys.stdin.readline()
answers = 0
while answers < 20:
    try:
        admin.cluster_id()
        members = admin.group_members("nobody")
        answers += 1
    except Unreachable:
        pass
print(members)
"""


@pytest.fixture(scope="module")
def module_broker() -> Iterator[LocalBroker]:
    with local_broker() as broker:
        yield broker


@pytest.fixture
def kafka(module_broker: LocalBroker) -> ConfluentKafka:
    """A client of a broker that accepts transactions.

    The controller fences a paused broker, also for some time after the pause. So the fixture waits until the broker has
    committed a transaction.
    """
    wait_until_ready(module_broker.host, module_broker.port, WAIT_TIMEOUT_S, lambda: None)
    return ConfluentKafka(KafkaSettings(module_broker.bootstrap_servers))


@contextmanager
def paused(module_broker: LocalBroker) -> Iterator[None]:
    module_broker.pause()
    try:
        yield
    finally:
        module_broker.resume()


def test_clients_close_in_time_while_the_broker_hangs(module_broker: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    producer = open_producer(kafka)
    commit_values(producer, topic, [b"x"])
    reader = kafka.log_reader(Partition(topic, 0), 0, Isolation.READ_COMMITTED)
    member = Member(kafka.group_consumer(unique_name("group")))
    member.consumer.subscribe([topic], member)
    poll_until([member], lambda: bool(member.events), "an assignment")
    with paused(module_broker):
        producer.begin()
        producer.produce(topic, b"y", None, [], 0)
        assert producer.flush(0.2) == 1
        took_s = {}
        for name, end in (("producer", producer.destroy), ("reader", reader.close), ("member", member.consumer.close)):
            started = time.monotonic()
            end()
            took_s[name] = time.monotonic() - started
    assert max(took_s.values()) < _PROMPT_S, took_s


def test_a_commit_that_hangs_ends_as_an_abort_or_unknown(module_broker: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    producer = open_producer(kafka)
    commit_values(producer, topic, [b"before"])
    producer.begin()
    producer.produce(topic, b"hangs", None, [], 0)
    started = time.monotonic()
    with paused(module_broker), pytest.raises(AbortRequired):
        producer.commit()
    assert time.monotonic() - started < _PROMPT_S
    try:
        producer.abort()
        assert not producer.settle()  # a connection timed out, so this producer must not be used again
    except FatalClient:
        pass  # the coordinator may already have fenced the producer
    producer.destroy()
    successor = open_producer(kafka)
    commit_values(successor, topic, [b"after"])
    assert [r.value for r in read_committed(kafka, part)] == [b"before", b"after"]
    successor.destroy()


def test_a_broker_that_restarts_taints_the_producer(module_broker: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    producer = open_producer(kafka)
    committed = commit_until_settled(producer, topic, b"before")
    read_committed(kafka, Partition(topic, 0))  # returns after the transaction markers are written
    module_broker.kill()
    try:
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while producer.settle():
            assert time.monotonic() < deadline, "the broken connection was never reported"
            time.sleep(0.05)
    finally:
        module_broker.start()
    assert not producer.settle()  # the return of the broker does not make the producer usable again
    producer.destroy()
    assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == committed


def test_an_address_without_a_broker_does_not_taint_a_new_producer(
    module_broker: LocalBroker, kafka: ConfluentKafka
) -> None:
    topic = new_topic(kafka)
    # The library tries the addresses in random order. Its errors for the two without a broker
    # occur before the transaction begins.
    servers = f"{module_broker.host}:{free_port()},{module_broker.host}:{free_port()},{module_broker.bootstrap_servers}"
    some_away = ConfluentKafka(KafkaSettings(servers))

    def play(_: int) -> bool:
        producer = open_producer(some_away)
        producer.begin()
        producer.produce(topic, b"v", None, [], 0)
        assert producer.flush(WAIT_TIMEOUT_S) == 0
        began = time.monotonic()
        producer.commit()
        took_s, settled = time.monotonic() - began, producer.settle()
        producer.destroy()
        expect(took_s < limits.SUSPICIOUS_END_S, f"the commit took {took_s:.2f} s, which taints a producer, too")
        return settled

    assert [first_round_in_time(play, LONGER) for _ in range(8)] == [True] * 8


def _member_and_reader(kafka: ConfluentKafka, part: Partition) -> tuple[Member, LogReader]:
    """Returns a group member and a log reader after each has read the only record of the partition."""
    append(kafka, part.topic, b"before")
    member = Member(kafka.group_consumer(unique_name("group")))
    member.consumer.subscribe([part.topic], member)
    poll_until([member], lambda: len(member.offsets(part)) == 1, "the first record")
    reader = kafka.log_reader(part, 0, Isolation.READ_COMMITTED)
    assert [record.value for record in reader.read(10, WAIT_TIMEOUT_S)] == [b"before"]
    return member, reader


def test_readers_and_members_continue_after_a_restart(module_broker: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    member, reader = _member_and_reader(kafka, part)
    module_broker.restart(hard=True)
    patient = KafkaSettings(module_broker.bootstrap_servers, producer={"message.timeout.ms": 60_000})
    append(ConfluentKafka(patient), topic, b"after")
    # On a slow machine the session of the member expires. The member then rejoins and reads from the beginning.
    poll_until([member], lambda: 1 in member.offsets(part), "the second record")
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while reader.position() < 2:
        assert time.monotonic() < deadline
        reader.read(10, 0.2)
    assert any(isinstance(fault, Unreachable) for _, fault in member.consumer.errors())
    member.consumer.close()
    reader.close()


def test_consumers_log_no_failed_connections_of_an_outage(
    module_broker: LocalBroker, kafka: ConfluentKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    member, reader = _member_and_reader(kafka, part)
    caplog.clear()
    module_broker.kill()
    try:
        # Neither client is polled meanwhile, so log lines about the unreachable broker would accumulate.
        time.sleep(_OUTAGE_S)
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while not any(line.startswith(f"Could not read {topic}/0: ") for line in _logged(caplog)):
            assert time.monotonic() < deadline, "the reader does not report the outage"
            reader.read(10, 0.2)
        poll_until([member], lambda: any(isinstance(f, Unreachable) for _, f in member.consumer.errors()), "the error")
    finally:
        module_broker.start()
    assert [line for line in _logged(caplog) if line.startswith("FAIL")] == []
    member.consumer.close()
    reader.close()


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == client_log.name]


def test_an_admin_client_without_an_answer_raises_in_time(module_broker: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    admin = ConfluentKafka(KafkaSettings(module_broker.bootstrap_servers, admin_timeout_s=1)).admin()
    queries: dict[str, Callable[[], object]] = {
        "ends": lambda: admin.end_offsets([part], Isolation.READ_UNCOMMITTED),
        "stable ends": lambda: admin.end_offsets([part], Isolation.READ_COMMITTED),
        "starts": lambda: admin.start_offsets([part]),
        "time": lambda: admin.offset_for_time(part, 0),
        "describe": lambda: admin.describe([topic]),
        "settings": lambda: admin.describe([topic], ["retention.ms"]),
        "group offset": lambda: admin.group_offset("nobody", part),
        "members": lambda: admin.group_members("nobody"),
        "create": lambda: admin.create_topics([NewTopic(unique_name("late"), 1, 1, {})]),
    }
    before = _answers(queries)
    answered: dict[str, object] = {}
    with paused(module_broker):
        for name, query in queries.items():
            started = time.monotonic()
            try:
                answered[name] = query()
            except Unreachable:
                assert time.monotonic() - started < _PROMPT_S, name
    assert answered == {}
    # The same client answers again, although its cached leader epoch may be outdated.
    assert _answers(queries) == before


def _answers(queries: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    """Returns the answer to each query except `create`, by name.

    Each query is repeated until it is answered or `WAIT_TIMEOUT_S` is over: a slow machine may leave it unanswered, and
    a broker that the controller has fenced during its pause leads no partition until its next heartbeat.
    """
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    answers: dict[str, object] = {}
    while len(answers) < len(queries) - 1:
        assert time.monotonic() < deadline, answers
        for name in queries.keys() - answers.keys() - {"create"}:
            with suppress(Unreachable):
                answer = queries[name]()
                if not _lacks_a_leader(answer):
                    answers[name] = answer
    return answers


def _lacks_a_leader(answer: object) -> bool:
    topics = answer.values() if isinstance(answer, dict) else ()
    return any(isinstance(topic, TopicInfo) and not all(topic.partitions.values()) for topic in topics)


def test_an_unanswered_group_request_does_not_crash_the_process_later(
    module_broker: LocalBroker, kafka: ConfluentKafka
) -> None:
    with (
        paused(module_broker),
        subprocess.Popen(
            [sys.executable, "-c", _GROUP_REQUESTS, module_broker.bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "no answer\n"
            module_broker.resume()
            output, _ = process.communicate("it is back\n", timeout=WAIT_TIMEOUT_S)
        finally:
            process.kill()
    assert (process.returncode, output) == (0, "[]\n"), "the client library ended the process"


def test_without_a_broker_init_gives_up_in_time() -> None:
    producer = ConfluentKafka(KafkaSettings("127.0.0.1:1")).producer(unique_name("tid"))
    started = time.monotonic()
    with pytest.raises(KafkaFault) as refused:
        producer.init(2)
    assert refused.value.retriable
    assert time.monotonic() - started < _PROMPT_S
    producer.destroy()
