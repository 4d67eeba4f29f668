"""Requests for a schedule that fires each second, and its nominal times by arithmetic."""

from __future__ import annotations

from typing import Final

from postdate.kafka.interface import Record
from support.long_delays import BASE_MS, request

EVERY_MS: Final = 1_000
FIRST_MS: Final = BASE_MS + EVERY_MS


def nominal_ms(number: int) -> int:
    """The nominal time of an occurrence."""
    return BASE_MS + number * EVERY_MS


def calendar(offset: int, **headers: str | int) -> Record:
    """The request for the schedule with the id `c`; `headers` change or complete it."""
    return request(offset, topic="orders", every="1s", **{"id": "c", **headers})
