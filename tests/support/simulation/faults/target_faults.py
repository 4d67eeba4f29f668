"""Records the faults of targets: the target or machine, the beginning and end, and the reason of the dead letters that
the fault permits.

Any other dead letter for such a reason is a violation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from support.kafka_simulator import SimTime

UNAVAILABLE: Final = "target-unavailable"
UNKNOWN: Final = "unknown-target"
TOO_LARGE: Final = "too-large"
UNAUTHORIZED: Final = "unauthorized"

#: Milliseconds: how long after the end of a fault a message may still become a dead letter because of it. The process
#: must first look up the target, at the latest after the longest interval between look-ups, and end a transaction. It
#: trusts a size limit for 30 s.
_LINGERS_MS: Final = {UNAVAILABLE: 15_000.0, UNKNOWN: 15_000.0, UNAUTHORIZED: 15_000.0, TOO_LARGE: 45_000.0}


@dataclass
class _Trouble:
    """One fault. An empty target or machine stands for all of them."""

    reason: str
    target: str
    machine: str
    since_ms: float
    until_ms: float


class Troubles:
    """The faults of one run, in true time."""

    def __init__(self, time: SimTime) -> None:
        self.clocks_are_true = True
        """False if a clock runs fast or the broker's clock was stepped: the time for which a message has waited is then
        unknown."""
        self._time = time
        self._noted: list[_Trouble] = []
        self._left: dict[tuple[int, int], tuple[float, str]] = {}

    def begin(self, reason: str, for_ms: float, target: str = "", machine: str = "") -> None:
        """Permits dead letters with this reason from now on, only for `target` and `machine` if they are given."""
        assert reason in _LINGERS_MS, reason
        self._noted.append(_Trouble(reason, target, machine, self._time.now_ms, self._time.now_ms + for_ms))

    def end(self, reason: str) -> None:
        """Ends all faults with this reason."""
        for trouble in self._noted:
            if trouble.reason == reason:
                trouble.until_ms = min(trouble.until_ms, self._time.now_ms)

    def left(self, partition: int, offset: int, machine: str) -> None:
        """Records that a process of this machine wrote a dead letter."""
        self._left[partition, offset] = self._time.now_ms, machine

    def explain(self, reason: str, target: str, partition: int, offset: int) -> bool:
        """True if a fault explains the dead letter at this offset: its reason, its target, the machine that wrote it,
        and the time."""
        at_ms, machine = self._left[partition, offset]
        return any(
            trouble.reason == reason
            and trouble.target in ("", target)
            and trouble.machine in ("", machine)
            and trouble.since_ms <= at_ms <= trouble.until_ms + _LINGERS_MS[reason]
            for trouble in self._noted
        )
