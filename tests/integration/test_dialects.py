"""Goal: the documented requests and cancels of every other scheduler work unchanged.

Method: one real sidecar serves a request topic with all dialects switched on. The test sends each example as it is
documented, then with a due time in the future, and then with a cancel. Dead letters of requests that fail must contain
the requests as sent. The oracle checks that each request ends once, and that each message has the target, due time and
content that its own system would have given it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import NewTopic
from postdate.kafka.settings import KafkaSettings
from postdate.wire.dialects.table import DIALECTS
from postdate.wire.dispatch_log import APPLIED, CANCELLED, DELIVERED
from postdate.wire.headers import DEAD_DETAIL, ID, Headers
from postdate.wire.verdicts import Verdict, decode_verdict
from support.brokers.broker import unique_name
from support.brokers.topic_changes import alter_topic_config
from support.clients.dialect_examples import DEFAULT_TARGET, EXAMPLES, Example
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Outcome, Sender, Sent, gather, judge

_TARGETS = sorted({example.target for example in EXAMPLES})
_TEN_YEARS_MS = 3_660 * 86_400_000
_WITH_CANCEL = [example for example in EXAMPLES if example.cancel is not None]


@dataclass
class _ExampleRequest:
    """An example and its request, as the broker acknowledged it."""

    example: Example
    sent: Sent

    def expected(self) -> Sent:
        """Returns the equivalent request with Postdate's own headers."""
        example, sent = self.example, self.sent
        headers: Headers = [*example.delivered, *([(ID, example.id)] if example.id else [])]
        due_ms = sent.appended_ms + example.delay_ms if example.delay_ms >= 0 else example.due_ms
        return Sent(example.target, example.target_key, sent.value, headers, due_ms, origin=sent.origin)


def _send(sender: Sender, requests: str, example: Example) -> _ExampleRequest:
    return _ExampleRequest(example, sender.send(requests, Sent("", example.key, example.value, example.headers)))


def _cancel(sender: Sender, requests: str, example: Example) -> Sent:
    assert example.cancel is not None
    return sender.send(requests, Sent("", example.cancel.key, None, example.cancel.headers))


def _serve_all_dialects(deployment: SidecarDeployment) -> str:
    """Creates the documented targets, and serves a request topic with all dialects. Returns the topic's name.

    The topic has no retention limit, so that its horizon contains the year 2030.
    """
    requests = deployment.new_requests(3)
    admin = ConfluentKafka(KafkaSettings(deployment.bootstrap)).admin()
    try:
        admin.create_topics([NewTopic(name, 2, 1, {}) for name in _TARGETS])
        for name in (requests, f"{requests}.dispatch-log"):
            alter_topic_config(admin, name, {"retention.ms": "-1"})
    finally:
        admin.close()
    sidecar = deployment.new_sidecar(dispatch={"retry_budget_ms": 500})
    sidecar.topic = {"dialects": list(DIALECTS), "default_target": DEFAULT_TARGET, "horizon_ms": _TEN_YEARS_MS}
    sidecar.start()
    sidecar.wait_for_shards(3)
    return requests


def _outcome(deployment: SidecarDeployment, requests: str) -> Outcome:
    """Returns the outcome of this test's requests. Other tests may use the same targets, which the documents name."""
    outcome = gather(deployment.bootstrap, [requests], _TARGETS)
    outcome.delivered = [seen for seen in outcome.delivered if seen.origin.startswith(requests.encode() + b"/")]
    return outcome


def test_the_documented_requests_and_cancels_work_unchanged(deployment: SidecarDeployment) -> None:
    requests = _serve_all_dialects(deployment)
    sender = deployment.sender()
    now_ms = int(time.time() * 1000)
    due: list[_ExampleRequest] = []
    cancelled: list[_ExampleRequest] = []
    controls: list[Sent] = []
    for example in EXAMPLES:
        request = _send(sender, requests, example)
        if example.due_ms > now_ms:
            cancelled.append(request)
            controls.append(_cancel(sender, requests, example))
        else:
            due.append(request)
    sender.flush()
    deployment.wait_for_ends(len(EXAMPLES) + len(controls))

    soon_s = int(time.time()) + 3
    due += [_send(sender, requests, example.at(soon_s)) for example in EXAMPLES]
    sender.flush()
    deployment.wait_for_ends(2 * len(EXAMPLES) + len(controls))

    late_s = soon_s + 3600
    cancelled += [_send(sender, requests, example.at(late_s)) for example in _WITH_CANCEL]
    controls += [_cancel(sender, requests, example) for example in _WITH_CANCEL]
    sender.flush()
    deployment.wait_for_ends(len(due) + len(cancelled) + len(controls))

    outcome = _outcome(deployment, requests)
    judge(
        outcome, [request.expected() for request in due], silent=[*controls, *(request.sent for request in cancelled)]
    )
    fates = {origin: ends[0][0] for origin, ends in outcome.fates.items()}
    assert {request.example.dialect for request in due} == {*DIALECTS}
    assert {request.example.dialect for request in cancelled} == {"etf1", "karafka", "kaspr", "nats", "rocketmq"}
    for request in due:
        assert fates[request.sent.origin] == DELIVERED, request.example.name
    for request in cancelled:
        assert fates[request.sent.origin] == CANCELLED, request.example.name
    for control in controls:
        assert fates[control.origin] == APPLIED, control.headers
    verdicts = deployment.reader(f"{requests}.verdicts")
    try:
        answers = {answer.origin: answer for answer in (decode_verdict(seen.value) for seen in verdicts.to_end())}
    finally:
        verdicts.close()
    outcomes = [(answers[control.origin.decode()].verdict, answers[control.origin.decode()].of) for control in controls]
    assert outcomes == [(Verdict.CANCELLED, request.sent.origin.decode()) for request in cancelled]


def test_a_request_that_fails_comes_back_as_it_was_sent(deployment: SidecarDeployment) -> None:
    requests = _serve_all_dialects(deployment)
    sender = deployment.sender()
    nowhere = unique_name("nowhere").encode()
    soon = b"%d" % time.time()
    failing: dict[str, Headers] = {
        "unknown-target": [
            ("a", b"1"),
            ("scheduler-epoch", soon),
            ("scheduler-target-topic", nowhere),
            ("scheduler-key", b"left over"),
            ("a", None),
            ("scheduler-target-key", b"target key"),
        ],
        "conflicting-time": [("a", b"1"), ("x-delay", b"1"), ("postdate-delay", b"1"), ("a", None)],
        "bad-time": [("Nats-Schedule", b"@at noon"), ("Nats-Schedule-Target", b"orders"), ("a", b"")],
        "bad-id": [("TIMER_DELAY_MS", b"1"), ("UNIQ_KEY", b"\xff")],
    }
    sent = {reason: sender.send(requests, Sent("", b"key", b"body", headers)) for reason, headers in failing.items()}
    sender.flush()
    deployment.wait_for_ends(len(failing))
    outcome = _outcome(deployment, requests)
    judge(outcome, [], dead=list(sent.values()))
    assert dict(outcome.reasons()) == dict.fromkeys(failing, 1)
    dead_letters = {seen.origin: seen for seen in outcome.dead}
    for reason, request in sent.items():
        seen = dead_letters[request.origin]
        assert (seen.key, seen.value, seen.headers[:-3]) == (request.key, request.value, request.headers), reason
    assert b"Nats-Schedule '@at noon'" in dead_letters[sent["bad-time"].origin].last(DEAD_DETAIL)


def test_headers_of_a_dialect_that_is_off_are_delivered_with_the_message(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(), deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = deployment.sender()
    sent = []
    for example in EXAMPLES:
        own: Headers = [("postdate-topic", target.encode()), ("postdate-at", b"1000")]
        sent.append(sender.send(requests, Sent(target, b"k", example.value, [*example.headers, *own], 1000)))
    sender.flush()
    deployment.wait_for_ends(len(sent))
    deployment.judge(sent)
