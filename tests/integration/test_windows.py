"""Goal: requests for one instant with a window leave at an even rate over the window. None leaves before its due time,
before its chosen time or much later, even if the process is killed meanwhile.

Method: several thousand requests for the same instant on two partitions of a real broker, and a sidecar that is killed
and started again. The test uses the broker's timestamps of the dispatch log, and computes the expected chosen times.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from zlib import crc32

import pytest

from postdate.wire.dispatch_log import ChosenFate
from postdate.wire.headers import AT, SPREAD, TOPIC, WINDOW
from support.deployments.command import call_postdate
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Outcome, Sent
from support.oracles.expected_records import origin_of
from support.waiting.contention import watch_contention
from support.waiting.timeouts import WAIT_TIMEOUT_S

_COUNT = 4_000
_WINDOW_MS = 6_000
_PARTS = 12
#: Milliseconds: the time for a poll, a transaction and the look-up of a new target, less the time that other programs
#: took.
_LATE_MS_MAX = 2_000


EVEN_COUNT = int(os.environ.get("POSTDATE_EVEN_REQUESTS", "4000"))
EVEN_WINDOW_MS = 60_000 if EVEN_COUNT >= 100_000 else 6_000
TICK_MS = 100


def drawn_ms(origin: bytes, window_ms: int = _WINDOW_MS) -> int:
    return ((window_ms + 1) * (crc32(origin) >> 8)) >> 24


def send(deployment: SidecarDeployment, due_ms: int) -> list[Sent]:
    sender, headers = deployment.sender(), [(TOPIC, deployment.targets[0].encode()), (AT, b"%d" % due_ms)]
    sent = [
        sender.send(
            deployment.requests[0], Sent(deployment.targets[0], b"%d" % n, b"v", [*headers, (WINDOW, b"6s")], due_ms)
        )
        for n in range(_COUNT)
    ]
    sender.flush()
    return sent


def chosen(outcome: Outcome) -> dict[bytes, tuple[int, int]]:
    """Returns by origin the chosen time, and the timestamp of the dispatch-log record that has it."""
    return {
        origin_of(seen.topic.removesuffix(".dispatch-log"), seen.partition, fate.offset): (
            fate.chosen_ms,
            seen.timestamp_ms,
        )
        for seen, record in outcome.log
        for fate in record.fates
        if isinstance(fate, ChosenFate)
    }


@pytest.mark.parametrize("is_killed", [False, True])
def test_requests_for_one_instant_leave_at_an_even_rate(deployment: SidecarDeployment, is_killed: bool) -> None:
    deployment.new_requests(2)
    deployment.new_target(3)
    sidecar = deployment.new_sidecar(static=True)
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(2)
    due_ms = int(time.time() * 1000) + 4_000
    with watch_contention() as watch:
        sent = send(deployment, due_ms)
        if is_killed:
            wait_until(lambda: time.time() * 1000 > due_ms + _WINDOW_MS // 3, "a third of the window has passed")
            sidecar.kill()
            sidecar.start()
        deployment.wait_for_ends(_COUNT)
        waits = watch.most()
    outcome = deployment.judge(sent)
    times_ms = chosen(outcome)
    assert {origin: at_ms for origin, (at_ms, _) in times_ms.items()} == {
        request.origin: due_ms + drawn_ms(request.origin) for request in sent
    }
    assert all(at_ms <= ended_ms for at_ms, ended_ms in times_ms.values())
    if is_killed:
        return
    aimed_ms, logged_ms = zip(*times_ms.values(), strict=True)
    late_ms = waits.undisturbed(aimed_ms, logged_ms)
    assert max(late_ms) < _LATE_MS_MAX
    counts = Counter((at_ms - due_ms) * _PARTS // (_WINDOW_MS + 1) for at_ms in aimed_ms)
    mean = _COUNT / _PARTS
    assert all(0.8 * mean < counts[part] < 1.2 * mean for part in range(_PARTS)), counts


def unevenness(times_ms: Iterable[int], due_ms: int) -> float:
    """Returns variance over mean of the number of messages in a tick of the window. Random times give about 1."""
    counts = Counter((at_ms - due_ms) // TICK_MS for at_ms in times_ms)
    ticks = EVEN_WINDOW_MS // TICK_MS
    mean = counts.total() / ticks
    return sum((counts[tick] - mean) ** 2 for tick in range(ticks)) / ticks / mean


@pytest.mark.timeout(3_600)
def test_an_even_spread_leaves_at_a_more_even_rate_than_the_draw(deployment: SidecarDeployment) -> None:
    """POSTDATE_EVEN_REQUESTS sets the number of requests. From 100,000 on, the window is a minute, and otherwise 6 s.

    Other messages are due in the first half of the window, so with a draw this half would get more messages.
    """
    deployment.new_requests(2)
    deployment.new_target(3)
    sidecar = deployment.new_sidecar()
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(2)
    sender, ahead_ms = deployment.sender(), 30_000 + EVEN_COUNT // 10  # all requests are ingested before the window
    due_ms = (int(time.time() * 1000) + ahead_ms) // 1_000 * 1_000
    to = (TOPIC, deployment.targets[0].encode())

    def request(number: int, at_ms: int, *more: tuple[str, bytes]) -> Sent:
        headers: list[tuple[str, bytes | None]] = [to, (AT, b"%d" % at_ms), *more]
        return sender.send(deployment.requests[0], Sent(deployment.targets[0], b"%d" % number, b"v", headers, at_ms))

    count = EVEN_COUNT // 4
    others = [request(number, due_ms + number * EVEN_WINDOW_MS // 2 // count) for number in range(count)]
    window = ((WINDOW, b"%d" % EVEN_WINDOW_MS), (SPREAD, b"even"))
    sent = [request(number, due_ms, *window) for number in range(EVEN_COUNT)]
    sender.flush()
    deployment.wait_for_ends(
        len(others) + len(sent), timeout_s=WAIT_TIMEOUT_S + ahead_ms / 1_000 + EVEN_WINDOW_MS / 1_000
    )
    outcome = deployment.judge([*others, *sent])
    times_ms = chosen(outcome)
    assert times_ms.keys() == {message.origin for message in sent}
    assert all(
        due_ms <= at_ms <= due_ms + EVEN_WINDOW_MS and at_ms <= logged_ms for at_ms, logged_ms in times_ms.values()
    )
    plain_ms = [message.due_ms for message in others]
    all_drawn_ms = [due_ms + drawn_ms(message.origin, EVEN_WINDOW_MS) for message in sent]
    drawn = unevenness([*plain_ms, *all_drawn_ms], due_ms)
    even = unevenness([*plain_ms, *(at_ms for at_ms, _ in times_ms.values())], due_ms)
    print(f"{EVEN_COUNT} requests in {EVEN_WINDOW_MS} ms: variance over mean {drawn:.2f} drawn, {even:.2f} even")
    assert even < drawn / 10
    left = Counter((logged_ms - due_ms) * _PARTS // EVEN_WINDOW_MS for _, logged_ms in times_ms.values())
    aimed = Counter((at_ms - due_ms) * _PARTS // EVEN_WINDOW_MS for at_ms, _ in times_ms.values())
    print(f"chosen and left in each twelfth of the window: {sorted(aimed.items())} {sorted(left.items())}")


def test_the_command_sends_a_window_and_refuses_a_bad_one(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    config = deployment.directory / "client.toml"
    config.write_text("format_version = 2\n")
    command = [
        "send",
        "-b",
        deployment.bootstrap,
        "--requests",
        deployment.requests[0],
        "--topic",
        deployment.targets[0],
    ]
    command += ["--delay", "200ms"]
    for window, word in (("0s", "bad-window"), ("soon", "bad-window"), ("401d", "beyond-horizon")):
        refused = call_postdate(*command, "--window", window, "--config", str(config))
        assert (refused.exit_code, word in refused.stderr) == (2, True), refused.stderr
    for spread in (["even"], ["odd", "--window", "1s"]):
        refused = call_postdate(*command, "--spread", *spread, "--config", str(config))
        assert (refused.exit_code, "bad-spread" in refused.stderr) == (2, True), refused.stderr
    done = call_postdate(
        *command, "--window", "1s", "--spread", "even", "--wait-delivery", "--config", str(config), "--output", "json"
    )
    assert done.exit_code == 0, done.stderr
    request, ended = map(json.loads, done.stdout.splitlines())
    assert (ended["fate"], 0 <= ended["late_ms"] < _LATE_MS_MAX) == ("delivered", True)
    assert ended["ended_ms"] - ended["late_ms"] - request["due_ms"] in range(1_001)
    deployment.wait_for_ends(1)


def test_without_the_setting_a_window_is_refused(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = deployment.sender()
    headers = [(TOPIC, deployment.targets[0].encode()), (AT, b"1"), (WINDOW, b"1s")]
    sent = sender.send(deployment.requests[0], Sent(deployment.targets[0], b"k", b"v", [*headers], 1))
    sender.flush()
    deployment.wait_for_ends(1)
    outcome = deployment.judge([], dead=[sent])
    assert outcome.reasons() == {"unknown-header": 1}
    assert b"format_version = 2" in outcome.dead[0].last("postdate-dead-detail")
