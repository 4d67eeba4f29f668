"""Goal: after an outage, each recurring schedule follows its policy for missed occurrences exactly: `all`, `last` or
`none`, with intervals and with cron expressions in zones.

Method: a real broker. Half of the schedules are accepted before the only process is killed, and half are requested
during the outage with a start that has passed. The nominal times are computed here by arithmetic. Each of them must
have one fate, and each occurrence in the dispatch log one record on the target. Which occurrences must be skipped
follows from the time of the restart and from the broker's timestamps of the fates, so a slow machine does not matter.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter

import pytest

from postdate.wire.dispatch_log import STORED, DispatchRecord, Occurred, Skipped, decode_record
from postdate.wire.headers import ID, TOPIC, Headers
from support.audits.missed_occurrences import Calendar, MissedStep, faults
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Reader, Sent
from support.oracles.expected_records import origin_of
from support.waiting.timeouts import WAIT_TIMEOUT_S

_SCHEDULES = int(os.environ.get("POSTDATE_OUTAGE_SCHEDULES", "72"))
_OUTAGE_S = int(os.environ.get("POSTDATE_OUTAGE_SECONDS", "6"))

#: Of the request topic.
_PARTITIONS = 4
#: ms. The schedules of the outage start that long before they are requested: `none` skips some in a short one, too.
_PAST_MS = max(1_000 * _OUTAGE_S, 150_000)
_INTERVALS_S = [each for each in (1, 2, 5, 15, 60, 300, 900, 3_600) if _OUTAGE_S <= 60 * each <= 60 * _OUTAGE_S]
_POLICIES = ("all", "last", "none")
#: Their clocks differ from UTC by whole hours.
_ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Pacific/Auckland")


class _Log:
    """The dispatch log, as far as it was read, by the origins of the schedules."""

    def __init__(self, env: SidecarDeployment) -> None:
        self.stored = 0
        self.steps: dict[bytes, list[MissedStep]] = {}
        self._requests = env.requests[0]
        self._reader = env.reader(f"{self._requests}.dispatch-log")

    def until_stored(self, count: int) -> None:
        self._reader.until(lambda: self._take() and self.stored >= count, f"{count} schedules are stored")

    def until_decided(self, calendars: list[Calendar], at_ms: int) -> None:
        """Reads until every nominal time before `at_ms` has a fate, and each `last` schedule has delivered the newest,
        which may leave in a later transaction than the skip of the others."""
        for each in calendars:
            each.steps = self.steps.setdefault(each.sent.origin, [])
        behind = {each.sent.origin: each for each in calendars}

        def passed() -> bool:
            self._take()
            for origin in [origin for origin, each in behind.items() if each.is_decided(at_ms)]:
                del behind[origin]
            return not behind

        self._reader.until(passed, "each missed occurrence has a fate", WAIT_TIMEOUT_S + _OUTAGE_S)

    def close(self) -> None:
        """Reads what is left, too."""
        self._reader.to_end()
        self._take()
        self._reader.close()

    def _take(self) -> bool:
        for seen in self._reader.forgotten():
            record: DispatchRecord = decode_record(seen.value)
            for fate in record.fates:
                if isinstance(fate, Occurred | Skipped):
                    origin = origin_of(self._requests, seen.partition, fate.offset)
                    self.steps.setdefault(origin, []).append(MissedStep(fate, seen.timestamp_ms, record.instance))
                elif fate.name == STORED:
                    self.stored += 1
        return True


def cron(interval_s: int, phase_s: int) -> bytes:
    """The expression of the times that leave `phase_s` when they are divided by the interval."""
    minute, second = divmod(phase_s, 60)
    if interval_s < 60:
        return b"%d-59/%d * * * * *" % (second, interval_s)
    minutes = {60: b"*", 3_600: b"%d" % minute}.get(interval_s, b"%d-59/%d" % (minute, interval_s // 60))
    return b"%d %b * * * *" % (second, minutes)


def request(env: SidecarDeployment, number: int, start_ms: int) -> Calendar:
    """A schedule with one of the policies and intervals; of these, every second one is a cron expression."""
    policy, interval_s = _POLICIES[number % 3], _INTERVALS_S[number // 6 % len(_INTERVALS_S)]
    phase_s = number * 7_919 % interval_s
    given: Headers = [(TOPIC, env.targets[0].encode()), (ID, b"schedule-%d" % number)]
    given += [("postdate-missed", policy.encode()), ("postdate-start", b"%d" % start_ms)]
    if number // 3 % 2:
        zone = _ZONES[number % len(_ZONES)].encode()
        given += [("postdate-cron", cron(interval_s, phase_s)), ("postdate-zone", zone)]
    else:
        given += [("postdate-every", b"%ds/%ds" % (interval_s, phase_s))]
    interval_ms, phase_ms = 1_000 * interval_s, 1_000 * phase_s
    first_ms = start_ms + (phase_ms - start_ms) % interval_ms
    return Calendar(Sent(env.targets[0], b"key", b"%d" % number, given), policy, first_ms, interval_ms)


def send(env: SidecarDeployment, numbers: range, start_ms: int) -> list[Calendar]:
    calendars = [request(env, number, start_ms) for number in numbers]
    sender = env.sender()
    for number, each in zip(numbers, calendars, strict=True):
        sender.send(env.requests[0], each.sent, number % _PARTITIONS)
    sender.flush()
    return calendars


def wait_in_outage(sidecar: Sidecar) -> None:
    sidecar.kill()
    threading.Event().wait(_OUTAGE_S)


def assert_delivered_as_the_log_says(env: SidecarDeployment, calendars: list[Calendar]) -> int:
    """Returns how many occurrences the target has."""
    values = {each.sent.origin: each.sent.value for each in calendars}
    reader, found = Reader(env.bootstrap, env.targets), Counter[tuple[bytes, int, int]]()
    for seen in reader.passing():
        found[(seen.origin, int(seen.last("postdate-occurrence")), int(seen.last("postdate-due")))] += 1
        assert seen.timestamp_ms >= int(seen.last("postdate-due")), "early by the clock of the target"
        assert (seen.key, seen.value) == (b"key", values[seen.origin])
    reader.close()
    fates = [(each.sent.origin, s.fate) for each in calendars for s in each.steps if isinstance(s.fate, Occurred)]
    assert found == Counter((origin, fate.number, fate.nominal_ms) for origin, fate in fates)
    return found.total()


@pytest.mark.timeout(900 + 3 * _OUTAGE_S)
def test_schedules_follow_their_policies_after_an_outage(env: SidecarDeployment) -> None:
    env.new_requests(_PARTITIONS)
    env.new_target(message_timestamp_type="LogAppendTime")
    sidecar = env.new_sidecar(static=True)
    sidecar.format_version = 3
    sidecar.start()
    sidecar.wait_for_shards(_PARTITIONS)
    half, log = _SCHEDULES // 2, _Log(env)
    calendars = send(env, range(half), time.time_ns() // 1_000_000)
    log.until_stored(half)
    wait_in_outage(sidecar)
    calendars += send(env, range(half, 2 * half), time.time_ns() // 1_000_000 - _PAST_MS)
    restarted_ms = time.time_ns() // 1_000_000
    sidecar.start()
    log.until_decided(calendars, restarted_ms)
    assert sidecar.stop() == 0
    log.close()
    wrong = [fault for each in calendars for fault in faults(each, sidecar.instance, restarted_ms)]
    assert not wrong, f"{len(wrong)} faults:\n" + "\n".join(wrong[:10])
    delivered, skipped = assert_delivered_as_the_log_says(env, calendars), Counter[str]()
    for each in calendars:
        skipped[each.missed] += sum(s.fate.last - s.fate.number + 1 for s in each.steps if isinstance(s.fate, Skipped))
    print(f"\n{len(calendars)} schedules, {_OUTAGE_S} s without a process: {delivered} delivered, skipped {skipped}")
    assert all(skipped[policy] for policy in ("last", "none")), "the outage was too short to skip any"
