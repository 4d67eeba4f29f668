"""Records of the dispatch log: what became of requests. The log is the only authority on it.

JSON, so that kcat and Spark read it without this code. One record a transaction and partition, produced last:

    {"v":1,"seq":42,"takeover":7,"instance":"postdate-0","group":"postdate","at":1795258284000,"next_request":2040,
     "low_water":990,"kind":"fates","fates":[[1017,1795258283950,"delivered"],
     [990,1795258400000,"moved",1795262000000,1018],[1018,0,"applied"]]}

A fate is [request offset, first due_ms, name], and a `moved` adds the new due_ms and the offset of the control that
moved it. `owner` (after a takeover) and `beat` (of an idle shard) have no fates. Unknown extra fields are ignored, an
unknown `v` never: decoding is strict, since a shard that misreads its own history would deliver twice.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from postdate.connectors.wire.errors import FormatError
from postdate.connectors.wire.limits import DISPATCH_RECORD_BYTES_MAX, FATES_MAX, INTEGER_END

VERSION: Final = 1

DELIVERED: Final = "delivered"
DEAD: Final = "dead"
CANCELLED: Final = "cancelled"
REPLACED: Final = "replaced"
APPLIED: Final = "applied"
MOVED: Final = "moved"
STORED: Final = "stored"

FINAL: Final = frozenset({DELIVERED, DEAD, CANCELLED, REPLACED, APPLIED})
"""The fates after which a request is finished; every request gets exactly one of them."""

FATES: Final = "fates"
OWNER: Final = "owner"
BEAT: Final = "beat"

Fate: TypeAlias = tuple[int, int, str] | tuple[int, int, str, int, int]
"""(offset, first due_ms, name), or (offset, first due_ms, "moved", new due_ms, offset of the control)."""

_PLAIN: Final = FINAL | {STORED}


class DispatchRecord(msgspec.Struct, kw_only=True):
    """One record of the dispatch log. The order of the fields is their order in the JSON."""

    v: int = VERSION
    seq: int
    """Rises by exactly 1 from record to record of a partition, whoever writes; begins at 1."""
    takeover: int
    """Counts the takeovers of this partition."""
    instance: str
    group: str
    at: int
    """The writer's word for the time, epoch ms; the record's LogAppendTime is the truth."""
    next_request: int
    """R: the next request offset that the writer would ingest."""
    low_water: int
    """L: no request below it is needed any more."""
    kind: str = FATES
    fates: list[Fate] = []


class _Read(msgspec.Struct):
    """The shape that a record of version 1 must have; what its values must be, `decode_record` says."""

    v: int
    seq: int
    takeover: int
    instance: str
    group: str
    at: int
    next_request: int
    low_water: int
    kind: str
    fates: list[tuple[int | str, ...]] = []


class _Version(msgspec.Struct):
    v: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Read)
_version_decoder = msgspec.json.Decoder(_Version)


def encode_record(record: DispatchRecord) -> bytes:
    """Return the value of the record on the dispatch log. Requires: at most 10,000 fates, and fates only for `fates`.

    Cost: O(fates), about 0.1 us each.
    """
    assert len(record.fates) <= FATES_MAX, "the batch limit keeps a record below FATES_MAX fates"  # noqa: S101
    assert bool(record.fates) == (record.kind == FATES), "fates, and only they, name fates"  # noqa: S101
    return _encoder.encode(record)


def decode_record(value: bytes | None) -> DispatchRecord:
    """Return the record that the value of a dispatch-log record holds: the inverse of `encode_record`.

    Raises FormatError on anything else: a foreign writer, damage or a newer Postdate. The shard then halts.
    Cost: O(fates), about 0.5 us each.
    """
    if value is None:
        raise FormatError("a dispatch-log record has no value")
    if len(value) > DISPATCH_RECORD_BYTES_MAX:
        raise FormatError(f"a dispatch-log record has {len(value)} bytes, more than Postdate writes")
    try:
        read = _decoder.decode(value)
    except (ValueError, RecursionError) as error:
        _check_version(_version_of(value))
        raise FormatError(f"a dispatch-log record does not parse: {error}") from None
    _check_version(read.v)
    for name, number in (("seq", read.seq), ("takeover", read.takeover), ("at", read.at)):
        _check_number(name, number)
    _check_number("next_request", read.next_request)
    _check_number("low_water", read.low_water)
    if read.seq == 0:
        raise FormatError("a dispatch-log record has seq 0; it begins at 1")
    if read.low_water > read.next_request:
        raise FormatError(f"low_water {read.low_water} lies above next_request {read.next_request}")
    if read.kind not in (FATES, OWNER, BEAT):
        raise FormatError(f"a dispatch-log record is of the unknown kind {read.kind[:80]!r}")
    if (read.kind == FATES) != bool(read.fates):
        raise FormatError(f"a dispatch-log record of kind {read.kind} names {len(read.fates)} fates")
    if len(read.fates) > FATES_MAX:
        raise FormatError(f"a dispatch-log record names {len(read.fates)} fates, more than Postdate writes")
    return DispatchRecord(
        v=read.v,
        seq=read.seq,
        takeover=read.takeover,
        instance=read.instance,
        group=read.group,
        at=read.at,
        next_request=read.next_request,
        low_water=read.low_water,
        kind=read.kind,
        fates=[_checked_fate(fate) for fate in read.fates],
    )


def _checked_fate(fate: tuple[int | str, ...]) -> Fate:
    match fate:
        case (int(offset), int(first_due_ms), str(name)) if name in _PLAIN:
            if 0 <= offset < INTEGER_END and 0 <= first_due_ms < INTEGER_END:
                return offset, first_due_ms, name
        case (int(offset), int(first_due_ms), "moved", int(due_ms), int(control)):
            if 0 <= offset < control < INTEGER_END and 0 <= first_due_ms < INTEGER_END and 0 <= due_ms < INTEGER_END:
                return offset, first_due_ms, MOVED, due_ms, control
    raise FormatError(f"a dispatch-log record holds {str(fate)[:200]}, which is not a fate")


def _check_number(name: str, number: int) -> None:
    if not 0 <= number < INTEGER_END:
        raise FormatError(f"a dispatch-log record has {name} {number}")


def _version_of(value: bytes) -> int:
    """Return `v` of a record that has not the shape of version 1; VERSION where it has no `v` either."""
    try:
        return _version_decoder.decode(value).v
    except (ValueError, RecursionError):
        return VERSION


def _check_version(version: int) -> None:
    if version > VERSION:
        raise FormatError(f"a dispatch-log record has version {version}: written by a newer Postdate, upgrade this one")
    if version < VERSION:
        raise FormatError(f"a dispatch-log record has version {version}, which never existed")
