"""The records that a request must lead to, computed from docs/formats.md alone.

The judges compare the records that they read with these functions. Nothing here imports the product: shared code would
hide a mistake of the product from the judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: The headers of a record in their order, with repeated names and null values.
Headers = list[tuple[str, bytes | None]]

#: The fates that end a request; each request gets exactly one of them.
FINAL_FATES = frozenset({"delivered", "dead", "cancelled", "replaced", "kept", "dropped", "applied", "completed"})
#: The maximum length of the detail of a dead letter, in bytes.
_DETAIL_BYTES_MAX = 1_024
#: The detail of a dead letter without its value begins with this text.
VALUE_LEFT_OUT = b"the value is too large for the dead letters"

_SEED, _MULTIPLIER, _ALL_BITS = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def data_headers(headers: Iterable[tuple[str, bytes | None]] | None) -> Headers:
    """Returns the headers of the message itself: all except those whose names begin with Postdate's prefix, in upper or
    lower case."""
    return [(name, value) for name, value in headers or () if not name.lower().startswith("postdate-")]


def origin_of(topic: str, partition: int, offset: int) -> bytes:
    """Returns the value of `postdate-origin` for a request."""
    return b"%s/%d/%d" % (topic.encode(), partition, offset)


def delivery_headers(data: Sequence[tuple[str, bytes | None]], origin: bytes, due_ms: int, id: bytes) -> Headers:
    """Returns all headers of a delivered record.

    The headers of the message come first, in their order, then origin, due time, and the id if the request has one.
    """
    expected: Headers = list(data)
    expected.append(("postdate-origin", origin))
    expected.append(("postdate-due", str(due_ms).encode()))
    if id != b"":
        expected.append(("postdate-id", id))
    return expected


def dead_letter_complaints(
    sent: Sequence[tuple[str, bytes | None]], found: Sequence[tuple[str, bytes | None]], origin: bytes
) -> list[str]:
    """Returns the defects in the headers of a dead letter.

    The headers of the request come first, unchanged; then the reason, the detail and the origin, once each and in this
    order.
    """
    own, added = list(found[: len(sent)]), list(found[len(sent) :])
    wrong = [] if own == list(sent) else [f"the dead letter has headers {own}, the request {list(sent)}"]
    names = [name for name, _ in added]
    if names != ["postdate-dead-reason", "postdate-dead-detail", "postdate-origin"]:
        return [*wrong, f"the dead letter adds {names}"]
    reason, detail, named = (value or b"" for _, value in added)
    if not reason or not 0 < len(detail) <= _DETAIL_BYTES_MAX:
        wrong.append(f"the dead letter has the reason {reason!r} with {len(detail)} bytes of detail")
    if named != origin:
        wrong.append(f"the dead letter names {named!r}, not {origin!r}")
    return wrong


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition that Kafka's default partitioner gives a key: murmur2, made positive, modulo
    `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Returns the MurmurHash 2 of 32 bits, by Austin Appleby, with the seed of Kafka's clients, as an unsigned
    number."""
    state = (_SEED ^ len(data)) & _ALL_BITS
    full = len(data) // 4
    for word in range(full):
        chunk = int.from_bytes(data[4 * word : 4 * word + 4], "little")
        chunk = (chunk * _MULTIPLIER) & _ALL_BITS
        chunk ^= chunk >> 24
        chunk = (chunk * _MULTIPLIER) & _ALL_BITS
        state = (state * _MULTIPLIER) & _ALL_BITS
        state ^= chunk
    tail = data[4 * full :]
    if tail:
        state ^= int.from_bytes(tail, "little")
        state = (state * _MULTIPLIER) & _ALL_BITS
    state ^= state >> 13
    state = (state * _MULTIPLIER) & _ALL_BITS
    return state ^ (state >> 15)
