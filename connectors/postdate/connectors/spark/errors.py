"""Why an audit gives no verdict, by consequence.

AuditError
├── AuditUsageError   what was asked for makes no sense: fix the options (exit 2)
└── CannotJudge       Kafka, Spark or the history did not allow it: the message says what to do (exit 1)
    └── ConnectorMissing   Spark lacks the Kafka connector
"""

from __future__ import annotations


class AuditError(Exception):
    """Base of everything that this package raises on purpose."""

    exit_code = 1


class AuditUsageError(AuditError):
    """The options contradict each other or name something that cannot be."""

    exit_code = 2


class CannotJudge(AuditError):
    """No verdict is possible: a broker that is not reached, a topic that is missing, records that are gone."""


class ConnectorMissing(CannotJudge):
    """Spark runs without the Kafka connector; the message names the package and where to give it."""


def first_cause(text: str) -> str:
    """What Spark says went wrong, in one line: the innermost cause of a Java traceback, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else lines[0] if lines else "nothing")[:500]
