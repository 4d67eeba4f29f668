"""The cases `schedules`: many recurring schedules in one process, and their lateness beside that of single messages.

Half of the schedules fire at an interval, and half by a cron expression in a zone. The nominal times are computed here,
by arithmetic and with zoneinfo, and every occurrence on the target is compared with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np

from postdate.kafka.interface import Isolation, Partition
from postdate.sidecar.cluster.connection import admin_of
from postdate.sidecar.errors import PostdateError, TransientError
from postdate.tools.bench.environment import BenchEnvironment, Request
from postdate.tools.bench.figures import Figures, Lateness, percentiles
from postdate.tools.bench.journal import Arrivals, Journal, read_to_end
from postdate.tools.bench.limits import (
    CASE_TIMEOUT_S,
    PARTITIONS,
    READ_PAUSE_S,
    READ_RECORDS_MAX,
    TARGET_PARTITIONS,
    WARM_UP_S,
)
from postdate.tools.bench.steady import DELAY_MS, LoadGenerator
from postdate.wire import headers as names
from postdate.wire.dispatch_log import OCCURRED
from postdate.wire.topics import OwnTopics

#: The format version in which schedules are accepted.
_FORMAT_VERSION = 3
#: Occurrences a second that fall due in the first case: a little more than its target, so that the load does not limit
#: the rate.
_OFFERED_PER_S = 22_000
#: Milliseconds: the interval of half of the schedules of the first case; the others are daily. Each schedule fires once
#: during the measurement.
_HOUR_MS = 3_600_000
#: Milliseconds from the start of sending to the first due time: at least, and for each schedule of the first case. If a
#: lead was too short, it is doubled.
_LEAD_MS_MIN = 15_000
_LEAD_MS_PER_SCHEDULE = 0.15
_LEADS_MAX = 4
#: Seconds: the interval of the schedules of the second case.
_OFTEN_S = 5
#: Each differs from UTC by whole hours, so the minutes of a cron expression are those of UTC.
_ZONES = (
    "Africa/Cairo",
    "America/Chicago",
    "America/Los_Angeles",
    "America/New_York",
    "America/Sao_Paulo",
    "Asia/Singapore",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/London",
    "Pacific/Auckland",
    "UTC",
)


@dataclass(frozen=True, slots=True)
class BenchSchedule:
    """A schedule: the headers that describe it, its first nominal time in the measured period, and its interval."""

    headers: list[tuple[str, bytes | None]]
    first_ms: int
    interval_ms: int

    def request(self, number: int, target: str, start_ms: int) -> Request:
        id = b"schedule-%d" % number
        return id, [
            (names.TOPIC, target.encode()),
            (names.ID, id),
            (names.START, b"%d" % start_ms),
            *self.headers,
            ("n", b"%d" % number),
        ]


def hourly_or_daily(number: int, at_ms: int) -> BenchSchedule:
    """Returns a schedule. With an even `number`, it fires at `at_ms` and then every hour. With an odd number, it fires
    at the second of `at_ms` and then daily, at the same local time of a zone."""
    if number % 2 == 0:
        return BenchSchedule([(names.EVERY, b"1h/%dms" % (at_ms % _HOUR_MS))], at_ms, _HOUR_MS)
    zone = _ZONES[number // 2 % len(_ZONES)]
    at_s = at_ms // 1_000
    wall = datetime.fromtimestamp(at_s, ZoneInfo(zone))
    cron = b"%d %d %d * * *" % (wall.second, wall.minute, wall.hour)
    return BenchSchedule([(names.CRON, cron), (names.ZONE, zone.encode())], at_s * 1_000, 24 * _HOUR_MS)


def fires_every_few_seconds(number: int, count: int, start_ms: int) -> BenchSchedule:
    """Returns a schedule that fires every _OFTEN_S from `start_ms` on. The phases of schedules with an interval divide
    this time evenly; schedules with a cron expression fire at whole seconds."""
    interval_ms = 1_000 * _OFTEN_S
    if number % 2 == 0:
        phase_ms = number * interval_ms // count
        headers = [(names.EVERY, b"%ds/%dms" % (_OFTEN_S, phase_ms))]
    else:
        phase_s = number // 2 % _OFTEN_S
        phase_ms = 1_000 * phase_s
        zone = _ZONES[number // 2 % len(_ZONES)].encode()
        headers = [(names.CRON, b"%d-59/%d * * * * *" % (phase_s, _OFTEN_S)), (names.ZONE, zone)]
    return BenchSchedule([*headers], start_ms + (phase_ms - start_ms) % interval_ms, interval_ms)


def schedules_once(environment: BenchEnvironment, count: int) -> Figures:
    """Holds `count` schedules. Each fires once, and _OFFERED_PER_S of them fire in each second.

    An occurrence is two records: the message and the record of STORE. The raw counterpart copies as many of both.
    """
    lead_ms = _LEAD_MS_MIN + round(_LEAD_MS_PER_SCHEDULE * count)
    return _with_lead(environment, count, lead_ms, lambda lead_ms: _once_each(environment, count, lead_ms))


def steady_schedules(environment: BenchEnvironment, rate: int, seconds: float) -> Figures:
    """Returns lateness at a read_committed consumer of `rate` occurrences a second, and of as many single messages."""
    count = rate * _OFTEN_S
    return _with_lead(environment, count, _LEAD_MS_MIN, lambda lead_ms: _often(environment, rate, seconds, lead_ms))


def _with_lead(
    environment: BenchEnvironment, count: int, lead_ms: int, measure: Callable[[int], Figures | None]
) -> Figures:
    """Returns the figures of `measure(lead_ms)`. `measure` returns None if some of its `count` schedules were accepted
    only after they were due; it is then called with a longer lead."""
    for _ in range(_LEADS_MAX):
        found = measure(lead_ms)
        if found is not None:
            return found
        environment.report(f"they fell due before all were accepted, after {lead_ms / 1_000:.0f} s: sending others")
        lead_ms *= 2
    raise TransientError(
        f"{count:,} schedules were not accepted before they were due: try fewer (--messages) or an idle machine"
    )


def _once_each(environment: BenchEnvironment, count: int, lead_ms: int) -> Figures | None:
    """Returns the figures; None if some schedules were accepted only after they were due."""
    requests, (target, copied) = environment.new_topics(2)
    sidecar = environment.sidecar(requests)
    sidecar.format_version = _FORMAT_VERSION
    sidecar.start_and_wait()
    first_ms = (_now_ms() + lead_ms) // 1_000 * 1_000
    planned = [hourly_or_daily(number, first_ms + number * 1_000 // _OFFERED_PER_S) for number in range(count)]
    environment.report(f"sending {count:,} schedules to {requests}")
    cpu_s, began = sidecar.cpu_s(), time.monotonic()
    environment.fill(requests, (each.request(number, target, first_ms) for number, each in enumerate(planned)))
    if not sidecar.holds_before(count, first_ms):
        sidecar.kill()
        return None
    accepted_s, accepting_s = time.monotonic() - began, sidecar.cpu_s() - cpu_s
    time.sleep(max((first_ms - _now_ms()) / 1_000 - 1, 0.0))
    memory_mb, cpu_s, broker_s = sidecar.memory_mb(), sidecar.cpu_s(), environment.broker_cpu_s()
    with closing(Journal(environment.kafka, requests, OCCURRED)) as journal:
        journal.follow(count, sidecar.check)
        used_s, broker_used_s = sidecar.cpu_s() - cpu_s, (environment.broker_cpu_s() or 0.0) - (broker_s or 0.0)
        late = [(at_ms, at_ms - fate.nominal_ms) for at_ms, fate in journal.fates()]  # type: ignore[union-attr]
    memory_after_mb, long_share = sidecar.memory_mb(), sidecar.long_transactions_share()
    sidecar.stop()
    with closing(_Occurrences(environment, target, first_ms + _HOUR_MS)) as occurrences:
        occurrences.compare(requests, planned)
    seconds = (max(at_ms for at_ms, _ in late) - first_ms) / 1_000
    rate, sources = count / seconds, (target, OwnTopics.of(requests).store)
    raw_s = sum(count / environment.raw_copy(source, copied, count) for source in sources)
    return {
        "occurrences_per_s": rate,
        "memory_mb": memory_mb,
        "memory_after_mb": memory_after_mb,
        "accepted_per_s": count / accepted_s,
        **percentiles("commit", np.array([each for _, each in late], dtype=np.float64)),
        "raw_per_s": count / raw_s,
        "of_raw_share": rate * raw_s / count,
        "sidecar_cpu_us": used_s * 1e6 / count,
        "broker_cpu_us": broker_used_s * 1e6 / count,
        "accepted_cpu_us": accepting_s * 1e6 / count,
        "long_transactions_share": long_share,
    }


def _often(environment: BenchEnvironment, rate: int, seconds: float, lead_ms: int) -> Figures | None:
    """Returns the figures; None if some schedules were accepted only after they were due."""
    requests, (target, other) = environment.new_topics(2)
    sidecar = environment.sidecar(requests)
    sidecar.format_version = _FORMAT_VERSION
    sidecar.start_and_wait()
    count = rate * _OFTEN_S
    start_ms = (_now_ms() + lead_ms) // 1_000 * 1_000
    planned = [fires_every_few_seconds(number, count, start_ms) for number in range(count)]
    environment.fill(requests, (each.request(number, target, start_ms) for number, each in enumerate(planned)))
    if not sidecar.holds_before(count, start_ms):
        sidecar.kill()
        return None
    duration_s = max(seconds, _OFTEN_S) + WARM_UP_S
    until_ms, warm_ms = start_ms + round(1_000 * duration_s), start_ms + round(1_000 * WARM_UP_S)
    environment.report(f"{rate:,} occurrences and as many single messages a second for {duration_s:.0f} s")
    time.sleep(max((start_ms - _now_ms() - DELAY_MS[0]) / 1_000, 0.0))
    sent, due = int(rate * duration_s), sum(-(-(until_ms - each.first_ms) // each.interval_ms) for each in planned)
    occurrences = _Occurrences(environment, target, until_ms)
    with (
        closing(occurrences),
        closing(Arrivals(environment.kafka, other, TARGET_PARTITIONS)) as arrivals,
        LoadGenerator(environment, requests, [other], rate, sent, PARTITIONS) as sender,
    ):
        deadline = time.monotonic() + CASE_TIMEOUT_S
        while occurrences.due < due or arrivals.count < sent:
            if not arrivals.read_new() + occurrences.read_new():
                time.sleep(READ_PAUSE_S)
                sidecar.check()
                sender.check()
                if time.monotonic() > deadline:
                    found = f"{occurrences.due} of {due} occurrences and {arrivals.count} of {sent} messages"
                    raise PostdateError(f"{found} arrived in {CASE_TIMEOUT_S:.0f} s")
        messages = arrivals.lateness(int(rate * WARM_UP_S))
        long_share = sidecar.long_transactions_share()
        sidecar.stop()
        occurrences.compare(requests, planned)
    late = percentiles("occurrence", occurrences.lateness(warm_ms)) | percentiles("message", messages)
    return {
        **late,
        "occurrence_of_message_p99_share": late["occurrence_p99_ms"] / late["message_p99_ms"],
        "early": float((messages < 0).sum()),
        "long_transactions_share": long_share,
    }


class _Occurrences:
    """A read_committed consumer of the occurrences on a target, with the lateness of each. Only occurrences with a
    nominal time before `until_ms` count; `due` is the number of those read so far."""

    def __init__(self, environment: BenchEnvironment, target: str, until_ms: int) -> None:
        self.due = 0
        self._until_ms = until_ms
        self._kafka = environment.kafka
        self._parts = [Partition(target, index) for index in range(TARGET_PARTITIONS)]
        self._readers = [self._kafka.log_reader(part, 0, Isolation.READ_COMMITTED) for part in self._parts]
        self._found: list[tuple[bytes, int, int, float]] = []  # origin, number, nominal time, lateness

    def read_new(self) -> int:
        """Reads the available records; returns their number."""
        before = len(self._found)
        for reader in self._readers:
            records = reader.read(READ_RECORDS_MAX, 0.0)
            now_ms = time.time_ns() / 1_000_000
            for record in records:
                found = dict(record.headers or [])
                nominal_ms = int(found[names.DUE] or b"0")
                number = int(found[names.OCCURRENCE] or b"0")
                self.due += nominal_ms < self._until_ms
                self._found.append((found[names.ORIGIN] or b"", number, nominal_ms, now_ms - nominal_ms))
        return len(self._found) - before

    def lateness(self, from_ms: int) -> Lateness:
        """Returns the lateness of the occurrences that count and whose nominal time is at or after `from_ms`."""
        late = [each[3] for each in self._found if from_ms <= each[2] < self._until_ms]
        return np.array(late, dtype=np.float64)

    def compare(self, requests: str, planned: list[BenchSchedule]) -> None:
        """Reads on to the end. Raises PostdateError if an occurrence that counts is missing, or if any occurrence is
        repeated, early or unexpected.

        REQUIRES: nothing writes to the target any more. The requests of `planned` were the first records of the request
        topic, and were sent to its partitions in turn.
        """
        with admin_of(self._kafka) as admin:
            read_to_end(admin, self._parts, self._readers, self.read_new)
        origins = {
            b"%b/%d/%d" % (requests.encode(), number % PARTITIONS, number // PARTITIONS): number
            for number in range(len(planned))
        }
        last = [0] * len(planned)
        for origin, number, nominal_ms, late_ms in self._found:
            at = origins[origin]
            last[at] += 1  # the occurrences of one key are in one partition
            expected_ms = planned[at].first_ms + (last[at] - 1) * planned[at].interval_ms
            if (number, nominal_ms) != (last[at], expected_ms) or late_ms < 0:
                raise PostdateError(
                    f"expected occurrence {last[at]} of {origin.decode()} at {expected_ms}, and found {number} "
                    f"at {nominal_ms}, {late_ms:.0f} ms late"
                )
        for each, number in zip(planned, last, strict=True):
            if each.first_ms + number * each.interval_ms < self._until_ms:
                raise PostdateError(f"{each.headers} delivered {number} occurrences: the next one is missing")

    def close(self) -> None:
        """Drops the clients."""
        for reader in self._readers:
            reader.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
