"""Goal: a record of the store gives back, byte for byte, the request from which it was made, or is refused.

Method: requests of every form, in Postdate's own headers and in dialects, are encoded and decoded. Damaged records must
be refused.
"""

from __future__ import annotations

import msgspec
import pytest

from postdate.wire.dialects.table import DIALECTS
from postdate.wire.errors import FormatError
from postdate.wire.headers import Headers
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.stored import StoredRequest, decode_stored, encode_stored, stored_offset
from support.clients.dialect_examples import DEFAULT_TARGET, EXAMPLES, Example

NOW_MS = 1_795_258_284_000
WHERE: Headers = [("postdate-topic", b"orders"), ("postdate-delay", b"1d")]
RULES = RequestRules(topic="requests")


def stored(key: bytes | None, value: bytes | None, headers: Headers, rules: RequestRules = RULES) -> StoredRequest:
    request = parse_request(rules, 0, NOW_MS, key, headers, value is None)
    return StoredRequest(
        offset=1017,
        accepted_ms=NOW_MS,
        first_due_ms=request.due_ms,
        due_ms=request.due_ms,
        target=request.target,
        key=request.key,
        own_key=key,
        value=value,
        headers=request.headers,
        stripped=request.stripped,
        partition=request.partition,
        id=request.id,
        grace_ms=request.grace_ms,
    )


SHAPES = {
    "plain": stored(b"k", b"v", WHERE),
    "null key and value": stored(None, None, WHERE),
    "empty key and value": stored(b"", b"", WHERE),
    "null target key": stored(b"k", b"v", [*WHERE, ("postdate-key", None)]),
    "empty target key": stored(None, b"v", [("postdate-key", b""), *WHERE]),
    "target key as another header": stored(b"k", b"v", [*WHERE, ("postdate-key", b"orders")]),
    "repeated headers": stored(b"k", b"v", [("t", b"1"), *WHERE, ("t", None), ("t", b""), ("T", b"\xff")]),
    "everything": stored(
        b"k",
        b"v",
        [
            ("postdate-due", b"5"),
            *WHERE,
            ("postdate-id", "é".encode()),
            ("postdate-grace", b"5s"),
            ("postdate-partition", b"3"),
            ("postdate-moved", b"7"),
            ("postdate-dead-reason", b"x"),
        ],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_form_of_request_reads_back(shape: str) -> None:
    request = SHAPES[shape]
    key, value, headers = encode_stored(request)
    assert key == b"1017"
    assert decode_stored(key, value, headers) == request
    moved = msgspec.structs.replace(request, due_ms=request.due_ms + 5, grace_ms=9)
    assert decode_stored(*encode_stored(moved)) == moved
    assert dict(encode_stored(moved)[2])["postdate-moved"] == b"%d" % moved.due_ms


def test_a_null_message_is_not_a_tombstone() -> None:
    assert encode_stored(SHAPES["null key and value"])[1] == b""


def test_the_headers_as_sent_come_first() -> None:
    sent: Headers = [("t", b"1"), *WHERE, ("t", None)]
    assert encode_stored(stored(b"k", b"v", sent))[2][:4] == sent


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_request_in_a_dialect_reads_back(example: Example) -> None:
    rules = RequestRules(
        topic="requests", horizon_ms=3_660 * 86_400_000, dialects=tuple(DIALECTS), default_target=DEFAULT_TARGET
    )
    request = stored(example.key, example.value, example.headers, rules)
    key, value, headers = encode_stored(request)
    assert decode_stored(key, value, headers) == request
    assert headers[: len(example.headers)] == example.headers


@pytest.mark.parametrize("key", [None, b"", b"-1", b"1.0", b"x", b"9" * 30])
def test_a_key_that_is_not_an_offset_is_refused(key: bytes | None) -> None:
    with pytest.raises(FormatError):
        stored_offset(key)


def test_a_damaged_record_is_refused() -> None:
    key, value, headers = encode_stored(SHAPES["everything"])
    damaged = [None, [], headers[:-1], headers[::-1]]
    damaged += [headers[:at] + headers[at + 1 :] for at in range(len(headers) - 1)]
    for text in (b"", b"{}", b"[" * 5000, headers[-1][1] and headers[-1][1].replace(b'"v":1', b'"v":2')):
        damaged.append([*headers[:-1], ("postdate-stored", text)])
    for broken in damaged:
        with pytest.raises(FormatError):
            decode_stored(key, value, broken)
