"""The measurements of the client library's connections that are useful to an operator.

The library writes some hundred figures as JSON at an interval (`statistics.interval.ms`). A few are decoded; the
decoder skips the rest in C. librdkafka's STATISTICS.md documents the figures.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from postdate.kafka import limits


class BrokerStatistics(NamedTuple):
    """One connection. `round_trip_ms`: the 99th percentile of the last interval, or -1 if it had no requests."""

    name: str
    is_up: bool
    round_trip_ms: float
    timeouts: int
    """Requests since the creation of the client that were not answered in time."""
    disconnects: int
    """Connections that ended since the creation of the client, including idle connections that brokers closed."""


class _Window(msgspec.Struct):
    p99: int = 0
    cnt: int = 0


class _Broker(msgspec.Struct):
    name: str
    nodeid: int = -1
    source: str = ""
    state: str = ""
    rtt: _Window = msgspec.field(default_factory=_Window)
    req_timeouts: int = 0
    disconnects: int = 0


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = {}


_decoder = msgspec.json.Decoder(_Statistics)

#: The `source` of an entry that stands for a role (the group coordinator) and not for a broker's address.
_ROLE = "logical"


def decode_statistics(text: str) -> tuple[BrokerStatistics, ...]:
    """Returns the connections whose broker id is known, sorted by name. Connections to bootstrap addresses have no
    broker id.

    Raises msgspec.MsgspecError if the library does not write what it documents.
    """
    connections = [
        BrokerStatistics(
            broker.name,
            broker.state == "UP",
            broker.rtt.p99 / 1000 if broker.rtt.cnt else -1.0,
            broker.req_timeouts,
            broker.disconnects,
        )
        for broker in _decoder.decode(text).brokers.values()
        if broker.nodeid >= 0
    ]
    return tuple(sorted(connections))


class BrokerLoss:
    """Detects from the statistics of one client that it has lost the addresses of all brokers.

    `is_lost` is true after `limits.REPORTS_WITHOUT_BROKERS_MAX` reports in a row that name neither a broker of the
    cluster nor an address of `bootstrap.servers`: the client will never contact a broker again, and reports no error
    (librdkafka issue 5301).
    """

    def __init__(self) -> None:
        self._reports = 0

    def observe(self, text: str) -> None:
        """Takes one report. Raises as `decode_statistics`."""
        knows_some = any(broker.source != _ROLE for broker in _decoder.decode(text).brokers.values())
        self._reports = 0 if knows_some else self._reports + 1

    @property
    def is_lost(self) -> bool:
        return self._reports >= limits.REPORTS_WITHOUT_BROKERS_MAX
