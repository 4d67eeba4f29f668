"""Goal: the ledger of a soak detects every violation of a promise.

Method: handwritten records of a correct run, and copies in which one record is missing, repeated or changed: the judge
must report each, and name the violated promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from postdate.wire.dispatch_log import DispatchRecord, encode_record
from postdate.wire.headers import ACTION, AT, DEAD_REASON, DELAY, DUE, ID, KEY, ORIGIN, TOPIC, Headers
from postdate.wire.verdicts import Verdict, encode_verdict
from support.faults.judgement import judge, judge_order
from support.faults.request_ledger import RequestLedger

R = "requests"
_ASKED_MS = 10_000


@dataclass
class Story:
    """The records of a run in the order of filing; tests change some before they are filed."""

    requests: list[tuple[int, bytes, Headers]] = field(default_factory=list)
    fates: list[tuple[int, list[Any]]] = field(default_factory=list)
    """The broker's timestamp and the fates of each record."""
    delivered: list[tuple[bytes, bytes, Headers]] = field(default_factory=list)
    dead_letters: list[Headers] = field(default_factory=list)
    verdicts: list[tuple[int, Verdict, int]] = field(default_factory=list)
    seqs: dict[int, int] = field(default_factory=dict)

    def ledger(self) -> RequestLedger:
        ledger = RequestLedger(R)
        for offset, value, headers in self.requests:
            key = next((content for name, content in headers if name == ID), b"k")
            ledger.file_request(0, offset, _ASKED_MS, key, value, headers)
        for number, (at_ms, fates) in enumerate(self.fates):
            seq = self.seqs.get(number, number + 1)
            record = DispatchRecord(
                seq=seq,
                takeover=1,
                instance="a",
                group="g",
                at=0,
                next_request=9,
                low_water=0,
                kind="fates",
                fates=fates,
            )
            ledger.file_log(0, number, at_ms, encode_record(record))
        for place, (key, value, headers) in enumerate(self.delivered):
            ledger.file_delivered("orders", 0, place, key, value, headers)
        for headers in self.dead_letters:
            ledger.file_dead_letter(headers)
        for origin, verdict, of in self.verdicts:
            named = None if of < 0 else _origin(of)
            ledger.file_verdict(0, encode_verdict(verdict, _origin(origin), b"x", named or b"", 1)[1])
        return ledger


def _record(seq: int, fates: list[Any]) -> bytes:
    common: dict[str, Any] = {"takeover": 1, "instance": "a", "group": "g", "at": 0, "next_request": 9, "low_water": 0}
    return encode_record(DispatchRecord(seq=seq, kind="fates", fates=fates, **common))


def _origin(offset: int) -> bytes:
    return b"requests/0/%d" % offset


def _ours(offset: int, due_ms: int) -> Headers:
    return [(ORIGIN, _origin(offset)), (DUE, b"%d" % due_ms)]


def _story() -> Story:
    """Returns the records of a correct run. Request 0 is delivered; 1 becomes a dead letter; 3 cancels 2; 5 moves 4,
    which is delivered; 6 has a relative delay and another key."""
    to = (TOPIC, b"orders")
    return Story(
        requests=[
            (0, b"D0", [("h", b"1"), to, (AT, b"20000"), ("h", None)]),
            (1, b"X1", [to]),
            (2, b"I2", [(ID, b"a"), to, (AT, b"30000")]),
            (3, b"C3", [(ID, b"a"), (ACTION, b"cancel")]),
            (4, b"I4", [(ID, b"b"), to, (AT, b"30000")]),
            (5, b"C5", [(ID, b"b"), (ACTION, b"reschedule"), (AT, b"40000")]),
            (6, b"D6", [to, (DELAY, b"5000"), (KEY, b"other")]),
        ],
        fates=[
            (12_000, [(1, 0, "dead"), (2, 30_000, "cancelled"), (3, 0, "applied")]),
            (13_000, [(4, 30_000, "moved", 40_000, 5), (5, 0, "applied")]),
            (20_001, [(0, 20_000, "delivered"), (6, 15_000, "delivered")]),
            (40_000, [(4, 30_000, "delivered")]),
        ],
        delivered=[
            (b"k", b"D0", [("h", b"1"), ("h", None), *_ours(0, 20_000)]),
            (b"other", b"D6", _ours(6, 15_000)),
            (b"b", b"I4", [*_ours(4, 40_000), (ID, b"b")]),
        ],
        dead_letters=[[*_ours(1, 0), (DEAD_REASON, b"missing-time")]],
        verdicts=[(3, Verdict.CANCELLED, 2), (5, Verdict.RESCHEDULED, 4)],
    )


def test_a_correct_run_is_clean() -> None:
    found = judge(_story().ledger())
    assert found.wrong == []
    assert (found.requests, found.delivered, found.dead, found.controls, found.cancelled) == (7, 3, 1, 2, 1)
    assert found.late_ms["max"] == 5_001


def _drop(what: str, place: int) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        del getattr(story, what)[place]

    return change


def _twice(what: str, place: int) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        getattr(story, what).append(getattr(story, what)[place])

    return change


def _put(what: str, place: int, content: object) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        getattr(story, what)[place] = content

    return change


def _not_found_and_ended_later(story: Story) -> None:
    story.fates[0] = (12_000, [(1, 0, "dead"), (3, 0, "applied")])
    story.fates[3] = (40_000, [(4, 30_000, "delivered"), (2, 30_000, "cancelled")])
    story.verdicts[0] = (3, Verdict.NOT_FOUND, -1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(_twice("delivered", 0), "O1", id="delivered twice"),
        pytest.param(_twice("dead_letters", 0), "O1", id="dead letter twice"),
        pytest.param(_twice("fates", 3), "O1", id="two fates"),
        pytest.param(_drop("fates", 3), "O2: asked for, and no end", id="no end"),
        pytest.param(_drop("fates", 3), "O3: a record without its fate", id="no fate"),
        pytest.param(_drop("delivered", 0), "O3: a fate without its record", id="no record"),
        pytest.param(_drop("dead_letters", 0), "O3: a fate without its record", id="no dead letter"),
        pytest.param(_put("delivered", 1, (b"k", b"D6", _ours(6, 15_000))), "O4", id="another key"),
        pytest.param(_put("delivered", 1, (b"other", b"d6", _ours(6, 15_000))), "O4", id="another value"),
        pytest.param(_put("delivered", 1, (b"other", b"D6", _ours(6, 15_001))), "O4: another due", id="another due"),
        pytest.param(
            _put("delivered", 0, (b"k", b"D0", [("h", None), ("h", b"1"), *_ours(0, 20_000)])),
            "O4",
            id="headers in another order",
        ),
        pytest.param(_put("delivered", 0, (b"k", b"D0", [("h", b"1")])), "a record on orders", id="no origin"),
        pytest.param(_put("fates", 2, (19_999, [(0, 20_000, "delivered")])), "O5", id="early"),
        pytest.param(_put("fates", 3, (39_999, [(4, 30_000, "delivered")])), "O5", id="early for a moved one"),
        pytest.param(_put("seqs", 2, 4), "O6", id="a gap"),
        pytest.param(_drop("requests", 0), "O8", id="nobody asked"),
        pytest.param(_put("verdicts", 0, (3, Verdict.TOO_LATE, 2)), "too-late of 2, which was cancelled", id="untrue"),
        pytest.param(_not_found_and_ended_later, "but 2 was pending", id="was pending"),
        pytest.param(_put("verdicts", 1, (5, Verdict.CANCELLED, 4)), "cancelled of 4, which was deliv", id="delivered"),
        pytest.param(_drop("verdicts", 0), "0 answers to cancel", id="no answer"),
        pytest.param(_twice("verdicts", 0), "2 answers to cancel", id="two answers"),
        pytest.param(_put("verdicts", 1, (0, Verdict.CANCELLED, 4)), "asked nothing", id="answers nobody"),
    ],
)
def test_each_broken_promise_is_detected(change: Callable[[Story], None], complaint: str) -> None:
    story = _story()
    change(story)
    assert any(complaint in line for line in judge(story.ledger()).wrong), judge(story.ledger()).wrong


@pytest.mark.parametrize(
    ("value", "fate"), [(b"D0", "dead"), (b"X0", "delivered"), (b"I0", "applied"), (b"C0", "dead")]
)
def test_a_wrong_kind_of_end_is_detected(value: bytes, fate: str) -> None:
    headers: Headers = [(ID, b"a"), (TOPIC, b"orders"), (AT, b"1")]
    story = Story(requests=[(0, value, headers)], fates=[(20_000, [(0, 1, fate)])])
    assert any("ended otherwise" in line for line in judge(story.ledger()).wrong)


def test_overdue_entries_are_counted_until_they_end() -> None:
    story = _story()
    last = story.fates.pop()
    ledger = story.ledger()
    assert ledger.pending() == 1
    assert ledger.overdue(40_900) == {}
    assert ledger.overdue(41_100) == {0: 1}
    ledger.file_log(0, 3, 45_000, _record(4, last[1]))
    assert ledger.overdue(99_999) == {}
    assert ledger.parts[0].low == 7
    assert ledger.outage_ms(41_000, 44_000) == (5_000, 1_000)


def _two_of_one_key(first: int, second: int, next_request: int) -> RequestLedger:
    """Returns a ledger with requests 0 and 1 of one key, due at 20,000 and 20,500; `first` leaves before `second`."""
    ledger, dues = RequestLedger(R), (20_000, 20_500)
    for offset, due_ms in enumerate(dues):
        ledger.file_request(0, offset, _ASKED_MS, b"k", b"D", [(TOPIC, b"orders"), (AT, b"%d" % due_ms)])
    for place, offset in enumerate((first, second)):
        fates: list[Any] = [(offset, dues[offset], "delivered")]
        common: dict[str, Any] = {"takeover": 1, "instance": "a", "group": "g", "at": 0, "low_water": 0}
        record = DispatchRecord(seq=place + 1, kind="fates", fates=fates, next_request=next_request, **common)
        ledger.file_log(0, place, 20_600 + place, encode_record(record))
        ledger.file_delivered("orders", 0, place, b"k", b"D", _ours(offset, dues[offset]))
    return ledger


def test_a_message_that_overtakes_another_of_its_key_is_detected() -> None:
    judged, wrong = judge_order(_two_of_one_key(1, 0, next_request=2), [(19_000, 21_000)])
    assert judged == 2
    assert wrong == ["order: request 0 of partition 0, due 20000, left after request 1, due 20500"]


@pytest.mark.parametrize(
    ("first", "next_request", "calm_ms"),
    [
        pytest.param(0, 2, (19_000, 21_000), id="in order"),
        pytest.param(1, 0, (19_000, 21_000), id="the other was not known yet"),
        pytest.param(1, 2, (20_200, 21_000), id="a fault was under way"),
    ],
)
def test_order_is_kept_or_not_promised(first: int, next_request: int, calm_ms: tuple[int, int]) -> None:
    assert judge_order(_two_of_one_key(first, 1 - first, next_request), [calm_ms])[1] == []
