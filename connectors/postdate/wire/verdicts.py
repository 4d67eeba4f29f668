"""Verdicts: answers to requests, on the topic `<requests>.verdicts`, in the transaction of the fate that they report.

A verdict is true: `cancelled` means that no process will ever deliver the message, even after later crashes.

    key   the id, or null
    value {"v":1,"origin":"R/3/1017","id":"order-9","verdict":"cancelled","of":"R/3/990","at":1795258284000}

`kept` and `dropped` have the field `by`, the request that survived; so has `replaced` if it answers the replaced
request. `kept` and `dropped` have version 2; `paused`, `resumed`, `triggered` and `backfilled` of a recurring schedule
have version 3. The answer to a bulk control, `applied`, has version 2 and the field `count`: the number of messages on
which the control has acted.

One request may have several verdicts: a request that replaces a pending message gets `replaced` with that message as
`of`. If the deployment answers every request, the replacing request gets a second verdict when its own message ends.
Decoding ignores unknown extra fields, but refuses an unknown `v`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from postdate.wire.errors import FormatError
from postdate.wire.limits import INTEGER_END, VERDICT_BYTES_MAX
from postdate.wire.origins import parse_origin
from postdate.wire.versions import raise_if_newer

VERSION: Final = 1
VERSION_MAX: Final = 3
_VERSION_2: Final = 2


class Verdict(StrEnum):
    """The value of a verdict."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    PAUSED = "paused"
    RESUMED = "resumed"
    TRIGGERED = "triggered"
    BACKFILLED = "backfilled"
    REPLACED = "replaced"
    KEPT = "kept"
    DROPPED = "dropped"
    DELIVERED = "delivered"
    DEAD = "dead"
    NOT_FOUND = "not-found"
    TOO_LATE = "too-late"
    APPLIED = "applied"


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded record of the verdicts topic."""

    origin: str
    """The answered request: `<request topic>/<partition>/<offset>`."""
    id: str | None
    """The id of the request, if it has one."""
    verdict: Verdict
    of: str | None
    """The origin of the request on which the answered request acted, if there is one."""
    at_ms: int
    """The time of the writer's clock, epoch milliseconds."""
    count: int | None = None
    """Only for `applied`: the number of messages on which a bulk control has acted."""
    by: str | None = None
    """The origin of the request with the same id that survived the answered request, if there is one."""


class _Written(msgspec.Struct):
    v: int
    origin: str
    id: str | None
    verdict: str
    of: str | None
    at: int
    count: int | msgspec.UnsetType = msgspec.UNSET
    by: str | msgspec.UnsetType = msgspec.UNSET


class _Read(msgspec.Struct):
    """The fields of every verdict. Types and bounds are checked in C, while decoding.

    No field has an enumeration as its type, since the error for an unknown value would quote the value.
    """

    v: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION_MAX)]
    origin: str
    verdict: str
    at: Annotated[int, msgspec.Meta(ge=0, le=INTEGER_END - 1)]
    id: str | None = None
    of: str | None = None
    count: Annotated[int, msgspec.Meta(ge=0, le=INTEGER_END - 1)] | msgspec.UnsetType = msgspec.UNSET
    by: str | None = None


_WORDS: Final = frozenset(Verdict)
_NAMES_SURVIVOR: Final = frozenset({Verdict.KEPT, Verdict.DROPPED})
_VERSIONS: Final = {
    **dict.fromkeys((Verdict.KEPT, Verdict.DROPPED, Verdict.APPLIED), _VERSION_2),
    **dict.fromkeys((Verdict.PAUSED, Verdict.RESUMED, Verdict.TRIGGERED, Verdict.BACKFILLED), VERSION_MAX),
}
"""The record version of each verdict that version 1 lacks."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Read)


def encode_verdict(
    verdict: Verdict, origin: bytes, id: bytes, of: bytes, at_ms: int, by: bytes = b""
) -> tuple[bytes | None, bytes]:
    """Returns key and value of the record that answers the request `origin`.

    `id`: b"" if the request has none. `of`: the origin of the request acted on, b"" if there is none. `at_ms`: epoch
    ms. `by`: the origin of the request that survived this one, b"" if there is none. Requires: `id` is UTF-8, as
    parsing has checked.
    """
    version = _VERSIONS.get(verdict, VERSION)
    survivor = by.decode() if by else msgspec.UNSET
    written = _Written(
        version, origin.decode(), id.decode() or None, verdict.value, of.decode() or None, at_ms, by=survivor
    )
    return id or None, _encoder.encode(written)


def encode_bulk_verdict(origin: bytes, count: int, at_ms: int) -> bytes:
    """Returns the value of the record that answers the bulk control `origin`. Its key is null. For the other arguments
    see `encode_verdict`."""
    written = _Written(_VERSION_2, origin.decode(), None, Verdict.APPLIED.value, None, at_ms, count)
    return _encoder.encode(written)


def decode_verdict(value: bytes | None) -> VerdictRecord:
    """Returns the verdict in the value of a record on the verdicts topic: the inverse of `encode_verdict`.

    Raises FormatError for any other value: a foreign writer, damage or a newer Postdate. Nothing is then known about
    the request. The error quotes nothing from the record, except a newer version number or a known verdict. Cost: 2 us.
    """
    if value is None:
        raise FormatError("a record of the verdicts topic has no value")
    if len(value) > VERDICT_BYTES_MAX:
        raise FormatError(f"a verdict has {len(value)} bytes, more than Postdate writes")
    try:
        read = _decoder.decode(value)
    except (ValueError, RecursionError) as error:
        raise_if_newer(value, VERSION_MAX, "a verdict")
        raise FormatError(f"a verdict does not parse: {error}") from None
    _check_origin("origin", read.origin)
    if read.of is not None:
        _check_origin("of", read.of)
    if read.by is not None:
        _check_origin("by", read.by)
    if read.verdict not in _WORDS:
        raise FormatError("a verdict has a name that Postdate does not write")
    verdict = Verdict(read.verdict)
    is_of_bulk, is_survived = verdict is Verdict.APPLIED, verdict in _NAMES_SURVIVOR
    if _VERSIONS.get(verdict, VERSION) != read.v or is_of_bulk != (read.count is not msgspec.UNSET):
        raise FormatError("a verdict has a version or a count that does not fit its name")
    if is_survived and read.by is None:
        raise FormatError(f"a verdict {verdict} names no request that survived")
    count = None if read.count is msgspec.UNSET else read.count
    return VerdictRecord(
        origin=read.origin, id=read.id, verdict=verdict, of=read.of, at_ms=read.at, count=count, by=read.by
    )


def _check_origin(field: str, text: str) -> None:
    try:
        parse_origin(text.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise FormatError(f"a verdict's {field} {error}") from None
