"""The outcome of a run: lost and repeated messages, their lateness, and whether the samples are flat.

Pure functions over arrays. Times are epoch ms unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.endurance.plan import Outcomes
from benchmarks.endurance.system import Sample

RECOVERY_MS = 30_000
"""Messages that are due within this time after a SIGKILL do not count for the undisturbed lateness."""
#: Milliseconds: the same before a SIGKILL, since messages that are due shortly before it may not have arrived yet.
_BEFORE_KILL_MS = 1_000
_POINTS = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
FLAT_SHARE = 1.1
"""A figure is flat if its median in the last third of the run is at most this multiple of that in the second third."""
_EXAMPLES = 5

Figures = dict[str, int | float | str | None]


def counts(outcomes: Outcomes) -> Figures:
    """Returns the numbers of messages that were lost, that arrived twice, early or with a wrong due time, or that
    arrived although they were cancelled."""
    meant, arrived = outcomes.due_ms > 0, outcomes.arrived
    came = meant & (arrived > 0)
    return {
        "requests": len(arrived),
        "messages": int(meant.sum()),
        "not sent": int((outcomes.due_ms == 0).sum()),
        "lost": int((meant & (arrived == 0)).sum()),
        "repeated": int((arrived > 1).sum()),
        "delivered although cancelled": int(((outcomes.due_ms < 0) & (arrived > 0)).sum()),
        "with another due time": int((came & (outcomes.due_said_ms != outcomes.due_ms)).sum()),
        "early": int((came & (outcomes.late_ms < 0)).sum()),
    }


def examples(outcomes: Outcomes) -> list[str]:
    """Describes up to five requests with a wrong outcome."""
    meant, arrived = outcomes.due_ms > 0, outcomes.arrived
    is_other = (outcomes.due_said_ms != outcomes.due_ms) | (outcomes.late_ms < 0)
    wrong = (meant & ((arrived != 1) | is_other)) | (~meant & (arrived > 0))
    return [
        f"request {number}: due {outcomes.due_ms[number]}, arrived {arrived[number]} times,"
        f" as due {outcomes.due_said_ms[number]}, {outcomes.late_ms[number]:.0f} ms late"
        for number in np.flatnonzero(wrong)[:_EXAMPLES]
    ]


def lateness(outcomes: Outcomes, kills_ms: Sequence[int]) -> dict[str, Figures]:
    """Returns the percentiles of lateness, ms: of all messages, and of the messages that no kill disturbed."""
    came = (outcomes.due_ms > 0) & (outcomes.arrived > 0)
    due_ms, late_ms = outcomes.due_ms[came], outcomes.late_ms[came]
    apart = np.ones(len(due_ms), dtype=np.bool_)
    for kill_ms in kills_ms:
        apart &= (due_ms < kill_ms - _BEFORE_KILL_MS) | (due_ms >= kill_ms + RECOVERY_MS)
    return {"all": _percentiles(late_ms), "apart from kills": _percentiles(late_ms[apart])}


def by_minute(outcomes: Outcomes, began_ms: int) -> list[Figures]:
    """Returns the lateness of the messages that were due in each minute of the run."""
    came = (outcomes.due_ms > 0) & (outcomes.arrived > 0)
    late_ms, minute = outcomes.late_ms[came], (outcomes.due_ms[came] - began_ms) // 60_000
    return [{"minute": int(each), **_percentiles(late_ms[minute == each])} for each in np.unique(minute)]


def trend(samples: Sequence[Sample], from_s: float, to_s: float) -> dict[str, Figures]:
    """Returns the medians of memory, files and disk of both sidecars in the second and in the last third of a period,
    and whether they are flat. In this period, the load and the number of pending messages must not change."""
    third = (to_s - from_s) / 3
    found: dict[str, Figures] = {}
    for name in ("memory_mb", "files", "disk_mb", "pending"):
        before, after = (
            _median([getattr(each, name) for each in samples if start <= each.at_s < start + third])
            for start in (from_s + third, from_s + 2 * third)
        )
        is_flat = "yes" if after <= FLAT_SHARE * before else "no"
        found[name] = {"before": before, "after": after, "most": max(getattr(each, name) for each in samples)}
        found[name]["flat"] = is_flat
    return found


def _median(values: list[float]) -> float:
    return round(float(np.median(values)), 1) if values else 0.0


def _percentiles(late_ms: npt.NDArray[np.float32]) -> Figures:
    if not len(late_ms):
        return {"messages": 0, **dict.fromkeys(_POINTS)}
    values = np.percentile(late_ms, list(_POINTS.values()))
    return {"messages": len(late_ms), **{name: round(float(at), 1) for name, at in zip(_POINTS, values, strict=True)}}
