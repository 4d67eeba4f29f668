"""Corrupts bytes by small changes, and by input that often breaks parsers: lengths, depth, limit values, surrogates.

Pure functions of a random generator: the same generator state gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

#: Bytes: changes do not let corrupted input grow beyond this size.
SIZE_BYTES_MAX = 300_000

_NUMBERS = [0, 1, 255, 256, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**18, 10**400]
_WORDS = [
    *(
        b"\x00",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xef\xbb\xbf",
        b"\\ud800",
        b"\r\n",
        b"%00",
    ),
    *(
        b"null",
        b"true",
        b"NaN",
        b"-0",
        b"1e999",
        b"-1",
        b"+1",
        b"1_0",
        b" ",
        b"\xd9\xa1",
        b"\xe2\x88\x9e",
        b"__",
        b"..",
    ),
    *(b"postdate-topic", b"delivered", b"moved", b'"v":2', b'"v":0', b"{}", b"[]", b"PT", b"P1Y", b"T24:00:00Z"),
    *(b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc1", b"\xd4\x01"),
]

Mutation = Callable[[Random, bytes], bytes]


def mutated(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Returns the bytes after one to six changes; some changes insert pieces of `others`."""
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        if others and random.random() < 0.2:
            data = _splice(random, data, random.choice(others))
        else:
            data = random.choice(_MUTATIONS)(random, data)
        data = data[:SIZE_BYTES_MAX]
    return data


def _place(random: Random, data: bytes) -> int:
    return random.randrange(len(data) + 1)


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _set(random: Random, data: bytes) -> bytes:
    at = _place(random, data)
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _insert(random: Random, data: bytes) -> bytes:
    at = _place(random, data)
    return data[:at] + random.randbytes(random.choice((1, 2, 4, 9))) + data[at:]


def _word(random: Random, data: bytes) -> bytes:
    at = _place(random, data)
    return data[:at] + random.choice(_WORDS) + data[at:]


def _remove(random: Random, data: bytes) -> bytes:
    start, end = sorted((_place(random, data), _place(random, data)))
    return data[:start] + data[end:]


def _truncate(random: Random, data: bytes) -> bytes:
    return data[: _place(random, data)]


def _repeat(random: Random, data: bytes) -> bytes:
    start, end = sorted((_place(random, data), _place(random, data)))
    return data[:end] + data[start:end] * random.choice((1, 2, 50)) + data[end:]


def _number(random: Random, data: bytes) -> bytes:
    """Replaces or inserts a number: a limit value or a random one, at digits or anywhere."""
    digits = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    at = random.choice(digits) if digits else _place(random, data)
    end = at
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:at] + str(random.choice(_NUMBERS) * random.choice((1, 1, -1))).encode() + data[end:]


def _nest(random: Random, data: bytes) -> bytes:
    """Adds nesting: JSON brackets, or MessagePack arrays and maps with one element."""
    at, depth = _place(random, data), random.choice((2, 1_000, 100_000))
    return data[:at] + random.choice((b"[", b'{"v":', b"\x91", b"\x81\xa0")) * depth + data[at:]


def _splice(random: Random, data: bytes, other: bytes) -> bytes:
    start, end = sorted((_place(random, other), _place(random, other)))
    at = _place(random, data)
    return data[:at] + other[start:end] + data[at:]


_MUTATIONS: tuple[Mutation, ...] = (_flip, _flip, _set, _insert, _word, _remove, _truncate, _repeat, _number, _nest)
