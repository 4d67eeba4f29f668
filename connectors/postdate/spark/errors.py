"""The errors of the Spark jobs, by consequence.

JobError
├── JobUsageError     the options are invalid: fix them (exit 2)
└── CannotRun         Kafka, Spark or the history prevents a result: the message names the cause (exit 1)
    └── ConnectorMissing   Spark lacks the Kafka connector or Delta Lake
"""

from __future__ import annotations


class JobError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1


class JobUsageError(JobError):
    """The options are invalid: they contradict each other, or name something that does not exist."""

    exit_code = 2


class CannotRun(JobError):
    """No result is possible, for example because of an unreachable broker, a missing topic or deleted records."""


class ConnectorMissing(CannotRun):
    """Spark runs without the Kafka connector, or without Delta Lake although the job has a state."""


def first_cause(text: str) -> str:
    """Returns the cause of a Spark error, in one line: the innermost cause of a Java traceback, otherwise the line that
    names the Java error, otherwise the first line. The first line of a Py4J error carries no information."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    named = [line.removeprefix(":").strip() for line in lines[1:2] if line.startswith(":")]
    return (causes[-1] if causes else (named or lines or ["nothing"])[0])[:500]
