"""The pauses of a recurring schedule, from the fates `paused` and `resumed` that the dispatch log has of it.

A pause skips the nominal times in [timestamp of the pause, timestamp of the resume). The audit compares each of these
fates with its control (`claims.judged_switches`).

Pure functions. They import nothing of Spark, and nothing of the sidecar's implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from postdate.spark.rules.schedule_events import Switch


class Pause(NamedTuple):
    """A pause from `from_ms` on. `began_at` and `ended_at`: the places of its fates in the log; None: it has not
    ended."""

    from_ms: int
    began_at: tuple[int, int]
    until_ms: int | None = None
    ended_at: tuple[int, int] | None = None

    def holds(self, nominal_ms: int) -> bool:
        return self.from_ms <= nominal_ms and (self.until_ms is None or nominal_ms < self.until_ms)


def pauses_of(switches: Iterable[Switch]) -> list[Pause]:
    """Return the pauses in the order of their controls. Pausing a paused schedule changes nothing, and neither does
    resuming one that is not paused."""
    pauses: list[Pause] = []
    for switch in sorted(switches):
        is_paused = bool(pauses) and pauses[-1].ended_at is None
        place = switch.log_offset, switch.place
        if switch.is_pause and not is_paused:
            pauses.append(Pause(switch.at_ms, place))
        elif not switch.is_pause and is_paused:
            pauses[-1] = pauses[-1]._replace(until_ms=switch.at_ms, ended_at=place)
    return pauses


def lost_pauses(lost: Sequence[Switch], known: Iterable[Switch]) -> list[Pause]:
    """Return the pauses that there may have been if the fates of `lost` switches have left the log.

    Fates leave the log in their order. So each of these pauses begins with a lost switch, and ends with a lost one or
    with the first resume that the log has.
    """
    resumes = [switch for switch in lost if not switch.is_pause]
    first = sorted(switch for switch in known if not switch.is_pause)[:1]
    pauses: list[Pause] = []
    for begun in lost:
        later = [switch for switch in resumes if switch.control > begun.control]
        last = sorted(later, key=lambda switch: switch.at_ms)[-1:]
        for end in (*last, *first) if begun.is_pause else ():
            pauses.append(Pause(begun.at_ms, (-1, -1), end.at_ms, (end.log_offset, end.place)))
    return pauses
