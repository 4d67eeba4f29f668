"""Goal: each program of `examples/` works as documented, by the command in `examples/README.md`.

Method: all examples use one request topic on a real broker, served by one real sidecar. The test checks the output of
an example, and then what Kafka holds: the fates of exactly the requests that the example sent, and the messages on its
target.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    COMPLETED,
    DEAD,
    DELIVERED,
    DROPPED,
    KEPT,
    REPLACED,
    decode_record,
)
from postdate.wire.headers import ATTEMPT, DEAD_REASON, DUE, ERROR, FIRST_DUE, FIRST_ORIGIN, ID, ORIGIN
from postdate.wire.origins import parse_origin
from postdate.wire.values.murmur2 import partition_for
from support.brokers.broker import RunningBroker
from support.brokers.end_offsets import end_offsets
from support.deployments.examples import run_example, running_example
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Outcome, Seen, gather
from support.waiting.timeouts import WAIT_TIMEOUT_S

PARTITIONS = 4
_PAYMENTS, _KILLS = 25, 8
_JAVA_KILLS = 3  # a JVM takes seconds to start


@dataclass(frozen=True)
class _Case:
    """An example with the lines that it prints, the fates of its requests, and the values on its target, in order.

    Its last `unordered` lines may come in any order, since the example prints them while it reads several topics.
    """

    program: str
    lines: tuple[str, ...]
    fates: dict[str, int]
    target: str
    arrives: tuple[bytes | None, ...]
    unordered: int = 0


def foreign(program: str, language: str) -> _Case:
    return _Case(
        program,
        ("reminder-2 for customer-42: your voucher ends today",),
        {DELIVERED: 1, CANCELLED: 1, APPLIED: 1},
        f"example.{language}.reminders",
        (b"your voucher ends today",),
    )


CASES = (
    _Case(
        "python/order_timeout.py",
        (
            "order-1: placed",
            "order-2: placed",
            "order-2: paid",
            "order-2: paid in time",
            "order-1: given up, it was not paid",
        ),
        {DELIVERED: 1, CANCELLED: 1, APPLIED: 1},
        "example.order-timeouts",
        (b"time is up",),
        unordered=2,
    ),
    _Case(
        "python/debounce.py",
        (*(f"document-7 is now: {'delay'[:length]}" for length in range(1, 6)), "indexing document-7: delay"),
        {DELIVERED: 1, REPLACED: 4},
        "example.documents-to-index",
        (b"delay",),
    ),
    _Case(
        "python/confirm_once.py",
        (
            "a confirmation is requested",
            "a confirmation is requested",
            "a repeated request was kept",
            "confirmed: thank you for your order",
            "a confirmation is requested",
            "a repeated request was dropped",
        ),
        {DELIVERED: 1, KEPT: 1, DROPPED: 1},
        "example.confirmations",
        (b"thank you for your order",),
        unordered=4,
    ),
    _Case(
        "python/forget_customer.py",
        ("alice is forgotten: 3 messages cancelled", "delivered now: an offer for bob"),
        {CANCELLED: 3, APPLIED: PARTITIONS + 1, DELIVERED: 1},
        "example.offers",
        (b"an offer for bob",),
    ),
    _Case(
        "python/snooze.py",
        ("water the plants: put off", "reminder: call the bank", "reminder: water the plants"),
        {DELIVERED: 2, APPLIED: 1},
        "example.reminders",
        (b"call the bank", b"water the plants"),
    ),
    _Case(
        "java/RetryByPolicy.java",
        *((*["a book: nobody is at home"] * 2, "a book: delivered after 2 retries"), {DELIVERED: 2}),
        *("example.java.parcels", (b"a book", b"a book")),
    ),
    _Case(
        "java-spring/ReturnWithSpring.java",
        *((*["a book: nobody is at home"] * 2, "a book: delivered after 2 retries"), {DELIVERED: 2}),
        *("example.spring.parcels", (b"a book", b"a book")),
    ),
    foreign("java/ScheduleAndCancel.java", "java"),
    foreign("javascript/schedule_and_cancel.js", "javascript"),
    foreign("go/schedule_and_cancel.go", "go"),
)


class Served:
    """The request topic that the examples share, and the requests sent to it since `mark`."""

    def __init__(self, deployment: SidecarDeployment) -> None:
        self.deployment = deployment
        (self.requests,) = deployment.requests
        self._since: dict[int, int] = {}

    def mark(self) -> None:
        """Ignores all requests sent up to now."""
        admin = AdminClient({"bootstrap.servers": self.deployment.bootstrap})
        ends = end_offsets(admin, [(self.requests, partition) for partition in range(PARTITIONS)])
        self._since = {partition: end for (_, partition), end in ends.items()}

    def is_new(self, origin: bytes) -> bool:
        topic, partition, offset = parse_origin(origin)
        return topic == self.requests and offset >= self._since[partition]

    def new_requests(self) -> dict[tuple[int, int], Seen]:
        """Returns the new request records by partition and offset."""
        reader = self.deployment.reader(self.requests)
        try:
            records = reader.to_end()
        finally:
            reader.close()
        return {(seen.partition, seen.offset): seen for seen in records if seen.offset >= self._since[seen.partition]}

    def misplaced(self) -> list[Seen]:
        """Returns the new requests with an id that are not on the partition which Java's clients choose for the id."""
        named = [(seen, dict(seen.headers).get(ID)) for seen in self.new_requests().values()]
        return [
            seen
            for seen, caller_id in named
            if caller_id and (seen.key, seen.partition) != (caller_id, partition_for(caller_id, PARTITIONS))
        ]

    def delay_ms(self, seen: Seen) -> int:
        """Returns the requested delay: the due time minus the time at which the broker appended the request."""
        return int(seen.last(DUE)) - self.new_requests()[parse_origin(seen.origin)[1:]].timestamp_ms

    def wait_for_fates(self, wanted: dict[str, int]) -> None:
        """Returns when the final fates of the new requests are `wanted`, and fails after a time-out."""
        reader = self.deployment.reader(f"{self.requests}.dispatch-log")
        counts: Counter[str] = Counter()

        def reached() -> bool:
            outcome = Outcome([], [], [(seen, decode_record(seen.value)) for seen in reader.records])
            counts.clear()
            counts.update(end for origin, ends in outcome.fates.items() if self.is_new(origin) for end, _ in ends)
            return counts == wanted

        try:
            reader.until(reached, f"fates {wanted} (see {self.deployment.directory})")
        except AssertionError:
            pytest.fail(f"fates {dict(counts)} instead of {wanted}")
        finally:
            reader.close()


@pytest.fixture(scope="module")
def served(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("examples")) as deployment:
        deployment.new_requests(PARTITIONS)
        sidecar = deployment.new_sidecar()
        sidecar.format_version = 3
        sidecar.start()
        sidecar.wait_for_shards(PARTITIONS)
        topic = Served(deployment)
        topic.mark()
        yield topic


def arrived(served: Served, target: str) -> list[Seen]:
    """Returns the deliveries of the new requests on the target. Fails if a new request ended as a dead letter."""
    outcome = gather(served.deployment.bootstrap, [served.requests], [target])
    assert [seen for seen in outcome.dead if served.is_new(seen.origin)] == []
    return [seen for seen in outcome.delivered if ORIGIN in dict(seen.headers) and served.is_new(seen.origin)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.program)
def test_an_example_works_as_documented(served: Served, case: _Case) -> None:
    served.mark()

    lines = run_example(case.program, served.deployment.bootstrap, served.requests)

    ordered = len(case.lines) - case.unordered
    assert lines[:ordered] == list(case.lines[:ordered])
    assert sorted(lines[ordered:]) == sorted(case.lines[ordered:])
    assert served.misplaced() == []
    served.wait_for_fates(case.fates)
    assert [seen.value for seen in arrived(served, case.target)] == list(case.arrives)


def test_a_failed_record_is_retried_with_growing_delay_and_put_aside_in_the_end(served: Served) -> None:
    served.mark()

    lines = run_example("python/retry_with_delay.py", served.deployment.bootstrap, served.requests)

    assert lines[0] == "alice: charged at attempt 1"
    again, aside = "failed, to be tried again", "failed, put aside"
    bob = [f"bob: attempt 1 {again}", f"bob: attempt 2 {again}", "bob: charged at attempt 3"]
    carol = [*(f"carol: attempt {attempt} {again}" for attempt in (1, 2, 3)), f"carol: attempt 4 {aside}"]
    assert [line for line in lines if line.startswith("bob")] == bob
    assert [line for line in lines if line.startswith("carol")] == carol
    served.wait_for_fates({DELIVERED: 5})
    retries = arrived(served, "example.charges.retry")
    waited = {(seen.key, seen.last("attempt")): served.delay_ms(seen) for seen in retries}
    assert waited == {
        (b"bob", b"1"): 500,
        (b"bob", b"2"): 1000,
        (b"carol", b"1"): 500,
        (b"carol", b"2"): 1000,
        (b"carol", b"3"): 2000,
    }
    (given_up,) = arrived(served, "example.charges.put-aside")
    assert (given_up.key, given_up.value) == (b"carol", b"9.90")
    assert [name for name, _ in given_up.headers] == ["traceparent", ORIGIN, DUE, "attempt", "error"]


def test_a_failed_record_is_returned_with_a_policy_until_its_attempts_are_exhausted(served: Served) -> None:
    served.mark()

    lines = run_example("python/retry_policy.py", served.deployment.bootstrap, served.requests)

    assert [line for line in lines if line.startswith("alice")] == ["alice: paid after 0 retries"]
    bob = [*(f"bob: failed after {attempt} retries" for attempt in (0, 1)), "bob: paid after 2 retries"]
    assert [line for line in lines if line.startswith("bob")] == bob
    failed = [f"carol: failed after {attempt} retries" for attempt in range(4)]
    assert [line for line in lines if line.startswith("carol")] == [*failed[:3], f"{failed[3]}, which were all"]
    served.wait_for_fates({DELIVERED: 5, DEAD: 1})
    outcome = gather(served.deployment.bootstrap, [served.requests], ["example.payments"])
    retries = [seen for seen in outcome.delivered if ORIGIN in dict(seen.headers)]
    waited = {(seen.key, seen.last(ATTEMPT)): served.delay_ms(seen) for seen in retries}
    bobs = {(b"bob", b"1"): 200, (b"bob", b"2"): 400}
    assert waited == bobs | {(b"carol", b"1"): 200, (b"carol", b"2"): 400, (b"carol", b"3"): 800}
    (exhausted,) = [seen for seen in outcome.dead if served.is_new(seen.origin)]
    assert (exhausted.key, exhausted.last(DEAD_REASON)) == (b"carol", b"attempts-exhausted")
    names = [name for name, _ in retries[-1].headers]
    assert names == ["traceparent", ORIGIN, DUE, ATTEMPT, FIRST_ORIGIN, FIRST_DUE, ERROR]


def kill_consumers(run: Callable[[], AbstractContextManager[object]], output: Path, count: int) -> None:
    """Starts a consumer `count` times, and kills it with SIGKILL soon after it has handled a message.

    The kill comes during a transaction, before or after its commit, or while the consumer joins its group.
    """
    chance = random.Random(5)
    for _ in range(count):
        handled = output.read_bytes().count(b"customer-") if output.exists() else 0
        with run():
            wait_until(lambda: output.read_bytes().count(b"customer-") > handled, f"a message; see {output}")  # noqa: B023
            time.sleep(chance.random() / 20)


def judge_returns(served: Served, target: str, returns: dict[bytes, int], exhausted: frozenset[bytes]) -> Outcome:
    """Fails unless each customer's message has the given number of returns, each of them once.

    Each return must be delivered once, except the last return of a message in `exhausted`.
    """
    attempts = [None, b"1", b"2", b"3"]
    counts = Counter((seen.key, dict(seen.headers).get(ATTEMPT)) for seen in served.new_requests().values())
    assert counts == {(customer, attempt): 1 for customer, count in returns.items() for attempt in attempts[:count]}
    outcome = gather(served.deployment.bootstrap, [served.requests], [target])
    delivered = Counter((seen.key, dict(seen.headers).get(ATTEMPT)) for seen in outcome.delivered)
    wanted = {customer: count + (customer not in exhausted) for customer, count in returns.items()}
    assert delivered == {(customer, attempt): 1 for customer, count in wanted.items() for attempt in attempts[:count]}
    return outcome


def test_a_consumer_that_is_killed_returns_each_failure_once(served: Served, tmp_path: Path) -> None:
    served.mark()
    deployment, output = served.deployment, tmp_path / "printed"
    payments, failures = deployment.new_target(2), {b"customer-%d" % number: number % 5 for number in range(_PAYMENTS)}
    admin, paid_topic = AdminClient({"bootstrap.servers": deployment.bootstrap}), f"{payments}.paid"
    admin.create_topics([NewTopic(paid_topic, 1, 1)])[paid_topic].result(WAIT_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": deployment.bootstrap})
    for customer, count in failures.items():
        producer.produce(payments, key=customer, value=b"%d" % count)
    assert producer.flush(WAIT_TIMEOUT_S) == 0
    run = partial(
        running_example, "python/retry_policy.py", deployment.bootstrap, served.requests, output, PAYMENTS=payments
    )
    kill_consumers(run, output, _KILLS)
    returns = sum(min(count, 4) for count in failures.values())
    exhausted = frozenset(customer for customer, count in failures.items() if count > 3)
    with run():
        served.wait_for_fates({DELIVERED: returns - len(exhausted), DEAD: len(exhausted)})
        paid = deployment.reader(paid_topic)
        paid.until(lambda: len(paid.records) >= len(failures) - len(exhausted), "all are paid")
        paid.close()

    judge_returns(served, payments, failures, exhausted)
    paid_once = Counter(seen.key for seen in gather(deployment.bootstrap, [served.requests], [paid_topic]).delivered)
    assert paid_once == dict.fromkeys(failures.keys() - exhausted, 1)


def test_a_java_consumer_that_is_killed_returns_each_failure_once(served: Served, tmp_path: Path) -> None:
    served.mark()
    deployment, output = served.deployment, tmp_path / "printed"
    parcels, customers = deployment.new_target(2), [b"customer-%d" % number for number in range(_PAYMENTS)]
    producer = Producer({"bootstrap.servers": deployment.bootstrap})
    for customer in customers:
        producer.produce(parcels, key=customer, value=customer + b"'s book")
    assert producer.flush(WAIT_TIMEOUT_S) == 0
    run = partial(
        running_example, "java/RetryByPolicy.java", deployment.bootstrap, served.requests, output, PARCELS=parcels
    )
    kill_consumers(run, output, _JAVA_KILLS)
    with run():
        served.wait_for_fates({DELIVERED: 2 * len(customers)})

    judge_returns(served, parcels, dict.fromkeys(customers, 2), frozenset())


def test_newsletters_for_one_instant_leave_within_their_window(served: Served) -> None:
    served.mark()

    lines = run_example("python/spread_newsletter.py", served.deployment.bootstrap, served.requests)

    whole = ["20 newsletters are due at one instant", "20 newsletters have left, 0 of them before that instant"]
    assert lines[:2] == whole
    assert re.fullmatch(r"they left \d+ to \d+ ms after it", lines[2])
    served.wait_for_fates({DELIVERED: 20})
    assert len(arrived(served, "example.newsletters")) == 20


def test_a_level_is_a_delay_of_the_table(served: Served) -> None:
    served.mark()

    lines = run_example("python/delay_levels.py", served.deployment.bootstrap, served.requests)

    assert [line.partition(",")[0] for line in lines] == [f"level {level} arrived" for level in (0, 1, 2)]
    served.wait_for_fates({DELIVERED: 3})
    waited = {seen.value: served.delay_ms(seen) for seen in arrived(served, "example.levels")}
    assert waited == {b"level 0": 0, b"level 1": 1000, b"level 2": 5000}


def test_the_test_of_a_service_passes_with_its_own_sidecar(served: Served) -> None:
    lines = run_example("python/test_your_service.py", served.deployment.bootstrap, served.requests)

    assert "1 passed" in lines[-1]
    outcome = gather(served.deployment.bootstrap, [], ["example.tested-reminders"])
    assert {seen.key for seen in outcome.delivered} == {b"bob"}


def test_a_nightly_report_follows_the_clock_of_berlin(served: Served) -> None:
    served.mark()

    lines = run_example("python/nightly.py", served.deployment.bootstrap, served.requests)

    nights = [re.fullmatch(r"night (\d), (\S+): all is well; next: (\S+)", line) for line in lines]
    assert [night and night[1] for night in nights] == ["1", "2", "3", "4"]
    times = [datetime.fromisoformat(night[2]) for night in nights if night]
    assert [night[3] for night in nights if night] == [*(at.isoformat() for at in times[1:]), "none"]
    assert [at.isoformat()[10:] for at in times] == ["T02:30:00+02:00"] * 2 + ["T02:30:00+01:00"] * 2
    assert (times[1].month, times[1].isoweekday(), (times[1] + timedelta(days=7)).month) == (10, 7, 11)
    assert [at.date() - times[0].date() for at in times] == [timedelta(days=days) for days in range(4)]
    assert served.misplaced() == []
    served.wait_for_fates({COMPLETED: 1})
    seen = arrived(served, "example.nightly-reports")
    assert [int(record.last(DUE)) for record in seen] == [int(at.timestamp() * 1000) for at in times]
