"""Decides when a process joins the group again after its client has failed, and when the process gives up.

A failed client is replaced after a pause, which doubles with each consecutive failure: two processes with the same
`group.instance.id` fence each other, and this must not go on for ever. After `CLIENT_FAILURES_MAX` consecutive failures
the process ends. The count starts again if the client had served for `CLIENT_STABLE_S`.

Two refusals of the group protocol consumer do not count as failures, since they end when other members end. The process
tries again every `REFUSED_PAUSE_S`:

- Another member has its static name. A killed member keeps it until its session has timed out. After
  `NAME_IN_USE_S_MAX` the refusals count as failures.
- The group has members of the protocol classic. While the members of a deployment change one after the other, this
  lasts until the last one has stopped.

Thread rule: the poll thread alone.
"""

from __future__ import annotations

import logging

from postdate.kafka.errors import Fenced, KafkaFault, NameInUse, OtherProtocol
from postdate.sidecar.errors import ClientFailed
from postdate.sidecar.group.limits import (
    CLIENT_FAILURES_MAX,
    CLIENT_PAUSE_S_MAX,
    CLIENT_PAUSE_S_MIN,
    CLIENT_STABLE_S,
    NAME_IN_USE_S_MAX,
    REFUSED_PAUSE_S,
)

log = logging.getLogger(__name__)


class Rejoining:
    """The number of consecutive failures, and the time of the next attempt. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._joined_at: float | None = None
        self._join_at = 0.0
        self._name_refused_at: float | None = None  # the first of the consecutive refusals of the static name

    def joined(self, now: float) -> None:
        """Notes that a client joins the group."""
        self._joined_at = now

    def failed(self, fault: KafkaFault, now: float) -> None:
        """Counts a failure of the client, or of an attempt to make one. Raises ClientFailed if that was the last
        attempt."""
        served_s = 0.0 if self._joined_at is None else now - self._joined_at
        self._joined_at = None
        if self._is_refusal_that_ends(fault, served_s, now):
            self._join_at = now + REFUSED_PAUSE_S
            log.warning("%s. %s; the next attempt is in %.0f s", fault, _ends_when(fault), REFUSED_PAUSE_S)
            return
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

    def _is_refusal_that_ends(self, fault: KafkaFault, served_s: float, now: float) -> bool:
        """True if the process waits for other members to end."""
        if not isinstance(fault, NameInUse):
            self._name_refused_at = None
            return isinstance(fault, OtherProtocol)
        if self._name_refused_at is None or served_s >= CLIENT_STABLE_S:
            self._name_refused_at = now
        return now - self._name_refused_at < NAME_IN_USE_S_MAX

    def joins_in_s(self, now: float) -> float:
        """Returns the rest of the pause in seconds; 0 or less: the process may join now."""
        return self._join_at - now


def _ends_when(fault: KafkaFault) -> str:
    if isinstance(fault, NameInUse):
        return "If the process of that name died, the name is free when its session has timed out"
    return "This process joins when the last member with group_protocol = classic has stopped"


def _remedy(fault: KafkaFault) -> str:
    if isinstance(fault, Fenced | NameInUse):
        return (
            "Another process uses the same group.instance.id: give each process of the group its own "
            "(--group-instance-id), or none, then start this one again"
        )
    return "Read the logs of the brokers, and this log above this line, for the cause; then start this process again"
