"""Random histories for the audit. Each is a partition of one request topic; most are sound, some have random defects.

A history is lists of requests, fates, records, dead letters and answers. First, each history is as a sidecar could have
written it. Then rows of some histories are dropped, repeated or altered, and the bounds of the partition are drawn. The
tiers of the audit must agree on any history, even on a history that no sidecar can write.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from postdate.spark.job.bounds import NEVER_MS
from postdate.spark.limits import COMMIT_MS_MAX
from postdate.wire.reasons import Reason
from postdate.wire.values.murmur2 import partition_for
from support.audit_cases.verdicts import HOUR_MS, SNAPSHOT, T
from support.audits.judging import target_row
from support.audits.written_records import LETTERS, LOG, REQUESTS, TARGET, VERDICTS, Headers, Row, kafka_row, log_value

SLACK_MS: Final = 60_000
OVERDUE_MS: Final = SNAPSHOT - SLACK_MS
#: Milliseconds: the time between the overdue time and a later due time.
_LATER_MS: Final = 600_000
_KEYS: Final = (b"k", b"key", b"", b"k2", None)
_VALUES: Final = (b"v", b"w", b"", None)
_DATA: Final[tuple[tuple[str, bytes | None], ...]] = (("a", b"1"), ("a", None), ("b", b""), ("é", b"\xff\x00"))
_IDS: Final = (b"x", b"y", "ü".encode())
_FATES: Final = ("delivered", "dead", "cancelled", "replaced", "applied", "stored")
_WORDS: Final = (
    *("accepted", "rejected", "cancelled", "rescheduled", "replaced"),
    *("delivered", "dead", "not-found", "too-late", "unknown"),
)
_SLOWER_FROM: Final = 4
_WITH_POLICIES: Final = 500  # histories: the rows of all of them are one small table
_POLICIES: Final = [
    *([0, "slow", "base=1500ms, factor=1"], [_SLOWER_FROM, "slow", "base=2500ms, factor=1"]),
    *([0, "gone", "base=1s"], [1, "gone", ""]),
]
_REASONS: Final = (*(reason.value.encode() for reason in Reason), b"because", None)
TARGETS: Final = [
    target_row(TARGET),
    target_row("lost", lost_ms=(-1, T + 2_000, -1, NEVER_MS)),
    target_row("capped", capped_from_ms=(NEVER_MS, T + 2_000, NEVER_MS, NEVER_MS)),
    target_row("young", began_ms=T + 3_000),
    target_row("grown", known_ms=(-1, -1, T + 2_000, T + 2_000)),
    target_row("recreated", recreated_ms=T + 3_000),
    target_row("compacted", compacted=True),
    ("absent", None, False, False, [NEVER_MS], [NEVER_MS], [], -1, -1),
]
"""The targets with their bounds. A request may also name a target without a row."""
_NAMES: Final = (*(str(row[0]) for row in TARGETS), "unread")


@dataclass(frozen=True)
class _Request:
    offset: int
    action: str
    target: str | None
    due_ms: int | None
    id: bytes | None
    grace_ms: int | None
    place: int | None
    key: bytes | None
    value: bytes | None
    data: Headers
    control: Headers
    window_ms: int | None = None
    behind: Headers = field(default_factory=list)


@dataclass(frozen=True)
class _Fate:
    at_ms: int
    offset: int
    due_ms: int
    name: str
    more: tuple[int, ...] = ()

    def spelled(self) -> list[Any]:
        return [self.offset, self.due_ms, self.name, *self.more]


@dataclass(frozen=True)
class _Record:
    origin: int
    topic: str
    place: int
    key: bytes | None
    value: bytes | None
    data: Headers
    due_ms: int
    id: bytes | None
    behind: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class _DeadLetter:
    origin: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: bytes | None
    place: int = 0


@dataclass(frozen=True)
class _Answer:
    origin: int
    word: str
    of: int | None
    id: bytes | None


@dataclass
class _History:
    requests: list[Any] = field(default_factory=list)
    fates: list[Any] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    dead_letters: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def sides(self) -> tuple[list[Any], ...]:
        return self.requests, self.fates, self.records, self.dead_letters, self.answers


@dataclass
class Histories:
    """The records of many histories, and a row of bounds for each."""

    requests: list[Row] = field(default_factory=list)
    log: list[Row] = field(default_factory=list)
    delivered: list[Row] = field(default_factory=list)
    dead_letters: list[Row] = field(default_factory=list)
    answers: list[Row] = field(default_factory=list)
    partitions: list[tuple[Any, ...]] = field(default_factory=list)

    @classmethod
    def drawn(cls, count: int, seed: int) -> Histories:
        """Returns `count` histories. The same seed gives the same histories."""
        histories = cls()
        for partition in range(count):
            histories._add(partition, random.Random(f"{seed}/{partition}"))
        return histories

    def _add(self, partition: int, rng: random.Random) -> None:
        history = _sound(partition, rng)
        if rng.random() < 0.6:
            for _ in range(rng.choice((1, 1, 2, 4))):
                _spoil(history, rng)
        log = self._write(partition, history, rng)
        self.partitions.append(_bounds(partition, len(log), rng))
        end = self.partitions[-1][4]
        self.requests += [
            kafka_row(
                REQUESTS,
                request.offset,
                T,
                request.key,
                request.value,
                [*request.data, *request.control],
                partition=partition,
            )
            for request in history.requests
            if self.partitions[-1][3] <= request.offset < end
        ]

    def _write(self, partition: int, history: _History, rng: random.Random) -> list[Row]:
        log: list[Row] = []
        fates = sorted(history.fates, key=lambda fate: (fate.at_ms, fate.offset))
        while fates:
            together = [fate for fate in fates if fate.at_ms == fates[0].at_ms]
            fates = fates[len(together) :]
            spelled = [fate.spelled() for fate in together]
            changes: dict[str, Any] = {"next_request": rng.choice((4, 10_000, 99, 99))}
            if any(len(fate) == 4 for fate in spelled):
                changes["v"] = 2
            if partition < _WITH_POLICIES and rng.random() < 0.5:
                changes |= {"v": 2, "policies": _POLICIES}
            value = log_value(len(log) + 1, spelled, **changes)
            log.append(kafka_row(LOG, len(log), together[0].at_ms, None, value, [], partition=partition))
        self.log += log
        for record in history.records:
            own: Headers = [("postdate-origin", f"{REQUESTS}/{partition}/{record.origin}".encode())]
            own += [("postdate-due", b"%d" % record.due_ms)]
            own += [("postdate-id", record.id)] if record.id is not None else []
            headers = [*record.data, *own, *record.behind]
            place = len(self.delivered)
            self.delivered.append(
                kafka_row(record.topic, place, T, record.key, record.value, headers, partition=record.place)
            )
        for dead_letter in history.dead_letters:
            own = [("postdate-dead-reason", dead_letter.reason), ("postdate-dead-detail", b"why")]
            own += [("postdate-origin", f"{REQUESTS}/{partition}/{dead_letter.origin}".encode())]
            place, there = len(self.dead_letters), partition + dead_letter.place
            self.dead_letters.append(
                kafka_row(
                    LETTERS, place, T, dead_letter.key, dead_letter.value, [*dead_letter.headers, *own], partition=there
                )
            )
        for answer in history.answers:
            fields = {"v": 1, "origin": f"{REQUESTS}/{partition}/{answer.origin}", "verdict": answer.word, "at": 1}
            fields |= {"id": None if answer.id is None else answer.id.decode()}
            fields |= {"of": None if answer.of is None else f"{REQUESTS}/{partition}/{answer.of}"}
            value = json.dumps(fields, ensure_ascii=False).encode()
            place = len(self.answers)
            self.answers.append(kafka_row(VERDICTS, place, T, answer.id, value, [], partition=partition))
        return log


def write_rows(path: Path, rows: Iterable[tuple[Any, ...]], names: Iterable[str]) -> None:
    """Writes rows with columns of these names as lines of JSON, in the form that Spark reads."""
    columns = [*names]
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(dict(zip(columns, map(_as_json, row), strict=True))) + "\n")


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list):
        return [{"key": name, "value": _as_json(content)} for name, content in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _sound(partition: int, rng: random.Random) -> _History:
    """Returns a history without defects. In some histories all messages are plain."""
    history, is_plain = _History(), rng.random() < 0.4
    pending: dict[int, _Request] = {}
    for offset in range(rng.choice((1, 2, 4, 4, 8, 9))):
        request = _request(partition, offset, rng, is_plain=is_plain)
        history.requests.append(request)
        if is_plain or rng.random() < 0.6 or not _acted(request, history, pending, rng):
            pending[offset] = request
    for request in pending.values():
        _end(request, history, rng)
    return history


def _request(partition: int, offset: int, rng: random.Random, *, is_plain: bool) -> _Request:
    action = "schedule" if is_plain or rng.random() < 0.7 else rng.choice(("cancel", "reschedule", "explode"))
    target: str | None = TARGET if is_plain or rng.random() < 0.7 else rng.choice((*_NAMES, None))
    due_ms: int | None = T + rng.choice((1_000, 1_000, 1_500, 2_000, 2_500))
    kind = rng.random()
    if kind < 0.15:
        due_ms = rng.choice((OVERDUE_MS, OVERDUE_MS - 1, OVERDUE_MS + _LATER_MS, SNAPSHOT, SNAPSHOT + 1))
    elif kind < 0.3:
        due_ms = SNAPSHOT + 2 * HOUR_MS
    elif kind < 0.35 and not is_plain:
        due_ms = None
    id_ = rng.choice(_IDS) if rng.random() < (0.1 if is_plain else 0.5) else None
    grace_ms = rng.choice((0, 500, 1_000, HOUR_MS)) if rng.random() < 0.2 else None
    place = rng.randrange(4) if not is_plain and rng.random() < 0.1 else None
    key, value = rng.choice(_KEYS), rng.choice(_VALUES)
    data = [*rng.sample(_DATA, rng.choice((0, 0, 1, 2)))]
    control: Headers = [("postdate-topic", target.encode())] if target is not None and action == "schedule" else []
    if action != "cancel" and due_ms is not None:
        times: tuple[tuple[str, bytes | None], ...] = (
            ("postdate-at", b"%d" % due_ms),
            ("postdate-delay", b"%dms" % (due_ms - T)),
        )
        control.append(rng.choice(times))
    elif action != "cancel" and rng.random() < 0.5:
        control += [("postdate-delay", b"soon")]
    if action != "schedule":
        control.append(("postdate-action", action.encode()))
        if offset and rng.random() < 0.4:
            control.append(("postdate-origin", f"{REQUESTS}/{partition}/{rng.randrange(offset)}".encode()))
            id_ = None
    behind: Headers = []
    if not is_plain and action == "schedule" and due_ms is not None and due_ms > T and rng.random() < 0.25:
        due_ms, behind, control = _return(partition, offset, due_ms, control[:-1], rng)
    control += [("postdate-id", id_)] if id_ is not None else []
    control += [("postdate-grace", b"%dms" % grace_ms)] if grace_ms is not None else []
    control += [("postdate-partition", b"%d" % place)] if place is not None else []
    has_window = action == "schedule" and not behind and rng.random() < 0.08  # a return takes none
    window_ms = rng.choice((1, 500, 2_000)) if has_window else None
    control += [("postdate-window", b"%d" % window_ms)] if window_ms is not None else []
    return _Request(offset, action, target, due_ms, id_, grace_ms, place, key, value, data, control, window_ms, behind)


def _return(
    partition: int, offset: int, due_ms: int, target: Headers, rng: random.Random
) -> tuple[int | None, Headers, Headers]:
    """Returns the due time of a return, the headers of its redelivery, and the headers of the return.

    The return is due at `due_ms`, or at the time that a named policy gives.
    """
    policy = rng.choice((b"base=%dms,factor=1,max=90d" % (due_ms - T), b"slow", b"slow", b"gone", b"unknown"))
    due = {b"slow": T + (1_500 if offset < _SLOWER_FROM else 2_500), b"gone": None}.get(policy, due_ms)
    control: Headers = [*target, ("postdate-retry", policy)]
    named_attempt = rng.choice((None, None, 0, 1, 2, 12))
    root = f"{REQUESTS}/{partition}/{offset}"
    if offset and rng.random() < 0.7:
        root = f"{REQUESTS}/{partition}/{rng.randrange(offset)}"
        control.append(("postdate-origin", root.encode()))
    control += [("postdate-attempt", b"%d" % named_attempt)] if named_attempt is not None else []
    error: Headers = [("postdate-error", b"boom")] if rng.random() < 0.3 else []
    attempt, first_due = (named_attempt or 0) + 1, b"%d" % (due or due_ms)
    first = [("postdate-first-origin", root.encode()), ("postdate-first-due", first_due)]
    behind: Headers = [("postdate-attempt", b"%d" % attempt), *first, *error]
    return (due if attempt <= 12 else None), behind, [*control, *error]


def _acted(request: _Request, history: _History, pending: dict[int, _Request], rng: random.Random) -> bool:
    """Lets the request act on an earlier request with its id, and adds the effects to `history`.

    Returns True if the request has ended by this.
    """
    subject = next((held for held in pending.values() if held.id is not None and held.id == request.id), None)
    if subject is None or subject.due_ms is None or subject.action != "schedule":
        return False
    at_ms = T + 100 + request.offset
    due_ms = subject.due_ms
    if request.action == "schedule":
        del pending[subject.offset]
        history.fates.append(_Fate(at_ms, subject.offset, due_ms, "replaced"))
        history.answers.append(_Answer(request.offset, "replaced", subject.offset, request.id))
        return False
    if request.action == "cancel":
        del pending[subject.offset]
        history.fates.append(_Fate(at_ms, subject.offset, due_ms, "cancelled"))
    elif request.action == "reschedule" and request.due_ms is not None:
        history.fates.append(_Fate(at_ms, subject.offset, due_ms, "moved", (request.due_ms, request.offset)))
        if request.due_ms < OVERDUE_MS:
            del pending[subject.offset]
            more = _chosen(subject, request.due_ms, rng)
            history.fates.append(_Fate(max(at_ms, request.due_ms), subject.offset, due_ms, "delivered", more))
            history.records.append(_record_of(subject, request.due_ms))
    else:
        return False
    history.fates.append(_Fate(at_ms, request.offset, 0, "applied"))
    if rng.random() < 0.5:
        word = "cancelled" if request.action == "cancel" else "rescheduled"
        history.answers.append(_Answer(request.offset, word, subject.offset, request.id))
    return True


def _end(request: _Request, history: _History, rng: random.Random) -> None:
    """Ends a pending request, if it is due."""
    is_sound = request.action == "schedule" and request.due_ms is not None and request.target in _NAMES
    if not is_sound or rng.random() < 0.03:
        if rng.random() < 0.8:
            due_ms = rng.choice((0, request.due_ms or 0))
            is_applied = request.action in ("cancel", "reschedule") and rng.random() < 0.7
            at_ms = T + 1_000 + request.offset
            history.fates.append(_Fate(at_ms, request.offset, due_ms, "applied" if is_applied else "dead"))
            if not is_applied:
                headers, reason = [*request.data, *request.control], rng.choice(_REASONS)
                history.dead_letters.append(_DeadLetter(request.offset, request.key, request.value, headers, reason))
        return
    assert request.due_ms is not None
    if request.due_ms >= OVERDUE_MS and rng.random() < 0.9:
        if rng.random() < 0.05:
            history.fates.append(_Fate(T + 10, request.offset, request.due_ms, "stored"))
        return
    at_ms = request.due_ms + rng.choice((0, 1, 500, 1_000, 3_000))
    more = _chosen(request, request.due_ms, rng)
    history.fates.append(_Fate(max([at_ms, *more]), request.offset, request.due_ms, "delivered", more))
    history.records.append(_record_of(request, request.due_ms))
    if rng.random() < 0.05:
        history.answers.append(_Answer(request.offset, "delivered", None, request.id))


def _chosen(request: _Request, due_ms: int, rng: random.Random) -> tuple[int, ...]:
    """Returns the chosen time of a request with a window."""
    return () if request.window_ms is None else (due_ms + rng.choice((0, request.window_ms)),)


def _record_of(request: _Request, due_ms: int) -> _Record:
    place = request.place
    if place is None:
        place = request.offset % 4 if request.key is None else partition_for(request.key, 4)
    topic = request.target or TARGET
    return _Record(
        request.offset,
        topic,
        place,
        request.key,
        request.value,
        request.data,
        due_ms,
        request.id,
        tuple(request.behind),
    )


def _spoil(history: _History, rng: random.Random) -> None:
    """Drops, repeats or alters one row, or swaps two."""
    side = rng.choice([side for side in history.sides() if side] or [history.fates])
    if not side:
        return
    index = rng.randrange(len(side))
    match rng.choice(("drop", "repeat", "alter", "alter", "alter", "swap")):
        case "drop":
            del side[index]
        case "repeat" if side is not history.requests:
            side.insert(rng.randrange(len(side) + 1), side[index])
        case "alter" if side is not history.requests:
            side[index] = _altered(side[index], rng)
        case "swap" if len(side) > 1 and side is not history.requests:
            other = (index + 1) % len(side)
            name = "offset" if side is history.fates else "origin"
            effect, other_effect = side[index], side[other]
            side[index], side[other] = (
                replace(effect, **{name: getattr(other_effect, name)}),
                replace(other_effect, **{name: getattr(effect, name)}),
            )
        case _:
            _invent(history, rng)


def _invent(history: _History, rng: random.Random) -> None:
    """Adds an effect that no sidecar would have written."""
    offset = rng.randrange(12)
    due_ms = T + 1_000
    match rng.randrange(4):
        case 0:
            name = rng.choice((*_FATES, "moved"))
            more = (T + 1_500, offset + 1) if name == "moved" else ()
            history.fates.append(_Fate(T + 2_000, offset, rng.choice((due_ms, 0)), name, more))
        case 1:
            topic = rng.choice((TARGET, "copies"))
            history.records.append(_Record(offset, topic, 0, b"k", b"v", [], due_ms, None))
        case 2:
            history.dead_letters.append(_DeadLetter(offset, b"k", b"v", [], rng.choice(_REASONS)))
        case _:
            of = rng.choice((None, rng.randrange(12)))
            history.answers.append(_Answer(offset, rng.choice(_WORDS), of, rng.choice((*_IDS, None))))


def _altered(effect: Any, rng: random.Random) -> Any:
    """Returns a copy with one changed field."""
    if isinstance(effect, _Fate):
        late_ms = rng.choice((0, 500, 1_000, HOUR_MS)) + COMMIT_MS_MAX
        at_ms = effect.due_ms + rng.choice((-1, late_ms, late_ms + 1, 999, OVERDUE_MS - effect.due_ms))
        changes: list[dict[str, Any]] = [
            *({"offset": effect.offset + rng.choice((1, 4, 20))}, {"due_ms": effect.due_ms + 1}, {"due_ms": 0}),
            *({"at_ms": max(at_ms, 1)}, {"at_ms": max(at_ms, 1)}, {"name": rng.choice(_FATES), "more": ()}),
            {"due_ms": rng.choice((OVERDUE_MS, OVERDUE_MS + _LATER_MS))},
            *([{"more": (effect.due_ms + rng.choice((-1, 0, 1)),)}] if effect.name == "delivered" else []),
        ]
    elif isinstance(effect, _Record):
        changes = [
            *({"key": rng.choice(_KEYS)}, {"value": rng.choice(_VALUES)}, {"data": effect.data[:1]}),
            *({"data": [*reversed(effect.data)]}, {"due_ms": effect.due_ms + 1}, {"id": rng.choice((*_IDS, None))}),
            *({"topic": rng.choice(_NAMES)}, {"place": rng.randrange(4)}, {"behind": (("a", b"1"),)}),
            *({"behind": (("postdate-due", b"7"),)}, {"origin": effect.origin + rng.choice((1, 4, 20))}),
            {"data": [], "behind": tuple(effect.data)},
            {"behind": effect.behind[1:]},
            {"behind": (*effect.behind, ("postdate-retry", b"base=1s"))},
            {"behind": (("postdate-attempt", b"3"), *effect.behind[1:])},
        ]
    elif isinstance(effect, _DeadLetter):
        changes = [{"key": b"another"}, {"value": None}, {"headers": []}, {"reason": rng.choice(_REASONS)}]
        changes += [{"origin": effect.origin + 1}, {"place": 1}]
    else:
        changes = [{"word": rng.choice(_WORDS)}, {"of": rng.choice((None, 0, 1, 30))}]
        changes += [{"id": rng.choice((*_IDS, None))}, {"origin": effect.origin + 1}]
    return replace(effect, **rng.choice(changes))


def _bounds(partition: int, log_records: int, rng: random.Random) -> tuple[Any, ...]:
    """Returns the row of a partition for `PARTITIONS`."""
    log_start, start, end, log_end, lost_ms = 0, 0, 10_000, 10_000, -1
    capped = letters_capped = answers_capped = False
    letters_lost_ms = answers_lost_ms = -1
    if rng.random() < 0.3:
        log_start = rng.choice((0, 0, 1, 4))
        start, end = max(log_start, rng.choice((0, log_start, 2, 4))), rng.choice((10_000, 3, 4, 6, 8))
        end = max(start, end)
    if rng.random() < 0.2:
        log_end = max(0, log_records - rng.randrange(3))
    if rng.random() < 0.2:
        capped, letters_capped, answers_capped = (rng.random() < 0.5 for _ in range(3))
        lost_ms, letters_lost_ms, answers_lost_ms = (rng.choice((-1, T, T + 2_000)) for _ in range(3))
    return (
        *(REQUESTS, partition, log_start, start, end, LOG, log_end, lost_ms < 0, capped, lost_ms),
        *(letters_capped, letters_lost_ms, answers_capped, answers_lost_ms, -1 if letters_capped else NEVER_MS),
        max(end, 6),
    )
