"""Goal: after an outage, each recurring schedule follows its policy for missed occurrences exactly: `all`, `last` or
`none`, with intervals and with cron expressions in zones.

Method: a real broker. Half of the schedules are accepted before the only process is killed. The other half are
requested during the outage, with a start time in the past. The test computes the nominal times. Each of them must have
one fate, and each occurrence in the dispatch log one record on the target. The test derives the occurrences that must
be skipped from the time of the restart and from the broker's timestamps of the fates, so a slow machine does not
matter.
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

#: The partitions of the request topic.
_PARTITIONS = 4
#: Milliseconds: schedules that are requested during the outage start so long before their request. So `none` skips
#: occurrences even if the outage is short.
_PAST_MS = max(1_000 * _OUTAGE_S, 150_000)
_INTERVALS_S = [
    seconds for seconds in (1, 2, 5, 15, 60, 300, 900, 3_600) if _OUTAGE_S <= 60 * seconds <= 60 * _OUTAGE_S
]
_POLICIES = ("all", "last", "none")
#: Zones whose offsets from UTC are whole hours.
_ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "Pacific/Auckland")


class _Log:
    """Reads the dispatch log, and collects the fates of each schedule by its origin."""

    def __init__(self, deployment: SidecarDeployment) -> None:
        self.stored = 0
        self.steps: dict[bytes, list[MissedStep]] = {}
        self._requests = deployment.requests[0]
        self._reader = deployment.reader(f"{self._requests}.dispatch-log")

    def until_stored(self, count: int) -> None:
        self._reader.until(lambda: self._take() and self.stored >= count, f"{count} schedules are stored")

    def until_decided(self, calendars: list[Calendar], at_ms: int) -> None:
        """Reads until every nominal time before `at_ms` has a fate.

        Each schedule with `last` must also have delivered its newest missed occurrence, which may leave in a later
        transaction than the one that skips the others.
        """
        for calendar in calendars:
            calendar.steps = self.steps.setdefault(calendar.sent.origin, [])
        undecided = {calendar.sent.origin: calendar for calendar in calendars}

        def all_decided() -> bool:
            self._take()
            for origin in [origin for origin, calendar in undecided.items() if calendar.is_decided(at_ms)]:
                del undecided[origin]
            return not undecided

        self._reader.until(all_decided, "each missed occurrence has a fate", WAIT_TIMEOUT_S + _OUTAGE_S)

    def close(self) -> None:
        """Reads the rest of the log, and closes the reader."""
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
    """Returns the cron expression of the times t with t modulo `interval_s` = `phase_s`."""
    minute, second = divmod(phase_s, 60)
    if interval_s < 60:
        return b"%d-59/%d * * * * *" % (second, interval_s)
    minutes = {60: b"*", 3_600: b"%d" % minute}.get(interval_s, b"%d-59/%d" % (minute, interval_s // 60))
    return b"%d %b * * * *" % (second, minutes)


def request(deployment: SidecarDeployment, number: int, start_ms: int) -> Calendar:
    """Returns the schedule with this number. The number determines policy, interval and the kind of expression."""
    policy, interval_s = _POLICIES[number % 3], _INTERVALS_S[number // 6 % len(_INTERVALS_S)]
    phase_s = number * 7_919 % interval_s
    headers: Headers = [(TOPIC, deployment.targets[0].encode()), (ID, b"schedule-%d" % number)]
    headers += [("postdate-missed", policy.encode()), ("postdate-start", b"%d" % start_ms)]
    if number // 3 % 2:
        zone = _ZONES[number % len(_ZONES)].encode()
        headers += [("postdate-cron", cron(interval_s, phase_s)), ("postdate-zone", zone)]
    else:
        headers += [("postdate-every", b"%ds/%ds" % (interval_s, phase_s))]
    interval_ms, phase_ms = 1_000 * interval_s, 1_000 * phase_s
    first_ms = start_ms + (phase_ms - start_ms) % interval_ms
    return Calendar(Sent(deployment.targets[0], b"key", b"%d" % number, headers), policy, first_ms, interval_ms)


def send(deployment: SidecarDeployment, numbers: range, start_ms: int) -> list[Calendar]:
    calendars = [request(deployment, number, start_ms) for number in numbers]
    sender = deployment.sender()
    for number, calendar in zip(numbers, calendars, strict=True):
        sender.send(deployment.requests[0], calendar.sent, number % _PARTITIONS)
    sender.flush()
    return calendars


def wait_in_outage(sidecar: Sidecar) -> None:
    sidecar.kill()
    threading.Event().wait(_OUTAGE_S)


def assert_target_matches_log(deployment: SidecarDeployment, calendars: list[Calendar]) -> int:
    """Fails unless the target and the dispatch log have the same occurrences, and returns how many the target has."""
    values = {calendar.sent.origin: calendar.sent.value for calendar in calendars}
    reader, delivered = Reader(deployment.bootstrap, deployment.targets), Counter[tuple[bytes, int, int]]()
    for seen in reader.passing():
        delivered[(seen.origin, int(seen.last("postdate-occurrence")), int(seen.last("postdate-due")))] += 1
        assert seen.timestamp_ms >= int(seen.last("postdate-due")), "early by the clock of the target"
        assert (seen.key, seen.value) == (b"key", values[seen.origin])
    reader.close()
    fates = [
        (calendar.sent.origin, step.fate)
        for calendar in calendars
        for step in calendar.steps
        if isinstance(step.fate, Occurred)
    ]
    assert delivered == Counter((origin, fate.number, fate.nominal_ms) for origin, fate in fates)
    return delivered.total()


@pytest.mark.timeout(900 + 3 * _OUTAGE_S)
def test_schedules_follow_their_policies_after_an_outage(deployment: SidecarDeployment) -> None:
    deployment.new_requests(_PARTITIONS)
    deployment.new_target(message_timestamp_type="LogAppendTime")
    sidecar = deployment.new_sidecar(static=True)
    sidecar.format_version = 3
    sidecar.start()
    sidecar.wait_for_shards(_PARTITIONS)
    half, log = _SCHEDULES // 2, _Log(deployment)
    calendars = send(deployment, range(half), time.time_ns() // 1_000_000)
    log.until_stored(half)
    wait_in_outage(sidecar)
    calendars += send(deployment, range(half, 2 * half), time.time_ns() // 1_000_000 - _PAST_MS)
    restarted_ms = time.time_ns() // 1_000_000
    sidecar.start()
    log.until_decided(calendars, restarted_ms)
    assert sidecar.stop() == 0
    log.close()
    wrong = [fault for calendar in calendars for fault in faults(calendar, sidecar.instance, restarted_ms)]
    assert not wrong, f"{len(wrong)} faults:\n" + "\n".join(wrong[:10])
    delivered, skipped = assert_target_matches_log(deployment, calendars), Counter[str]()
    for calendar in calendars:
        fates = [step.fate for step in calendar.steps]
        skipped[calendar.missed] += sum(fate.last - fate.number + 1 for fate in fates if isinstance(fate, Skipped))
    print(f"\n{len(calendars)} schedules, {_OUTAGE_S} s without a process: {delivered} delivered, skipped {skipped}")
    assert all(skipped[policy] for policy in ("last", "none")), "the outage was too short to skip any"
