"""The errors of records from Kafka that break a rule or do not decode.

    WireError
    |-- RequestRefused             a request breaks a rule: end it as a dead letter with `.reason` and `.detail`
    |   `-- FormatVersionNeeded    it needs a newer `format_version` than the rules have
    `-- FormatError                a record on one of Postdate's own topics is malformed: halt for an operator
        `-- NewerFormat            a newer Postdate wrote it: run that version

An invalid duration, instant or origin raises ValueError; request parsing turns it into a RequestRefused.
"""

from __future__ import annotations

from postdate.wire.reasons import Reason


class WireError(Exception):
    """Base of every error that this package raises about a record."""


class RequestRefused(WireError):
    """A request that breaks a rule.

    `.reason` is one of `Reason`, `.detail` a message for the user.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class FormatVersionNeeded(RequestRefused):
    """A request that needs a newer `format_version` than its rules have. `.need` names the part and the version that it
    needs."""

    def __init__(self, reason: Reason, need: str, otherwise: str) -> None:
        super().__init__(reason, f"{need}, and {otherwise}")
        self.need = need


class FormatError(WireError):
    """A malformed record on one of Postdate's own topics: another program or a newer Postdate wrote it."""


class NewerFormat(FormatError):
    """A record on one of Postdate's own topics has an unknown version."""
