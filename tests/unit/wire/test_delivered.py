"""Goal: records that leave Postdate have their documented form: headers of delivered records and dead letters,
verdicts, and the partition by key.

Method: literal records; the partitioner against the values in the tests of Kafka's Java client.
"""

from __future__ import annotations

import json

import pytest

from postdate.wire import headers as names
from postdate.wire.delivered import dead_letter_headers, delivered_headers, record_size_bytes
from postdate.wire.headers import Headers
from postdate.wire.limits import DETAIL_BYTES_MAX, ID_BYTES_MAX
from postdate.wire.reasons import Reason
from postdate.wire.values.murmur2 import murmur2, partition_for
from postdate.wire.verdicts import Verdict, encode_verdict

SENT: Headers = [("traceparent", b"00-ab"), ("x", None), ("x", b""), ("x", b"\xff")]

# UtilsTest.testMurmur2 of apache/kafka.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_a_delivered_record_has_its_headers_then_postdates() -> None:
    untouched = list(SENT)
    ours: Headers = [("postdate-origin", b"R/3/1017"), ("postdate-due", b"1795258284000")]
    assert delivered_headers(SENT, b"R/3/1017", 1_795_258_284_000, b"") == [*untouched, *ours]
    with_id: Headers = [*untouched, *ours, ("postdate-id", b"order-9")]
    assert delivered_headers(SENT, b"R/3/1017", 1_795_258_284_000, b"order-9") == with_id
    assert untouched == SENT


def test_a_dead_letter_has_all_headers_then_the_reason() -> None:
    original: Headers = [("postdate-dead-reason", b"expired"), *SENT, ("Postdate-Delay", b"5s")]
    assert dead_letter_headers(original, Reason.UNKNOWN_HEADER, "it is ünknown", b"R/3/1") == [
        *original,
        ("postdate-dead-reason", b"unknown-header"),
        ("postdate-dead-detail", "it is ünknown".encode()),
        ("postdate-origin", b"R/3/1"),
    ]


@pytest.mark.parametrize("detail", ["x" * 5_000, "ü" * 5_000, "x" + "😀" * 5_000, "\ud800" * 5_000])
def test_a_detail_is_cut_between_characters(detail: str) -> None:
    sentence = dict(dead_letter_headers([], "expired", detail, b"R/0/0"))["postdate-dead-detail"]
    assert sentence is not None
    assert DETAIL_BYTES_MAX - 3 <= len(sentence) <= DETAIL_BYTES_MAX
    assert sentence.decode().strip("xü😀?") == ""


def test_a_dead_letter_adds_less_than_its_topic_allows() -> None:
    added = dead_letter_headers([], Reason.TARGET_UNAVAILABLE, "x" * 10_000, b"t" * 281)
    assert record_size_bytes(None, None, added) < 64 * 1024


def test_a_size_counts_names_in_bytes() -> None:
    empty = record_size_bytes(None, None, [])
    assert record_size_bytes(b"kk", b"vvv", []) == empty + 5
    assert record_size_bytes(None, None, [("é", b"12")]) - record_size_bytes(None, None, [("", None)]) == 4


def test_a_verdict_is_json_with_the_id_as_key() -> None:
    key, value = encode_verdict(Verdict.CANCELLED, b"R/3/1017", b"order-9", b"R/3/990", 1_795_258_284_000)
    assert key == b"order-9"
    assert value == (
        b'{"v":1,"origin":"R/3/1017","id":"order-9","verdict":"cancelled","of":"R/3/990","at":1795258284000}'
    )
    key, value = encode_verdict(Verdict.NOT_FOUND, b"R/3/1017", b"", b"", 5)
    assert key is None
    assert json.loads(value) == {
        **{"v": 1, "origin": "R/3/1017", "id": None, "verdict": "not-found", "of": None, "at": 5}
    }


def test_the_set_of_verdicts_is_closed() -> None:
    closed_set = "accepted rejected cancelled rescheduled paused resumed triggered backfilled replaced kept dropped"
    closed_set += " delivered dead not-found too-late applied"
    assert [str(verdict) for verdict in Verdict] == closed_set.split()


@pytest.mark.parametrize(("key", "hashed"), JAVA.items(), ids=[key.decode() for key in JAVA])
def test_the_hash_is_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed
    assert [partition_for(key, count) for count in (1, 4, 7)] == [0, (hashed % 2**31) % 4, (hashed % 2**31) % 7]


def test_header_names_share_one_prefix_and_their_reasons_fit_one_word() -> None:
    constants = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    assert len(constants) == 46
    assert all(names.is_postdate_header(name) and name == name.lower() for name in constants)
    assert all(reason.isascii() and " " not in reason for reason in Reason)
    assert ID_BYTES_MAX == 256
