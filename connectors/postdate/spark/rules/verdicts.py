"""The names of the verdicts, and the form of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column

from postdate.spark.rules.schedules import ZONE_VERSION

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
"""The verdicts that stay open in a state until a person has acknowledged them: the violations, and what no later audit
can decide either, since the fate is gone."""
OUTSIDE_WINDOW: Final = "outside-window"
"""Why a request was not even read."""
CAPPED: Final = "capped"
"""Why a request was not read, or could not be verified: an open transaction hides it, or what would decide."""
EXPIRED: Final = "request-expired"
"""Why a request could not be read any more."""
VERIFIABLE: Final = (
    *("target-younger", "unsettled", CAPPED, "not-selected", "policy-unknown"),
    *(OUTSIDE_WINDOW, ZONE_VERSION),
)
"""The reasons that another audit does not find: `--strict` refuses them. What has expired stays unverified for ever."""
VERDICTS: Final = (*ENDINGS, *VIOLATIONS, *INFORMATION)
"""All of them, in the order of every output."""


@dataclass(frozen=True)
class Problem:
    """A rule: a row for which the condition `holds` gets the verdict, with the detail as a sentence."""

    verdict: str
    holds: Column
    detail: Column
