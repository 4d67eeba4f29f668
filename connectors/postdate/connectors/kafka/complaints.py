"""What the client library says while no broker can be talked to: refused, unknown, another protocol, not let in.

An admin client that waits for an answer keeps these words to itself until somebody polls it, and one that nobody polls
would pile them up. So a client of its own is made to hear them, and ends with the question.

Thread rule: nothing is shared; any thread may ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from postdate.connectors.kafka.settings import KafkaSettings

_HEARD_S: Final = 5.0
"""s. A refusal comes at once, a failed handshake or login soon; who says nothing for so long drops what he gets."""
_TELLING: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
"""The most telling first."""
_DECISIVE: Final = (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN)
"""Until one of these, another broker may do."""


def complaint(settings: KafkaSettings, over: Callable[[], bool]) -> str:
    """Why not one of the brokers can be talked to, in the library's words; empty where it says nothing of the kind in
    some seconds, or `over` says that nobody wants to know any more."""
    said: dict[int, str] = {}

    def hear(error: KafkaError) -> None:
        said.setdefault(error.code(), error.str())

    try:
        client = AdminClient(settings.admin_conf() | {"error_cb": hear})
    except KafkaException:
        return ""  # whoever asked has been told
    deadline = time.monotonic() + _HEARD_S
    while said.keys().isdisjoint(_DECISIVE) and not over() and time.monotonic() < deadline:
        client.poll(0.1)
    if said.keys().isdisjoint(_DECISIVE):
        return ""
    return next((said[code] for code in _TELLING if code in said), "")
