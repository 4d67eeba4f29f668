"""Records of the dispatch log: the fates of requests. Only the log is authoritative for fates.

The values are JSON, so that kcat and Spark can read them without this code. A transaction produces one record for each
of its partitions, after all its other records:

    {"v":1,"seq":42,"takeover":7,"instance":"postdate-0","group":"postdate","at":1795258284000,"next_request":2040,
     "low_water":990,"kind":"fates","fates":[[1017,1795258283950,"delivered"],
     [990,1795258400000,"moved",1795262000000,1018],[1018,0,"applied"]]}

A fate is an array: request offset, first due_ms, name, and further values that depend on the name. A record has the
highest version that this list and the next paragraph give for its fates and fields, and otherwise version 1.

    moved               new due_ms, offset of the control that moved the request
    delivered, dead     version 2, of a message with a window: the chosen time
    cancelled           version 2, by a bulk control: offset of the control
    swept, applied      version 2, of a bulk control: number of messages on which it has acted (swept is not final)
    replaced            version 2: offset of the survivor; in a debounced series also the start of the series
    kept, dropped       version 2: offset of the survivor
    occurred            version 3: number of the occurrence, its nominal time, next nominal time
    skipped             version 3: first number, last number, reason, next nominal time
    paused, resumed     version 3: timestamp of the control, offset of the control
    triggered           version 3: timestamp of the control, offset of the control
    backfilled          version 3: timestamp of the control, offset of the control, first and last nominal time
    extra, extra-dead   version 3: offset of the control, number of the delivery, its nominal time, next nominal time
    completed           version 3

The fields `policies` (named retry policies) and `ids` (ids of delivered messages) have version 2. Records of the kinds
`owner` (after a takeover) and `beat` (of an idle shard) have no fates.

Decoding ignores unknown extra fields, but refuses an unknown `v`: a shard that misreads its history would deliver
twice. An error names the problem and never quotes the record, since a foreign record may contain the data of a message.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from postdate.wire.errors import FormatError
from postdate.wire.limits import (
    DISPATCH_RECORD_BYTES_MAX,
    FATES_MAX,
    ID_DIGEST_LENGTH,
    IDS_MAX,
    INTEGER_END,
    POLICY_NAME_LENGTH_MAX,
    POLICY_ROWS_MAX,
    POLICY_TEXT_LENGTH_MAX,
)
from postdate.wire.versions import raise_if_newer

VERSION: Final = 1
VERSION_MAX: Final = 3
_WITH_WINDOWS: Final = 2

DELIVERED: Final = "delivered"
DEAD: Final = "dead"
CANCELLED: Final = "cancelled"
REPLACED: Final = "replaced"
KEPT: Final = "kept"
DROPPED: Final = "dropped"
APPLIED: Final = "applied"
MOVED: Final = "moved"
STORED: Final = "stored"
SWEPT: Final = "swept"
OCCURRED: Final = "occurred"
SKIPPED: Final = "skipped"
PAUSED: Final = "paused"
RESUMED: Final = "resumed"
TRIGGERED: Final = "triggered"
BACKFILLED: Final = "backfilled"
EXTRA: Final = "extra"
EXTRA_DEAD: Final = "extra-dead"
COMPLETED: Final = "completed"

FINAL: Final = frozenset({DELIVERED, DEAD, CANCELLED, REPLACED, KEPT, DROPPED, APPLIED, COMPLETED})
"""The fates that end a request; every request gets exactly one of them."""

BY_EARLIER: Final = frozenset({KEPT, DROPPED})
"""The fates of requests that end because of an earlier request with the same id. Such a request never holds the id."""

SENT: Final = frozenset({DELIVERED, DEAD, COMPLETED})
"""The final fates for which a control comes too late: every message of the request has left."""

FATES: Final = "fates"
OWNER: Final = "owner"
BEAT: Final = "beat"

FateName: TypeAlias = Literal["delivered", "dead", "cancelled", "replaced", "applied", "stored"]

SkipName: TypeAlias = Literal["missed", "paused", "gap", "grace", "dead"]
"""The reason for which occurrences were skipped. `dead`: the message has become a dead letter."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_END - 1)]


class PlainFate(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """A fate of the request at `offset`. `first_due_ms`: the first due time that the writer gave the request."""

    offset: _Natural
    first_due_ms: _Natural
    name: FateName


class Moved(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The request at `offset` is due at `due_ms` from now on. `control` is the offset of the request that moved it."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["moved"]
    due_ms: _Natural
    control: _Natural


class ChosenFate(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The end of a message with a window. `chosen_ms` is the time within the window at which the message was to leave.
    Version 2."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["delivered", "dead"]
    chosen_ms: _Natural


class BulkCancelled(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The request at `offset` was cancelled by the bulk control at the offset `control`. Version 2."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["cancelled"]
    control: _Natural


class BulkProgress(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The bulk control at `offset` has acted on `count` requests so far (`swept`), or in all (`applied`). Version 2."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["swept", "applied"]
    count: _Natural


class SurvivorFate(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The end of a request in favour of another request with the same id, at the offset `survivor`. Version 2.

    A `replaced` request was pending, and its survivor is later. The survivor of a `kept` request was pending, and that
    of a `dropped` request was delivered; both are earlier.
    """

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["replaced", "kept", "dropped"]
    survivor: _Natural


class SeriesFate(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The end of a pending request whose survivor continues its series of debounced requests. `start_ms`: the timestamp
    of the first request of the series. Version 2."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["replaced"]
    survivor: _Natural
    start_ms: _Natural


class Occurred(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """Occurrence `number` of the schedule at `offset` was delivered. `nominal_ms` is its nominal time, and `next_ms`
    the next nominal time, or 0 if there is none. Version 3."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["occurred"]
    number: _Natural
    nominal_ms: _Natural
    next_ms: _Natural

    @property
    def last(self) -> int:
        """The number of the last occurrence that this fate decides."""
        return self.number


class Skipped(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The occurrences `number` to `last` were skipped. `next_ms` is the next nominal time, or 0 if there is none.
    Version 3."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["skipped"]
    number: _Natural
    last: _Natural
    reason: SkipName
    next_ms: _Natural


class PausedOrResumed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The schedule at `offset` was paused or resumed from `at_ms` on. `at_ms` is the timestamp of the request at the
    offset `control`. Version 3."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["paused", "resumed"]
    at_ms: _Natural
    control: _Natural


class Triggered(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The schedule at `offset` is delivered once more at `at_ms`. `at_ms` is the timestamp of the request at the offset
    `control`. Version 3."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["triggered"]
    at_ms: _Natural
    control: _Natural


class Backfilled(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The schedule at `offset` is delivered once more for each nominal time from `first_ms` to `end_ms`, both included.
    The deliveries are due from `at_ms` on. `at_ms` is the timestamp of the request at the offset `control`. `first_ms`
    is the first of these nominal times. Version 3."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["backfilled"]
    at_ms: _Natural
    control: _Natural
    first_ms: _Natural
    end_ms: _Natural


class ExtraFate(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """Extra delivery `number` of the schedule at `offset` was delivered or became a dead letter. The request at the
    offset `control` requested this delivery. `next_ms` is the nominal time of the control's next delivery, or 0 if
    there is none. Version 3."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["extra", "extra-dead"]
    control: _Natural
    number: _Natural
    nominal_ms: _Natural
    next_ms: _Natural


class Completed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The schedule at `offset` has ended: its last occurrence was delivered or skipped. Version 3."""

    offset: _Natural
    first_due_ms: _Natural
    name: Literal["completed"]


Fate: TypeAlias = (
    PlainFate
    | Moved
    | ChosenFate
    | BulkCancelled
    | BulkProgress
    | SurvivorFate
    | SeriesFate
    | Occurred
    | Skipped
    | PausedOrResumed
    | Triggered
    | Backfilled
    | ExtraFate
    | Completed
)


class AcceptedLoss(NamedTuple):
    """A loss that an operator accepted, as the owner record lists it."""

    reason: str
    """The reason of the halt."""
    topic: str
    first: _Natural
    """The first lost offset."""
    end: _Natural


PolicyRow: TypeAlias = tuple[int, str, str]
"""A named retry policy: the first request offset to which it applies, its name, and its text, or "" if it was
removed."""

IdRow: TypeAlias = tuple[int, str]
"""A delivered message whose id is remembered: the offset of its request, and the digest of the id."""

_KINDS: Final = frozenset({FATES, OWNER, BEAT})
_PLAIN_FIELDS: Final = 3
_OF_VERSION_2: Final = frozenset({ChosenFate, BulkCancelled, BulkProgress, SurvivorFate, SeriesFate})
_OF_VERSION_3: Final = frozenset({Occurred, Skipped, PausedOrResumed, Triggered, Backfilled, ExtraFate, Completed})
_BY_NAME: Final[dict[int | str, type[ChosenFate | BulkCancelled | BulkProgress | SurvivorFate]]] = {
    **dict.fromkeys((DELIVERED, DEAD), ChosenFate),
    CANCELLED: BulkCancelled,
    **dict.fromkeys((SWEPT, APPLIED), BulkProgress),
    **dict.fromkeys((REPLACED, KEPT, DROPPED), SurvivorFate),
}
"""The types of the fates with four fields."""
_BY_FIELDS: Final[dict[int, type[Occurred | Skipped]]] = {6: Occurred, 7: Skipped}
"""The types of the fates of occurrences, by their number of fields."""
_BY_CONTROL: Final[dict[int | str, type[PausedOrResumed | Triggered]]] = {
    **dict.fromkeys((PAUSED, RESUMED), PausedOrResumed),
    TRIGGERED: Triggered,
}
"""The types of the fates with five fields that a control causes, except `moved`."""


class DispatchRecord(msgspec.Struct, kw_only=True):
    """One record of the dispatch log. The order of the fields is their order in the JSON."""

    v: int = VERSION
    """2 or 3 if the record contains something that version 1 lacks. `__post_init__` sets this field."""
    seq: int
    """The number of the record: it begins at 1 and rises by exactly 1 from record to record of a partition, across all
    owners."""
    takeover: int
    """Counts the takeovers of this partition."""
    instance: str
    group: str
    at: int
    """The time by the writer's clock, epoch ms; the record's LogAppendTime is authoritative."""
    next_request: int
    """R: the next request offset that the writer would ingest."""
    low_water: int
    """L: no request below this offset is needed."""
    ids: list[IdRow] | msgspec.UnsetType = msgspec.UNSET
    """The ids of the delivered messages whose requests have `postdate-if-ended`; unset if there are none."""
    remembers: bool | msgspec.UnsetType = msgspec.UNSET
    """True only while requests may need `ids` of earlier records: an owner without a disk then reads them back."""
    kind: str = FATES
    fates: list[Fate] = []
    accepted: list[AcceptedLoss] | msgspec.UnsetType = msgspec.UNSET
    """The losses that an operator accepted so that the shard could continue. Only in an owner record; unset if there
    are none."""
    policies: list[PolicyRow] | msgspec.UnsetType = msgspec.UNSET
    """The named retry policies that requests from the low-water mark on need; unset if there are none."""
    ingested: int | msgspec.UnsetType = msgspec.UNSET
    """The highest `next_request` of all records so far; unset if `next_request` of this record is as high. It is set
    while an owner with an older disk reads requests again that an earlier owner has ingested."""

    tz: str | msgspec.UnsetType = msgspec.UNSET
    """Only in an owner record, from `format_version` 3 on: the version of the time zones with which this owner computes
    the times of schedules."""

    @property
    def ingested_to(self) -> int:
        """The offset below which owners have ingested all requests, according to the records so far."""
        return self.next_request if self.ingested is msgspec.UNSET else max(self.ingested, self.next_request)

    def __post_init__(self) -> None:
        types = {*map(type, self.fates)}
        if not types.isdisjoint(_OF_VERSION_3):
            self.v = VERSION_MAX
        elif self.policies is not msgspec.UNSET or self.ids is not msgspec.UNSET or not types.isdisjoint(_OF_VERSION_2):
            self.v = _WITH_WINDOWS
        else:
            self.v = VERSION


_PolicyRow: TypeAlias = tuple[
    _Natural,
    Annotated[str, msgspec.Meta(min_length=1, max_length=POLICY_NAME_LENGTH_MAX)],
    Annotated[str, msgspec.Meta(max_length=POLICY_TEXT_LENGTH_MAX)],
]

_IdRow: TypeAlias = tuple[_Natural, Annotated[str, msgspec.Meta(pattern=rf"^[A-Za-z0-9+/]{{{ID_DIGEST_LENGTH}}}\Z")]]


class _Read(msgspec.Struct):
    """The fields of every record. Types and bounds are checked in C, while decoding."""

    v: Literal[1, 2, 3]
    seq: Annotated[int, msgspec.Meta(ge=1, le=INTEGER_END - 1)]
    takeover: _Natural
    instance: str
    group: str
    at: _Natural
    next_request: _Natural
    low_water: _Natural
    kind: str
    accepted: list[AcceptedLoss] | msgspec.UnsetType = msgspec.UNSET
    policies: (
        Annotated[list[_PolicyRow], msgspec.Meta(min_length=1, max_length=POLICY_ROWS_MAX)] | msgspec.UnsetType
    ) = msgspec.UNSET
    ids: Annotated[list[_IdRow], msgspec.Meta(min_length=1, max_length=IDS_MAX)] | msgspec.UnsetType = msgspec.UNSET
    remembers: bool | msgspec.UnsetType = msgspec.UNSET
    ingested: _Natural | msgspec.UnsetType = msgspec.UNSET
    tz: str | msgspec.UnsetType = msgspec.UNSET


#: All fields except the version, which a record computes from its content.
_FIELDS: Final = tuple(name for name in _Read.__struct_fields__ if name != "v")


class _ReadPlain(_Read):
    """A record with plain fates only, like nearly every record."""

    fates: list[PlainFate] = []


class _ReadMixed(_Read):
    """A record with fates that are not plain. Fates differ in length, which no type of the decoder can express, so
    `_checked_fate` checks them."""

    fates: list[tuple[_Natural | str, ...]] = []


_encoder = msgspec.json.Encoder()
_plain_decoder = msgspec.json.Decoder(_ReadPlain)
_mixed_decoder = msgspec.json.Decoder(_ReadMixed)


def encode_record(record: DispatchRecord) -> bytes:
    """Returns the value of the record on the dispatch log. Requires: 1 to 10,000 fates in a record of the kind `fates`,
    and no fates in other records.

    Cost: O(fates), about 0.1 us each.
    """
    assert len(record.fates) <= FATES_MAX, "the batch limit keeps a record below FATES_MAX fates"
    assert bool(record.fates) == (record.kind == FATES), "fates, and only they, name fates"
    return _encoder.encode(record)


def decode_record(value: bytes | None) -> DispatchRecord:
    """Returns the record in the value of a dispatch-log record: the inverse of `encode_record`.

    Raises FormatError for any other value: a foreign writer, damage or a newer Postdate. The shard then halts. Cost:
    O(fates), about 0.2 us each, or 2 us each if any fate of the record is not plain.
    """
    if value is None:
        raise FormatError("a dispatch-log record has no value")
    if len(value) > DISPATCH_RECORD_BYTES_MAX:
        raise FormatError(f"a dispatch-log record has {len(value)} bytes, more than Postdate writes")
    read = _read(value)
    if read.low_water > read.next_request:
        raise FormatError(
            f"a dispatch-log record has low_water {read.low_water} above next_request {read.next_request}"
        )
    if read.kind not in _KINDS:
        raise FormatError("a dispatch-log record has an unknown kind")
    if (read.kind == FATES) != bool(read.fates):
        raise FormatError(f"a dispatch-log record of kind {read.kind} names {len(read.fates)} fates")
    if len(read.fates) > FATES_MAX:
        raise FormatError(f"a dispatch-log record names {len(read.fates)} fates, more than Postdate writes")
    fates: list[Fate] = [*read.fates] if isinstance(read, _ReadPlain) else [_checked_fate(fate) for fate in read.fates]
    record = DispatchRecord(fates=fates, **{name: getattr(read, name) for name in _FIELDS})
    if read.v < record.v:
        raise FormatError(f"a dispatch-log record of version {read.v} has content of version {record.v}")
    return record


def _read(value: bytes) -> _ReadPlain | _ReadMixed:
    with suppress(ValueError, RecursionError):
        return _plain_decoder.decode(value)
    try:
        return _mixed_decoder.decode(value)
    except (ValueError, RecursionError) as error:
        raise_if_newer(value, VERSION_MAX, "a dispatch-log record")
        raise FormatError(f"a dispatch-log record does not parse: {error}") from None


def _checked_fate(fate: tuple[int | str, ...]) -> Fate:
    with suppress(msgspec.ValidationError):
        if len(fate) == _PLAIN_FIELDS:
            if fate[2] == COMPLETED:
                return msgspec.convert(fate, Completed)
            return msgspec.convert(fate, PlainFate)
        if len(fate) > _PLAIN_FIELDS and fate[2] in (EXTRA, EXTRA_DEAD):
            extra = msgspec.convert(fate, ExtraFate)
            if extra.offset < extra.control and extra.number > 0:
                return extra
        elif len(fate) > _PLAIN_FIELDS and fate[2] == BACKFILLED:
            filled = msgspec.convert(fate, Backfilled)
            if filled.offset < filled.control and filled.first_ms <= filled.end_ms:
                return filled
        elif len(fate) in _BY_FIELDS:
            return msgspec.convert(fate, _BY_FIELDS[len(fate)])
        elif len(fate) == _PLAIN_FIELDS + 1 and fate[2] in _BY_NAME:
            four = msgspec.convert(fate, _BY_NAME[fate[2]])
            if _is_in_order(four):
                return four
        elif len(fate) > _PLAIN_FIELDS and fate[2] == REPLACED:
            continued = msgspec.convert(fate, SeriesFate)
            if continued.offset < continued.survivor:
                return continued
        else:
            name = fate[2] if len(fate) > _PLAIN_FIELDS else ""
            kind: type[Moved] | type[PausedOrResumed] | type[Triggered] = _BY_CONTROL.get(name, Moved)
            five: Moved | PausedOrResumed | Triggered = msgspec.convert(fate, kind)
            if five.offset < five.control:
                return five
    raise FormatError(f"a dispatch-log record holds a list of {len(fate)} values that is not a fate")


def _is_in_order(fate: ChosenFate | BulkCancelled | BulkProgress | SurvivorFate) -> bool:
    """Returns True if the fate names no other request, or if that request has a possible offset: above `offset` for a
    bulk control or a replacing request, below `offset` for the survivor of a kept or dropped request."""
    if isinstance(fate, BulkCancelled):
        return fate.offset < fate.control
    if isinstance(fate, SurvivorFate):
        return (fate.offset < fate.survivor) if fate.name == REPLACED else (fate.offset > fate.survivor)
    return True
