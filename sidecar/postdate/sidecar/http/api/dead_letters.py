"""Dead letters over HTTP: groups the newest by reason, and requeues them as `postdate dead-letters requeue` does.

Any process answers for the whole deployment, since it reads the topics and no index. Reading is bounded in records and
time. A requeue first reads the requests since the oldest of its dead letters, to skip dead letters that were requeued
before.

Thread rule: a thread of the HTTP server. Only one requeue runs at a time in a process: two concurrent ones might
requeue a dead letter twice.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from starlette.datastructures import QueryParams

from postdate.kafka.interface import Partition
from postdate.sidecar.cluster.producing import LiveTopic, look_up
from postdate.sidecar.dead_letters.reading import (
    DeadLetter,
    DeadLetterFilters,
    Progress,
    Spans,
    read_dead_letters,
    spans_of,
)
from postdate.sidecar.dead_letters.requeue import (
    EarlierRequeues,
    RequeueOutcome,
    RequeuePlan,
    RequeueStatus,
    plan,
    run_plan,
    without_content,
)
from postdate.sidecar.errors import ConfigError, TransientError
from postdate.sidecar.http import limits
from postdate.sidecar.http.access.access import Refused
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries import queries
from postdate.sidecar.http.queries.pending import BadQuery
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.wire import headers as names
from postdate.wire.headers import ATTEMPT, Headers
from postdate.wire.origins import parse_origin
from postdate.wire.reasons import Reason
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics, is_topic_name

_FILTERS: Final = ("topic", "reason", "target", "from", "until")
_TIMES: Final = {"at": names.AT, "delay": names.DELAY}
_ORDER: Final = (RequeueStatus.CANNOT, RequeueStatus.DONE, RequeueStatus.WOULD, RequeueStatus.BEFORE)

# The reasons of requests that were accepted. A refused request may have any content in its headers, so the target and
# the id in them are shown only with payloads.
_ACCEPTED: Final = frozenset(
    {
        *(Reason.ATTEMPTS_EXHAUSTED, Reason.TOO_LARGE, Reason.UNKNOWN_TARGET, Reason.RECORD_REFUSED),
        *(Reason.UNAUTHORIZED, Reason.EXPIRED, Reason.TARGET_UNAVAILABLE),
    }
)
_requeues = threading.Lock()


@dataclass(slots=True)
class _Group:
    """The dead letters with one reason."""

    count: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    targets: Counter[str] = field(default_factory=Counter)

    def add(self, dead_letter: DeadLetter, target: str) -> None:
        self.oldest_ms = min(self.oldest_ms, dead_letter.timestamp_ms) if self.count else dead_letter.timestamp_ms
        self.newest_ms = max(self.newest_ms, dead_letter.timestamp_ms)
        self.count += 1
        self.targets[target] += 1


def list_dead_letters(process: ProcessState, query: QueryParams) -> dict[str, Any]:
    """Returns the dead letters by reason, and the newest of them. Raises BadQuery; ConfigError if a topic does not
    exist; KafkaFault; TransientError."""
    queries.known(query, *_FILTERS, "limit", "payload")
    payload = queries.wants_payload(process, query)
    limit = queries.number_of(query, "limit", limits.PAGE_ENTRIES_DEFAULT, limits.PAGE_ENTRIES_MAX)
    topic, filters = queries.served_topic(process, query.get("topic")), _filters(dict(query), ())
    live = _look_up(process, topic)
    spans, is_complete = _newest(process, spans_of(process.admin, topic, live.partitions, filters), filters)
    groups: dict[str, _Group] = {}
    newest: list[tuple[int, int, DeadLetter]] = []
    rules = rules_of(process.config, topic, live.retention_ms)
    with _within(limits.DEAD_LETTERS_READ_S_MAX) as progress:
        for number, dead_letter in enumerate(read_dead_letters(process.kafka, rules, spans, filters, progress)):
            groups.setdefault(dead_letter.reason, _Group()).add(dead_letter, _target(dead_letter, payload) or "")
            # The answer needs at most the headers, and a value may be large.
            kept = replace(dead_letter, key=None, value=None) if payload else without_content(dead_letter)
            heapq.heappush(newest, (dead_letter.timestamp_ms, number, kept))
            if len(newest) > limit:
                heapq.heappop(newest)
    shown = [_dead_letter_as_json(dead_letter, payload) for _, _, dead_letter in sorted(newest, reverse=True)]
    by_reason = sorted(groups.items(), key=lambda item: (-item[1].count, item[0]))
    return {
        "topic": topic,
        "groups": [_group_as_json(reason, group) for reason, group in by_reason],
        "letters": shown,
        "complete": is_complete,
    }


def requeue(process: ProcessState, body: object, payload: bool) -> dict[str, Any]:
    """Requeues the dead letters that a body selects; unless `execute` is true, only plans the requeue.

    Raises BadQuery; ConfigError if a topic does not exist; Refused if another requeue runs; KafkaFault and
    TransientError: dead letters that were requeued before the fault stay requeued, and a repetition skips them.
    """
    topic, filters, when, execute = _read(process, body)
    live = _look_up(process, topic)
    rules = rules_of(process.config, topic, live.retention_ms)
    would, with_id = RequeueStatus.DONE if execute else RequeueStatus.WOULD, 0
    if not _requeues.acquire(blocking=False):
        raise Refused(503, "another requeue is under way in this process; try again")
    try:
        run, is_complete = _plan(process, rules, live, filters)
        outcomes: list[dict[str, Any]] = []
        # Only the JSON object of each outcome is kept, since the value of a dead letter may be large.
        for outcome in run_plan(process.kafka, rules, run, when, execute):
            outcomes.append(_outcome_as_json(outcome, payload))
            with_id += outcome.dead_letter.id is not None and outcome.status == would
    finally:
        _requeues.release()
    has_more = run.has_more_chosen or run.has_more_matching
    targeted = [dead_letter for dead_letter in run.chosen if _target(dead_letter, payload)]
    counts = Counter(outcome["status"] for outcome in outcomes)
    outcomes.sort(key=lambda outcome: _ORDER.index(outcome["status"]))
    return {
        "topic": topic,
        "executed": execute,
        "requeued": counts[would],
        "requeued_before": counts[RequeueStatus.BEFORE],
        "impossible": counts[RequeueStatus.CANNOT],
        "with_id": with_id,
        "missing_targets": replace(run, chosen=targeted).missing_targets(process.admin),
        "outcomes": outcomes[: limits.PAGE_ENTRIES_MAX],
        "complete": is_complete and not has_more,
        "has_more": has_more,
        "older_unread": not is_complete,
    }


def _plan(
    process: ProcessState, rules: RequestRules, live: LiveTopic, filters: DeadLetterFilters
) -> tuple[RequeuePlan, bool]:
    spans, is_complete = _newest(process, spans_of(process.admin, rules.topic, live.partitions, filters), filters)
    with _within(limits.DEAD_LETTERS_READ_S_MAX) as progress:

        def earlier(selected: list[DeadLetter]) -> EarlierRequeues:
            return EarlierRequeues(process.kafka, process.admin, rules.topic, selected, progress)

        dead_letters = read_dead_letters(process.kafka, rules, spans, filters, progress)
        return plan(dead_letters, earlier, limits.DEAD_LETTERS_MAX, limits.DEAD_LETTERS_REQUEUED_MAX), is_complete


def _newest(process: ProcessState, spans: Spans, filters: DeadLetterFilters) -> tuple[Spans, bool]:
    """Returns the last part of each span, at most DEAD_LETTERS_MAX offsets in total, and True if each part begins where
    its span begins.

    If a span is too long, its part ends at `until`, so that an earlier `until` reaches older dead letters. A shorter
    span is read as a whole, since timestamps do not always ascend.
    """
    most = limits.DEAD_LETTERS_MAX // max(len(spans), 1)
    cut: Spans = {}
    for part, (start, end) in spans.items():
        later = None
        if end - start > most and filters.until_ms is not None:
            later = process.admin.offset_for_time(part, filters.until_ms)
        last = end if later is None else max(start, min(later, end))
        cut[part] = (max(start, last - most), last)
    return cut, all(cut[part][0] == start for part, (start, _) in spans.items())


@contextmanager
def _within(seconds: float) -> Iterator[Progress]:
    """Yields a progress callback that raises TransientError after this time."""
    deadline = time.monotonic() + seconds

    @contextmanager
    def progress(part: Partition, _count: int) -> Iterator[Callable[[int], None]]:
        def check(_offsets: int) -> None:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"{part.topic}/{part.index} was not read within {seconds:g} s: give a later `from`, or use "
                    "`postdate dead-letters`"
                )

        yield check

    yield progress


def _look_up(process: ProcessState, topic: str) -> LiveTopic:
    dead_letter_topic = OwnTopics.of(topic).dead_letters
    live = look_up(process.admin, topic, process.config.kafka.bootstrap_servers, (dead_letter_topic,))
    if dead_letter_topic not in live.existing:
        raise ConfigError(f"topic {dead_letter_topic} does not exist")
    return live


def _read(process: ProcessState, body: object) -> tuple[str, DeadLetterFilters, Headers, bool]:
    """Returns the topic, the filters, the header with the new time if the body has one, and the value of `execute`.
    Raises BadQuery."""
    body = queries.body_of(body, *_FILTERS, "origins", *_TIMES, "execute")
    execute, origins = body.get("execute", False), body.get("origins", [])
    if not isinstance(execute, bool):
        raise BadQuery("execute takes true or false")
    if not isinstance(origins, list) or not all(isinstance(origin, str) for origin in origins):
        raise BadQuery("origins takes a list of origins")
    texts = {name: value for name, value in body.items() if name not in ("execute", "origins")}
    if not all(isinstance(value, str) for value in texts.values()):
        raise BadQuery("each other field takes a text")
    if not origins and not texts.keys() & {"reason", "target"}:
        raise BadQuery("give at least one of reason, target, origins")
    now_ms = process.clock.wall_ms()
    texts |= {
        name: str(queries.time_of(name, texts[name], now_ms)) for name in ("from", "until", "at") if name in texts
    }
    when = [(header, texts[name].encode("utf-8", "replace")) for name, header in _TIMES.items() if name in texts]
    if len(when) > 1:
        raise BadQuery("give one of at and delay")
    return queries.served_topic(process, texts.get("topic")), _filters(texts, origins), when, execute


def _filters(texts: dict[str, str], origins: list[str] | tuple[str, ...]) -> DeadLetterFilters:
    reason, target = texts.get("reason"), texts.get("target")
    if reason is not None and reason not in {choice.value for choice in Reason}:
        raise BadQuery(f"reason takes one of {', '.join(choice.value for choice in Reason)}")
    if target is not None and not is_topic_name(target):
        raise BadQuery("target is not a topic name")
    for origin in origins:
        try:
            parse_origin(origin.encode("utf-8", "replace"))
        except ValueError as error:
            raise BadQuery(f"origin {error}") from error
    since, until = (int(texts[name]) if name in texts else None for name in ("from", "until"))
    reasons = frozenset() if reason is None else frozenset([reason])
    targets = frozenset() if target is None else frozenset([target])
    return DeadLetterFilters(reasons, targets, frozenset(origin.encode() for origin in origins), since, until)


def _group_as_json(reason: str, group: _Group) -> dict[str, Any]:
    targets = [
        {"target": target or None, "count": count} for target, count in group.targets.most_common(limits.TARGETS_SHOWN)
    ]
    times = {"oldest_ms": group.oldest_ms, "newest_ms": group.newest_ms}
    return {"reason": reason, "count": group.count, **times, "targets": targets}


def _target(dead_letter: DeadLetter, payload: bool) -> str | None:
    return (dead_letter.target or None) if payload or dead_letter.reason in _ACCEPTED else None


def _id(dead_letter: DeadLetter, payload: bool) -> str | None:
    return dead_letter.id if payload or dead_letter.reason in _ACCEPTED else None


def _dead_letter_as_json(dead_letter: DeadLetter, payload: bool) -> dict[str, Any]:
    """Returns the JSON object of a dead letter. The detail quotes headers, so it is included only with `payload`."""
    attempt = dead_letter.last(ATTEMPT)
    shown: dict[str, Any] = {
        "origin": dead_letter.origin.decode(),
        "died_ms": dead_letter.timestamp_ms,
        "reason": dead_letter.reason,
        "target": _target(dead_letter, payload),
        "id": _id(dead_letter, payload),
        "value_size_bytes": dead_letter.value_size_bytes,
    }
    if payload:
        shown |= {
            "detail": dead_letter.detail,
            "attempt": None if attempt is None else attempt.decode("utf-8", "replace"),
        }
    return shown


def _outcome_as_json(outcome: RequeueOutcome, payload: bool) -> dict[str, Any]:
    why = f"{outcome.why}: {outcome.detail}" if payload and outcome.detail else outcome.why
    dead_letter = outcome.dead_letter
    return {
        "origin": dead_letter.origin.decode(),
        "status": outcome.status,
        "now": outcome.now,
        "reason": dead_letter.reason,
        "target": _target(dead_letter, payload),
        "id": _id(dead_letter, payload),
        "why": why or None,
    }
