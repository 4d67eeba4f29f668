"""A schedule in English words, for people.

Pure functions.
"""

from __future__ import annotations

from postdate.wire.schedules.expressions import parse_expression
from postdate.wire.schedules.schedule import Schedule
from postdate.wire.values.durations import format_duration


def describe(schedule: Schedule) -> str:
    """Returns the times of a schedule in words, without the zone of a cron expression. Cost: 20 us."""
    if not schedule.cron:
        phase = f", {format_duration(schedule.phase_ms)} after them" if schedule.phase_ms else ""
        return f"Every {format_duration(schedule.every_ms)}: at its multiples since 1970-01-01T00:00:00Z{phase}"
    expression = parse_expression(schedule.cron)
    _, _, _, day, _, weekday = expression.fields
    either = "" if day.startswith("*") or weekday.startswith("*") else "; one of the two days is enough"
    return f"{expression.explain()}{either}"
