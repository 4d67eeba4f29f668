"""Goal: each occurrence of a recurring schedule is delivered once, at its nominal time or later, through SIGKILLs and
a lost disk; and a deployment accepts schedules once its members have the setting.

Method: a real broker, schedules with fixed intervals, and processes that are killed. The nominal times are computed
here by arithmetic from the timestamps that the broker gave the requests, and compared with what the target holds.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter

import pytest

from postdate.wire.dispatch_log import ExtraFate, Occurred, Skipped, Switched
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


def calendar(env: SidecarDeployment, caller_id: bytes, *more: tuple[str, bytes]) -> tuple[bytes, int]:
    """Sends a schedule that fires every second. Returns its origin, and the timestamp of its request."""
    given: Headers = [(TOPIC, env.targets[0].encode()), (ID, caller_id), ("postdate-every", b"1s"), *more]
    sender = env.sender()
    sent = sender.send(env.requests[0], Sent(env.targets[0], b"key", b"value", given, 0), partition=0)
    sender.flush()
    return sent.origin, sent.appended_ms


def nominal_ms(asked_ms: int, number: int) -> int:
    return asked_ms - asked_ms % _EVERY_MS + number * _EVERY_MS


def control(env: SidecarDeployment, action: bytes, *more: tuple[str, bytes]) -> Sent:
    """Pauses, resumes, triggers or backfills the schedule with the id `controlled`."""
    given: Headers = [(ACTION, action), (ID, b"controlled"), *more]
    sender = env.sender()
    sent = sender.send(env.requests[0], Sent("", b"", None, given), partition=0)
    sender.flush()
    return sent


def of_origin(env: SidecarDeployment, origin: bytes, count: int = 0) -> list[Seen]:
    """The occurrences of a schedule on the target, read when there are `count` of them."""
    reader = env.reader(env.targets[0])
    timeout_s = WAIT_TIMEOUT_S + count * _EVERY_MS / 1000
    try:
        reader.until(lambda: sum(s.origin == origin for s in reader.records) >= count, f"{count} are there", timeout_s)
        return [seen for seen in reader.to_end() if seen.origin == origin]
    finally:
        reader.close()


def assert_once_each(found: list[Seen], asked_ms: int, numbers: range) -> None:
    counted = Counter(int(seen.last("postdate-occurrence")) for seen in found)
    assert counted == Counter(numbers), f"not once each: {counted}"
    for seen in found:
        number = int(seen.last("postdate-occurrence"))
        assert int(seen.last("postdate-due")) == nominal_ms(asked_ms, number)
        assert seen.timestamp_ms >= nominal_ms(asked_ms, number), "early by the clock of the target"
        assert (seen.key, seen.value) == (b"key", b"value")


def new_sidecar(env: SidecarDeployment) -> Sidecar:
    sidecar = env.new_sidecar(static=True)
    sidecar.format_version = 3
    return sidecar


@pytest.mark.timeout(600 + 2 * _COUNT)
def test_a_schedule_that_fires_every_second_survives_kills(env: SidecarDeployment) -> None:
    env.new_requests(1)
    env.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(env)
    sidecar.start()
    sidecar.wait_for_shards(1)
    origin, asked_ms = calendar(env, b"every-second", ("postdate-count", b"%d" % _COUNT))
    for number in range(_KILLS):
        # A tenth of a second later each time, relative to the occurrences.
        at_s = nominal_ms(asked_ms, _KILL_EVERY * number + 2) / 1000 + 0.1 * (number % 10)
        threading.Event().wait(max(at_s - time.time(), 0.0))
        sidecar.kill()
        if number == _KILLS // 2:
            shutil.rmtree(sidecar.data_dir)
        sidecar.start()
    of_origin(env, origin, _COUNT)
    env.wait_for_ends(1)
    assert sidecar.stop() == 0
    found = of_origin(env, origin)
    assert_once_each(found, asked_ms, range(1, _COUNT + 1))
    late_ms = sorted(seen.timestamp_ms - int(seen.last("postdate-due")) for seen in found)
    print(f"\n{len(found)} occurrences, {_KILLS} kills: {late_ms[len(found) // 2]} ms late (p50), {late_ms[-1]} (most)")


@pytest.mark.timeout(600)
def test_missed_occurrences_follow_their_policy_and_controls_end_schedules(env: SidecarDeployment) -> None:
    env.new_requests(1)
    env.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(env)
    sidecar.start()
    sidecar.wait_for_shards(1)
    every, all_ms = calendar(env, b"all", ("postdate-count", b"12"))
    newest, newest_ms = calendar(env, b"last", ("postdate-count", b"12"), ("postdate-missed", b"last"))
    cancelled, _ = calendar(env, b"cancelled")
    of_origin(env, cancelled, 2)
    sidecar.kill()
    threading.Event().wait(max(nominal_ms(newest_ms, 12) / 1000 + 0.5 - time.time(), 0.0))
    sender = env.sender()
    cancel = Sent("", b"", None, [(ACTION, b"cancel"), (ID, b"cancelled")])
    sender.send(env.requests[0], cancel, partition=0)
    sender.flush()
    sidecar.start()
    env.wait_for_ends(4)
    assert sidecar.stop() == 0
    assert_once_each(of_origin(env, every), all_ms, range(1, 13))
    numbers = sorted(int(seen.last("postdate-occurrence")) for seen in of_origin(env, newest))
    assert numbers[-1] == 12
    assert len(numbers) == len(set(numbers)) < 12, "the missed ones are skipped"
    assert all(int(seen.last("postdate-due")) <= cancel.appended_ms for seen in of_origin(env, cancelled))


@pytest.mark.timeout(600)
def test_a_pause_skips_what_lies_in_it_through_a_kill_and_a_lost_disk(env: SidecarDeployment) -> None:
    requests = env.new_requests(1)
    target = env.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(env)
    sidecar.start()
    sidecar.wait_for_shards(1)
    origin, asked_ms = calendar(env, b"controlled", ("postdate-count", b"14"))
    of_origin(env, origin, 2)
    pause = control(env, b"pause")
    threading.Event().wait(max(pause.appended_ms / 1000 + 2.5 - time.time(), 0.0))
    sidecar.kill()
    shutil.rmtree(sidecar.data_dir)
    sidecar.start()
    threading.Event().wait(max(pause.appended_ms / 1000 + 4.5 - time.time(), 0.0))
    resume = control(env, b"resume")
    env.wait_for_ends(3)
    assert sidecar.stop() == 0
    fates = [fate for _, record in gather(env.bootstrap, [requests], [target]).log for fate in record.fates]
    assert [each.control for each in fates if isinstance(each, Switched)] == [1, 2]
    paused_at = next(at for at, fate in enumerate(fates) if isinstance(fate, Switched))
    in_pause = {n for n in range(1, 15) if pause.appended_ms <= nominal_ms(asked_ms, n) < resume.appended_ms}
    early = {fate.number for fate in fates[:paused_at] if isinstance(fate, Occurred)}  # before the pause was read
    skipped = [n for each in fates if isinstance(each, Skipped) for n in range(each.number, each.last + 1)]
    assert {each.reason for each in fates if isinstance(each, Skipped)} == {"paused"}
    assert sorted(skipped) == sorted(in_pause - early)
    assert len(skipped) >= 3
    numbers = Counter(int(seen.last("postdate-occurrence")) for seen in of_origin(env, origin))
    assert numbers == Counter(set(range(1, 15)) - set(skipped))


@pytest.mark.timeout(600)
def test_extra_deliveries_leave_once_through_a_kill_and_a_lost_disk(env: SidecarDeployment) -> None:
    """The process is killed while a backfill of several transactions leaves, before or behind the first one."""
    requests = env.new_requests(1)
    target = env.new_target(message_timestamp_type="LogAppendTime")
    sidecar = new_sidecar(env)
    sidecar.start()
    sidecar.wait_for_shards(1)
    origin, asked_ms = calendar(env, b"controlled", ("postdate-count", b"8"))
    of_origin(env, origin, 2)
    triggers = [control(env, b"trigger") for _ in range(3)]
    times_ms = range(nominal_ms(asked_ms, -_FILLED), nominal_ms(asked_ms, 0), _EVERY_MS)
    bounds = ("postdate-start", b"%d" % times_ms[0]), ("postdate-end", b"%d" % times_ms[-1])
    backfill = control(env, b"backfill", *bounds)
    of_origin(env, origin, 3)
    sidecar.kill()
    shutil.rmtree(sidecar.data_dir)
    sidecar.start()
    triggers += [control(env, b"trigger") for _ in range(2)]
    env.wait_for_ends(7)
    assert sidecar.stop() == 0
    log = [record.fates for _, record in gather(env.bootstrap, [requests], [target]).log]
    dues_ms = {f"{each.origin.decode()}/1": each.appended_ms for each in triggers}
    dues_ms |= {f"{backfill.origin.decode()}/{number}": due_ms for number, due_ms in enumerate(times_ms, 1)}
    extras = [[each for each in fates if isinstance(each, ExtraFate)] for fates in log]
    assert Counter(each.control for fates in extras for each in fates) == {1: 1, 2: 1, 3: 1, 4: _FILLED, 5: 1, 6: 1}
    assert 1 < max(map(len, extras)) <= 1_001, "a transaction is bounded"
    seen = of_origin(env, origin)
    extra = [each for each in seen if any(name == "postdate-extra" for name, _ in each.headers)]
    found = [(each.last("postdate-extra").decode(), int(each.last("postdate-due"))) for each in extra]
    assert sorted(found) == sorted(dues_ms.items())
    numbers = [int(each.last("postdate-occurrence")) for each in seen if each not in extra]
    assert sorted(numbers) == [*range(1, 9)], "an extra delivery consumes no number"


def test_a_deployment_accepts_schedules_once_it_has_the_setting(env: SidecarDeployment) -> None:
    env.new_requests(1)
    env.new_target(message_timestamp_type="LogAppendTime")
    sidecar = env.new_sidecar(static=True)
    sidecar.format_version = 2
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = env.sender()
    given: Headers = [(TOPIC, env.targets[0].encode()), (ID, b"c"), ("postdate-every", b"1s")]
    sent = sender.send(env.requests[0], Sent(env.targets[0], b"k", b"v", given, 1), partition=0)
    sender.flush()
    env.wait_for_ends(1)
    outcome = env.judge([], dead=[sent])
    assert outcome.reasons() == {"unknown-header": 1}
    assert b"format_version = 3" in outcome.dead[0].last("postdate-dead-detail")
    sidecar.stop()
    sidecar.format_version = 3
    sidecar.start()
    origin, asked_ms = calendar(env, b"c", ("postdate-count", b"2"))
    env.wait_for_ends(2)
    assert_once_each(of_origin(env, origin), asked_ms, range(1, 3))
