"""The pauses of a recurring schedule, from its fates `paused` and `resumed` in the dispatch log.

A pause skips the nominal times in [timestamp of the pause, timestamp of the resume). The audit compares each of these
fates with its control (`claims.judged_switches`).

If fates of other switches may be lost, a result is certain only if it is the same for `certain_pauses` (the shortest)
and `possible_pauses` (the longest).

Pure functions, without Spark and without code of the sidecar.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from postdate.spark.rules.schedules.schedule_events import Switch

_NEVER: Final = 2**63 - 1


class LoggedPause(NamedTuple):
    """A pause from `from_ms` until `until_ms`. `began_at` and `ended_at` are the places of its fates in the log.
    `until_ms` and `ended_at` are None if the pause has not ended."""

    from_ms: int
    began_at: tuple[int, int]
    until_ms: int | None = None
    ended_at: tuple[int, int] | None = None

    def holds(self, nominal_ms: int) -> bool:
        return self.from_ms <= nominal_ms and (self.until_ms is None or nominal_ms < self.until_ms)


def pauses_of(switches: Iterable[Switch]) -> list[LoggedPause]:
    """Returns the pauses in the order of their controls.

    Pausing a paused schedule changes nothing, and neither does resuming a schedule that is not paused.
    """
    pauses: list[LoggedPause] = []
    for switch in sorted(switches):
        is_paused = bool(pauses) and pauses[-1].ended_at is None
        place = switch.log_offset, switch.place
        if switch.is_pause and not is_paused:
            pauses.append(LoggedPause(switch.at_ms, place))
        elif not switch.is_pause and is_paused:
            pauses[-1] = pauses[-1]._replace(until_ms=switch.at_ms, ended_at=place)
    return pauses


def pauses_at(place: tuple[int, int], pauses: Iterable[LoggedPause]) -> list[LoggedPause]:
    """Returns the pauses that began before a place of the log. A pause whose resume is not before this place is open.

    A pause that only a lost resume has ended (`certain_pauses`) stays ended.
    """
    return [
        pause._replace(until_ms=None, ended_at=None)
        if pause.ended_at is not None and place <= pause.ended_at < (_NEVER,)
        else pause
        for pause in pauses
        if pause.began_at < place
    ]


def certain_pauses(known: Iterable[Switch], lost: Iterable[Switch]) -> list[LoggedPause]:
    """Returns the times at which a schedule was paused, whichever of its `lost` switches took effect.

    A lost pause is ignored. A lost resume ends its pause. But no skip may rely on a lost resume, so lost resumes get a
    place after all records of the log.
    """
    return pauses_of([*known, *(switch._replace(log_offset=_NEVER) for switch in lost if not switch.is_pause)])


def possible_pauses(known: Iterable[Switch], lost: Iterable[Switch]) -> list[LoggedPause]:
    """Returns every pause that is possible if any of the `lost` switches may have taken effect.

    A pause ends with the first later resume in the log, or with any lost resume before it. If the log has no later
    resume, the pause may also still be open, unless it is lost itself and a lost resume follows it. Lost fates precede
    all judged fates.
    """
    switches = sorted([*known, *lost])
    pauses: list[LoggedPause] = []
    for begun in (switch for switch in switches if switch.is_pause):
        pause, ends = LoggedPause(begun.at_ms, (begun.log_offset, begun.place)), []
        later = (switch for switch in switches if not switch.is_pause and switch.control > begun.control)
        for end in later:
            ends.append(pause._replace(until_ms=end.at_ms, ended_at=(end.log_offset, end.place)))
            if end.log_offset >= 0:
                break
        else:
            ends += [pause] if begun.log_offset >= 0 or not ends else []
        pauses += ends
    return pauses
