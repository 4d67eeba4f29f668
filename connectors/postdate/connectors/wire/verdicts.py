"""Verdicts: answers to requests, on the topic `<requests>.verdicts`, in the transaction of the fate they tell of.

A verdict is true: `cancelled` means that the message will never be delivered, by any process, whatever crashes next.

    key   the id, or null
    value {"v":1,"origin":"R/3/1017","id":"order-9","verdict":"cancelled","of":"R/3/990","at":1795258284000}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

VERSION: Final = 1


class Verdict(StrEnum):
    """What is answered."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    REPLACED = "replaced"
    DELIVERED = "delivered"
    DEAD = "dead"
    NOT_FOUND = "not-found"
    TOO_LATE = "too-late"


class _Written(msgspec.Struct):
    v: int
    origin: str
    id: str | None
    verdict: str
    of: str | None
    at: int


_encoder = msgspec.json.Encoder()


def encode_verdict(verdict: Verdict, origin: bytes, id: bytes, of: bytes, at_ms: int) -> tuple[bytes | None, bytes]:
    """Return key and value of the record that answers the request `origin`.

    `id`: b"" if the request has none. `of`: origin of the request acted on, b"" if there is none. `at_ms`: epoch ms.
    Requires: `id` is UTF-8, as parsing has made sure.
    """
    written = _Written(VERSION, origin.decode(), id.decode() or None, verdict.value, of.decode() or None, at_ms)
    return id or None, _encoder.encode(written)
