"""Checks the version of a JSON record that does not parse: a newer Postdate may have written it."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from postdate.wire.errors import NewerFormat


class _Version(msgspec.Struct):
    v: int


_decoder = msgspec.json.Decoder(_Version)


def raise_if_newer(value: bytes, known: int, what: str) -> None:
    """Raises NewerFormat if `value` has a later version than `known`. Requires: a decoder has refused `value`.

    `what` names the record in the message of the error.
    """
    with suppress(ValueError, RecursionError):
        version = _decoder.decode(value).v
        if version > known:
            raise NewerFormat(f"{what} has version {version}: written by a newer Postdate")
