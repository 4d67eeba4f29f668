"""Why a Spark job gives no result, by consequence.

JobError
├── JobUsageError     what was asked for makes no sense: fix the options (exit 2)
└── CannotRun         Kafka, Spark or the history did not allow it: the message says what to do (exit 1)
    └── ConnectorMissing   Spark lacks the Kafka connector
"""

from __future__ import annotations


class JobError(Exception):
    """Base of everything that this package raises on purpose."""

    exit_code = 1


class JobUsageError(JobError):
    """The options contradict each other or name something that cannot be."""

    exit_code = 2


class CannotRun(JobError):
    """No result is possible: a broker that is not reached, a topic that is missing, records that are gone."""


class ConnectorMissing(CannotRun):
    """Spark runs without the Kafka connector; the message names the package and where to give it."""


def first_cause(text: str) -> str:
    """What Spark says went wrong, in one line: the innermost cause of a Java traceback, else the line that names its
    error, else the first. The bridge from Python puts a line of its own first, which says nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    named = [line.removeprefix(":").strip() for line in lines[1:2] if line.startswith(":")]
    return (causes[-1] if causes else (named or lines or ["nothing"])[0])[:500]
