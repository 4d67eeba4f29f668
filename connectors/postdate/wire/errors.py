"""What can be wrong with bytes from Kafka.

    WireError
    |-- RequestRefused    a producer's request breaks a rule: end it as a dead letter with `.reason` and `.detail`
    `-- FormatError       a record of Postdate's own is not one: halt the shard, a person must look
        `-- NewerFormat   it says that a newer Postdate wrote it: run that one

Texts that are no duration, instant or origin raise ValueError; request parsing turns it into a RequestRefused.
"""

from __future__ import annotations

from postdate.wire.reasons import Reason


class WireError(Exception):
    """Base of everything this package raises about a record."""


class RequestRefused(WireError):
    """A request cannot be carried out as it stands.

    `.reason` is of the closed set, `.detail` a sentence for a person.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class FormatError(WireError):
    """A record on a topic of Postdate's own does not have its format: written by another hand or a newer Postdate."""


class NewerFormat(FormatError):
    """A record of Postdate's own names a version that this program does not know."""
