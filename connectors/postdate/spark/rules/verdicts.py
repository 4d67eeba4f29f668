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
"""Why an origin could not be verified."""
FINDINGS: Final = (*VIOLATIONS, "unsettled")
"""The verdicts that stay open in a state until somebody acknowledges them: the violations, and requests that no later
audit can decide, since the fate is gone."""
OUTSIDE_WINDOW: Final = "outside-window"
"""Why a request was not even read."""
CAPPED: Final = "capped"
"""Why a request was not read, or could not be verified: an open transaction hides it, or the records that would
decide."""
EXPIRED: Final = "request-expired"
"""Why a request could not be read any more."""
VERIFIABLE: Final = (
    *("target-younger", "unsettled", CAPPED, "not-selected", "policy-unknown"),
    *(OUTSIDE_WINDOW, ZONE_VERSION),
)
"""The reasons that a different audit would avoid: `--strict` refuses them. Expired requests can never be verified."""
VERDICTS: Final = (*ENDINGS, *VIOLATIONS, *INFORMATION)
"""All of them, in the order of every output."""


@dataclass(frozen=True)
class Problem:
    """A rule: a row for which the condition `holds` gets the verdict, with the detail as a sentence."""

    verdict: str
    holds: Column
    detail: Column
