"""Goal: no request of a producer stops a shard. Each faulty request ends as one dead letter with the reason.

Method: for almost every reason, the test sends a request with this fault, mixed with good requests, to a real sidecar.
The oracle checks that each dead letter exists once, with the bytes of its request, and that good messages are not late.
"""

from __future__ import annotations

import subprocess
import time

import pytest

from postdate.wire.headers import (
    ACTION,
    AT,
    DEAD_DETAIL,
    DEAD_REASON,
    DELAY,
    GRACE,
    ID,
    LEVEL,
    ORIGIN,
    PARTITION,
    TOPIC,
    Headers,
)
from postdate.wire.reasons import Reason
from support.brokers.broker import unique_name
from support.deployments.programs import need_program
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Sent
from support.waiting.timeouts import WAIT_TIMEOUT_S

_RETRY_BUDGET_MS = 1000
_SMALL_TARGET_BYTES = 20_000

#: Reasons that this producer cannot cause. Any bytes are a valid key. Its library refuses header names that are not
#: UTF-8 (kcat sends one below). No limit is set here, and the other reasons need brokers with ACLs or without leaders.
_WITHOUT_A_CAUSE_HERE = frozenset(
    {
        Reason.BAD_KEY,
        Reason.BAD_HEADERS,
        Reason.LIMIT_EXCEEDED,
        Reason.UNAUTHORIZED,
        Reason.TARGET_UNAVAILABLE,
        Reason.RECORD_REFUSED,
    }
)


def _bad_requests(target: bytes, small: bytes, requests: bytes) -> list[tuple[Reason, Headers]]:
    """Returns headers of bad requests with their reasons. The target `small` accepts no large record."""
    to, now = (TOPIC, target), (DELAY, b"0")
    return [
        (Reason.MISSING_TARGET, [now]),
        (Reason.BAD_TARGET, [(TOPIC, b"no topic name"), now]),
        (Reason.BAD_TARGET, [(TOPIC, None), now]),
        (Reason.BAD_TARGET, [(TOPIC, b"\xff\xfe"), now]),
        (Reason.FORBIDDEN_TARGET, [(TOPIC, b"__consumer_offsets"), now]),
        (Reason.FORBIDDEN_TARGET, [(TOPIC, requests), now]),
        (Reason.FORBIDDEN_TARGET, [(TOPIC, requests + b".dispatch-log"), now]),
        (Reason.FORBIDDEN_TARGET, [(TOPIC, b"not-on-the-list"), now]),
        (Reason.MISSING_TIME, [to]),
        (Reason.CONFLICTING_TIME, [to, now, (LEVEL, b"1")]),
        (Reason.BAD_TIME, [to, (DELAY, b"-5")]),
        (Reason.BAD_TIME, [to, (AT, b"9" * 400)]),
        (Reason.BAD_TIME, [to, (AT, b"tomorrow")]),
        (Reason.BAD_TIME, [to, (DELAY, None)]),
        (Reason.BEYOND_HORIZON, [to, (DELAY, b"5000d")]),
        (Reason.BAD_RETRY, [to, ("postdate-retry", b"nobody")]),
        (Reason.BAD_RETRY, [to, ("postdate-retry", b"base=soon")]),
        (Reason.ATTEMPTS_EXHAUSTED, [to, ("postdate-retry", b"base=1s, attempts=2"), ("postdate-attempt", b"2")]),
        (Reason.BAD_SELECTION, [(ACTION, b"cancel"), ("postdate-select-id", b"")]),
        (Reason.BAD_WINDOW, [to, now, ("postdate-window", b"0s")]),
        (Reason.BAD_SPREAD, [to, now, ("postdate-window", b"1s"), ("postdate-spread", b"odd")]),
        (Reason.BAD_IF_PENDING, [to, now, (ID, b"i"), ("postdate-if-pending", b"drop")]),
        (Reason.BAD_IF_ENDED, [to, now, (ID, b"i"), ("postdate-if-ended", b"keep")]),
        (Reason.BAD_LATEST, [to, now, (ID, b"i"), ("postdate-latest", b"0s")]),
        (Reason.BAD_SCHEDULE, [to, (ID, b"i"), ("postdate-cron", b"soon")]),
        (Reason.BAD_LEVEL, [to, (LEVEL, b"two")]),
        (Reason.BAD_PARTITION, [to, now, (PARTITION, b"-1")]),
        (Reason.BAD_PARTITION, [to, now, (PARTITION, b"7")]),
        (Reason.BAD_ID, [to, now, (ID, b"")]),
        (Reason.BAD_ID, [to, now, (ID, b"i" * 257)]),
        (Reason.BAD_ID, [(ACTION, b"cancel"), (ORIGIN, b"elsewhere/0/0")]),
        (Reason.MISSING_ID, [(ACTION, b"cancel")]),
        (Reason.BAD_ACTION, [to, now, (ACTION, b"postpone")]),
        (Reason.BAD_ACTION, [(ACTION, b"cancel"), (ID, b"x"), to]),
        (Reason.DUPLICATE_HEADER, [to, now, now]),
        (Reason.UNKNOWN_HEADER, [to, now, ("postdate-dealy", b"5s")]),
        (Reason.UNKNOWN_HEADER, [to, ("Postdate-Delay", b"5s")]),
        (Reason.TOO_LARGE, [(TOPIC, small), now]),
        (Reason.EXPIRED, [to, (AT, b"1000"), (GRACE, b"1h")]),
        (Reason.UNKNOWN_TARGET, [(TOPIC, b"allowed-" + unique_name("nowhere").encode()), now]),
    ]


def test_every_reason_ends_as_one_dead_letter_and_stops_nobody(deployment: SidecarDeployment) -> None:
    requests, target, small = (
        deployment.new_requests(),
        deployment.new_target(2),
        deployment.new_target(max_message_bytes="20000"),
    )
    bad = _bad_requests(target.encode(), small.encode(), requests.encode())
    assert {reason for reason, _ in bad} == set(Reason) - _WITHOUT_A_CAUSE_HERE
    sidecar = deployment.new_sidecar(
        dispatch={"retry_budget_ms": _RETRY_BUDGET_MS}, allow=("target-*", "allowed-*", "__*")
    )
    sidecar.format_version = 3
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = deployment.sender()
    good: list[Sent] = []
    dead: list[tuple[Reason, Sent]] = []
    now_ms = int(time.time() * 1000)
    for index, (reason, headers) in enumerate(bad):
        value = b"%d " % index * (_SMALL_TARGET_BYTES // 2)
        bad_headers: Headers = [("kept", b"1"), *headers, ("kept", None)]
        dead.append((reason, sender.send(requests, Sent("", b"bad", value, bad_headers))))
        good_headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % (now_ms + 200))]
        good.append(sender.send(requests, Sent(target, b"good", b"%d" % index, good_headers, now_ms + 200)))
    sender.flush()
    deployment.wait_for_ends(len(good) + len(dead))
    outcome = deployment.judge(good, dead=[sent for _, sent in dead])
    dead_letters = {seen.origin: seen for seen in outcome.dead}
    for reason, sent in dead:
        seen = dead_letters[sent.origin]
        assert seen.last(DEAD_REASON).decode() == reason, (sent.headers, seen.last(DEAD_DETAIL))
        assert seen.last(DEAD_DETAIL), "the dead letter explains the fault"
        assert (seen.key, seen.value, seen.headers[:-3]) == (sent.key, sent.value, sent.headers)
    assert sidecar.shards() == 1
    assert "HALTED" not in sidecar.log_text()


@pytest.mark.parametrize("value_bytes", [_SMALL_TARGET_BYTES, 900_000])
def test_a_request_that_no_target_accepts_becomes_a_complete_dead_letter(
    deployment: SidecarDeployment, value_bytes: int
) -> None:
    """The dead letter is larger than its request, and still fits."""
    requests, small = deployment.new_requests(), deployment.new_target(max_message_bytes="20000")
    sidecar = deployment.new_sidecar(dispatch={"retry_budget_ms": 200})
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = deployment.sender()
    headers: Headers = [(TOPIC, small.encode()), (DELAY, b"0")]
    sent = sender.send(requests, Sent(small, b"k", b"x" * value_bytes, headers))
    sender.flush()
    deployment.wait_for_ends(1)
    outcome = deployment.judge([], dead=[sent])
    assert dict(outcome.reasons()) == {"too-large": 1}
    assert outcome.dead[0].value == sent.value


def test_headers_that_cannot_be_read_end_as_a_dead_letter_without_them(deployment: SidecarDeployment) -> None:
    kcat = need_program("kcat", "kcat")
    requests, target = deployment.new_requests(), deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(1)
    command: list[str | bytes] = [kcat, "-P", "-b", deployment.bootstrap, "-t", requests, "-p", "0", "-k", "key"]
    for header in (b"postdate-topic=" + target.encode(), b"postdate-delay=0", b"not\xffUTF-8=1"):
        command += ["-H", header]
    subprocess.run(command, input=b"value", check=True, timeout=WAIT_TIMEOUT_S)
    sender = deployment.sender()
    headers: Headers = [(TOPIC, target.encode()), (AT, b"1000")]
    good = sender.send(requests, Sent(target, b"k", b"v", headers, 1000), 0)
    sender.flush()
    deployment.wait_for_ends(2)
    bad = Sent("", b"key", b"value", [], origin=requests.encode() + b"/0/0")
    outcome = deployment.judge([good], dead=[bad])
    assert dict(outcome.reasons()) == {"bad-headers": 1}
    assert (outcome.dead[0].key, outcome.dead[0].value, len(outcome.dead[0].headers)) == (b"key", b"value", 3)
