"""Goal: a consumer returns each message again and again. Each return is redelivered after its backoff, with its attempt
and first origin, until the attempts are exhausted and a dead letter is written. This holds although the sidecar is
killed with SIGKILL and a named policy changes.

Method: as a service would, a consumer copies all headers of a delivered message into a return, in the types of the
client library. Half of the messages have a policy in the header, the others name one. The sidecar is killed while
returns are pending, and starts again with another policy of the same name. The dispatch log shows both policies.
"""

from __future__ import annotations

import time
from collections import defaultdict

from confluent_kafka import Producer

from postdate.client import RequestTopic
from postdate.wire.dispatch_log import decode_record
from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Seen, Sent
from support.waiting.timeouts import WAIT_TIMEOUT_S

_ADDED = ("origin", "due", "attempt", "first-origin", "first-due", "error")
_MESSAGES = 40
_ATTEMPTS = 3
_INLINE = "base=300ms, factor=2, max=1s, attempts=3"
_INLINE_MS = (300, 600, 1_000)
_STEADY_MS = 500


def _policies(base: str) -> dict[str, object]:
    return {"retry_policies": [f"steady: base={base}, factor=1, attempts=3"]}


def test_returns_are_redelivered_through_a_kill_until_the_dead_letter(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(1), deployment.new_target(1, message_timestamp_type="LogAppendTime")
    sidecar = deployment.new_sidecar(topic=_policies("500ms"))
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender, due_ms = deployment.sender(), int(time.time() * 1000)
    for number in range(_MESSAGES):
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), ("n", b"%d" % number)]
        sender.send(requests, Sent(target, b"%d" % number, b"v%d" % number, headers, due_ms))
    sender.flush()
    topic = RequestTopic(requests, partitions=1)
    producer = Producer({"bootstrap.servers": deployment.bootstrap, "linger.ms": 0})
    reader = deployment.reader(target)
    seen: list[Seen] = []
    kills: list[int] = []

    def consume() -> bool:
        for message in reader.forgotten():
            seen.append(message)
            policy = "steady" if int(message.last("n")) % 2 else _INLINE
            error = f"failed {len(seen)}"
            record = topic.retry(target, message.value, policy, key=message.key, headers=message.headers, error=error)
            producer.produce(**record)
        producer.poll(0)
        if len(seen) >= 2 * _MESSAGES and not kills:
            producer.flush(10)
            sidecar.kill()
            kills.append(len(seen))
            sidecar.topic = _policies("900ms")
            sidecar.start()
        return len(seen) >= _MESSAGES * (1 + _ATTEMPTS)

    reader.until(consume, "every attempt of every message was delivered", WAIT_TIMEOUT_S)
    producer.flush(10)
    reader.close()
    deployment.wait_for_ends(_MESSAGES * (2 + _ATTEMPTS))
    assert sidecar.stop() == 0
    assert len(seen) == _MESSAGES * (1 + _ATTEMPTS)
    _judge(seen)
    dead_letters, log = deployment.reader(f"{requests}.dead-letters"), deployment.reader(f"{requests}.dispatch-log")
    dead, records = dead_letters.to_end(), [decode_record(record.value) for record in log.to_end()]
    dead_letters.close()
    log.close()
    assert {record.last("postdate-dead-reason") for record in dead} == {b"attempts-exhausted"}
    assert sorted(record.value or b"" for record in dead) == sorted(b"v%d" % number for number in range(_MESSAGES))
    assert {record.last("postdate-attempt") for record in dead} == {b"%d" % _ATTEMPTS}
    policies = {text.split(",")[0] for record in records for _, _, text in record.policies or []}
    assert policies == {"base=500ms", "base=900ms"}
    assert {record.v for record in records} == {2}
    for word in ("HALTED", "Traceback"):
        assert word not in sidecar.all_logs()


def _judge(seen: list[Seen]) -> None:
    """Fails unless every message has attempts 1 to 3 in order, one first origin, and the backoff of its policy."""
    by_number: defaultdict[bytes, list[Seen]] = defaultdict(list)
    for message in seen:
        by_number[message.last("n")].append(message)
    for number, (first, *again) in by_number.items():
        assert [message.last("postdate-attempt") for message in again] == [b"1", b"2", b"3"]
        for index, message in enumerate(again):
            names = [name for name, _ in message.headers]
            assert names == ["n", *(f"postdate-{name}" for name in _ADDED)]
            assert message.last("postdate-first-origin") == first.origin
            assert message.last("postdate-first-due") == first.last("postdate-due")
            before = again[index - 1] if index else first
            due_ms = int(message.last("postdate-due"))
            assert message.timestamp_ms >= due_ms, "early by the clock of the target"
            least_ms = _STEADY_MS if int(number) % 2 else _INLINE_MS[index]
            assert due_ms - before.timestamp_ms >= least_ms, f"{number!r}: attempt {index + 1}"
    assert len(by_number) == _MESSAGES
