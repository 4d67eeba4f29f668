"""Random histories for the audit: each is a partition of one request topic, mostly sound, some with random defects.

A draft of a history is lists of requests, fates, records, dead letters and answers. A sidecar could have written a
sound draft. Then parts of some drafts are dropped, repeated or altered, and the bounds of the partition are drawn. The
tiers of the audit must agree on any history, so a draft need not be one that can happen.
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
#: How much later than overdue another due time is.
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
"""The targets, each with its bounds; a request may also name one without a row."""
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
class _Letter:
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
class _Draft:
    requests: list[Any] = field(default_factory=list)
    fates: list[Any] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    letters: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def sides(self) -> tuple[list[Any], ...]:
        return self.requests, self.fates, self.records, self.letters, self.answers


@dataclass
class Histories:
    """The records of many histories, and a row of bounds for each."""

    requests: list[Row] = field(default_factory=list)
    log: list[Row] = field(default_factory=list)
    delivered: list[Row] = field(default_factory=list)
    letters: list[Row] = field(default_factory=list)
    answers: list[Row] = field(default_factory=list)
    partitions: list[tuple[Any, ...]] = field(default_factory=list)

    @classmethod
    def drawn(cls, count: int, seed: int) -> Histories:
        """`count` histories; the same for the same seed."""
        found = cls()
        for partition in range(count):
            found._add(partition, random.Random(f"{seed}/{partition}"))
        return found

    def _add(self, partition: int, chance: random.Random) -> None:
        draft = _sound(partition, chance)
        if chance.random() < 0.6:
            for _ in range(chance.choice((1, 1, 2, 4))):
                _spoil(draft, chance)
        log = self._write(partition, draft, chance)
        self.partitions.append(_bounds(partition, len(log), chance))
        end = self.partitions[-1][4]
        self.requests += [
            kafka_row(REQUESTS, one.offset, T, one.key, one.value, [*one.data, *one.control], partition=partition)
            for one in draft.requests
            if self.partitions[-1][3] <= one.offset < end
        ]

    def _write(self, partition: int, draft: _Draft, chance: random.Random) -> list[Row]:
        log: list[Row] = []
        fates = sorted(draft.fates, key=lambda fate: (fate.at_ms, fate.offset))
        while fates:
            together = [fate for fate in fates if fate.at_ms == fates[0].at_ms]
            fates = fates[len(together) :]
            spelled = [fate.spelled() for fate in together]
            changes: dict[str, Any] = {"next_request": chance.choice((4, 10_000, 99, 99))}
            if any(len(fate) == 4 for fate in spelled):
                changes["v"] = 2
            if partition < _WITH_POLICIES and chance.random() < 0.5:
                changes |= {"v": 2, "policies": _POLICIES}
            value = log_value(len(log) + 1, spelled, **changes)
            log.append(kafka_row(LOG, len(log), together[0].at_ms, None, value, [], partition=partition))
        self.log += log
        for one in draft.records:
            own: Headers = [("postdate-origin", f"{REQUESTS}/{partition}/{one.origin}".encode())]
            own += [("postdate-due", b"%d" % one.due_ms)]
            own += [("postdate-id", one.id)] if one.id is not None else []
            headers = [*one.data, *own, *one.behind]
            place = len(self.delivered)
            self.delivered.append(kafka_row(one.topic, place, T, one.key, one.value, headers, partition=one.place))
        for one in draft.letters:
            own = [("postdate-dead-reason", one.reason), ("postdate-dead-detail", b"why")]
            own += [("postdate-origin", f"{REQUESTS}/{partition}/{one.origin}".encode())]
            place, there = len(self.letters), partition + one.place
            self.letters.append(kafka_row(LETTERS, place, T, one.key, one.value, [*one.headers, *own], partition=there))
        for one in draft.answers:
            fields = {"v": 1, "origin": f"{REQUESTS}/{partition}/{one.origin}", "verdict": one.word, "at": 1}
            fields |= {"id": None if one.id is None else one.id.decode()}
            fields |= {"of": None if one.of is None else f"{REQUESTS}/{partition}/{one.of}"}
            value = json.dumps(fields, ensure_ascii=False).encode()
            place = len(self.answers)
            self.answers.append(kafka_row(VERDICTS, place, T, one.id, value, [], partition=partition))
        return log


def write_rows(path: Path, rows: Iterable[tuple[Any, ...]], names: Iterable[str]) -> None:
    """Writes rows with columns of these names as lines of JSON, as Spark reads them."""
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


def _sound(partition: int, chance: random.Random) -> _Draft:
    """A history without defects; in some all messages are plain."""
    draft, is_plain = _Draft(), chance.random() < 0.4
    pending: dict[int, _Request] = {}
    for offset in range(chance.choice((1, 2, 4, 4, 8, 9))):
        request = _request(partition, offset, chance, is_plain=is_plain)
        draft.requests.append(request)
        if is_plain or chance.random() < 0.6 or not _acted(request, draft, pending, chance):
            pending[offset] = request
    for request in pending.values():
        _end(request, draft, chance)
    return draft


def _request(partition: int, offset: int, chance: random.Random, *, is_plain: bool) -> _Request:
    action = "schedule" if is_plain or chance.random() < 0.7 else chance.choice(("cancel", "reschedule", "explode"))
    target: str | None = TARGET if is_plain or chance.random() < 0.7 else chance.choice((*_NAMES, None))
    due_ms: int | None = T + chance.choice((1_000, 1_000, 1_500, 2_000, 2_500))
    kind = chance.random()
    if kind < 0.15:
        due_ms = chance.choice((OVERDUE_MS, OVERDUE_MS - 1, OVERDUE_MS + _LATER_MS, SNAPSHOT, SNAPSHOT + 1))
    elif kind < 0.3:
        due_ms = SNAPSHOT + 2 * HOUR_MS
    elif kind < 0.35 and not is_plain:
        due_ms = None
    id_ = chance.choice(_IDS) if chance.random() < (0.1 if is_plain else 0.5) else None
    grace_ms = chance.choice((0, 500, 1_000, HOUR_MS)) if chance.random() < 0.2 else None
    place = chance.randrange(4) if not is_plain and chance.random() < 0.1 else None
    key, value = chance.choice(_KEYS), chance.choice(_VALUES)
    data = [*chance.sample(_DATA, chance.choice((0, 0, 1, 2)))]
    control: Headers = [("postdate-topic", target.encode())] if target is not None and action == "schedule" else []
    if action != "cancel" and due_ms is not None:
        times: tuple[tuple[str, bytes | None], ...] = (
            ("postdate-at", b"%d" % due_ms),
            ("postdate-delay", b"%dms" % (due_ms - T)),
        )
        control.append(chance.choice(times))
    elif action != "cancel" and chance.random() < 0.5:
        control += [("postdate-delay", b"soon")]
    if action != "schedule":
        control.append(("postdate-action", action.encode()))
        if offset and chance.random() < 0.4:
            control.append(("postdate-origin", f"{REQUESTS}/{partition}/{chance.randrange(offset)}".encode()))
            id_ = None
    behind: Headers = []
    if not is_plain and action == "schedule" and due_ms is not None and due_ms > T and chance.random() < 0.25:
        due_ms, behind, control = _return(partition, offset, due_ms, control[:-1], chance)
    control += [("postdate-id", id_)] if id_ is not None else []
    control += [("postdate-grace", b"%dms" % grace_ms)] if grace_ms is not None else []
    control += [("postdate-partition", b"%d" % place)] if place is not None else []
    has_window = action == "schedule" and not behind and chance.random() < 0.08  # a return takes none
    window_ms = chance.choice((1, 500, 2_000)) if has_window else None
    control += [("postdate-window", b"%d" % window_ms)] if window_ms is not None else []
    return _Request(offset, action, target, due_ms, id_, grace_ms, place, key, value, data, control, window_ms, behind)


def _return(
    partition: int, offset: int, due_ms: int, target: Headers, chance: random.Random
) -> tuple[int | None, Headers, Headers]:
    """A return due at `due_ms`, or by a named policy: its due time, the headers of its redelivery, its own headers."""
    policy = chance.choice((b"base=%dms,factor=1,max=90d" % (due_ms - T), b"slow", b"slow", b"gone", b"unknown"))
    due = {b"slow": T + (1_500 if offset < _SLOWER_FROM else 2_500), b"gone": None}.get(policy, due_ms)
    control: Headers = [*target, ("postdate-retry", policy)]
    said = chance.choice((None, None, 0, 1, 2, 12))
    root = f"{REQUESTS}/{partition}/{offset}"
    if offset and chance.random() < 0.7:
        root = f"{REQUESTS}/{partition}/{chance.randrange(offset)}"
        control.append(("postdate-origin", root.encode()))
    control += [("postdate-attempt", b"%d" % said)] if said is not None else []
    error: Headers = [("postdate-error", b"boom")] if chance.random() < 0.3 else []
    attempt, first_due = (said or 0) + 1, b"%d" % (due or due_ms)
    first = [("postdate-first-origin", root.encode()), ("postdate-first-due", first_due)]
    behind: Headers = [("postdate-attempt", b"%d" % attempt), *first, *error]
    return (due if attempt <= 12 else None), behind, [*control, *error]


def _acted(request: _Request, draft: _Draft, pending: dict[int, _Request], chance: random.Random) -> bool:
    """Whether the request acted on an earlier one with its id, and ended with that."""
    of = next((one for one in pending.values() if one.id is not None and one.id == request.id), None)
    if of is None or of.due_ms is None or of.action != "schedule":
        return False
    at_ms = T + 100 + request.offset
    due_ms = of.due_ms
    if request.action == "schedule":
        del pending[of.offset]
        draft.fates.append(_Fate(at_ms, of.offset, due_ms, "replaced"))
        draft.answers.append(_Answer(request.offset, "replaced", of.offset, request.id))
        return False
    if request.action == "cancel":
        del pending[of.offset]
        draft.fates.append(_Fate(at_ms, of.offset, due_ms, "cancelled"))
    elif request.action == "reschedule" and request.due_ms is not None:
        draft.fates.append(_Fate(at_ms, of.offset, due_ms, "moved", (request.due_ms, request.offset)))
        if request.due_ms < OVERDUE_MS:
            del pending[of.offset]
            more = _chosen(of, request.due_ms, chance)
            draft.fates.append(_Fate(max(at_ms, request.due_ms), of.offset, due_ms, "delivered", more))
            draft.records.append(_record_of(of, request.due_ms))
    else:
        return False
    draft.fates.append(_Fate(at_ms, request.offset, 0, "applied"))
    if chance.random() < 0.5:
        word = "cancelled" if request.action == "cancel" else "rescheduled"
        draft.answers.append(_Answer(request.offset, word, of.offset, request.id))
    return True


def _end(request: _Request, draft: _Draft, chance: random.Random) -> None:
    """Ends a pending request, if it is due."""
    is_sound = request.action == "schedule" and request.due_ms is not None and request.target in _NAMES
    if not is_sound or chance.random() < 0.03:
        if chance.random() < 0.8:
            due_ms = chance.choice((0, request.due_ms or 0))
            is_applied = request.action in ("cancel", "reschedule") and chance.random() < 0.7
            at_ms = T + 1_000 + request.offset
            draft.fates.append(_Fate(at_ms, request.offset, due_ms, "applied" if is_applied else "dead"))
            if not is_applied:
                headers, reason = [*request.data, *request.control], chance.choice(_REASONS)
                draft.letters.append(_Letter(request.offset, request.key, request.value, headers, reason))
        return
    assert request.due_ms is not None
    if request.due_ms >= OVERDUE_MS and chance.random() < 0.9:
        if chance.random() < 0.05:
            draft.fates.append(_Fate(T + 10, request.offset, request.due_ms, "stored"))
        return
    at_ms = request.due_ms + chance.choice((0, 1, 500, 1_000, 3_000))
    more = _chosen(request, request.due_ms, chance)
    draft.fates.append(_Fate(max([at_ms, *more]), request.offset, request.due_ms, "delivered", more))
    draft.records.append(_record_of(request, request.due_ms))
    if chance.random() < 0.05:
        draft.answers.append(_Answer(request.offset, "delivered", None, request.id))


def _chosen(request: _Request, due_ms: int, chance: random.Random) -> tuple[int, ...]:
    """The chosen time of a request with a window."""
    return () if request.window_ms is None else (due_ms + chance.choice((0, request.window_ms)),)


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


def _spoil(draft: _Draft, chance: random.Random) -> None:
    """Drops, repeats or alters one thing, or swaps two."""
    side = chance.choice([side for side in draft.sides() if side] or [draft.fates])
    if not side:
        return
    index = chance.randrange(len(side))
    match chance.choice(("drop", "repeat", "alter", "alter", "alter", "swap")):
        case "drop":
            del side[index]
        case "repeat" if side is not draft.requests:
            side.insert(chance.randrange(len(side) + 1), side[index])
        case "alter" if side is not draft.requests:
            side[index] = _altered(side[index], chance)
        case "swap" if len(side) > 1 and side is not draft.requests:
            other = (index + 1) % len(side)
            name = "offset" if side is draft.fates else "origin"
            one, two = side[index], side[other]
            side[index], side[other] = (
                replace(one, **{name: getattr(two, name)}),
                replace(two, **{name: getattr(one, name)}),
            )
        case _:
            _invent(draft, chance)


def _invent(draft: _Draft, chance: random.Random) -> None:
    """Adds an effect that no sidecar would have written."""
    offset = chance.randrange(12)
    due_ms = T + 1_000
    match chance.randrange(4):
        case 0:
            name = chance.choice((*_FATES, "moved"))
            more = (T + 1_500, offset + 1) if name == "moved" else ()
            draft.fates.append(_Fate(T + 2_000, offset, chance.choice((due_ms, 0)), name, more))
        case 1:
            topic = chance.choice((TARGET, "copies"))
            draft.records.append(_Record(offset, topic, 0, b"k", b"v", [], due_ms, None))
        case 2:
            draft.letters.append(_Letter(offset, b"k", b"v", [], chance.choice(_REASONS)))
        case _:
            of = chance.choice((None, chance.randrange(12)))
            draft.answers.append(_Answer(offset, chance.choice(_WORDS), of, chance.choice((*_IDS, None))))


def _altered(one: Any, chance: random.Random) -> Any:
    """A copy with one field changed."""
    if isinstance(one, _Fate):
        late_ms = chance.choice((0, 500, 1_000, HOUR_MS)) + COMMIT_MS_MAX
        at_ms = one.due_ms + chance.choice((-1, late_ms, late_ms + 1, 999, OVERDUE_MS - one.due_ms))
        changes: list[dict[str, Any]] = [
            *({"offset": one.offset + chance.choice((1, 4, 20))}, {"due_ms": one.due_ms + 1}, {"due_ms": 0}),
            *({"at_ms": max(at_ms, 1)}, {"at_ms": max(at_ms, 1)}, {"name": chance.choice(_FATES), "more": ()}),
            {"due_ms": chance.choice((OVERDUE_MS, OVERDUE_MS + _LATER_MS))},
            *([{"more": (one.due_ms + chance.choice((-1, 0, 1)),)}] if one.name == "delivered" else []),
        ]
    elif isinstance(one, _Record):
        changes = [
            *({"key": chance.choice(_KEYS)}, {"value": chance.choice(_VALUES)}, {"data": one.data[:1]}),
            *({"data": [*reversed(one.data)]}, {"due_ms": one.due_ms + 1}, {"id": chance.choice((*_IDS, None))}),
            *({"topic": chance.choice(_NAMES)}, {"place": chance.randrange(4)}, {"behind": (("a", b"1"),)}),
            *({"behind": (("postdate-due", b"7"),)}, {"origin": one.origin + chance.choice((1, 4, 20))}),
            {"data": [], "behind": tuple(one.data)},
            {"behind": one.behind[1:]},
            {"behind": (*one.behind, ("postdate-retry", b"base=1s"))},
            {"behind": (("postdate-attempt", b"3"), *one.behind[1:])},
        ]
    elif isinstance(one, _Letter):
        changes = [{"key": b"another"}, {"value": None}, {"headers": []}, {"reason": chance.choice(_REASONS)}]
        changes += [{"origin": one.origin + 1}, {"place": 1}]
    else:
        changes = [{"word": chance.choice(_WORDS)}, {"of": chance.choice((None, 0, 1, 30))}]
        changes += [{"id": chance.choice((*_IDS, None))}, {"origin": one.origin + 1}]
    return replace(one, **chance.choice(changes))


def _bounds(partition: int, log_records: int, chance: random.Random) -> tuple[Any, ...]:
    """The row of a partition for `PARTITIONS`."""
    log_start, start, end, log_end, lost_ms = 0, 0, 10_000, 10_000, -1
    capped = letters_capped = answers_capped = False
    letters_lost_ms = answers_lost_ms = -1
    if chance.random() < 0.3:
        log_start = chance.choice((0, 0, 1, 4))
        start, end = max(log_start, chance.choice((0, log_start, 2, 4))), chance.choice((10_000, 3, 4, 6, 8))
        end = max(start, end)
    if chance.random() < 0.2:
        log_end = max(0, log_records - chance.randrange(3))
    if chance.random() < 0.2:
        capped, letters_capped, answers_capped = (chance.random() < 0.5 for _ in range(3))
        lost_ms, letters_lost_ms, answers_lost_ms = (chance.choice((-1, T, T + 2_000)) for _ in range(3))
    return (
        *(REQUESTS, partition, log_start, start, end, LOG, log_end, lost_ms < 0, capped, lost_ms),
        *(letters_capped, letters_lost_ms, answers_capped, answers_lost_ms, -1 if letters_capped else NEVER_MS),
        max(end, 6),
    )
