"""Goal: a trigger delivers the message of its schedule once more, for every owner, disk and order of records. It
consumes no occurrence number, and its verdict is true.

Method: traces on a real timer index and the STORE that its transactions write (`support.shards.long_delays`), as in
`test_recurrences`. The rules are those of docs/protocol.md, "Extra deliveries".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index.recurrences import PAUSED_MS
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.wheel.entry import Kind, Next
from postdate.wheel.keys import entry_key
from postdate.wire.delivered import record_size_bytes
from postdate.wire.dispatch_log import (
    CANCELLED,
    COMPLETED,
    DEAD,
    EXTRA,
    EXTRA_DEAD,
    OCCURRED,
    TRIGGERED,
    Completed,
    DispatchRecord,
    ExtraFate,
    Fate,
    Occurred,
    PlainFate,
    Triggered,
    decode_record,
    encode_record,
)
from postdate.wire.errors import FormatError
from postdate.wire.limits import EXTRAS_MAX
from postdate.wire.requests.rules import RequestRules
from support.shards.long_delays import BASE_MS, OWN, Make, new_shards, request, verdict_texts
from support.shards.second_schedule import (
    FIRST_MS,
    IS_STORED,
    applied,
    calendar,
    control,
    drained,
    nominal_ms,
    recovered_twice,
    refusal,
    state,
    stored,
)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with new_shards(tmp_path, "all", format_version=3) as make:
        yield make


def trigger(offset: int, at_ms: int) -> Record:
    return control(offset, "trigger", at_ms)


def triggered(control: int, at_ms: int) -> Triggered:
    return Triggered(0, FIRST_MS, TRIGGERED, at_ms, control)


def extra(control: int, at_ms: int) -> ExtraFate:
    return ExtraFate(0, FIRST_MS, EXTRA, control, 1, at_ms, 0)


def occurred(number: int, count: int = 99) -> Occurred:
    next_ms = nominal_ms(number + 1) if number < count else 0
    return Occurred(0, FIRST_MS, OCCURRED, number, nominal_ms(number), next_ms)


_COMPLETED = Completed(0, FIRST_MS, COMPLETED)


def delivered(batch: Batch) -> list[dict[str, bytes | None]]:
    """Returns the headers of the records on the target."""
    return [dict(message[5]) for message in batch.messages if message[1] == "orders"]


def test_a_trigger_is_stored_and_answered_and_delivers_once(make: Make) -> None:
    shard, at_ms = stored(make()), BASE_MS + 500
    shard.feed(trigger(1, at_ms))
    batch = shard.commit(at_ms)
    assert batch.fates == [IS_STORED, triggered(1, at_ms), applied(1)]
    assert verdict_texts(batch) == [("triggered", "requests/0/1", "requests/0/0", None)]
    assert state(shard) == (Kind.DELIVER, at_ms, Next(1, FIRST_MS, (), ((1, 1, at_ms, at_ms, at_ms),)))
    assert shard.index.timer_log.id_key(b"c") == entry_key(at_ms, 0)
    batch = shard.commit(at_ms + 1)
    assert batch.fates == [extra(1, at_ms)]
    assert delivered(batch) == [
        {
            "trace": b"1",
            "postdate-origin": b"requests/0/0",
            "postdate-due": b"%d" % at_ms,
            "postdate-id": b"c",
            "postdate-extra": b"requests/0/1/1",
        }
    ]
    assert state(shard) == (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS))
    assert drained(shard, nominal_ms(2) + 1) == [occurred(1), occurred(2)]


@pytest.mark.parametrize("has_trigger", [False, True])
def test_the_size_of_a_scheduled_delivery_counts_all_its_headers(make: Make, has_trigger: bool) -> None:
    shard = stored(make())
    if has_trigger:
        shard.feed(trigger(1, nominal_ms(1)))
        shard.commit(BASE_MS)
    _, entry = shard.entries()[0]
    size_bytes = shard._builder._rules.delivered_size_bytes(entry)
    sent = [
        record_size_bytes(*message[3:])
        for message in shard.commit(nominal_ms(1) + 1).messages
        if message[1] == "orders"
    ]
    digits = 18  # digits that an offset may have, but these do not
    assert len(sent) == 1 + has_trigger
    assert max(sent) + digits <= size_bytes <= max(sent) + 3 * digits


def test_an_extra_delivery_is_never_early(make: Make) -> None:
    shard, at_ms = stored(make()), nominal_ms(2) + 500
    shard.feed(trigger(1, at_ms))
    assert drained(shard, at_ms - 1)[3:] == [occurred(1), occurred(2)]
    assert drained(shard, at_ms + 1) == [extra(1, at_ms)]


def test_occurrences_and_triggers_leave_together(make: Make) -> None:
    shard = stored(make())
    shard.feed(trigger(1, nominal_ms(1)), trigger(2, nominal_ms(2)))
    shard.commit(BASE_MS)
    batch = shard.commit(nominal_ms(2) + 1)
    assert batch.fates == [occurred(1), occurred(2), extra(1, nominal_ms(1)), extra(2, nominal_ms(2))]
    assert [headers.get("postdate-occurrence") for headers in delivered(batch)] == [b"1", b"2", None, None]
    assert len(batch.dues_ms) == 4


def test_a_paused_schedule_is_triggered(make: Make) -> None:
    shard = stored(make())
    shard.feed(control(1, "pause", BASE_MS), trigger(2, BASE_MS + 100))
    assert drained(shard, nominal_ms(9))[4:] == [applied(2), extra(2, BASE_MS + 100)]
    assert state(shard)[:2] == (Kind.DELIVER, PAUSED_MS)


def test_the_last_occurrence_leaves_the_extra(make: Make) -> None:
    shard, at_ms = stored(make(), count=1), nominal_ms(3)
    shard.feed(trigger(1, at_ms))
    assert drained(shard, nominal_ms(2))[3:] == [occurred(1, 1)]
    assert state(shard) == (Kind.DELIVER, at_ms, Next(2, 0, (), ((1, 1, at_ms, at_ms, at_ms),)))
    rebuilt = make(begins=False)
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.entries() == shard.entries()
    assert drained(shard, at_ms + 1) == [extra(1, at_ms), _COMPLETED]
    assert (shard.entries(), shard.kept()) == ({}, set())


def test_a_refused_message_becomes_a_dead_letter_for_the_extra(make: Make) -> None:
    shard, at_ms = stored(make(), partition=17), BASE_MS + 500
    shard.feed(trigger(1, at_ms))
    shard.commit(at_ms)
    batch = shard.commit(at_ms + 1)
    assert batch.fates == [ExtraFate(0, FIRST_MS, EXTRA_DEAD, 1, 1, at_ms, 0)]
    (dead_letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
    assert dict(dead_letter[5])["postdate-at"] == b"%d" % at_ms
    assert not {"postdate-every", "postdate-id"} & dict(dead_letter[5]).keys()
    assert state(shard) == (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS))


# ---- other owners and older disks ------------------------------------------------------------------------------------


def test_fates_that_are_applied_twice_have_one_effect(make: Make) -> None:
    at_ms = BASE_MS + 500
    traces: list[list[Fate]] = [
        [IS_STORED, triggered(1, at_ms), applied(1)],
        [IS_STORED, triggered(1, at_ms), applied(1), extra(1, at_ms), occurred(1)],
        [IS_STORED, triggered(1, at_ms), applied(1), occurred(1, 1), extra(1, at_ms)],
    ]
    for fates in traces:
        recovered_twice(stored(make()), fates)


@pytest.mark.parametrize("is_ahead", [False, True])
def test_an_owner_with_an_older_disk_delivers_it(make: Make, is_ahead: bool) -> None:
    """This owner has not read the trigger nor, if `is_ahead`, the schedule."""
    at_ms = BASE_MS + 500
    for done in ([], [extra(1, at_ms)]):
        shard = make()
        if not is_ahead:
            shard.feed(calendar(0))
        shard.recover(IS_STORED, triggered(1, at_ms), applied(1), *done)
        if is_ahead:
            shard.feed(calendar(0))
        shard.feed(trigger(1, at_ms))
        assert drained(shard, at_ms + 1) == ([] if done else [extra(1, at_ms)])
        assert state(shard) == (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS))


def test_a_rebuild_from_store_has_the_extra(make: Make) -> None:
    shard, rebuilt, at_ms = stored(make()), make(begins=False), BASE_MS + 500
    shard.feed(trigger(1, at_ms))
    shard.commit()
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.entries() == shard.entries()
    assert rebuilt.index.timer_log.id_key(b"c") == shard.index.timer_log.id_key(b"c")
    rebuilt.recover(triggered(1, at_ms), applied(1))
    assert drained(rebuilt, at_ms + 1) == [extra(1, at_ms)]


def test_a_transaction_that_was_committed_and_not_written(make: Make) -> None:
    shard, at_ms = stored(make()), BASE_MS + 500
    shard.feed(trigger(1, at_ms))
    shard.recover(*shard.commit(locally=False).fates)
    shard.recover(*shard.commit(at_ms + 1, locally=False).fates)
    assert drained(shard, nominal_ms(1) + 1) == [occurred(1)]


def test_a_successor_that_stored_the_schedule_before_it_read_the_trigger(make: Make) -> None:
    shard, at_ms = make(), BASE_MS + 500
    shard.feed(calendar(0), trigger(1, at_ms))
    shard.recover(IS_STORED)
    assert shard.commit().fates == [triggered(1, at_ms), applied(1)]
    rebuilt = make(begins=False)
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.entries() == shard.entries()
    assert drained(rebuilt, at_ms + 1) == [extra(1, at_ms)]


def test_a_trigger_that_the_log_shows_refused_contradicts_it(make: Make) -> None:
    shard = stored(make())
    shard.feed(trigger(1, BASE_MS))
    for fate in (applied(1), PlainFate(1, 0, DEAD)):
        with pytest.raises(Contradicted, match="did not change request 0"):
            shard.recover(fate)


def test_a_trigger_that_was_refused_here_contradicts_the_log(make: Make) -> None:
    shard = stored(make())
    older = RequestRules(topic="requests", format_version=2)
    ingest(shard.index, Intake(older, 0, store_after_ms=10_000), [trigger(1, BASE_MS)], BASE_MS)
    with pytest.raises(Contradicted, match="judged otherwise"):
        shard.recover(triggered(1, BASE_MS), applied(1))


# ---- refusals and other controls -------------------------------------------------------------------------------------


def test_only_a_schedule_is_triggered(make: Make) -> None:
    shard = make()
    shard.feed(request(0, topic="orders", id="c", delay="1h"), trigger(1, BASE_MS))
    shard.commit()
    before = shard.entries()
    shard.feed(control(2, "trigger", BASE_MS, origin="requests/0/0"))
    assert refusal(shard) == (b"bad-action", ["rejected"])
    assert shard.entries() == before


def test_a_trigger_without_a_pending_schedule_is_answered(make: Make) -> None:
    shard = stored(make(), count=1)
    shard.feed(control(1, "trigger", BASE_MS, id="other"))
    assert verdict_texts(shard.commit()) == [("not-found", "requests/0/1", None, None)]
    drained(shard, nominal_ms(2))
    shard.feed(trigger(2, BASE_MS))
    assert verdict_texts(shard.commit()) == [("too-late", "requests/0/2", "requests/0/0", None)]


def test_a_cancel_ends_the_extra_deliveries(make: Make) -> None:
    shard = stored(make())
    shard.feed(trigger(1, nominal_ms(1)))
    shard.commit()
    shard.feed(control(2, "cancel", BASE_MS), trigger(3, BASE_MS))
    batch = shard.commit(nominal_ms(1))
    assert batch.fates == [PlainFate(0, FIRST_MS, CANCELLED), applied(2), applied(3)]
    assert [verdict for verdict, *_ in verdict_texts(batch)] == ["cancelled", "cancelled", "not-found"]
    assert (shard.entries(), shard.kept()) == ({}, set())


def test_pending_extras_are_bounded(make: Make) -> None:
    shard = stored(make())
    shard.feed(*(trigger(at, BASE_MS) for at in range(1, EXTRAS_MAX + 1)))
    shard.commit(BASE_MS - 1)
    shard.feed(trigger(EXTRAS_MAX + 1, BASE_MS))
    assert refusal(shard) == (b"limit-exceeded", ["rejected"])


def test_members_without_the_setting_refuse_a_trigger(make: Make) -> None:
    shard = stored(make())
    older = RequestRules(topic="requests", format_version=2)
    ingest(shard.index, Intake(older, 0, store_after_ms=10_000), [trigger(1, BASE_MS)], BASE_MS)
    assert refusal(shard) == (b"bad-action", ["rejected"])


# ---- the record ------------------------------------------------------------------------------------------------------


def test_fates_of_triggers_have_version_3() -> None:
    common = {"seq": 1, "takeover": 1, "instance": "i", "group": "g", "at": 1, "next_request": 4, "low_water": 0}
    record = DispatchRecord(**common, fates=[triggered(3, 7), extra(3, 7)])  # type: ignore[arg-type]
    written = encode_record(record)
    assert written.startswith(b'{"v":3')
    assert written.endswith(b'"fates":[[0,%d,"triggered",7,3],[0,%d,"extra",3,1,7,0]]}' % (FIRST_MS, FIRST_MS))
    assert decode_record(written) == record
    for bad in (
        written.replace(b"7,3]", b"7,0]"),
        written.replace(b"3,1,7,0]", b"0,1,7,0]"),
        written.replace(b"3,1,7,0]", b"3,0,7,0]"),
        written.replace(b"1,7,0]", b"1,7]"),
        written.replace(b'"v":3', b'"v":2'),
    ):
        with pytest.raises(FormatError):
            decode_record(bad)
