"""The selection of a bulk control: pending messages by target, prefix of the id, key or due time.

A bulk control is a cancel or a reschedule with at least one selector header. It selects those pending messages of its
partition whose requests precede it and which match all selectors.

Pure functions; a `Selection` is immutable.
"""

from __future__ import annotations

from typing import Final

import msgspec

from postdate.wire.errors import RequestRefused
from postdate.wire.headers import SELECT_FROM, SELECT_ID, SELECT_KEY, SELECT_TOPIC, SELECT_UNTIL
from postdate.wire.limits import ID_BYTES_MAX, INTEGER_END, SELECTED_KEY_BYTES_MAX, TOPIC_NAME_LENGTH_MAX
from postdate.wire.reasons import Reason
from postdate.wire.topics import is_topic_name
from postdate.wire.values.instants import parse_instant_ms
from postdate.wire.values.texts import plain_ms, quote, time_text

_DUE_END: Final = INTEGER_END - 1


class Selection(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The selectors of a bulk control: the target, the beginning of the id, the target key, and due times in
    [`from_ms`, `until_ms`). A `target` of "" selects any target, an `id_prefix` of b"" any message with or without an
    id, a `key` of None any key."""

    target: str = ""
    id_prefix: bytes = b""
    key: bytes | None = None
    from_ms: int = 0
    until_ms: int = _DUE_END

    def selects(self, target: str, caller_id: bytes, key: bytes | None, due_ms: int) -> bool:
        """Returns True if a message with these properties is selected. `caller_id`: the id of the delivered message,
        even if this id is not registered. `due_ms`: the present due time, not the chosen time in a window. O(1)."""
        return (
            (not self.target or target == self.target)
            and (not self.id_prefix or caller_id.startswith(self.id_prefix))
            and (self.key is None or key == self.key)
            and self.from_ms <= due_ms < self.until_ms
        )


class BulkRequest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The request of a bulk control. If `moves` is False, it cancels the messages of `selection`. Otherwise it moves
    them to `due_ms`, or by `by_ms` if `due_ms` is -1. `accepted_ms`: the timestamp of the control's record."""

    selection: Selection
    moves: bool = False
    due_ms: int = -1
    by_ms: int = 0
    accepted_ms: int = -1


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BulkRequest)


def encode_bulk(request: BulkRequest) -> bytes:
    """Returns the bytes of the request of a bulk control, for the timer log."""
    return _encoder.encode(request)


def decode_bulk(data: bytes) -> BulkRequest:
    """Returns the request in bytes from `encode_bulk`; raises ValueError for other bytes."""
    return _decoder.decode(data)


def read_selection(fields: dict[str, bytes | None]) -> Selection:
    """Returns the selection that the selector headers in `fields` describe. Ignores other names.

    Raises RequestRefused (bad-selection).
    """
    arguments: dict[str, str | bytes | int] = {}
    if SELECT_TOPIC in fields:
        value = fields[SELECT_TOPIC] or b""
        target = value[: TOPIC_NAME_LENGTH_MAX + 1].decode("ascii", "replace")
        if not is_topic_name(target):
            raise _refused(SELECT_TOPIC, value, "is not a topic name")
        arguments["target"] = target
    if SELECT_ID in fields:
        arguments["id_prefix"] = prefix = fields[SELECT_ID] or b""
        if not 0 < len(prefix) <= ID_BYTES_MAX:
            raise _refused(SELECT_ID, prefix, f"must have 1 to {ID_BYTES_MAX} bytes")
        try:
            prefix.decode()
        except UnicodeDecodeError:
            raise _refused(SELECT_ID, prefix, "is not UTF-8") from None
    if SELECT_KEY in fields:
        key = fields[SELECT_KEY]
        if key is None or len(key) > SELECTED_KEY_BYTES_MAX:
            raise _refused(SELECT_KEY, key, f"must have at most {SELECTED_KEY_BYTES_MAX} bytes, and not be null")
        arguments["key"] = key
    for name, field in ((SELECT_FROM, "from_ms"), (SELECT_UNTIL, "until_ms")):
        if name in fields:
            arguments[field] = _instant(name, fields[name])
    selection = Selection(**arguments)  # type: ignore[arg-type]
    if selection.from_ms >= selection.until_ms:
        raise RequestRefused(Reason.BAD_SELECTION, f"{SELECT_FROM} must be before {SELECT_UNTIL}")
    return selection


def _instant(name: str, value: bytes | None) -> int:
    due_ms = plain_ms(value)
    try:
        return due_ms if due_ms >= 0 else parse_instant_ms(time_text(value))
    except ValueError as error:
        raise _refused(name, value, str(error)) from None


def _refused(name: str, value: bytes | None, why: str) -> RequestRefused:
    return RequestRefused(Reason.BAD_SELECTION, f"{name} {quote(value)} {why}")
