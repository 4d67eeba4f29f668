"""Goal: encoded verdicts decode to the same values, and decoding damaged ones raises only FormatError.

Method: hypothesis generates verdicts of every kind with ids of any UTF-8, and changes bytes of the encoded verdicts.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from postdate.wire.errors import FormatError
from postdate.wire.limits import ID_BYTES_MAX, INTEGER_END, PARTITION_END
from postdate.wire.origins import format_origin
from postdate.wire.verdicts import Verdict, VerdictRecord, decode_verdict, encode_bulk_verdict, encode_verdict

naturals = st.integers(0, INTEGER_END - 1)
origins = st.builds(format_origin, st.just("postdate.requests"), st.integers(0, PARTITION_END - 1), naturals)
ids = st.text(st.characters(codec="utf-8"), max_size=60).map(str.encode).filter(lambda id: len(id) <= ID_BYTES_MAX)


#: The answers to requests other than bulk controls.
words = st.sampled_from(sorted(set(Verdict) - {Verdict.APPLIED}))


@given(words, origins, ids, st.one_of(st.just(b""), origins), naturals, st.one_of(st.just(b""), origins))
def test_a_verdict_reads_back(verdict: Verdict, origin: bytes, id: bytes, of: bytes, at_ms: int, by: bytes) -> None:
    if verdict in (Verdict.KEPT, Verdict.DROPPED) and not by:
        by = origin  # this verdict always names a survivor
    key, value = encode_verdict(verdict, origin, id, of, at_ms, by)
    assert key == (id or None)
    assert decode_verdict(value) == VerdictRecord(
        origin=origin.decode(),
        id=id.decode() or None,
        verdict=verdict,
        of=of.decode() or None,
        at_ms=at_ms,
        by=by.decode() or None,
    )


@given(origins, naturals, naturals)
def test_the_answer_to_a_bulk_control_reads_back(origin: bytes, count: int, at_ms: int) -> None:
    assert decode_verdict(encode_bulk_verdict(origin, count, at_ms)) == VerdictRecord(
        origin=origin.decode(), id=None, verdict=Verdict.APPLIED, of=None, at_ms=at_ms, count=count
    )


@given(words, origins, ids, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3))
def test_damage_is_a_format_error_or_a_verdict(
    verdict: Verdict, origin: bytes, id: bytes, damage: list[tuple[int, int]]
) -> None:
    value = bytearray(encode_verdict(verdict, origin, id, b"", 5)[1])
    for place, byte in damage:
        value[place % len(value)] = byte
    with suppress(FormatError):
        decode_verdict(bytes(value))
