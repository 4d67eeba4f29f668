"""Goal: a poll raises a fatal error of the client library that any callback reports, and raises no transient error. An
admin client that cannot answer is replaced.

Method: the real consumer, with an address at which nothing answers. The test calls the callbacks of the consumer as the
library does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from postdate.kafka import limits
from postdate.kafka.admin.admin import ConfluentAdmin
from postdate.kafka.classification import classify
from postdate.kafka.consumer.group_consumer import ConfluentGroupConsumer
from postdate.kafka.errors import (
    FatalClient,
    Fenced,
    KafkaFault,
    NameInUse,
    NotAuthorized,
    OtherProtocol,
    Unreachable,
    UnsupportedByBroker,
)
from postdate.kafka.interface import GroupListener
from postdate.kafka.settings import KafkaSettings

REPLACED = KafkaError(KafkaError.FENCED_INSTANCE_ID, fatal=True)
#: A fatal error as an event of a poll: it has the text of the reason, but not its code.
REPLACED_EVENT = KafkaError(KafkaError._FATAL, f"Fatal error: {KafkaError(KafkaError.FENCED_INSTANCE_ID).str()}: why")
NAME_IN_USE = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID, fatal=True)
NAME_IN_USE_EVENT = KafkaError(
    KafkaError._FATAL, f"ConsumerGroupHeartbeat fatal error: {KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()}"
)
CLASSIC_MEMBERS_EVENT = KafkaError(
    KafkaError._FATAL, f"ConsumerGroupHeartbeat fatal error: {KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()}"
)
OLD_BROKER_EVENT = KafkaError(
    KafkaError._FATAL, f"ConsumerGroupHeartbeat fatal error: {KafkaError(KafkaError._UNSUPPORTED_FEATURE).str()}"
)
NO_RIGHT_EVENT = KafkaError(
    KafkaError._FATAL, f"ConsumerGroupHeartbeat fatal error: {KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED).str()}"
)
OTHER_EVENT = KafkaError(KafkaError._FATAL, "Fatal error: something that nobody has seen")
PASSING = KafkaError(KafkaError._TRANSPORT)

Meet = Callable[[ConfluentGroupConsumer, KafkaError], None]
CALLBACKS: list[Meet] = [
    lambda consumer, error: consumer._on_error(error),
    lambda consumer, error: consumer._on_commit(error, []),
    lambda consumer, error: consumer._keep_error(("", -1, error)),
    lambda consumer, error: consumer._keep_error(("requests", 0, error)),
]


@pytest.fixture
def consumer() -> Iterator[ConfluentGroupConsumer]:
    made = ConfluentGroupConsumer(KafkaSettings("127.0.0.1:1"), "group", "pod-0")
    yield made
    made.close()


def test_a_client_that_has_lost_all_brokers_is_fatal(consumer: ConfluentGroupConsumer) -> None:
    """The library reports no error, only statistics. A single report without brokers is not fatal: the library may
    restart from the bootstrap addresses."""
    lost = '{"brokers": {"GroupCoordinator": {"name": "GroupCoordinator", "source": "logical"}}}'
    with_bootstrap = '{"brokers": {"a:1/bootstrap": {"name": "a:1/bootstrap", "source": "configured"}}}'
    for text in (lost, with_bootstrap, lost):
        consumer._on_statistics(text)
    assert consumer.poll(1, 0.0) == []
    consumer._on_statistics(lost)
    with pytest.raises(FatalClient, match="lost the addresses of all brokers"):
        consumer.poll(1, 0.0)


@pytest.mark.parametrize("meet", CALLBACKS)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (REPLACED, Fenced),
        (REPLACED_EVENT, Fenced),
        (NAME_IN_USE, NameInUse),
        (NAME_IN_USE_EVENT, NameInUse),
        (CLASSIC_MEMBERS_EVENT, OtherProtocol),
        (OLD_BROKER_EVENT, UnsupportedByBroker),
        (NO_RIGHT_EVENT, NotAuthorized),
        (OTHER_EVENT, FatalClient),
    ],
)
def test_a_fatal_error_of_any_callback_is_raised_by_every_poll_from_then_on(
    consumer: ConfluentGroupConsumer, meet: Meet, error: KafkaError, expected: type[KafkaFault]
) -> None:
    meet(consumer, error)
    meet(consumer, PASSING)
    for _ in range(2):
        with pytest.raises(expected) as raised:
            consumer.poll(10, 0.0)
        assert error.str() in str(raised.value)


@pytest.mark.parametrize("meet", CALLBACKS)
@pytest.mark.parametrize(("event", "expected"), [(REPLACED_EVENT, Fenced), (OTHER_EVENT, FatalClient)])
def test_a_fatal_error_without_a_reason_does_not_hide_the_reason(
    consumer: ConfluentGroupConsumer, meet: Meet, event: KafkaError, expected: type[KafkaFault]
) -> None:
    """A commit gets an error without a reason if the client has failed before; only an event of the library names the
    reason."""
    consumer._on_commit(KafkaError(KafkaError._FATAL), [])
    meet(consumer, event)
    consumer._on_commit(KafkaError(KafkaError._FATAL), [])
    for _ in range(2):
        with pytest.raises(expected, match=re.escape(event.str())):
            consumer.poll(10, 0.0)


@pytest.mark.parametrize("meet", CALLBACKS)
def test_a_transient_error_is_raised_by_no_poll(consumer: ConfluentGroupConsumer, meet: Meet) -> None:
    meet(consumer, PASSING)
    assert consumer.poll(10, 0.0) == []


def test_an_exception_that_interrupts_a_callback_is_fatal(
    consumer: ConfluentGroupConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def poll(self, timeout_s: float) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE, "an assignment in the middle of another"))

    whole = consumer._consumer
    monkeypatch.setattr(consumer, "_consumer", Broken())
    with pytest.raises(FatalClient):
        consumer.poll(10, 0.0)
    monkeypatch.setattr(consumer, "_consumer", whole)
    with pytest.raises(FatalClient):
        consumer.poll(10, 0.0)


def test_brokers_without_the_group_protocol_are_named_with_the_remedy(consumer: ConfluentGroupConsumer) -> None:
    consumer._keep_error(("", -1, OLD_BROKER_EVENT))
    with pytest.raises(
        UnsupportedByBroker, match=r"needs Kafka 4\.0 on all brokers: upgrade them, or set it to classic"
    ):
        consumer.poll(10, 0.0)


def test_a_member_without_an_answer_has_no_id() -> None:
    """With the group protocol consumer the library chooses an id before it joins."""
    made = ConfluentGroupConsumer(KafkaSettings("127.0.0.1:1", group_protocol="consumer"), "group", None)
    assert made._open().memberid()
    assert made.member_id() == ""
    made.close()


def test_a_member_that_no_coordinator_accepts_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If brokers are too old, the library silently repeats its request."""
    monkeypatch.setattr(limits, "JOIN_TIMEOUT_S", 0.0)
    made = ConfluentGroupConsumer(KafkaSettings("127.0.0.1:1", group_protocol="consumer"), "group", None)
    made.poll(1, 0.0)
    assert not [fault for _, fault in made.errors() if "needs Kafka 4.0" in str(fault)], "it has not subscribed"
    made.subscribe(["requests"], cast(GroupListener, None))
    made.poll(1, 0.0)
    assert [fault for _, fault in made.errors() if "needs Kafka 4.0" in str(fault)]
    made.close()


def test_a_fatal_event_is_never_taken_for_an_outage() -> None:
    assert isinstance(classify(OTHER_EVENT, "read", otherwise=Unreachable), FatalClient)
    assert isinstance(classify(REPLACED_EVENT, "read", otherwise=Unreachable), Fenced)


@pytest.mark.parametrize("error", [OTHER_EVENT, KafkaError(KafkaError._TIMED_OUT, "waiting for controller")])
def test_an_admin_client_that_failed_or_timed_out_is_replaced(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError
) -> None:
    admin = ConfluentAdmin(KafkaSettings("127.0.0.1:1", admin_timeout_s=0.2))
    failed = Future[object]()
    failed.set_exception(KafkaException(error))
    first = admin._open()
    monkeypatch.setattr(AdminClient, "describe_cluster", lambda client, **_: failed if client is first else Future())
    with pytest.raises(Unreachable, match=error.str()):
        admin.cluster_id()
    assert admin._open() is not first
    with pytest.raises(Unreachable, match="no answer in time"):
        admin.cluster_id()
    admin.close()
    with pytest.raises(FatalClient):
        admin.cluster_id()
