"""The shard to which a directory belongs, compared at every open.

Thread rule: immutable.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

import msgspec

from postdate.wheel.errors import Corrupt, FormatMismatch, IdentityMismatch

FORMAT_VERSION: Final = 2


class Identity(msgspec.Struct, array_like=True, frozen=True):
    """The shard to which a timer index belongs. A re-created topic has another id."""

    cluster_id: str
    request_topic_id: str
    dispatch_log_topic_id: str
    partition: int
    store_topic_id: str = ""


def new_identity_row(identity: Identity) -> bytes:
    """Returns the row for a new timer log. The row has a random id, so the wheel of an older log never matches a newer
    log."""
    return msgspec.msgpack.encode((FORMAT_VERSION, identity, os.urandom(16)))


def check_identity_row(row: bytes, identity: Identity) -> bytes:
    """Returns the id of the log to which this identity row belongs.

    Raises FormatMismatch (another version), IdentityMismatch (another shard) or Corrupt (not an identity row).
    """
    try:
        version = msgspec.msgpack.decode(row)[0]
        if version != FORMAT_VERSION:
            raise FormatMismatch(version, FORMAT_VERSION)
        _, stored, log_id = msgspec.msgpack.decode(row, type=tuple[int, Identity, bytes])
    except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
        raise Corrupt(f"the identity of the timer log does not decode: {error}") from error
    differing = tuple(name for name in Identity.__struct_fields__ if getattr(stored, name) != getattr(identity, name))
    if differing:
        detail = ", ".join(
            f"{name} is {getattr(stored, name)!r}, not {getattr(identity, name)!r}" for name in differing
        )
        raise IdentityMismatch(differing, detail)
    return log_id


def wheel_digest(identity: Identity, log_id: bytes) -> bytes:
    """Returns the 32 bytes by which a wheel file names its timer log."""
    return hashlib.sha256(msgspec.msgpack.encode((FORMAT_VERSION, identity, log_id))).digest()
