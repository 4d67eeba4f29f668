"""Named places in the code at which a test can kill or stop the process:
`POSTDATE_FAILPOINTS=dispatch.committed=kill@3`.

A step of the protocol has a name here if a crash at that step leaves a different state behind than a crash at the
others. In production the variable is unset, and `reached` only checks that a dictionary is empty.

The value is a comma-separated list of ``NAME=ACTION[@N]``. When the step is reached for the N-th time (by default the
first), the process is killed (`kill`, SIGKILL: nothing is flushed) or stopped (`stop`, SIGSTOP: it can be continued).
"""

from __future__ import annotations

import itertools
import os
import signal

NAMES = frozenset(
    {
        "takeover.opened",
        "takeover.fenced",
        "takeover.bounded",
        "takeover.record-applied",
        "takeover.recovered",
        "takeover.owned",
        "ingest.parsed",
        "ingest.written",
        "dispatch.begun",
        "dispatch.produced",
        "dispatch.flushed",
        "dispatch.committed",
        "dispatch.written",
    }
)
_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class _Failpoint:
    def __init__(self, action: str, at: int) -> None:
        self._signal = _ACTIONS[action]
        self._at = at
        self._count = itertools.count(1)

    def reached(self) -> None:
        if next(self._count) == self._at:
            os.kill(os.getpid(), self._signal)


def parse(text: str) -> dict[str, _Failpoint]:
    """Returns the failpoints that `text` names.

    Raises ValueError for a step or an action that does not exist, or an N that is not a number: otherwise a test whose
    failpoint is never reached would pass without testing anything.
    """
    failpoints: dict[str, _Failpoint] = {}
    for part in filter(None, text.split(",")):
        name, _, rest = part.partition("=")
        action, _, at = rest.partition("@")
        if name not in NAMES or action not in _ACTIONS:
            raise ValueError(f"{part!r} is not a failpoint: give one of {', '.join(sorted(NAMES))} with kill or stop")
        failpoints[name] = _Failpoint(action, int(at or "1"))
    return failpoints


_active = parse(os.environ.get("POSTDATE_FAILPOINTS", ""))


def reached(name: str) -> None:
    """Counts an arrival at the protocol step `name`, and runs its action if one is due."""
    if _active and name in _active:
        _active[name].reached()
