"""Digests of ids, which stand for the ids of delivered messages in the dispatch log.

A digest is the first 128 bits of SHA-256, in Base64 without padding. It is short, and Spark can compute it, too.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Final

from postdate.wire.limits import ID_DIGEST_LENGTH

_SIZE_BYTES: Final = 16


def id_digest(caller_id: bytes) -> str:
    """Returns the digest of an id. Cost: 1 us."""
    return b64encode(sha256(caller_id).digest()[:_SIZE_BYTES])[:ID_DIGEST_LENGTH].decode()


def digest_bytes(digest: str) -> bytes:
    """Returns the 16 bytes of a digest. Raises ValueError if the text is not a digest."""
    decoded = b64decode(f"{digest}==", validate=True)
    if len(decoded) != _SIZE_BYTES:
        raise ValueError("a digest of an id does not have 16 bytes")
    return decoded
