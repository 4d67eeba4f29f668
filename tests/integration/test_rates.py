"""Goal: on a real broker, a target with a limited rate gets its messages at most at that rate, in order and once, even
if a process dies. Messages for other targets overtake messages that wait for the rate.

Method: many messages for a limited target fall due at once, while messages for two other targets fall due steadily. The
process is killed with SIGKILL while most messages of the limited target wait. The dispatch log shows which transaction
delivered each message. A shard fills a transaction after the broker stamped the record of the previous one, and before
it stamps the record of this one. Between these two timestamps, and over each longer interval, the deliveries must not
exceed the rate. So the result does not depend on the speed of the machine. If the machine is too slow to reach the
rate, the round is repeated with a lower one.
"""

from __future__ import annotations

import time

from postdate.sidecar.dispatch.limits import RATE_SAVED_S
from postdate.wire.dispatch_log import DELIVERED, DispatchRecord
from postdate.wire.headers import AT, TOPIC, Headers
from postdate.wire.origins import format_origin
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Sender, Sent, overtaken
from support.waiting.rounds import LONGER, expect, first_round_in_time

_PARTITIONS = 2
_PER_SECOND = 60
_LIMITED, _BURST, _OTHERS = 600, 500, 200
#: The process is killed after this number of ends, when at least a third of the limited target's messages still wait.
_ENDED_AT_KILL = _OTHERS + _LIMITED // 3
#: Milliseconds: the process keeps rates by its clock, and the test checks them by the broker's clock. Both clocks round
#: to milliseconds.
_CLOCKS_APART_MS = 5


def test_a_limited_target_keeps_its_rate_and_its_order_through_a_kill(deployment: SidecarDeployment) -> None:
    first_round_in_time(lambda slower: _limited(deployment.another(), _PER_SECOND // slower), LONGER[:2])


def _limited(deployment: SidecarDeployment, per_second: int) -> None:
    requests = deployment.new_requests(_PARTITIONS)
    limited, others = deployment.new_target(2), [deployment.new_target(2), deployment.new_target()]
    sidecar = deployment.new_sidecar(static=True, topic={"messages_per_second_max": [f"{limited}={per_second}"]})
    sidecar.start()
    sidecar.wait_for_shards(_PARTITIONS)
    due_ms, sender = int(time.time() * 1000) + 1_500, deployment.sender()
    # A burst is due within three milliseconds, in a different order from its requests. More fall due while it waits.
    later = [number * 7 % 3 if number < _BURST else 20 * (number - _BURST) for number in range(_LIMITED)]
    requested = [_send(sender, requests, limited, number, due_ms + later[number]) for number in range(_LIMITED)]
    beside = [_send(sender, requests, others[number % 2], number, due_ms + 10 * number) for number in range(_OTHERS)]
    sender.flush()
    deployment.wait_for_ends(_ENDED_AT_KILL)
    sidecar.kill()
    sidecar.start()
    deployment.wait_for_ends(_LIMITED + _OTHERS)
    assert sidecar.stop() == 0
    outcome = deployment.judge(requested + beside)
    assert overtaken(outcome) == []
    for partition in range(_PARTITIONS):
        log = sorted((pair for pair in outcome.log if pair[0].partition == partition), key=lambda pair: pair[0].offset)
        left, past = (
            [_count(requests, partition, record, {sent.origin for sent in sent_to}) for _, record in log]
            for sent_to in (requested, beside)
        )
        _check_rate([seen.timestamp_ms for seen, _ in log], left, per_second)
        after_kill = [
            count for count, (_, record) in zip(left, log, strict=True) if record.instance == sidecar.instance
        ]
        expect(sum(after_kill) > 0, "all messages left before the kill: the run proves nothing")
        half = sum(past) // 2
        passed = next(n for n in range(len(past)) if sum(past[: n + 1]) > half)
        expect(sum(left[passed + 1 :]) > sum(left) // 2, "messages for other targets waited for the limited target")


def _send(sender: Sender, requests: str, target: str, number: int, due_ms: int) -> Sent:
    """Sends a request with one of three keys, and returns it."""
    headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), ("n", b"%d" % number)]
    sent = Sent(target, b"%d" % (number % 3), b"v%d" % number, headers, due_ms)
    return sender.send(requests, sent, number % _PARTITIONS)


def _count(requests: str, partition: int, record: DispatchRecord, origins: set[bytes]) -> int:
    """Returns how many of these requests the record marks as delivered."""
    return sum(
        fate.name == DELIVERED and format_origin(requests, partition, fate.offset) in origins for fate in record.fates
    )


def _check_rate(stamps_ms: list[int], left: list[int], per_second: int) -> None:
    """Fails if more messages left than the rate and its saved burst allow.

    Checks each interval from the timestamp of a record to that of a later one.
    """
    for first in range(1, len(left)):
        count = 0
        for last in range(first, len(left)):
            count += left[last]
            within_s = (stamps_ms[last] - stamps_ms[first - 1] + _CLOCKS_APART_MS) / 1000
            allowed = per_second * (within_s + RATE_SAVED_S) + 1
            assert count <= allowed, f"{count} left within {within_s:.3f} s, transactions {first} to {last}"
    assert left[0] == 0, "the first record of a shard is an owner record"
