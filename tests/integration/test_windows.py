"""Goal: requests for one instant with a window leave at an even rate over the window: none before its due time, none
before its chosen time, and none much later; also if the process is killed meanwhile.

Method: one real broker, several thousand requests for the same instant on two partitions, and two sidecars one after
the other. Times are those that the broker gave the records of the dispatch log; the expected draw is computed here.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from zlib import crc32

import pytest

from postdate.wire.dispatch_log import ChosenFate
from postdate.wire.headers import AT, TOPIC, WINDOW
from support.bed import Bed
from support.command import call_postdate
from support.expected import origin_of
from support.oracle import Outcome, Sent
from support.sidecars import wait_until

_COUNT = 4_000
_WINDOW_MS = 6_000
_PARTS = 12
#: ms. A poll, a transaction and the look-up of a new target, on a machine that other tests use, too.
_LATE_MS_MAX = 2_000


def drawn_ms(origin: bytes) -> int:
    return ((_WINDOW_MS + 1) * (crc32(origin) >> 8)) >> 24


def send(bed: Bed, due_ms: int) -> list[Sent]:
    sender, given = bed.sender(), [(TOPIC, bed.targets[0].encode()), (AT, b"%d" % due_ms)]
    sent = [
        sender.send(bed.requests[0], Sent(bed.targets[0], b"%d" % n, b"v", [*given, (WINDOW, b"6s")], due_ms))
        for n in range(_COUNT)
    ]
    sender.flush()
    return sent


def chosen(outcome: Outcome) -> dict[bytes, tuple[int, int]]:
    """Origin -> its chosen time, and the time of the record that says so."""
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
def test_requests_for_one_instant_leave_at_an_even_rate(bed: Bed, is_killed: bool) -> None:
    bed.new_requests(2)
    bed.new_target(3)
    sidecar = bed.new_sidecar(static=True)
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(2)
    due_ms = int(time.time() * 1000) + 4_000
    sent = send(bed, due_ms)
    if is_killed:
        wait_until(lambda: time.time() * 1000 > due_ms + _WINDOW_MS // 3, "a third of the window has passed")
        sidecar.kill()
        sidecar.start()
    bed.wait_for_ends(_COUNT)
    outcome = bed.judge(sent)
    found = chosen(outcome)
    assert {origin: at_ms for origin, (at_ms, _) in found.items()} == {
        each.origin: due_ms + drawn_ms(each.origin) for each in sent
    }
    assert all(at_ms <= logged_ms for at_ms, logged_ms in found.values())
    if is_killed:
        return
    late_ms = sorted(logged_ms - at_ms for at_ms, logged_ms in found.values())
    assert late_ms[-1] < _LATE_MS_MAX, f"p99 {late_ms[_COUNT * 99 // 100]} ms, at most {late_ms[-1]} ms"
    counts = Counter((logged_ms - due_ms) * _PARTS // _WINDOW_MS for _, logged_ms in found.values())
    mean = _COUNT / _PARTS
    assert all(0.6 * mean < counts[part] < 1.4 * mean for part in range(1, _PARTS)), counts


def test_the_command_sends_a_window_and_refuses_a_bad_one(bed: Bed) -> None:
    bed.new_requests(1)
    bed.new_target()
    sidecar = bed.new_sidecar()
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    config = bed.directory / "client.toml"
    config.write_text("format_version = 2\n")
    given = ["send", "-b", bed.bootstrap, "--requests", bed.requests[0], "--topic", bed.targets[0], "--delay", "200ms"]
    for window, word in (("0s", "bad-window"), ("soon", "bad-window"), ("401d", "beyond-horizon")):
        refused = call_postdate(*given, "--window", window, "--config", str(config))
        assert (refused.exit_code, word in refused.stderr) == (2, True), refused.stderr
    done = call_postdate(*given, "--window", "1s", "--wait-delivery", "--config", str(config), "--output", "json")
    assert done.exit_code == 0, done.stderr
    asked, ended = map(json.loads, done.stdout.splitlines())
    assert (ended["fate"], 0 <= ended["late_ms"] < _LATE_MS_MAX) == ("delivered", True)
    assert ended["ended_ms"] - ended["late_ms"] - asked["due_ms"] in range(1_001)
    bed.wait_for_ends(1)


def test_without_the_setting_a_window_is_refused(bed: Bed) -> None:
    bed.new_requests(1)
    bed.new_target()
    sidecar = bed.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = bed.sender()
    given = [(TOPIC, bed.targets[0].encode()), (AT, b"1"), (WINDOW, b"1s")]
    sent = sender.send(bed.requests[0], Sent(bed.targets[0], b"k", b"v", [*given], 1))
    sender.flush()
    bed.wait_for_ends(1)
    outcome = bed.judge([], dead=[sent])
    assert outcome.reasons() == {"unknown-header": 1}
    assert b"format_version = 2" in outcome.dead[0].last("postdate-dead-detail")
