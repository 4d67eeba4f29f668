"""Goal: the judges expect the records of docs/formats.md, and the partitions of Kafka's clients.

Method: the vectors of Kafka's `UtilsTest.testMurmur2`, and handwritten records.
"""

from __future__ import annotations

import pytest

from support.oracles.expected_records import (
    Headers,
    data_headers,
    dead_letter_complaints,
    delivery_headers,
    murmur2,
    partition_of,
)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_is_hashed_as_by_kafkas_clients(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert partition_of(key, 7) == (hashed & 0x7FFFFFFF) % 7


def test_a_delivered_record_has_its_own_headers_first() -> None:
    sent: Headers = [("b", b"1"), ("Postdate-Topic", b"t"), ("a", None), ("b", b"1")]
    own: Headers = [("b", b"1"), ("a", None), ("b", b"1")]
    assert data_headers(sent) == own
    added: Headers = [("postdate-origin", b"r/0/7"), ("postdate-due", b"12")]
    assert delivery_headers(own, b"r/0/7", 12, b"") == own + added
    assert delivery_headers(own, b"r/0/7", 12, b"x") == [*own, *added, ("postdate-id", b"x")]


def test_a_dead_letter_is_the_request_and_three_headers() -> None:
    sent: Headers = [("a", b"1"), ("postdate-topic", b"t")]
    added: Headers = [("postdate-dead-reason", b"x"), ("postdate-dead-detail", b"why"), ("postdate-origin", b"r/0/7")]
    assert dead_letter_complaints(sent, sent + added, b"r/0/7") == []
    for wrong in (
        added,
        sent + added[1:],
        sent[::-1] + added,
        sent + added[::-1],
        [*sent, *added, ("a", b"1")],
        [*sent, added[0], ("postdate-dead-detail", b""), added[2]],
        [*sent, *added[:2], ("postdate-origin", b"r/0/8")],
    ):
        assert dead_letter_complaints(sent, wrong, b"r/0/7")
