"""The fuzzed parsers of foreign bytes, each with a generator of possibly corrupt input and checks of its results.

If the parser accepts the input, a target's `read` checks the promised properties of the result and returns. If the
parser refuses the input, `read` raises one of `declared`. Any other outcome is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote_from_bytes

from starlette.datastructures import QueryParams

from postdate.kafka.interface import Partition
from postdate.sidecar.http.queries import queries
from postdate.sidecar.http.queries.pending import BadQuery, PageCursor
from postdate.wheel.entry import (
    Entry,
    Kind,
    Mark,
    decode_entry,
    decode_mark,
    encode_entry,
    encode_mark,
    pack_stripped,
    stripped_of,
)
from postdate.wheel.errors import Corrupt, FormatMismatch, IdentityMismatch
from postdate.wheel.timer_log.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from postdate.wheel.timer_log.identity import Identity, check_identity_row, new_identity_row
from postdate.wire.dialects.table import DIALECTS
from postdate.wire.dispatch_log import (
    VERSION_MAX,
    DispatchRecord,
    FateName,
    Moved,
    PlainFate,
    decode_record,
    encode_record,
)
from postdate.wire.errors import FormatError, RequestRefused
from postdate.wire.headers import FORMAT_2, REQUEST, Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.requests.parser import parse_request, restore_headers, sent_headers
from postdate.wire.requests.request import Action
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.requests.returns import schedule_return
from postdate.wire.requests.rules import RequestRules
from postdate.wire.stored import StoredRequest, decode_stored, encode_stored
from postdate.wire.topics import is_topic_name
from postdate.wire.verdicts import Verdict, decode_verdict, encode_verdict
from support.fuzzing.mutations import mutated

_RULES = (
    RequestRules(topic="R", forbidden=frozenset({"S"}), allow=("[a-z]*",)),
    RequestRules(topic="R", allow=("*",), dialects=tuple(DIALECTS), default_target="orders"),
    RequestRules(topic="R", allow=("*",), format_version=2),
)
_NOW_MS = 1_795_258_284_000
_FATE_NAMES: tuple[FateName, ...] = ("delivered", "dead", "stored")
_VALUES = [
    *(
        b"orders",
        b"R",
        b"__x",
        b"R.store",
        b"0",
        b"18",
        b"5s",
        b"2h30m",
        b"PT5M",
        b"P1DT12H",
        b"1500",
        b"1795258284001",
    ),
    *(
        b"2026-11-21T10:51:24Z",
        b"2026-11-21T10:51:24.123456+01:00",
        b"cancel",
        b"schedule",
        b"reschedule",
        b"pause",
        b"trigger",
        b"backfill",
        b"R/3/17",
    ),
    *(b"order-4711", b"", b"3", b"base=1s", b"base=250ms, factor=1.5, max=2h, attempts=7, jitter=20%", b"slow"),
]
_NAMES = [
    *sorted(REQUEST | FORMAT_2),
    "postdate-due",
    "postdate-dead-reason",
    "Postdate-Delay",
    "postdate-",
    "traceparent",
    "",
]
_DIALECT_NAMES = sorted(
    {name for dialect in DIALECTS.values() for name in ("TIMER_DELAY_MS", "x-delay", dialect.name)} | {"PROPERTIES"}
)


@dataclass(frozen=True)
class FuzzTarget:
    """One parser. `make`: generates input for `read`, corrupt or not; `declared`: the errors that callers expect."""

    name: str
    make: Callable[[Random], Any]
    read: Callable[[Any], None]
    declared: tuple[type[Exception], ...]


def _request(random: Random) -> tuple[int, int, bytes | None, Headers, bool]:
    """Returns rules, timestamp, key, headers, and whether the value is null: a valid request with some corruption."""
    headers: list[tuple[str, bytes | None]] = [("postdate-topic", b"orders"), ("postdate-delay", b"5s")]
    for _ in range(random.choice((0, 0, 1, 2, 5, 40))):
        name = random.choice(_NAMES if random.random() < 0.8 else _DIALECT_NAMES)
        headers.append((name, None if random.random() < 0.1 else random.choice(_VALUES)))
    random.shuffle(headers)
    for at in range(len(headers)):
        name, value = headers[at]
        if random.random() < 0.4:
            value = mutated(random, value or b"", _VALUES)
        if random.random() < 0.05:
            name = mutated(random, name.encode()).decode(errors="replace")
        headers[at] = name, value
    timestamp_ms = random.choice((_NOW_MS, _NOW_MS, _NOW_MS, -1, 0, INTEGER_END - 1))
    key = random.choice((None, b"", b"R/3/17", b"k"))
    return random.randrange(len(_RULES)), timestamp_ms, key, headers, random.random() < 0.1


def _read_request(case: tuple[int, int, bytes | None, Headers, bool]) -> None:
    number, timestamp_ms, key, headers, is_tombstone = case
    rules, sent = _RULES[number], list(headers)
    request = parse_request(rules, 3, timestamp_ms, key, headers, is_tombstone)
    assert headers == sent, "a parser leaves its input alone"
    assert restore_headers(request.headers, request.stripped) == sent
    if request.retry is not None:
        policies = NamedPolicies([(0, "slow", "base=1s")])
        request = schedule_return(rules, request, 3, 17, timestamp_ms, policies)
        assert sent_headers(request.headers, request.stripped) == sent
    if request.action in (Action.SCHEDULE, Action.RESCHEDULE):
        assert 1 <= request.due_ms < INTEGER_END
        assert request.due_ms == 1 or request.due_ms <= max(timestamp_ms, 0) + rules.horizon_ms
    if request.action == Action.SCHEDULE:
        assert is_topic_name(request.target)
        assert rules.permits(request.target)


def _log_record(random: Random) -> bytes | None:
    seq = random.randrange(1, 99)
    record = DispatchRecord(
        seq=seq, takeover=1, instance="i", group="g", at=_NOW_MS, next_request=2_040, low_water=990, fates=[]
    )
    record.fates = [
        *(PlainFate(1_000 + at, _NOW_MS + at, random.choice(_FATE_NAMES)) for at in range(seq % 7 + 1)),
        *([Moved(990, _NOW_MS, "moved", _NOW_MS + 9, 1_018)] if random.random() < 0.5 else []),
    ]
    if random.random() < 0.3:
        record.policies = [(7, "orders", "base=1s, factor=2"), (990, "orders", "")]
        record.v = VERSION_MAX
    raw = encode_record(record)
    return None if random.random() < 0.01 else mutated(random, raw, [raw])


def _read_log_record(raw: bytes | None) -> None:
    record = decode_record(raw)
    assert decode_record(encode_record(record)) == record
    assert record.low_water <= record.next_request < INTEGER_END


def _entry(random: Random) -> bytes:
    entry = Entry(
        kind=random.choice(tuple(Kind)).value, stored=random.random() < 0.5, first_due=_NOW_MS, due=_NOW_MS,
        target="orders", key=random.choice((None, b"k")), value=random.choice((None, b"v" * 200)),
        headers=[("h", b"x"), ("h", None)], partition=3, id=b"id", grace_ms=9, own_key=(b"own",),
        stripped=pack_stripped([(0, "postdate-topic", b"orders")]), reason="bad-time", detail="detail",
        accepted_ms=_NOW_MS,
    )  # fmt: skip
    raw = encode_entry(entry)
    return mutated(random, _longer(random, raw), [raw])


def _longer(random: Random, raw: bytes) -> bytes:
    """Sometimes appends an arbitrary element, as a newer version might; the parser must ignore it."""
    if random.random() < 0.7:
        return raw
    wide = raw[0] == 0xDC  # a MessagePack array of 16 or more elements; a shorter one has its length in the first byte
    count = int.from_bytes(raw[1:3], "big") if wide else raw[0] & 0x0F
    more = random.choice((b"\xc0", b"\xa1x", b"\x91" * random.choice((5, 100_000)) + b"\xc0"))
    return b"\xdc" + (count + 1).to_bytes(2, "big") + raw[3 if wide else 1 :] + more


def _read_entry(raw: bytes) -> None:
    entry = decode_entry(raw)
    assert decode_entry(encode_entry(entry)) == entry
    stripped_of(entry)


def _mark(random: Random) -> bytes:
    raw = encode_mark(Mark(random.random() < 0.5, random.random() < 0.5, random.choice((-1, _NOW_MS))))
    return mutated(random, _longer(random, raw))


def _read_mark(raw: bytes) -> None:
    mark = decode_mark(raw)
    assert decode_mark(encode_mark(mark)) == mark


def _position(random: Random) -> bytes:
    raw = encode_checkpoint(Checkpoint(random.choice((None, 2_040)), random.choice((None, 7)), 3, 1))
    return mutated(random, _longer(random, raw), [raw])


def _read_position(raw: bytes) -> None:
    position = decode_checkpoint(raw)
    assert decode_checkpoint(encode_checkpoint(position)) == position


_IDENTITY = Identity("cluster", "requests", "dispatch-log", 3, "store")


def _identity(random: Random) -> bytes:
    raw = new_identity_row(_IDENTITY)[:-16] + random.randbytes(16)  # the last 16 bytes are its random id
    return mutated(random, _longer(random, raw), [raw])


def _read_identity(raw: bytes) -> None:
    assert isinstance(check_identity_row(raw, _IDENTITY), bytes)


def _stored(random: Random) -> tuple[bytes | None, bytes, Headers | None]:
    key, value, headers = encode_stored(
        StoredRequest(
            offset=17, accepted_ms=_NOW_MS, first_due_ms=_NOW_MS, due_ms=_NOW_MS + 9, target="orders", key=b"k",
            own_key=b"own", value=b"v", headers=[("h", b"x")], stripped=[(0, "postdate-topic", b"orders")],
            partition=-1, id=b"id", grace_ms=-1,
        )
    )  # fmt: skip
    if random.random() < 0.3:
        key = mutated(random, key)
    if random.random() < 0.2:
        del headers[random.randrange(len(headers))]
    if headers and random.random() < 0.8:
        at = random.choice((-1, random.randrange(len(headers))))
        headers[at] = headers[at][0], mutated(random, headers[at][1] or b"", _VALUES)
    return random.choice((key, key, None)) if random.random() < 0.1 else key, value, headers


def _read_stored(case: tuple[bytes | None, bytes, Headers | None]) -> None:
    request = decode_stored(*case)
    assert request.offset >= 0
    assert len(request.headers) + len(request.stripped) < len(case[2] or ())


def _verdict(random: Random) -> bytes | None:
    _, raw = encode_verdict(random.choice(tuple(Verdict)), b"R/3/17", b"id", b"R/3/16", _NOW_MS)
    return None if random.random() < 0.01 else mutated(random, raw, [raw])


def _read_verdict(raw: bytes | None) -> None:
    decode_verdict(raw)


_QUERY = {
    "topic": b"R", "partition": b"3", "target": b"orders", "from": b"2026-11-21T10:51:24Z", "until": b"1795258284001",
    "state": b"waiting", "id": b"order-4711", "origin": b"R/3/17", "limit": b"100", "payload": b"false",
    "cursor": PageCursor(b"\x00" * 16, Partition("R", 3)).encode().encode(),
}  # fmt: skip


def _query(random: Random) -> str:
    """Returns a query string as in a request line, with some parameters, most of them corrupt."""
    chosen = random.sample(sorted(_QUERY), random.randrange(1, 6))
    pairs = []
    for name in chosen:
        value = mutated(random, _QUERY[name], list(_QUERY.values())) if random.random() < 0.7 else _QUERY[name]
        pairs.append(f"{name}={quote_from_bytes(value[:4_000])}")
    text = "&".join(pairs)
    return mutated(random, text.encode())[:8_000].decode("latin-1") if random.random() < 0.2 else text


def _read_query(text: str) -> None:
    query = QueryParams(text)
    queries.known(query, *_QUERY)
    filters = queries.filters_of(query)
    assert 1 <= filters.from_ms < filters.until_ms
    assert all(is_topic_name(target) for target in filters.targets)
    assert 1 <= queries.number_of(query, "limit", 100, 1_000) <= 1_000
    if "origin" in query:
        assert queries.origin_of(query["origin"])[1] >= 0
    if "cursor" in query:
        PageCursor.decode(PageCursor.decode(query["cursor"]).encode())
    if "id" in query:
        query["id"].encode()


TARGETS = {
    target.name: target
    for target in (
        FuzzTarget("headers", _request, _read_request, (RequestRefused,)),
        FuzzTarget("dispatch-log", _log_record, _read_log_record, (FormatError,)),
        FuzzTarget("entry", _entry, _read_entry, (Corrupt,)),
        FuzzTarget("mark", _mark, _read_mark, (Corrupt,)),
        FuzzTarget("position", _position, _read_position, (Corrupt,)),
        FuzzTarget("identity", _identity, _read_identity, (Corrupt, FormatMismatch, IdentityMismatch)),
        FuzzTarget("store", _stored, _read_stored, (FormatError,)),
        FuzzTarget("verdict", _verdict, _read_verdict, (FormatError,)),
        FuzzTarget("query", _query, _read_query, (BadQuery,)),
    )
}
