"""Requeues dead letters: each becomes a new request in the partition of the old one, which is the partition of its id.

The header `postdate-origin` of the new request names the request of the dead letter; the sidecar ignores this header in
a request to schedule. The header makes a second run harmless. Before a run requeues dead letters, it reads the later
requests of the topic (except with `--again`), and skips a dead letter if one of them names its origin. So the request
topic itself records which dead letters were requeued, for as long as it retains the new requests, and a run that was
killed can be repeated. Two runs at the same time may both requeue a dead letter.

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
    read_committed,
    read_dead_letters,
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
    """The status of one dead letter in a run."""

    WOULD = "would-be-put-back"
    DONE = "put-back"
    BEFORE = "put-back-before"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True)
class RequeueOutcome:
    """The outcome for one dead letter. `now`: the origin of the new request. `why`: the reason if the dead letter
    cannot be requeued. `detail`: the part of the reason that may quote headers."""

    dead_letter: DeadLetter
    status: RequeueStatus
    now: str | None = None
    why: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NotRequeueable:
    """The reason why no request can be made of a dead letter. `detail` may quote headers."""

    why: str
    detail: str = ""


def new_request(dead_letter: DeadLetter, rules: RequestRules, when: Headers) -> UnsentRequest | NotRequeueable:
    """Returns the new request for a dead letter, with its key, value and headers. `when`: the headers of a new time;
    empty: the time stays.

    Returns NotRequeueable if the request would become a dead letter again, if it could act on another message, or if
    its headers are lost.
    """
    if dead_letter.reason == Reason.BAD_HEADERS:
        return NotRequeueable("its headers could not be read, so the dead letter has none of them")
    if dead_letter.last(ACTION) not in (None, b"schedule"):
        return NotRequeueable(_CONTROL)
    replaced = (*TIMES, RETRY) if when else ()
    kept = [(name, value) for name, value in dead_letter.headers if name not in replaced and not is_dropped(name)]
    is_return = any(name == RETRY for name, _ in kept)
    kept = (
        _return_headers(dead_letter, kept) if is_return else [header for header in kept if header[0] not in DROPPED_2]
    )
    headers: Headers = [*kept, *when, (ORIGIN, dead_letter.origin)]
    sent_ms = _now_ms()
    try:
        request = parse_request(
            rules, dead_letter.request[0], sent_ms, dead_letter.key, headers, dead_letter.value is None
        )
    except RequestRefused as refusal:
        detail = refusal.detail
        if isinstance(refusal, FormatVersionNeeded):
            detail = f"{refusal.need}, and this process has {rules.format_version}: set POSTDATE_FORMAT_VERSION"
        return NotRequeueable(f"it would be refused again: {refusal.reason.value}", detail)
    if request.action != Action.SCHEDULE:  # in a dialect, a cancel need not have an action
        return NotRequeueable(_CONTROL)
    latest_ms = request.due_ms + request.window_ms
    if request.retry is None and request.grace_ms >= 0 and latest_ms + request.grace_ms < sent_ms:
        return NotRequeueable("it would expire again: give it a new time")
    return UnsentRequest(dead_letter.key, dead_letter.value, headers)


def _return_headers(dead_letter: DeadLetter, kept: Headers) -> Headers:
    """Returns the headers of a return that is requeued: they name the same first request, and exhausted attempts begin
    again at 1."""
    names = {name for name, _ in dead_letter.headers}
    if dead_letter.reason == Reason.ATTEMPTS_EXHAUSTED:
        kept = [header for header in kept if header[0] != ATTEMPT]
    roots = ((FIRST_ORIGIN, ORIGIN), (FIRST_DUE, DUE))
    return [*kept, *((first, dead_letter.last(own)) for first, own in roots if first not in names and own in names)]


def with_value(kafka: Kafka, requests: str, dead_letter: DeadLetter) -> DeadLetter | None:
    """Returns the dead letter. If its value was left out for its size, takes key, value and headers from the request;
    returns None if the request was deleted."""
    if dead_letter.value is not None or VALUE_LEFT_OUT not in dead_letter.detail:
        return dead_letter
    partition, offset = dead_letter.request
    try:
        request = next(read_committed(kafka, Partition(requests, partition), offset, offset + 1), None)
    except OffsetOutOfRange:
        return None
    if request is None:
        return None
    return replace(dead_letter, key=request.key, value=request.value, headers=request.headers or [])


class EarlierRequeues:
    """Finds dead letters that were requeued before, by reading the requests that the topic still retains."""

    def __init__(
        self, kafka: Kafka, admin: Admin, requests: str, dead_letters: Iterable[DeadLetter], progress: Progress
    ) -> None:
        self._kafka = kafka
        self._dead_letters: dict[Partition, list[DeadLetter]] = {}
        for dead_letter in dead_letters:
            self._dead_letters.setdefault(Partition(requests, dead_letter.request[0]), []).append(dead_letter)
        self._starts = admin.start_offsets(self._dead_letters)
        # The high watermark, since requests may follow a transaction that is still open.
        self._ends = admin.end_offsets(self._dead_letters, Isolation.READ_UNCOMMITTED)
        self._admin = admin
        self._progress = progress

    def find(self) -> dict[bytes, str]:
        """Returns a mapping with each dead letter that was requeued before: from its origin to the origin of the new
        request.

        Reads each partition once, from the first request that could be a requeued dead letter.
        """
        requeued: dict[bytes, str] = {}
        for part, dead_letters in self._dead_letters.items():
            wanted = {dead_letter.origin for dead_letter in dead_letters}
            for record in read_committed(
                self._kafka, part, self._first_offset(part, dead_letters), self._ends[part], self._progress
            ):
                origin = _requeued_origin(record.headers or [])
                if origin in wanted:
                    requeued[origin] = format_origin(part.topic, part.index, record.offset).decode()
        return requeued

    def unverifiable(self) -> set[bytes]:
        """Returns the origins of dead letters that may have been requeued before by requests that the topic no longer
        retains."""
        unknown: set[bytes] = set()
        for part, dead_letters in self._dead_letters.items():
            old = [dead_letter for dead_letter in dead_letters if dead_letter.request[1] + 1 < self._starts[part]]
            kept_since_ms = self._kept_since_ms(part) if old else 0
            unknown |= {dead_letter.origin for dead_letter in old if _earliest_written_ms(dead_letter) <= kept_since_ms}
        return unknown

    def _kept_since_ms(self, part: Partition) -> int:
        """Returns the timestamp of the oldest retained request; the present time if there is none."""
        with closing(read_committed(self._kafka, part, self._starts[part], self._ends[part])) as records:
            oldest = next(records, None)
        return _now_ms() if oldest is None else oldest.timestamp_ms

    def _first_offset(self, part: Partition, dead_letters: list[DeadLetter]) -> int:
        """Returns the lowest offset at which one of these dead letters can have been requeued: after its request, and
        not before the dead letter was written."""
        after_requests = min(dead_letter.request[1] for dead_letter in dead_letters) + 1
        by_time = self._admin.offset_for_time(part, max(0, min(map(_earliest_written_ms, dead_letters))))
        return max(self._starts[part], after_requests, self._ends[part] if by_time is None else by_time)


def _earliest_written_ms(dead_letter: DeadLetter) -> int:
    """Returns the earliest time, epoch ms, at which the dead letter can have been written by any clock of the
    cluster."""
    return dead_letter.timestamp_ms - limits.CLOCKS_APART_MS_MAX


def _requeued_origin(headers: Headers) -> bytes | None:
    """Returns the origin that a request to schedule names, if any; None for a control, in which this header has another
    meaning."""
    values = dict(headers)
    return values.get(ORIGIN) if values.get(ACTION) in (None, b"schedule") else None


def requeue_all(
    kafka: Kafka, requests: str, records: Iterable[tuple[DeadLetter, UnsentRequest]]
) -> Iterator[RequeueOutcome]:
    """Produces each new request to the partition of the dead letter's request, in order. Yields each outcome once it is
    reported; if the client or the broker rejects a record, the outcome is CANNOT.

    Raises any other reported fault, and TransientError as `DeliveryReport.check`, at the first dead letter that it
    affects. Those before it are requeued and yielded. Also raises a KafkaFault of the client itself. In all cases up to
    REQUEUED_AT_ONCE_MAX dead letters that were not yielded may be requeued as well.
    """
    producer = kafka.plain_producer()
    try:
        batch: list[tuple[DeadLetter, DeliveryReport]] = []
        size_bytes = 0
        for dead_letter, record in records:
            batch.append((dead_letter, _produce(producer, Partition(requests, dead_letter.request[0]), record)))
            size_bytes += len(record.value or b"")
            if len(batch) >= limits.REQUEUED_AT_ONCE_MAX or size_bytes >= limits.REQUEUED_SIZE_BYTES_MAX:
                yield from _settled(producer, requests, batch)
                batch, size_bytes = [], 0
        yield from _settled(producer, requests, batch)
    finally:
        producer.destroy()


def _produce(producer: PlainProducer, part: Partition, record: UnsentRequest) -> DeliveryReport:
    report = DeliveryReport()
    try:
        producer.produce(part.topic, record.value, record.key, record.headers, part.index, report.resolve)
    except RecordRejected as fault:
        report.resolve(fault, -1, -1)
    return report


def _settled(
    producer: PlainProducer, requests: str, batch: list[tuple[DeadLetter, DeliveryReport]]
) -> Iterator[RequeueOutcome]:
    producer.flush(COMMAND_TIMEOUT_S)
    for dead_letter, report in batch:
        if isinstance(report.fault, RecordRejected):
            yield RequeueOutcome(dead_letter, RequeueStatus.CANNOT, why=str(report.fault))
            continue
        report.check(requests)
        now = format_origin(requests, dead_letter.request[0], report.offset).decode()
        yield RequeueOutcome(dead_letter, RequeueStatus.DONE, now)


def judge(
    kafka: Kafka,
    dead_letters: Iterable[DeadLetter],
    rules: RequestRules,
    when: Headers,
    unknown: set[bytes],
) -> Iterator[tuple[RequeueOutcome, UnsentRequest | None]]:
    """Decides for each dead letter whether it can be requeued. Yields WOULD and the new request, or CANNOT and None."""
    for dead_letter in dead_letters:
        if dead_letter.origin in unknown:
            why = (
                "it may have been requeued before, by a request that the topic no longer has; "
                "`postdate dead-letters requeue --again` requeues it"
            )
            yield RequeueOutcome(dead_letter, RequeueStatus.CANNOT, why=why), None
        else:
            complete = with_value(kafka, rules.topic, dead_letter)
            record = new_request(complete, rules, when) if complete else NotRequeueable(_TOO_LARGE)
            if isinstance(record, NotRequeueable):
                yield RequeueOutcome(dead_letter, RequeueStatus.CANNOT, why=record.why, detail=record.detail), None
            else:
                yield RequeueOutcome(dead_letter, RequeueStatus.WOULD), record


# ---- one run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequeuePlan:
    """The dead letters of one run, without their contents.

    `matching`: the matching dead letters, up to the number that the run may examine. `chosen`: the ones to requeue.
    `before`: the origin of each dead letter that was requeued before, with the origin of its new request. `unknown`:
    the origins of dead letters that may have been requeued by requests that the topic no longer retains.
    `has_more_matching`: more dead letters match than the run may examine. `has_more_chosen`: more of the examined ones
    remain than the run may requeue.
    """

    matching: list[DeadLetter]
    chosen: list[DeadLetter]
    before: dict[bytes, str]
    unknown: set[bytes]
    has_more_matching: bool
    has_more_chosen: bool

    def missing_targets(self, admin: Admin) -> list[str]:
        """Returns the targets of the chosen dead letters that are not existing topics. One request to Kafka."""
        targets = {dead_letter.target for dead_letter in self.chosen if is_topic_name(dead_letter.target)}
        return sorted(targets - admin.describe(targets).keys())


def plan(
    dead_letters: Generator[DeadLetter],
    earlier: Callable[[list[DeadLetter]], EarlierRequeues] | None,
    matching_max: int,
    chosen_max: int,
) -> RequeuePlan:
    """Returns the plan for the first of these dead letters. `earlier`: finds those that were requeued before; None: the
    plan does not look for them. `matching_max`, `chosen_max`: the most dead letters to examine and to requeue."""
    matching, has_more_matching = first(dead_letters, matching_max, without_content)
    before: dict[bytes, str] = {}
    unknown: set[bytes] = set()
    if matching and earlier is not None:
        requeues = earlier(matching)
        before, unknown = requeues.find(), requeues.unverifiable()
    remaining = [dead_letter for dead_letter in matching if dead_letter.origin not in before]
    return RequeuePlan(
        matching, remaining[:chosen_max], before, unknown, has_more_matching, len(remaining) > chosen_max
    )


def run_plan(
    kafka: Kafka, rules: RequestRules, run: RequeuePlan, when: Headers, execute: bool
) -> Iterator[RequeueOutcome]:
    """Yields the outcome of each dead letter of a plan that was requeued before, then of each chosen one. `execute`:
    also requeue the chosen ones, if possible.

    Raises as `read_dead_letters` and, if `execute`, as `requeue_all`.
    """
    for dead_letter in run.matching:
        if dead_letter.origin in run.before:
            yield RequeueOutcome(dead_letter, RequeueStatus.BEFORE, run.before[dead_letter.origin])
    filters = DeadLetterFilters(origins=frozenset(dead_letter.origin for dead_letter in run.chosen))
    dead_letters = read_dead_letters(kafka, rules, _spans_around(rules.topic, run.chosen), filters)
    judged = judge(kafka, dead_letters, rules, when, run.unknown)
    if execute:
        yield from _requeue_judged(kafka, rules.topic, judged)
    else:
        yield from (outcome for outcome, _ in judged)


def first(
    dead_letters: Generator[DeadLetter], dead_letters_max: int, kept: Callable[[DeadLetter], DeadLetter]
) -> tuple[list[DeadLetter], bool]:
    """Returns the first dead letters, each reduced by `kept`, and True if there are more than `dead_letters_max`."""
    with closing(dead_letters):
        chosen = [kept(dead_letter) for dead_letter in itertools.islice(dead_letters, dead_letters_max)]
        return chosen, next(dead_letters, None) is not None


def without_content(dead_letter: DeadLetter) -> DeadLetter:
    """Returns the dead letter without key, value and headers."""
    return replace(dead_letter, key=None, value=None, headers=[])


def _spans_around(requests: str, dead_letters: list[DeadLetter]) -> Spans:
    """Returns the offsets from the first to the last of these dead letters, for each partition."""
    topic = OwnTopics.of(requests).dead_letters
    spans: Spans = {}
    for dead_letter in dead_letters:
        part = Partition(topic, dead_letter.request[0])
        start, end = spans.get(part, (dead_letter.offset, 0))
        spans[part] = (min(start, dead_letter.offset), max(end, dead_letter.offset + 1))
    return spans


def _requeue_judged(
    kafka: Kafka, requests: str, judged: Iterator[tuple[RequeueOutcome, UnsentRequest | None]]
) -> Iterator[RequeueOutcome]:
    """Requeues the dead letters that can be requeued. Yields the outcome of every dead letter in `judged`."""
    not_requeued: list[RequeueOutcome] = []

    def records() -> Iterator[tuple[DeadLetter, UnsentRequest]]:
        for judged_outcome, record in judged:
            if record is None:
                not_requeued.append(judged_outcome)
            else:
                yield judged_outcome.dead_letter, record

    for outcome in requeue_all(kafka, requests, records()):
        yield outcome
        yield from not_requeued
        not_requeued.clear()
    yield from not_requeued


def _now_ms() -> int:
    """Returns the time of this machine's clock, epoch ms."""
    return time.time_ns() // 1_000_000
