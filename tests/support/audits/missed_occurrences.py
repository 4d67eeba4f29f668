"""Compares the fates of a recurring schedule around an outage with the rules of its policy for missed occurrences.

The verdict depends on the nominal times and on the broker's timestamps, and not on the speed of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from postdate.wire.dispatch_log import Occurred, Skipped
from support.oracles.exactly_once import Sent

#: Milliseconds: the lateness beyond which `none` skips an occurrence (docs/calendar.md).
_LATE_MS_MAX = 60_000


@dataclass
class Calendar:
    """A schedule that fires every `interval_ms` from `first_ms` on, with its fates."""

    sent: Sent
    missed: str
    first_ms: int
    interval_ms: int
    steps: list[MissedStep] = field(default_factory=list)

    def nominal_ms(self, number: int) -> int:
        return self.first_ms + (number - 1) * self.interval_ms

    @property
    def next_ms(self) -> int:
        """The nominal time of the first occurrence without a fate."""
        return self.nominal_ms(sum(step.fate.last - step.fate.number + 1 for step in self.steps) + 1)

    def is_decided(self, at_ms: int) -> bool:
        """True if every nominal time before `at_ms` has a fate, and the newest of a `last` schedule is delivered."""
        is_open = self.missed == "last" and self.steps and isinstance(self.steps[-1].fate, Skipped)
        return self.next_ms > at_ms and not is_open


@dataclass(frozen=True)
class MissedStep:
    """A fate of a schedule, with the broker's timestamp of its record and the process that wrote it."""

    fate: Occurred | Skipped
    at_ms: int
    instance: str


def faults(each: Calendar, second: str, restarted_ms: int) -> Iterator[str]:
    """Yields the differences between the fates of a schedule and its rules.

    `second` is the process that ran from `restarted_ms` on.

    A transaction may commit the skip of a `last` schedule alone. If a newer occurrence falls due before the next
    transaction, that transaction skips again. Therefore the delivery is not always the next step. After the delivery
    that ends the outage, the process may stop between a skip and its delivery.

    REQUIRES: the schedule was decided (`is_decided`) before the second process stopped.
    """
    number, has_delivered = 1, False
    for at, (fate, at_ms, is_later) in enumerate((s.fate, s.at_ms, s.instance == second) for s in each.steps):
        what = f"{each.missed} {each.sent.headers}: {fate} at {at_ms}"
        if fate.number != number:
            yield f"number {number} is missing or repeated before {what}"
        number = fate.last + 1
        last_ms, newer_ms = each.nominal_ms(fate.last), each.nominal_ms(number)
        if fate.next_ms != newer_ms:
            yield f"the next nominal time is {newer_ms}: {what}"
        if at_ms < last_ms:
            yield f"early: {what}"
        if isinstance(fate, Occurred):
            has_delivered |= is_later
            if fate.nominal_ms != last_ms:
                yield f"the nominal time is {last_ms}: {what}"
            if is_later and each.missed == "last" and newer_ms <= restarted_ms:
                yield f"delivered, but {newer_ms} was due, too: {what}"
            if is_later and each.missed == "none" and restarted_ms - last_ms > _LATE_MS_MAX:
                yield f"delivered after more than a minute: {what}"
        elif fate.reason != "missed" or each.missed == "all":
            yield f"skipped for no reason: {what}"
        elif each.missed == "last":
            delivers = any(isinstance(step.fate, Occurred) for step in each.steps[at + 1 :])
            if newer_ms > at_ms or not (delivers or has_delivered):
                yield f"skipped, but it was the newest: {what}"
        elif at_ms - last_ms <= _LATE_MS_MAX:
            yield f"skipped, but it was at most a minute late: {what}"
