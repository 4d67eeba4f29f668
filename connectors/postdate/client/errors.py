"""The errors that building a request raises.

    ValueError
    `-- RequestInvalid    Postdate would refuse the request: correct the call, nothing was built

A value of a wrong type raises TypeError, and a str with a lone surrogate raises UnicodeEncodeError. `RequestTopic`
raises ValueError for an impossible topic. `decode_verdict` and `read_delivered` raise FormatError of
`postdate.wire.errors`.
"""

from __future__ import annotations

from postdate.wire.reasons import Reason


class RequestInvalid(ValueError):
    """An argument is invalid, or Postdate would refuse the request. `.reason` is the reason in the dead letter of such
    a request, `.detail` a message for the user."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail
