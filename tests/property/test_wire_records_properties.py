"""Goal: a dispatch-log record with any content reads back, and a damaged record decodes to a valid record or raises
FormatError.

Method: every record is encoded and decoded. Arbitrary bytes, and records with some bytes changed, give a record or
FormatError.
"""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postdate.wire.delivered import dead_letter_headers, delivered_headers
from postdate.wire.dispatch_log import (
    APPLIED,
    BEAT,
    COMPLETED,
    DEAD,
    DELIVERED,
    DROPPED,
    FATES,
    FINAL,
    KEPT,
    OCCURRED,
    OWNER,
    SKIPPED,
    STORED,
    SWEPT,
    Backfilled,
    BulkCancelled,
    BulkProgress,
    ChosenFate,
    Completed,
    DispatchRecord,
    ExtraFate,
    Fate,
    Moved,
    Occurred,
    PausedOrResumed,
    PlainFate,
    SeriesFate,
    Skipped,
    SurvivorFate,
    Triggered,
    decode_record,
    encode_record,
)
from postdate.wire.errors import FormatError
from postdate.wire.headers import Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.origins import format_origin, parse_origin
from postdate.wire.reasons import Reason
from postdate.wire.values.id_digests import id_digest
from postdate.wire.verdicts import Verdict, encode_verdict

naturals = st.integers(0, INTEGER_END - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
plain_fates = st.builds(
    PlainFate, naturals, naturals, st.sampled_from(sorted(FINAL - {COMPLETED, KEPT, DROPPED} | {STORED}))
)
chosen = st.builds(ChosenFate, naturals, naturals, st.sampled_from([DELIVERED, DEAD]), naturals)
progress = st.builds(BulkProgress, naturals, naturals, st.sampled_from([SWEPT, APPLIED]), naturals)
occurrences = st.builds(Occurred, naturals, naturals, st.just(OCCURRED), naturals, naturals, naturals)
reasons = st.sampled_from(["missed", "paused", "gap", "grace", "dead"])
skips = st.builds(Skipped, naturals, naturals, st.just(SKIPPED), naturals, naturals, reasons, naturals)
of_schedules = st.one_of(occurrences, skips, st.builds(Completed, naturals, naturals, st.just(COMPLETED)))
policies = st.lists(
    st.tuples(naturals, st.text(st.characters(codec="ascii"), min_size=1, max_size=9), texts), min_size=1
)

ids = st.lists(st.tuples(naturals, st.binary(max_size=300).map(id_digest)), min_size=1, max_size=8)


@st.composite
def fates_that_name_another(draw: st.DrawFn) -> Fate:
    """Draws a fate that names another request: an earlier request for `kept` and `dropped`, otherwise a later one."""
    later = draw(st.integers(1, INTEGER_END - 1))
    earlier, due_ms, time_ms = draw(st.integers(0, later - 1)), draw(naturals), draw(naturals)
    fates: list[Fate] = [
        Moved(earlier, due_ms, "moved", time_ms, later),
        BulkCancelled(earlier, due_ms, "cancelled", later),
        SurvivorFate(earlier, due_ms, "replaced", later),
        SurvivorFate(later, due_ms, "kept", earlier),
        SurvivorFate(later, due_ms, "dropped", earlier),
        SeriesFate(earlier, due_ms, "replaced", later, time_ms),
        PausedOrResumed(earlier, due_ms, "paused", time_ms, later),
        PausedOrResumed(earlier, due_ms, "resumed", time_ms, later),
        Triggered(earlier, due_ms, "triggered", time_ms, later),
        Backfilled(earlier, due_ms, "backfilled", time_ms, later, min(due_ms, time_ms), time_ms),
        ExtraFate(earlier, due_ms, "extra", later, 1 + due_ms, time_ms, 0),
        ExtraFate(earlier, due_ms, "extra-dead", later, 1, time_ms, time_ms),
    ]
    return draw(st.sampled_from(fates))


any_fate = st.one_of(plain_fates, chosen, progress, fates_that_name_another(), of_schedules)


@st.composite
def records(draw: st.DrawFn) -> DispatchRecord:
    next_request = draw(naturals)
    kind = draw(st.sampled_from([FATES, FATES, OWNER, BEAT]))
    fates: list[Fate] = draw(st.lists(any_fate, min_size=1, max_size=8))
    return DispatchRecord(
        seq=draw(st.integers(1, INTEGER_END - 1)),
        takeover=draw(naturals),
        instance=draw(texts),
        group=draw(texts),
        at=draw(naturals),
        next_request=next_request,
        low_water=draw(st.integers(0, next_request)),
        kind=kind,
        fates=fates if kind == FATES else [],
        policies=draw(st.one_of(st.just(msgspec.UNSET), policies)),
        ids=draw(st.one_of(st.just(msgspec.UNSET), ids)),
        remembers=draw(st.one_of(st.just(msgspec.UNSET), st.booleans())),
    )


@given(records())
def test_a_record_reads_back_and_is_json_for_others_too(record: DispatchRecord) -> None:
    value = encode_record(record)
    assert decode_record(value) == record
    assert [tuple(fate) for fate in json.loads(value)["fates"]] == [*map(msgspec.structs.astuple, record.fates)]
    assert b"\n" not in value


@given(st.one_of(st.binary(max_size=60), texts.map(str.encode)))
@example(b"")
def test_any_bytes_are_a_record_or_a_format_error(value: bytes) -> None:
    with suppress(FormatError):
        decode_record(value)


@settings(max_examples=300)
@given(records(), st.data())
def test_a_damaged_record_is_another_record_or_a_format_error(record: DispatchRecord, data: st.DataObject) -> None:
    value = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(value[: data.draw(st.integers(0, len(value)))])
    try:
        read = decode_record(damaged)
    except FormatError:
        return
    assert decode_record(encode_record(read)) == read


headers = st.lists(st.tuples(texts, st.one_of(st.none(), st.binary(max_size=9))), max_size=5)


@given(headers, naturals, naturals, st.binary(max_size=5), st.text(max_size=2_000))
def test_outgoing_headers_begin_with_those_that_came(
    came: Headers, offset: int, due_ms: int, identifier: bytes, detail: str
) -> None:
    origin = format_origin("R", 3, offset)
    delivered = delivered_headers(came, origin, due_ms, identifier)
    assert delivered[: len(came)] == came
    added = dict(delivered[len(came) :])
    assert parse_origin(added["postdate-origin"] or b"") == ("R", 3, offset)
    assert int(added["postdate-due"] or b"") == due_ms
    assert added.get("postdate-id", b"") == identifier
    dead = dead_letter_headers(came, Reason.EXPIRED, detail, origin)
    assert dead[: len(came)] == came
    assert (dict(dead)["postdate-dead-reason"], dict(dead)["postdate-origin"]) == (b"expired", origin)
    assert (dict(dead)["postdate-dead-detail"] or b"").decode() is not None


@given(
    st.sampled_from(Verdict), texts, naturals, st.one_of(st.none(), naturals), st.one_of(st.none(), naturals), naturals
)
def test_a_verdict_is_json_for_others(
    verdict: Verdict, identifier: str, offset: int, of: int | None, by: int | None, at_ms: int
) -> None:
    origin, acted_on, survivor = (
        b"" if offset_of is None else format_origin("R", 3, offset_of) for offset_of in (offset, of, by)
    )
    key, value = encode_verdict(verdict, origin, identifier.encode(), acted_on, at_ms, survivor)
    assert key == (identifier.encode() or None)
    version = 2 if verdict in (Verdict.KEPT, Verdict.DROPPED, Verdict.APPLIED) else 1
    version = 3 if verdict in (Verdict.PAUSED, Verdict.RESUMED, Verdict.TRIGGERED, Verdict.BACKFILLED) else version
    assert json.loads(value) == {
        **{"v": version, "origin": f"R/3/{offset}", "id": identifier or None, "verdict": str(verdict)},
        **{"of": None if of is None else f"R/3/{of}", "at": at_ms},
        **({} if by is None else {"by": f"R/3/{by}"}),
    }
