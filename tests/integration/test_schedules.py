"""Goal: each occurrence of a recurring schedule is delivered once, at its nominal time or later, through SIGKILLs and
the loss of a disk. A deployment accepts schedules only once its members have `format_version` 3.

Method: processes with fixed-interval schedules on a real broker are killed. The test computes the nominal times from
the broker's timestamps of the requests, and compares them with the records on the target.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter

import pytest

from postdate.wire.dispatch_log import ExtraFate, Occurred, PausedOrResumed, Skipped
from postdate.wire.headers import ACTION, ID, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Seen, Sent, gather
from support.waiting.timeouts import WAIT_TIMEOUT_S

_EVERY_MS = 1_000
_COUNT = int(os.environ.get("POSTDATE_SCHEDULE_OCCURRENCES", "24"))
_KILL_EVERY = int(os.environ.get("POSTDATE_SCHEDULE_KILL_EVERY", "4"))
_KILLS = _COUNT // _KILL_EVERY
_FILLED = 2_500


def calendar(deployment: SidecarDeployment, caller_id: bytes, *more: tuple[str, bytes]) -> tuple[bytes, int]:
    """Sends a schedule that fires every second. Returns its origin, and the timestamp of its request."""
    headers: Headers = [(TOPIC, deployment.targets[0].encode()), (ID, caller_id), ("postdate-every", b"1s"), *more]
    sender = deployment.sender()
    sent = sender.send(deployment.requests[0], Sent(deployment.targets[0], b"key", b"value", headers, 0), partition=0)
    sender.flush()
    return sent.origin, sent.appended_ms


def nominal_ms(request_ms: int, number: int) -> int:
    return request_ms - request_ms % _EVERY_MS + number * _EVERY_MS


def control(deployment: SidecarDeployment, action: bytes, *more: tuple[str, bytes]) -> Sent:
    """Pauses, resumes, triggers or backfills the schedule with the id `controlled`."""
    headers: Headers = [(ACTION, action), (ID, b"controlled"), *more]
    sender = deployment.sender()
    sent = sender.send(deployment.requests[0], Sent("", b"", None, headers), partition=0)
    sender.flush()
    return sent


def occurrences_of(deployment: SidecarDeployment, origin: bytes, count: int = 0) -> list[Seen]:
    """Returns the occurrences of a schedule on the target, after there are at least `count`."""
    reader = deployment.reader(deployment.targets[0])
    timeout_s = WAIT_TIMEOUT_S + count * _EVERY_MS / 1000
    try:
        reader.until(lambda: sum(s.origin == origin for s in reader.records) >= count, f"{count} are there", timeout_s)
        return [seen for seen in reader.to_end() if seen.origin == origin]
    finally:
        reader.close()


def assert_once_each(occurrences: list[Seen], request_ms: int, numbers: range) -> None:
    counted = Counter(int(seen.last("postdate-occurrence")) for seen in occurrences)
    assert counted == Counter(numbers), f"not once each: {counted}"
    for seen in occurrences:
        number = int(seen.last("postdate-occurrence"))
        assert int(seen.last("postdate-due")) == nominal_ms(request_ms, number)
        assert seen.timestamp_ms >= nominal_ms(request_ms, number), "early by the clock of the target"
        assert (seen.key, seen.value) == (b"key", b"value")


def new_sidecar(deployment: SidecarDeployment) -> Sidecar:
    sidecar = deployment.new_sidecar(static=True)
    sidecar.format_version = 3
    return sidecar


@pytest.mark.timeout(600 + 2 * _COUNT)
def test_a_schedule_that_fires_every_second_survives_kills(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(deployment)
    sidecar.start()
    sidecar.wait_for_shards(1)
    origin, request_ms = calendar(deployment, b"every-second", ("postdate-count", b"%d" % _COUNT))
    for number in range(_KILLS):
        # Relative to the occurrences, each kill comes a tenth of a second later than the previous kill.
        at_s = nominal_ms(request_ms, _KILL_EVERY * number + 2) / 1000 + 0.1 * (number % 10)
        threading.Event().wait(max(at_s - time.time(), 0.0))
        sidecar.kill()
        if number == _KILLS // 2:
            shutil.rmtree(sidecar.data_dir)
        sidecar.start()
    occurrences_of(deployment, origin, _COUNT)
    deployment.wait_for_ends(1)
    assert sidecar.stop() == 0
    occurrences = occurrences_of(deployment, origin)
    assert_once_each(occurrences, request_ms, range(1, _COUNT + 1))
    late_ms = sorted(seen.timestamp_ms - int(seen.last("postdate-due")) for seen in occurrences)
    p50_ms = late_ms[len(occurrences) // 2]
    print(f"\n{len(occurrences)} occurrences, {_KILLS} kills: {p50_ms} ms late (p50), {late_ms[-1]} (most)")


@pytest.mark.timeout(600)
def test_missed_occurrences_follow_their_policy_and_controls_end_schedules(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(deployment)
    sidecar.start()
    sidecar.wait_for_shards(1)
    every, all_ms = calendar(deployment, b"all", ("postdate-count", b"12"))
    newest, newest_ms = calendar(deployment, b"last", ("postdate-count", b"12"), ("postdate-missed", b"last"))
    cancelled, _ = calendar(deployment, b"cancelled")
    occurrences_of(deployment, cancelled, 2)
    sidecar.kill()
    threading.Event().wait(max(nominal_ms(newest_ms, 12) / 1000 + 0.5 - time.time(), 0.0))
    sender = deployment.sender()
    cancel = Sent("", b"", None, [(ACTION, b"cancel"), (ID, b"cancelled")])
    sender.send(deployment.requests[0], cancel, partition=0)
    sender.flush()
    sidecar.start()
    deployment.wait_for_ends(4)
    assert sidecar.stop() == 0
    assert_once_each(occurrences_of(deployment, every), all_ms, range(1, 13))
    numbers = sorted(int(seen.last("postdate-occurrence")) for seen in occurrences_of(deployment, newest))
    assert numbers[-1] == 12
    assert len(numbers) == len(set(numbers)) < 12, "the missed ones are skipped"
    assert all(int(seen.last("postdate-due")) <= cancel.appended_ms for seen in occurrences_of(deployment, cancelled))


@pytest.mark.timeout(600)
def test_a_pause_skips_what_lies_in_it_through_a_kill_and_a_lost_disk(deployment: SidecarDeployment) -> None:
    requests = deployment.new_requests(1)
    target = deployment.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(deployment)
    sidecar.start()
    sidecar.wait_for_shards(1)
    origin, request_ms = calendar(deployment, b"controlled", ("postdate-count", b"14"))
    occurrences_of(deployment, origin, 2)
    pause = control(deployment, b"pause")
    threading.Event().wait(max(pause.appended_ms / 1000 + 2.5 - time.time(), 0.0))
    sidecar.kill()
    shutil.rmtree(sidecar.data_dir)
    sidecar.start()
    threading.Event().wait(max(pause.appended_ms / 1000 + 4.5 - time.time(), 0.0))
    resume = control(deployment, b"resume")
    deployment.wait_for_ends(3)
    assert sidecar.stop() == 0
    fates = [fate for _, record in gather(deployment.bootstrap, [requests], [target]).log for fate in record.fates]
    assert [fate.control for fate in fates if isinstance(fate, PausedOrResumed)] == [1, 2]
    paused_at = next(index for index, fate in enumerate(fates) if isinstance(fate, PausedOrResumed))
    in_pause = {n for n in range(1, 15) if pause.appended_ms <= nominal_ms(request_ms, n) < resume.appended_ms}
    early = {fate.number for fate in fates[:paused_at] if isinstance(fate, Occurred)}  # before the pause was read
    skipped = [n for fate in fates if isinstance(fate, Skipped) for n in range(fate.number, fate.last + 1)]
    assert {fate.reason for fate in fates if isinstance(fate, Skipped)} == {"paused"}
    assert sorted(skipped) == sorted(in_pause - early)
    assert len(skipped) >= 3
    numbers = Counter(int(seen.last("postdate-occurrence")) for seen in occurrences_of(deployment, origin))
    assert numbers == Counter(set(range(1, 15)) - set(skipped))


@pytest.mark.timeout(600)
def test_extra_deliveries_leave_once_through_a_kill_and_a_lost_disk(deployment: SidecarDeployment) -> None:
    """The process is killed while it delivers a backfill of several transactions, before or after the first one."""
    requests = deployment.new_requests(1)
    target = deployment.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(deployment)
    sidecar.start()
    sidecar.wait_for_shards(1)
    origin, request_ms = calendar(deployment, b"controlled", ("postdate-count", b"8"))
    occurrences_of(deployment, origin, 2)
    triggers = [control(deployment, b"trigger") for _ in range(3)]
    times_ms = range(nominal_ms(request_ms, -_FILLED), nominal_ms(request_ms, 0), _EVERY_MS)
    bounds = ("postdate-start", b"%d" % times_ms[0]), ("postdate-end", b"%d" % times_ms[-1])
    backfill = control(deployment, b"backfill", *bounds)
    occurrences_of(deployment, origin, 3)
    sidecar.kill()
    shutil.rmtree(sidecar.data_dir)
    sidecar.start()
    triggers += [control(deployment, b"trigger") for _ in range(2)]
    deployment.wait_for_ends(7)
    assert sidecar.stop() == 0
    log = [record.fates for _, record in gather(deployment.bootstrap, [requests], [target]).log]
    dues_ms = {f"{trigger.origin.decode()}/1": trigger.appended_ms for trigger in triggers}
    dues_ms |= {f"{backfill.origin.decode()}/{number}": due_ms for number, due_ms in enumerate(times_ms, 1)}
    extras = [[fate for fate in fates if isinstance(fate, ExtraFate)] for fates in log]
    assert Counter(fate.control for fates in extras for fate in fates) == {1: 1, 2: 1, 3: 1, 4: _FILLED, 5: 1, 6: 1}
    assert 1 < max(map(len, extras)) <= 1_001, "a transaction is bounded"
    seen = occurrences_of(deployment, origin)
    extra = [record for record in seen if any(name == "postdate-extra" for name, _ in record.headers)]
    delivered = [(record.last("postdate-extra").decode(), int(record.last("postdate-due"))) for record in extra]
    assert sorted(delivered) == sorted(dues_ms.items())
    numbers = [int(record.last("postdate-occurrence")) for record in seen if record not in extra]
    assert sorted(numbers) == [*range(1, 9)], "an extra delivery consumes no number"


def test_a_deployment_accepts_schedules_once_it_has_the_setting(deployment: SidecarDeployment) -> None:
    deployment.new_requests(1)
    deployment.new_target(message_timestamp_type="LogAppendTime")
    sidecar = deployment.new_sidecar(static=True)
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = deployment.sender()
    headers: Headers = [(TOPIC, deployment.targets[0].encode()), (ID, b"c"), ("postdate-every", b"1s")]
    sent = sender.send(deployment.requests[0], Sent(deployment.targets[0], b"k", b"v", headers, 1), partition=0)
    sender.flush()
    deployment.wait_for_ends(1)
    outcome = deployment.judge([], dead=[sent])
    assert outcome.reasons() == {"unknown-header": 1}
    assert b"format_version = 3" in outcome.dead[0].last("postdate-dead-detail")
    sidecar.stop()
    sidecar.format_version = 3
    sidecar.start()
    origin, request_ms = calendar(deployment, b"c", ("postdate-count", b"2"))
    deployment.wait_for_ends(2)
    assert_once_each(occurrences_of(deployment, origin), request_ms, range(1, 3))
