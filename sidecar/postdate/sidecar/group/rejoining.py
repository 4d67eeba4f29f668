"""Decides when a process joins the group again after its client failed, and when it gives up.

A failed client is replaced after a pause, which doubles with each consecutive failure: two processes with the same
`group.instance.id` fence each other, and this must not go on for ever. After `CLIENT_FAILURES_MAX` consecutive failures
the process ends. The count starts again if the client had served for `CLIENT_STABLE_S`.

Thread rule: the poll thread alone.
"""

from __future__ import annotations

import logging

from postdate.kafka.errors import Fenced, KafkaFault
from postdate.sidecar.errors import ClientFailed
from postdate.sidecar.group.limits import CLIENT_FAILURES_MAX, CLIENT_PAUSE_S_MAX, CLIENT_PAUSE_S_MIN, CLIENT_STABLE_S

log = logging.getLogger(__name__)


class Rejoining:
    """The failures in a row, and the time of the next attempt. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._joined_at: float | None = None
        self._join_at = 0.0

    def joined(self, now: float) -> None:
        """A client joins the group."""
        self._joined_at = now

    def failed(self, fault: KafkaFault, now: float) -> None:
        """The client failed, or none could be made. Raises ClientFailed if that was the last attempt."""
        served_s = 0.0 if self._joined_at is None else now - self._joined_at
        self._joined_at = None
        self._failures = 1 if served_s >= CLIENT_STABLE_S else self._failures + 1
        if self._failures >= CLIENT_FAILURES_MAX:
            raise ClientFailed(f"the group consumer failed {self._failures} times in a row: {fault}. {_remedy(fault)}")
        pause_s = min(CLIENT_PAUSE_S_MIN * 2 ** (self._failures - 1), CLIENT_PAUSE_S_MAX)
        self._join_at = now + pause_s
        log.error(
            "the group consumer failed, failure %d of at most %d in a row: %s. All shards are released; a new client "
            "joins the group in %.0f s",
            self._failures,
            CLIENT_FAILURES_MAX,
            fault,
            pause_s,
        )

    def joins_in_s(self, now: float) -> float:
        """The rest of the pause in seconds; 0 or less: join now."""
        return self._join_at - now


def _remedy(fault: KafkaFault) -> str:
    if isinstance(fault, Fenced):
        return (
            "Another process uses the same group.instance.id: give each process of the group its own "
            "(--group-instance-id), or none, then start this one again"
        )
    return "Look into the logs of the brokers and above this line for the cause, then start this process again"
