"""The names of the verdicts, and the form of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column

from postdate.spark.rules.schedules.numbered_deliveries import ZONE_VERSION

ENDINGS: Final = ("delivered", "pending", "cancelled", "replaced", "kept", "dropped", "applied", "dead", "completed")
VIOLATIONS: Final = (
    *("missing", "duplicate", "orphan", "early", "mismatch", "contradiction", "chain"),
    *("false-verdict", "unanswered", "past-grace", "order", "false-refusal", "unreadable"),
    *("extra", "wrong-skip", "out-of-policy"),
)
INFORMATION: Final = (
    *("request-expired", "target-expired", "target-recreated", "target-younger"),
    *("unsettled", "capped", "not-selected", "overtaken", "policy-unknown"),
    ZONE_VERSION,
)
"""The reasons why an origin could not be verified."""
FINDINGS: Final = (*VIOLATIONS, "unsettled")
"""The verdicts that stay open in a state until somebody acknowledges them: violations, and `unsettled`, which no later
audit can decide, since the fate has left the dispatch log."""
OUTSIDE_WINDOW: Final = "outside-window"
"""The reason for a request that was not read, since it lies outside of the window."""
CAPPED: Final = "capped"
"""The reason for a request that an open transaction hides, or whose deciding records it may hide."""
EXPIRED: Final = "request-expired"
"""The reason for a request that has left its topic."""
VERIFIABLE: Final = (
    *("target-younger", "unsettled", CAPPED, "not-selected", "policy-unknown"),
    *(OUTSIDE_WINDOW, ZONE_VERSION),
)
"""The reasons that an audit with other options or at another time would avoid: `--strict` refuses them. Expired
requests can never be verified."""
VERDICTS: Final = (*ENDINGS, *VIOLATIONS, *INFORMATION)
"""All verdicts, in the order of every output."""


@dataclass(frozen=True)
class Problem:
    """A rule. If `holds` is true for a row, the row gets the `verdict`, with the sentence `detail`."""

    verdict: str
    holds: Column
    detail: Column
