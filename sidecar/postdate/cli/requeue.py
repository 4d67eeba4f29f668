"""Putting dead letters back: each becomes a new request of the same partition, so that its id keeps its place.

The new request says in `postdate-origin` which one it stands for. A schedule request may carry that header without
meaning, and it is what makes a second run harmless: whoever puts letters back first reads the requests behind them, and
leaves out each letter whose origin is named there. So the memory of what was put back lies on the request topic itself,
as long as that keeps its requests, and a run that was killed halfway can simply be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum

from postdate.cli import limits
from postdate.cli.letters import Letter, records_of
from postdate.cli.options import now_ms
from postdate.kafka.errors import OffsetOutOfRange, RecordRejected
from postdate.kafka.interface import Admin, Isolation, Kafka, Partition, PlainProducer
from postdate.sidecar.cluster.limits import COMMAND_TIMEOUT_S
from postdate.sidecar.cluster.producing import Receipt, RequestRecord
from postdate.wire.delivered import VALUE_LEFT_OUT
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import ACTION, ORIGIN, TIMES, Headers, is_dropped
from postdate.wire.origins import format_origin
from postdate.wire.reasons import Reason
from postdate.wire.requests import Action, RequestRules, parse_request

_TOO_LARGE = "its value was too large for the dead letters, and the request itself is no longer kept"
_CONTROL = "it is a control, and what it meant may be another message by now"


class Status(StrEnum):
    """What becomes of a letter."""

    WOULD = "would-be-put-back"
    DONE = "put-back"
    BEFORE = "put-back-before"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one letter: `now` is the origin of the request that stands for it, `why` the sentence where it
    cannot be put back."""

    letter: Letter
    status: Status
    now: str | None = None
    why: str = ""


def request_again(letter: Letter, rules: RequestRules, when: Headers) -> RequestRecord | str:
    """The request that stands for a letter: key, value and headers as sent, at the time of `when` where that is given.
    A sentence where it would only die again, or mean something else.
    """
    if letter.reason == Reason.BAD_HEADERS:
        return "its headers could not be read, so the dead letter has none of them"
    if letter.last(ACTION) not in (None, b"schedule"):
        return _CONTROL
    replaced = TIMES if when else ()
    kept = [(name, value) for name, value in letter.headers if name not in replaced and not is_dropped(name)]
    headers: Headers = [*kept, *when, (ORIGIN, letter.origin)]
    sent_ms = now_ms()
    try:
        request = parse_request(rules, letter.request[0], sent_ms, letter.key, headers, letter.value is None)
    except RequestRefused as refusal:
        return f"it would be refused again: {refusal}"
    if request.action != Action.SCHEDULE:  # in a dialect, a cancel need not have an action
        return _CONTROL
    if request.grace_ms >= 0 and request.due_ms + request.grace_ms < sent_ms:
        return "it would expire again: give it a new time with --delay, --at or --level"
    return RequestRecord(letter.key, letter.value, headers)


def whole(kafka: Kafka, requests: str, letter: Letter) -> Letter | None:
    """The letter with what was left out of it for its size, from the request itself; None: that is no longer kept."""
    if letter.value is not None or VALUE_LEFT_OUT not in letter.detail:
        return letter
    partition, offset = letter.request
    try:
        request = next(records_of(kafka, Partition(requests, partition), offset, offset + 1, shown=False), None)
    except OffsetOutOfRange:
        return None
    if request is None:
        return None
    return replace(letter, key=request.key, value=request.value, headers=request.headers or [])


class Earlier:
    """What the requests of a topic say of letters that were put back before, as far as requests are still kept."""

    def __init__(self, kafka: Kafka, admin: Admin, requests: str, letters: Iterable[Letter]) -> None:
        self._kafka = kafka
        self._letters: dict[Partition, list[Letter]] = {}
        for letter in letters:
            self._letters.setdefault(Partition(requests, letter.request[0]), []).append(letter)
        self._starts = admin.start_offsets(self._letters)
        # The high watermark: behind a transaction that is still open, requests may stand already.
        self._ends = admin.end_offsets(self._letters, Isolation.READ_UNCOMMITTED)
        self._admin = admin

    def find(self) -> dict[bytes, str]:
        """The origin of the request that stands for a letter, by the origin of the letter; absent: there is none.

        Reads each partition once, from the first request that could stand for one of its letters.
        """
        found: dict[bytes, str] = {}
        for part, letters in self._letters.items():
            wanted = {letter.origin for letter in letters}
            for record in records_of(self._kafka, part, self._first(part, letters), self._ends[part]):
                stands_for = _stands_for(record.headers or [])
                if stands_for in wanted:
                    found[stands_for] = format_origin(part.topic, part.index, record.offset).decode()
        return found

    def unknowable(self) -> set[bytes]:
        """Origins of which it cannot be told: requests that may have stood for them are no longer kept."""
        unknown: set[bytes] = set()
        for part, letters in self._letters.items():
            old = [letter for letter in letters if letter.request[1] + 1 < self._starts[part]]
            kept_since_ms = self._kept_since_ms(part) if old else 0
            unknown |= {letter.origin for letter in old if _died_about(letter) <= kept_since_ms}
        return unknown

    def _kept_since_ms(self, part: Partition) -> int:
        """The time of the oldest request that is kept; where none is, now."""
        with closing(records_of(self._kafka, part, self._starts[part], self._ends[part], shown=False)) as records:
            oldest = next(records, None)
        return now_ms() if oldest is None else oldest.timestamp_ms

    def _first(self, part: Partition, letters: list[Letter]) -> int:
        """The first request that could stand for one of the letters: behind its own, and not before it died."""
        behind = min(letter.request[1] for letter in letters) + 1
        by_time = self._admin.offset_for_time(part, max(0, min(map(_died_about, letters))))
        return max(self._starts[part], behind, self._ends[part] if by_time is None else by_time)


def _died_about(letter: Letter) -> int:
    """A time that no clock of the cluster had passed when the letter was written, epoch ms."""
    return letter.timestamp_ms - limits.CLOCKS_APART_MS_MAX


def _stands_for(headers: Headers) -> bytes | None:
    """The origin that a schedule request carries; that of a control means something else."""
    values = dict(headers)
    return values.get(ORIGIN) if values.get(ACTION) in (None, b"schedule") else None


def put_back(kafka: Kafka, requests: str, drafts: Iterable[tuple[Letter, RequestRecord]]) -> Iterator[Outcome]:
    """Produce each to the partition of its request, in order; yields what became of it once the broker has said so.

    Raises the broker's fault at the first letter that it does not take: those before it are put back, and yielded.
    """
    producer = kafka.plain_producer()
    try:
        batch: list[tuple[Letter, Receipt]] = []
        size_bytes = 0
        for letter, draft in drafts:
            batch.append((letter, _produce(producer, Partition(requests, letter.request[0]), draft)))
            size_bytes += len(draft.value or b"")
            if len(batch) >= limits.REQUEUED_AT_ONCE_MAX or size_bytes >= limits.REQUEUED_SIZE_BYTES_MAX:
                yield from _settled(producer, requests, batch)
                batch, size_bytes = [], 0
        yield from _settled(producer, requests, batch)
    finally:
        producer.destroy()


def _produce(producer: PlainProducer, part: Partition, draft: RequestRecord) -> Receipt:
    receipt = Receipt()
    try:
        producer.produce(part.topic, draft.value, draft.key, draft.headers, part.index, receipt.note)
    except RecordRejected as fault:
        receipt.note(fault, -1, -1)
    return receipt


def _settled(producer: PlainProducer, requests: str, batch: list[tuple[Letter, Receipt]]) -> Iterator[Outcome]:
    producer.flush(COMMAND_TIMEOUT_S)
    for letter, receipt in batch:
        if isinstance(receipt.fault, RecordRejected):
            yield Outcome(letter, Status.CANNOT, why=str(receipt.fault))
            continue
        receipt.check(requests)
        now = format_origin(requests, letter.request[0], receipt.offset).decode()
        yield Outcome(letter, Status.DONE, now)


def judge(
    kafka: Kafka,
    letters: Iterable[Letter],
    rules: RequestRules,
    when: Headers,
    unknown: set[bytes],
) -> Iterator[tuple[Outcome, RequestRecord | None]]:
    """What is to become of each letter; with the request that stands for it where it is to be put back."""
    for letter in letters:
        if letter.origin in unknown:
            why = "requests behind it are no longer kept, so nobody knows whether it was put back; --again does it"
            yield Outcome(letter, Status.CANNOT, why=why), None
        else:
            complete = whole(kafka, rules.topic, letter)
            draft = request_again(complete, rules, when) if complete else _TOO_LARGE
            if isinstance(draft, str):
                yield Outcome(letter, Status.CANNOT, why=draft), None
            else:
                yield Outcome(letter, Status.WOULD), draft
