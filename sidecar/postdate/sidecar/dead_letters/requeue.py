"""Requeues dead letters: each becomes a new request in the same partition, so that its id stays in its partition.

The header `postdate-origin` of the new request names the old one; the sidecar ignores this header of a schedule
request. It makes a second run harmless. Before a run requeues letters, it reads the later requests of the topic, and
skips each letter whose origin one of them names. So the request topic itself records which letters were requeued, for
as long as it retains these requests, and a run that was killed can be repeated. Two runs at the same time may both
requeue a letter.

Thread rule: functions over their arguments, callable from any thread.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum

from postdate.kafka.errors import OffsetOutOfRange, RecordRejected
from postdate.kafka.interface import Admin, Isolation, Kafka, Partition, PlainProducer
from postdate.sidecar.cluster.limits import COMMAND_TIMEOUT_S
from postdate.sidecar.cluster.producing import DeliveryReport, UnsentRequest
from postdate.sidecar.dead_letters import limits
from postdate.sidecar.dead_letters.reading import (
    DeadLetter,
    DeadLetterFilters,
    Progress,
    Spans,
    read_dead_letters,
    records_of,
)
from postdate.wire.delivered import VALUE_LEFT_OUT
from postdate.wire.errors import FormatVersionNeeded, RequestRefused
from postdate.wire.headers import (
    ACTION,
    ATTEMPT,
    DROPPED_2,
    DUE,
    FIRST_DUE,
    FIRST_ORIGIN,
    ORIGIN,
    RETRY,
    TIMES,
    Headers,
    is_dropped,
)
from postdate.wire.origins import format_origin
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics, is_topic_name

_TOO_LARGE = "its value was too large for the dead letters, and the topic no longer has the request"
_CONTROL = "it is a control, and its id may now belong to another message"


class RequeueStatus(StrEnum):
    """The status of one letter in a run of `requeue`."""

    WOULD = "would-be-put-back"
    DONE = "put-back"
    BEFORE = "put-back-before"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True)
class RequeueOutcome:
    """The outcome for one letter: `now` is the origin of the new request, `why` the reason if it cannot be requeued,
    and `detail` a part of the reason that may quote headers."""

    letter: DeadLetter
    status: RequeueStatus
    now: str | None = None
    why: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Unfit:
    """The reason why no request can be made of a letter. `detail` may quote headers."""

    why: str
    detail: str = ""


def request_again(letter: DeadLetter, rules: RequestRules, when: Headers) -> UnsentRequest | Unfit:
    """The new request for a letter, with key, value and headers as sent, and the time of `when` if given.

    Returns the reason if the request would become a dead letter again, or act on another message.
    """
    if letter.reason == Reason.BAD_HEADERS:
        return Unfit("its headers could not be read, so the dead letter has none of them")
    if letter.last(ACTION) not in (None, b"schedule"):
        return Unfit(_CONTROL)
    replaced = (*TIMES, RETRY) if when else ()
    kept = [(name, value) for name, value in letter.headers if name not in replaced and not is_dropped(name)]
    is_return = any(name == RETRY for name, _ in kept)
    kept = _attempts_again(letter, kept) if is_return else [each for each in kept if each[0] not in DROPPED_2]
    headers: Headers = [*kept, *when, (ORIGIN, letter.origin)]
    sent_ms = _now_ms()
    try:
        request = parse_request(rules, letter.request[0], sent_ms, letter.key, headers, letter.value is None)
    except RequestRefused as refusal:
        detail = refusal.detail
        if isinstance(refusal, FormatVersionNeeded):
            detail = f"{refusal.need}, and this process has {rules.format_version}: set POSTDATE_FORMAT_VERSION"
        return Unfit(f"it would be refused again: {refusal.reason.value}", detail)
    if request.action != Action.SCHEDULE:  # in a dialect, a cancel need not have an action
        return Unfit(_CONTROL)
    latest_ms = request.due_ms + request.window_ms
    if request.retry is None and request.grace_ms >= 0 and latest_ms + request.grace_ms < sent_ms:
        return Unfit("it would expire again: give it a new time")
    return UnsentRequest(letter.key, letter.value, headers)


def _attempts_again(letter: DeadLetter, kept: Headers) -> Headers:
    """The headers of a return that is requeued: its root stays, and exhausted attempts begin again at 1."""
    names = {name for name, _ in letter.headers}
    if letter.reason == Reason.ATTEMPTS_EXHAUSTED:
        kept = [header for header in kept if header[0] != ATTEMPT]
    roots = ((FIRST_ORIGIN, ORIGIN), (FIRST_DUE, DUE))
    return [*kept, *((first, letter.last(own)) for first, own in roots if first not in names and own in names)]


def whole(kafka: Kafka, requests: str, letter: DeadLetter) -> DeadLetter | None:
    """The letter with the value that was omitted for its size, read from the request; None if that was deleted."""
    if letter.value is not None or VALUE_LEFT_OUT not in letter.detail:
        return letter
    partition, offset = letter.request
    try:
        request = next(records_of(kafka, Partition(requests, partition), offset, offset + 1), None)
    except OffsetOutOfRange:
        return None
    if request is None:
        return None
    return replace(letter, key=request.key, value=request.value, headers=request.headers or [])


class Earlier:
    """Finds letters that were requeued before, by reading the requests that the topic still retains."""

    def __init__(
        self, kafka: Kafka, admin: Admin, requests: str, letters: Iterable[DeadLetter], progress: Progress
    ) -> None:
        self._kafka = kafka
        self._letters: dict[Partition, list[DeadLetter]] = {}
        for letter in letters:
            self._letters.setdefault(Partition(requests, letter.request[0]), []).append(letter)
        self._starts = admin.start_offsets(self._letters)
        # The high watermark: requests may already follow a transaction that is still open.
        self._ends = admin.end_offsets(self._letters, Isolation.READ_UNCOMMITTED)
        self._admin = admin
        self._progress = progress

    def find(self) -> dict[bytes, str]:
        """The origin of the new request by the origin of the letter, for each letter that was requeued before.

        Reads each partition once, from the first request that could be a requeued letter.
        """
        found: dict[bytes, str] = {}
        for part, letters in self._letters.items():
            wanted = {letter.origin for letter in letters}
            for record in records_of(self._kafka, part, self._first(part, letters), self._ends[part], self._progress):
                stands_for = _stands_for(record.headers or [])
                if stands_for in wanted:
                    found[stands_for] = format_origin(part.topic, part.index, record.offset).decode()
        return found

    def unknowable(self) -> set[bytes]:
        """Origins of letters that may have been requeued before by requests that the topic no longer retains."""
        unknown: set[bytes] = set()
        for part, letters in self._letters.items():
            old = [letter for letter in letters if letter.request[1] + 1 < self._starts[part]]
            kept_since_ms = self._kept_since_ms(part) if old else 0
            unknown |= {letter.origin for letter in old if _died_about(letter) <= kept_since_ms}
        return unknown

    def _kept_since_ms(self, part: Partition) -> int:
        """The timestamp of the oldest retained request; now if there is none."""
        with closing(records_of(self._kafka, part, self._starts[part], self._ends[part])) as records:
            oldest = next(records, None)
        return _now_ms() if oldest is None else oldest.timestamp_ms

    def _first(self, part: Partition, letters: list[DeadLetter]) -> int:
        """The first offset that a requeued letter could have: after its own request, and not before the letter was
        written."""
        behind = min(letter.request[1] for letter in letters) + 1
        by_time = self._admin.offset_for_time(part, max(0, min(map(_died_about, letters))))
        return max(self._starts[part], behind, self._ends[part] if by_time is None else by_time)


def _died_about(letter: DeadLetter) -> int:
    """A time before the letter was written by any clock of the cluster, epoch ms."""
    return letter.timestamp_ms - limits.CLOCKS_APART_MS_MAX


def _stands_for(headers: Headers) -> bytes | None:
    """The origin in a schedule request; in a control this header has another meaning."""
    values = dict(headers)
    return values.get(ORIGIN) if values.get(ACTION) in (None, b"schedule") else None


def put_back(
    kafka: Kafka, requests: str, drafts: Iterable[tuple[DeadLetter, UnsentRequest]]
) -> Iterator[RequeueOutcome]:
    """Produce each record to the partition of its request, in order; yields each outcome once the broker has reported
    it.

    Raises the broker's fault at the first letter that fails; the letters before it are requeued and yielded.
    """
    producer = kafka.plain_producer()
    try:
        batch: list[tuple[DeadLetter, DeliveryReport]] = []
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


def _produce(producer: PlainProducer, part: Partition, draft: UnsentRequest) -> DeliveryReport:
    delivery = DeliveryReport()
    try:
        producer.produce(part.topic, draft.value, draft.key, draft.headers, part.index, delivery.resolve)
    except RecordRejected as fault:
        delivery.resolve(fault, -1, -1)
    return delivery


def _settled(
    producer: PlainProducer, requests: str, batch: list[tuple[DeadLetter, DeliveryReport]]
) -> Iterator[RequeueOutcome]:
    producer.flush(COMMAND_TIMEOUT_S)
    for letter, delivery in batch:
        if isinstance(delivery.fault, RecordRejected):
            yield RequeueOutcome(letter, RequeueStatus.CANNOT, why=str(delivery.fault))
            continue
        delivery.check(requests)
        now = format_origin(requests, letter.request[0], delivery.offset).decode()
        yield RequeueOutcome(letter, RequeueStatus.DONE, now)


def judge(
    kafka: Kafka,
    letters: Iterable[DeadLetter],
    rules: RequestRules,
    when: Headers,
    unknown: set[bytes],
) -> Iterator[tuple[RequeueOutcome, UnsentRequest | None]]:
    """Decide for each letter whether it can be requeued; yields the new request with the outcome if so."""
    for letter in letters:
        if letter.origin in unknown:
            why = (
                "it may have been requeued before, by a request that the topic no longer has; "
                "`postdate dead-letters requeue --again` requeues it"
            )
            yield RequeueOutcome(letter, RequeueStatus.CANNOT, why=why), None
        else:
            complete = whole(kafka, rules.topic, letter)
            draft = request_again(complete, rules, when) if complete else Unfit(_TOO_LARGE)
            if isinstance(draft, Unfit):
                yield RequeueOutcome(letter, RequeueStatus.CANNOT, why=draft.why, detail=draft.detail), None
            else:
                yield RequeueOutcome(letter, RequeueStatus.WOULD), draft


# ---- a whole run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequeuePlan:
    """The letters of one run, without their contents.

    `chosen`: those to requeue; `before`: the origin of the new request for each letter that was requeued before;
    `unknown`: the origins of those that may have been. `has_more`: more of them match than the run may requeue, or look
    at.
    """

    meant: list[DeadLetter]
    chosen: list[DeadLetter]
    before: dict[bytes, str]
    unknown: set[bytes]
    has_more_meant: bool
    has_more_chosen: bool

    def missing_targets(self, admin: Admin) -> list[str]:
        """The targets of the chosen letters that do not exist. One request to Kafka."""
        targets = {letter.target for letter in self.chosen if is_topic_name(letter.target)}
        return sorted(targets - admin.describe(targets).keys())


def plan(
    letters: Generator[DeadLetter],
    earlier: Callable[[list[DeadLetter]], Earlier] | None,
    meant_max: int,
    chosen_max: int,
) -> RequeuePlan:
    """The plan for the first of these letters. `earlier` finds those that were requeued before; None: look for none."""
    meant, has_more_meant = first(letters, meant_max, without_content)
    before: dict[bytes, str] = {}
    unknown: set[bytes] = set()
    if meant and earlier is not None:
        found = earlier(meant)
        before, unknown = found.find(), found.unknowable()
    left = [letter for letter in meant if letter.origin not in before]
    return RequeuePlan(meant, left[:chosen_max], before, unknown, has_more_meant, len(left) > chosen_max)


def carried_out(
    kafka: Kafka, rules: RequestRules, run: RequeuePlan, when: Headers, execute: bool
) -> Iterator[RequeueOutcome]:
    """The outcome of each letter of a plan: those that were requeued before first. `execute`: requeue the chosen ones.

    Raises as `put_back`.
    """
    for letter in run.meant:
        if letter.origin in run.before:
            yield RequeueOutcome(letter, RequeueStatus.BEFORE, run.before[letter.origin])
    filters = DeadLetterFilters(origins=frozenset(letter.origin for letter in run.chosen))
    letters = read_dead_letters(kafka, rules, _spans_around(rules.topic, run.chosen), filters)
    judged = judge(kafka, letters, rules, when, run.unknown)
    if execute:
        yield from _put_back_judged(kafka, rules.topic, judged)
    else:
        yield from (outcome for outcome, _ in judged)


def first(
    letters: Generator[DeadLetter], letters_max: int, kept: Callable[[DeadLetter], DeadLetter]
) -> tuple[list[DeadLetter], bool]:
    """The first letters, each reduced by `kept`, and whether there are more."""
    with closing(letters):
        found = [kept(letter) for letter in itertools.islice(letters, letters_max)]
        return found, next(letters, None) is not None


def without_content(letter: DeadLetter) -> DeadLetter:
    """The letter without key, value and headers."""
    return replace(letter, key=None, value=None, headers=[])


def _spans_around(requests: str, letters: list[DeadLetter]) -> Spans:
    """The offsets from the first to the last of these letters, for each partition."""
    topic = OwnTopics.of(requests).dead_letters
    spans: Spans = {}
    for letter in letters:
        part = Partition(topic, letter.request[0])
        start, end = spans.get(part, (letter.offset, 0))
        spans[part] = (min(start, letter.offset), max(end, letter.offset + 1))
    return spans


def _put_back_judged(
    kafka: Kafka, requests: str, judged: Iterator[tuple[RequeueOutcome, UnsentRequest | None]]
) -> Iterator[RequeueOutcome]:
    """Requeue the letters that can be; yields the outcome of each letter."""
    aside: list[RequeueOutcome] = []

    def drafts() -> Iterator[tuple[DeadLetter, UnsentRequest]]:
        for outcome, draft in judged:
            if draft is None:
                aside.append(outcome)
            else:
                yield outcome.letter, draft

    for done in put_back(kafka, requests, drafts()):
        yield done
        yield from aside
        aside.clear()
    yield from aside


def _now_ms() -> int:
    """The time of this machine's clock, epoch ms."""
    return time.time_ns() // 1_000_000
