"""The result of a repair as text and as one JSON object.

The keys of the JSON are a contract: keys may be added, but no key is removed or changes its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TextIO

from postdate.spark.output.result import write_result
from postdate.spark.repair.rows import ENDED


@dataclass(frozen=True)
class Unrepaired:
    """A missing request that is not repaired: its origin, the name of the reason, and a sentence."""

    origin: str
    reason: str
    detail: str


@dataclass(frozen=True)
class RepairOutcome:
    """The result of a repair.

    `missing` counts the missing requests of this request topic, `elsewhere` the missing requests of other topics, and
    `judged` all audited requests of this topic. Earlier repairs have sent `already` requests. This repair can send
    `repairable` requests, and has sent `sent`. `reasons` counts the other requests by reason.
    """

    requests: str
    audited: str
    applied: bool
    missing: int
    elsewhere: int
    judged: int
    repairable: int = 0
    already: int = 0
    sent: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    samples: tuple[Unrepaired, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """1 if a missing request cannot be repaired, otherwise 0. A request that has ended since the audit needs no
        repair."""
        return 1 if self.reasons.keys() - {ENDED} else 0


def write_repair_outcome(outcome: RepairOutcome, form: str, stream: TextIO) -> None:
    """Writes the outcome as `json` or `text`."""
    fields = vars(outcome) | {"samples": [vars(sample) for sample in outcome.samples]}
    result = {"v": 1, "exit": outcome.exit_code, **fields, "seconds": round(outcome.seconds, 1)}
    write_result(result, _lines(outcome), form, stream)


def _lines(outcome: RepairOutcome) -> list[str]:
    lines = [f"missing            {outcome.missing:>12,}"]
    lines += [f"  repaired before  {outcome.already:>12,}"] if outcome.already else []
    lines += [f"  {reason:<17}{count:>12,}" for reason, count in sorted(outcome.reasons.items())]
    lines += [f"  {sample.origin}: {sample.reason}: {sample.detail}" for sample in outcome.samples]
    if outcome.elsewhere:
        lines.append(f"missing requests of other topics (see --requests): {outcome.elsewhere:,}")
    if outcome.applied:
        lines.append(f"sent {outcome.sent:,} requests to {outcome.requests}")
    elif outcome.repairable:
        lines.append(
            f"dry run, nothing was sent: --apply would send requests for {outcome.repairable:,} messages again"
        )
    else:
        lines.append("there is nothing to repair")
    return lines
