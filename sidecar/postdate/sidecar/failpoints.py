"""Named places at which a test may end or stop the process: `POSTDATE_FAILPOINTS=dispatch.committed=kill@3`.

Each step of the protocol at which a crash leaves a different state behind has a name here. In production the variable
is unset, and `reached` only checks that a dictionary is empty.

The value is a comma-separated list of ``NAME=ACTION[@N]``: at the N-th time (default the first) that the step is
reached the process is killed (`kill`, SIGKILL: nothing is flushed) or stopped (`stop`, SIGSTOP: it can be continued
later).
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

    Raises ValueError for a step or an action that does not exist: otherwise a test whose failpoint is never reached
    would pass without testing anything.
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
    """Runs the action of the protocol step `name`, if it has one."""
    if _active and name in _active:
        _active[name].reached()
