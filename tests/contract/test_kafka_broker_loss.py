"""Goal: if the broker is paused, killed or restarted, clients raise the fault that determines the caller's reaction,
and no call hangs.

Method: a local broker for this module, stopped by SIGSTOP or SIGKILL while clients are at work. Only the real
implementation, since a simulated broker fails in other ways. The tests of this module share the broker, so each leaves
it running.
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
from postdate.kafka.interface import Isolation, LogReader, NewTopic, Partition
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
from support.waiting.rounds import LONGER, expect, first_kept
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: s. Far more than the time-outs of these tests (one or two seconds, and a transaction's ten), and half of the minute
#: after which the client library gives up a request without an answer.
_PROMPT_S = 30.0
#: s. Long enough for dozens of refused connections of a client without a broker.
_GATHERING_S = 3.0
#: Sends a request while the broker is paused, and after a line on stdin continues with the same client.
_ASKING = """
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
def own() -> Iterator[LocalBroker]:
    with local_broker() as broker:
        yield broker


@pytest.fixture
def kafka(own: LocalBroker) -> ConfluentKafka:
    """Returns clients of a broker that accepts transactions: after a pause, its controller excludes it for a while."""
    wait_until_ready(own.host, own.port, WAIT_TIMEOUT_S, lambda: None)
    return ConfluentKafka(KafkaSettings(own.bootstrap_servers))


@contextmanager
def paused(own: LocalBroker) -> Iterator[None]:
    own.pause()
    try:
        yield
    finally:
        own.resume()


def test_clients_are_destroyed_and_closed_quickly_while_the_broker_hangs(
    own: LocalBroker, kafka: ConfluentKafka
) -> None:
    topic = new_topic(kafka)
    producer = open_producer(kafka)
    commit_values(producer, topic, [b"x"])
    reader = kafka.log_reader(Partition(topic, 0), 0, Isolation.READ_COMMITTED)
    member = Member(kafka.group_consumer(unique_name("group")))
    member.consumer.subscribe([topic], member)
    poll_until([member], lambda: bool(member.events), "an assignment")
    with paused(own):
        producer.begin()
        producer.produce(topic, b"y", None, [], 0)
        assert producer.flush(0.2) == 1
        took_s = {}
        for name, end in (("producer", producer.destroy), ("reader", reader.close), ("member", member.consumer.close)):
            started = time.monotonic()
            end()
            took_s[name] = time.monotonic() - started
    assert max(took_s.values()) < _PROMPT_S, took_s


def test_a_commit_that_hangs_ends_as_an_abort_or_unknown(own: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    producer = open_producer(kafka)
    commit_values(producer, topic, [b"before"])
    producer.begin()
    producer.produce(topic, b"hangs", None, [], 0)
    started = time.monotonic()
    with paused(own), pytest.raises(AbortRequired):
        producer.commit()
    assert time.monotonic() - started < _PROMPT_S
    try:
        producer.abort()
        assert not producer.settle()  # slow, and a connection timed out: this producer is unfit
    except FatalClient:
        pass  # the coordinator may have ended the transaction before
    producer.destroy()
    successor = open_producer(kafka)
    commit_values(successor, topic, [b"after"])
    assert [r.value for r in read_committed(kafka, part)] == [b"before", b"after"]
    successor.destroy()


def test_a_broker_that_restarts_taints_the_producer(own: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    producer = open_producer(kafka)
    committed = commit_until_settled(producer, topic, b"before")
    read_committed(kafka, Partition(topic, 0))  # returns when the markers are written, too
    own.kill()
    try:
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while producer.settle():
            assert time.monotonic() < deadline, "the broken connection was never reported"
            time.sleep(0.05)
    finally:
        own.start()
    assert not producer.settle()  # the producer stays unfit although the broker is back
    producer.destroy()
    assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == committed


def test_an_address_without_a_broker_does_not_taint_a_new_producer(own: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    # The library tries the addresses in a random order. Its reports of these two precede the transaction.
    servers = f"{own.host}:{free_port()},{own.host}:{free_port()},{own.bootstrap_servers}"
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

    assert [first_kept(play, LONGER) for _ in range(8)] == [True] * 8


def _member_and_reader(kafka: ConfluentKafka, part: Partition) -> tuple[Member, LogReader]:
    """Returns a member and a reader that have read the only record of the partition."""
    append(kafka, part.topic, b"before")
    member = Member(kafka.group_consumer(unique_name("group")))
    member.consumer.subscribe([part.topic], member)
    poll_until([member], lambda: len(member.offsets(part)) == 1, "the first record")
    reader = kafka.log_reader(part, 0, Isolation.READ_COMMITTED)
    assert [record.value for record in reader.read(10, WAIT_TIMEOUT_S)] == [b"before"]
    return member, reader


def test_readers_and_members_continue_after_a_restart(own: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    member, reader = _member_and_reader(kafka, part)
    own.restart(hard=True)
    patient = KafkaSettings(own.bootstrap_servers, producer={"message.timeout.ms": 60_000})
    append(ConfluentKafka(patient), topic, b"after")
    # On a slow machine, its session may time out: it then gets the partition again and reads it from the start.
    poll_until([member], lambda: 1 in member.offsets(part), "the second record")
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while reader.position() < 2:
        assert time.monotonic() < deadline
        reader.read(10, 0.2)
    assert any(isinstance(fault, Unreachable) for _, fault in member.consumer.errors())
    member.consumer.close()
    reader.close()


def test_polls_of_consumers_handle_no_log_lines_of_an_outage(
    own: LocalBroker, kafka: ConfluentKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    member, reader = _member_and_reader(kafka, part)
    caplog.clear()
    own.kill()
    try:
        # No poll runs for long enough that log lines of an unreachable broker would pile up.
        time.sleep(_GATHERING_S)
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        while not any(line.startswith(f"Could not read {topic}/0: ") for line in _logged(caplog)):
            assert time.monotonic() < deadline, "the reader does not report the outage"
            reader.read(10, 0.2)
        poll_until([member], lambda: any(isinstance(f, Unreachable) for _, f in member.consumer.errors()), "the error")
    finally:
        own.start()
    assert [line for line in _logged(caplog) if line.startswith("FAIL")] == []
    member.consumer.close()
    reader.close()


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == client_log.name]


def test_an_admin_client_without_an_answer_raises_in_time(own: LocalBroker, kafka: ConfluentKafka) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    admin = ConfluentKafka(KafkaSettings(own.bootstrap_servers, admin_timeout_s=1)).admin()
    questions: dict[str, Callable[[], object]] = {
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
    before = _answers(questions)
    answered: dict[str, object] = {}
    with paused(own):
        for name, ask in questions.items():
            started = time.monotonic()
            try:
                answered[name] = ask()
            except Unreachable:
                assert time.monotonic() - started < _PROMPT_S, name
    assert answered == {}
    # The same client continues, although its cached leader epoch may be outdated.
    assert _answers(questions) == before


def _answers(questions: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    """Returns the answer to each request but `create`. Repeats a request that gets no answer, as happens on a slow
    machine."""
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    answers: dict[str, object] = {}
    while len(answers) < len(questions) - 1:
        assert time.monotonic() < deadline, answers
        for name in questions.keys() - answers.keys() - {"create"}:
            with suppress(Unreachable):
                answers[name] = questions[name]()
    return answers


def test_an_unanswered_group_request_does_not_crash_the_process_later(own: LocalBroker, kafka: ConfluentKafka) -> None:
    with (
        paused(own),
        subprocess.Popen(
            [sys.executable, "-c", _ASKING, own.bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as asking,
    ):
        try:
            assert asking.stdout is not None
            assert asking.stdout.readline() == "no answer\n"
            own.resume()
            said, _ = asking.communicate("it is back\n", timeout=WAIT_TIMEOUT_S)
        finally:
            asking.kill()
    assert (asking.returncode, said) == (0, "[]\n"), "the client library has ended the process"


def test_without_a_broker_init_gives_up_in_time() -> None:
    producer = ConfluentKafka(KafkaSettings("127.0.0.1:1")).producer(unique_name("tid"))
    started = time.monotonic()
    with pytest.raises(KafkaFault) as refused:
        producer.init(2)
    assert refused.value.retriable
    assert time.monotonic() - started < _PROMPT_S
    producer.destroy()
