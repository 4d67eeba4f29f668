"""Records of the store topic: requests whose due time is so late that retention may delete the request first, and
recurring schedules.

The topic is compacted, and the key of a record is the offset of its request: the last record of a key counts, and a
null value means that the request has ended. So a message with a null value is written with an empty value, and
`postdate-stored` marks it.

    key      1017
    value    the message
    headers  the request's, as sent; then
             postdate-record-key  the key of the request record
             postdate-due         first due time
             postdate-moved       present due time, if that differs
             postdate-stored      {"v":1,"at":1795258284000,"target":"orders","partition":-1,"id":"order-9",
                                   "grace":-1,"headers":3,"control":[0,2],"key":-1,"null":false}

`at` is the request record's timestamp. `headers` is the number of headers that were sent. `control` lists the positions
of the sent headers that do not belong to the message. `key` is the position of the header whose value is the target
key, or -1 for the request's own key. A request with a window also has `window`: the length of the window and the chosen
time; `spread` is `even` if the load determines this time. A debounced request has `series`, the start of its series.
With a window or a series, `v` is 2. A recurring schedule has `occurrence`: the number of the next occurrence, the time
at which it leaves, and the version of the time zones of the writer; `v` is then 3. `switches` are the controls that
paused and resumed the schedule, and `extras` are its pending extra deliveries. If only extra deliveries are left, the
present due time is 0. Readers do not parse the request again, since the rules may have changed, and a relative time has
become a due time.

Pure functions over bytes. `decode_stored` is the inverse of `encode_stored`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from postdate.wire.errors import FormatError
from postdate.wire.headers import DUE, KEY, MOVED, RECORD_KEY, STORED, Headers, StrippedHeaders
from postdate.wire.limits import EXTRAS_MAX, INTEGER_END, SWITCHES_MAX
from postdate.wire.requests.parser import restore_headers
from postdate.wire.schedules.extras import Extras
from postdate.wire.schedules.pauses import Switches
from postdate.wire.values.texts import parse_natural, time_text
from postdate.wire.versions import raise_if_newer

_OWN_KEY: Final = -1
_VERSION_2: Final = 2
_VERSION_3: Final = 3


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of the store topic. An absent number is -1, an absent id b""."""

    offset: int
    accepted_ms: int
    """The request record's timestamp."""
    first_due_ms: int
    due_ms: int
    """The present due time."""
    target: str
    key: bytes | None
    """The target key."""
    own_key: bytes | None
    """The key of the request record."""
    value: bytes | None
    headers: Headers
    """The headers of the message in their order, which will be delivered."""
    stripped: StrippedHeaders
    """The other headers of the request, with their positions in the record."""
    partition: int
    id: bytes
    grace_ms: int
    window_ms: int = 0
    """The length of the window, or 0 if the request has no window."""
    chosen_ms: int = -1
    """The chosen time in [`due_ms`, `due_ms` + `window_ms`], if the request has a window."""
    is_even: bool = False
    """True if the load, not a draw, determines the chosen time. Another owner may then choose another time."""
    series_ms: int = -1
    """The start of the series of debounced requests to which the request belongs, if any."""
    number: int = 0
    """The number of the next occurrence of a schedule; 0 if the request is not a schedule. The occurrence is due at
    `chosen_ms`, and its nominal time is `due_ms`."""
    switches: Switches = ()
    """The controls that paused and resumed the schedule, ascending by offset."""
    extras: Extras = ()
    """The pending extra deliveries of the schedule, ascending by the offset of their controls."""
    tz: str = ""
    """The version of the writer's time zones, if the request is a schedule."""


_Integer = Annotated[int, msgspec.Meta(ge=-1, le=INTEGER_END - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_END - 1)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_END - 1)]


class _Meaning(msgspec.Struct, gc=False):
    """The value of `postdate-stored`."""

    v: Literal[1, 2, 3]
    at: _Integer
    target: str
    partition: _Integer
    id: str
    grace: _Integer
    headers: Annotated[int, msgspec.Meta(ge=0)]
    control: list[Annotated[int, msgspec.Meta(ge=0)]]
    key: _Integer
    null: bool
    window: tuple[_Integer, _Integer] | msgspec.UnsetType = msgspec.UNSET
    spread: Literal["even"] | msgspec.UnsetType = msgspec.UNSET
    series: Annotated[int, msgspec.Meta(ge=0, le=INTEGER_END - 1)] | msgspec.UnsetType = msgspec.UNSET
    occurrence: tuple[_Integer, _Integer, str] | msgspec.UnsetType = msgspec.UNSET
    switches: (
        Annotated[tuple[tuple[_Offset, _Offset, bool], ...], msgspec.Meta(min_length=1, max_length=SWITCHES_MAX)]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    extras: (
        Annotated[
            tuple[tuple[_Offset, _Number, _Offset, _Offset, _Offset], ...],
            msgspec.Meta(min_length=1, max_length=EXTRAS_MAX),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Meaning)


#: The key of a tombstone that bounds a read of the topic: the largest offset, which no request has. Every version
#: treats it as a request above all requests that it needs. An audit treats it as a request that has ended.
BOUND_KEY: Final = b"%d" % (INTEGER_END - 1)


def stored_key(offset: int) -> bytes:
    """Returns the key of the records of the request at `offset`."""
    return b"%d" % offset


def stored_offset(key: bytes | None) -> int:
    """Returns the offset of the request that a record's key names: the inverse of `stored_key`.

    Raises FormatError if Postdate did not write the record.
    """
    try:
        return parse_natural(time_text(key))
    except ValueError as error:
        raise FormatError(f"the key of a record of the store {error}") from None


def encode_stored(request: StoredRequest) -> tuple[bytes, bytes, Headers]:
    """Returns key, value and headers of the record that keeps `request`. Cost: O(size)."""
    sent = restore_headers(request.headers, request.stripped)
    headers = [*sent, (RECORD_KEY, request.own_key)]
    key_at = _OWN_KEY
    if request.key != request.own_key:
        same = (index for index, _, value in request.stripped if value == request.key)
        key_at = next(same, len(headers))
        if key_at == len(headers):
            headers.append((KEY, request.key))
    headers.append((DUE, b"%d" % request.first_due_ms))
    if request.due_ms != request.first_due_ms:
        headers.append((MOVED, b"%d" % request.due_ms))
    meaning = _Meaning(
        _VERSION_3 if request.number else _VERSION_2 if request.window_ms or request.series_ms >= 0 else 1,
        request.accepted_ms,
        request.target,
        request.partition,
        request.id.decode(),
        request.grace_ms,
        len(sent),
        [index for index, _, _ in request.stripped],
        key_at,
        request.value is None,
        (request.window_ms, request.chosen_ms) if request.window_ms else msgspec.UNSET,
        "even" if request.is_even else msgspec.UNSET,
        request.series_ms if request.series_ms >= 0 else msgspec.UNSET,
        (request.number, request.chosen_ms, request.tz) if request.number else msgspec.UNSET,
        request.switches or msgspec.UNSET,
        request.extras or msgspec.UNSET,
    )
    headers.append((STORED, _encoder.encode(meaning)))
    return stored_key(request.offset), request.value or b"", headers


def decode_stored(key: bytes | None, value: bytes, headers: Headers | None) -> StoredRequest:
    """Returns the request in a record of the store.

    Raises FormatError if the record is damaged or another program wrote it, NewerFormat if a newer Postdate wrote it.
    The pending messages are then unknown.
    """
    offset = stored_offset(key)
    if not headers or headers[-1][0] != STORED:
        raise FormatError(f"the record of the store for request {offset} does not end with {STORED}")
    try:
        meaning = _decoder.decode(headers[-1][1] or b"")
    except (ValueError, RecursionError) as error:
        raise_if_newer(headers[-1][1] or b"", _VERSION_3, f"the record of the store for request {offset}")
        raise FormatError(f"{STORED} of the record of the store for request {offset} does not parse: {error}") from None
    sent, added = headers[: meaning.headers], dict(headers[meaning.headers :])
    taken = frozenset(meaning.control)
    if RECORD_KEY not in added or meaning.key >= len(headers) or any(index >= len(sent) for index in taken):
        raise FormatError(f"the record of the store for request {offset} has lost headers")
    try:
        first_due_ms = parse_natural(time_text(added.get(DUE)))
        due_ms = parse_natural(time_text(added[MOVED])) if MOVED in added else first_due_ms
    except ValueError as error:
        raise FormatError(f"the record of the store for request {offset} has a due time that {error}") from None
    own_key = added[RECORD_KEY]
    window_ms, chosen_ms = meaning.window if meaning.window is not msgspec.UNSET else (0, -1)
    has_window = meaning.window is not msgspec.UNSET
    if has_window and not 0 <= chosen_ms - due_ms <= window_ms:
        raise FormatError(f"the record of the store for request {offset} has a chosen time outside its window")
    if (has_window or meaning.series is not msgspec.UNSET) != (meaning.v == _VERSION_2):
        raise FormatError(f"the record of the store for request {offset} has content of another version")
    number, tz, has_extras = 0, "", meaning.extras is not msgspec.UNSET
    if meaning.occurrence is not msgspec.UNSET:
        number, chosen_ms, tz = meaning.occurrence
    if (number > 0) != (meaning.v == _VERSION_3) or (number > 0 and chosen_ms < due_ms and not has_extras):
        raise FormatError(f"the record of the store for request {offset} has an occurrence that cannot be")
    switches = () if meaning.switches is msgspec.UNSET else meaning.switches
    if (switches or has_extras) and not number:
        raise FormatError(
            f"the record of the store for request {offset} has pauses or extra deliveries, but is not a schedule"
        )
    return StoredRequest(
        offset=offset,
        accepted_ms=meaning.at,
        first_due_ms=first_due_ms,
        due_ms=due_ms,
        target=meaning.target,
        key=own_key if meaning.key < 0 else headers[meaning.key][1],
        own_key=own_key,
        value=None if meaning.null else value,
        headers=[header for index, header in enumerate(sent) if index not in taken],
        stripped=[(index, *sent[index]) for index in meaning.control],
        partition=meaning.partition,
        id=meaning.id.encode(),
        grace_ms=meaning.grace,
        window_ms=window_ms,
        chosen_ms=chosen_ms,
        is_even=meaning.spread is not msgspec.UNSET,
        series_ms=meaning.series if meaning.series is not msgspec.UNSET else -1,
        number=number,
        switches=switches,
        extras=() if meaning.extras is msgspec.UNSET else meaning.extras,
        tz=tz,
    )
