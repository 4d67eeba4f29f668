"""The errors of records from Kafka that break a rule or do not decode.

    WireError
    |-- RequestRefused             a request breaks a rule: end it as a dead letter with `.reason` and `.detail`
    |   `-- FormatVersionNeeded    the request needs a newer `format_version` than the rules have
    `-- FormatError                a record on Postdate's own topics, or a delivered record, is malformed: a shard halts
        `-- NewerFormat            a newer Postdate wrote it: run that version

An invalid duration, instant or origin raises ValueError; request parsing turns it into a RequestRefused.
"""

from __future__ import annotations

from postdate.wire.reasons import Reason


class WireError(Exception):
    """Base of the errors of records."""


class RequestRefused(WireError):
    """A request breaks a rule.

    `.reason` is one of `Reason`, `.detail` a message for the user.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class FormatVersionNeeded(RequestRefused):
    """A request needs a newer `format_version` than the rules have. `.need` names the part of the request and the
    version that this part needs."""

    def __init__(self, reason: Reason, need: str, otherwise: str) -> None:
        super().__init__(reason, f"{need}, and {otherwise}")
        self.need = need


class FormatError(WireError):
    """A record on one of Postdate's own topics, or a delivered record, is malformed: it is damaged, or another program
    or a newer Postdate wrote it."""


class NewerFormat(FormatError):
    """A record on one of Postdate's own topics has an unknown version."""
