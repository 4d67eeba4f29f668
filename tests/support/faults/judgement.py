"""Checks a complete ledger against the promises: O1 to O6 and O8 of every request, and every verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from support.faults.request_ledger import FATES, Columns, Ints, RequestKind, RequestLedger
from support.faults.verdict_checks import untrue_answers

_DELIVERED, _DEAD, _APPLIED = FATES.index("delivered"), FATES.index("dead"), FATES.index("applied")
_BY_ID = [FATES.index(name) for name in ("delivered", "cancelled", "replaced")]
_SHOWN = 5
_LINES_MAX = 50


@dataclass
class SoakJudgement:
    """The figures of a run; `wrong` is empty if every promise was kept."""

    requests: int = 0
    delivered: int = 0
    dead: int = 0
    cancelled: int = 0
    replaced: int = 0
    controls: int = 0
    duplicates: int = 0
    lost: int = 0
    early: int = 0
    changed: int = 0
    ordered: int = 0
    """The number of messages whose order was checked."""
    late_ms: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def judge(ledger: RequestLedger) -> SoakJudgement:
    """Returns the figures and all violations. REQUIRES: the ledger contains all topics up to their ends."""
    found = SoakJudgement(wrong=list(ledger.wrong))
    with ledger.lock:
        for part, columns in sorted(ledger.parts.items()):
            for line in _complaints(part, columns, found):
                found.wrong.append(line)
        found.wrong += [line for line, _ in zip(untrue_answers(ledger), range(_LINES_MAX), strict=False)]
    _, late = ledger.lateness()
    if len(late):
        points = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
        found.late_ms = {name: int(np.percentile(late, point)) for name, point in points.items()}
    return found


def judge_order(ledger: RequestLedger, calm_ms: Iterable[tuple[int, int]]) -> tuple[int, list[str]]:
    """Returns the number of messages whose order was checked, and the violations.

    Messages of one request partition, target partition and key leave by due time, then by request offset. The promise
    excludes parked messages. So the check covers only messages that became due and left within one span of `calm_ms`,
    in which no target failed. A message counts as overtaken only if the process that delivered the other one knew it:
    its request lies below the `next_request` of that record. Moved messages are exempt.
    """
    judged, wrong = 0, list[str]()
    spans = list(calm_ms)
    with ledger.lock:
        for part, columns in sorted(ledger.parts.items()):
            due, ended = columns.ints("due"), columns.ints("ended_at")
            wanted = np.maximum(due, columns.ints("asked_at"))
            calm = np.zeros(len(due), dtype=np.bool_)
            for start, end in spans:
                calm |= (wanted >= start) & (ended <= end)
            chosen = calm & (columns.ints("fate") == _DELIVERED) & (columns.ints("place") >= 0)
            chosen &= columns.ints("moved") < 0
            offsets = np.flatnonzero(chosen)
            queue, place, known = (columns.ints(name)[offsets] for name in ("queue", "place", "known"))
            judged += len(offsets)
            order = np.lexsort((place, queue))
            offsets, queue, known, due = offsets[order], queue[order], known[order], due[offsets][order]
            later = (due[1:] < due[:-1]) | ((due[1:] == due[:-1]) & (offsets[1:] < offsets[:-1]))
            overtaken = (queue[1:] == queue[:-1]) & later & (offsets[1:] < known[:-1])
            wrong += [
                f"order: request {offsets[at + 1]} of partition {part}, due {due[at + 1]}, left after request "
                f"{offsets[at]}, due {due[at]}"
                for at in np.flatnonzero(overtaken)[:_SHOWN]
            ]
    return judged, wrong


def _complaints(part: int, columns: Columns, found: SoakJudgement) -> Iterator[str]:
    kind, fate, ends = columns.ints("kind"), columns.ints("fate"), columns.ints("ends")
    seen, dead = columns.ints("seen"), columns.ints("dead")
    requested, ended_well = kind > 0, fate == _DELIVERED
    last_due = np.where(columns.ints("moved") >= 0, columns.ints("moved"), columns.ints("due"))
    found.requests += int(requested.sum())
    found.delivered += int((seen > 0).sum())
    found.dead += int((dead > 0).sum())
    found.controls += int((kind == RequestKind.CONTROL).sum())
    found.cancelled += int((fate == FATES.index("cancelled")).sum())
    found.replaced += int((fate == FATES.index("replaced")).sum())
    lost = requested & (ends == 0) | ended_well & (seen == 0) | (fate == _DEAD) & (dead == 0)
    twice = (seen > 1) | (dead > 1) | (ends > 1)
    early = ended_well & (columns.ints("ended_at") < last_due)
    changed = (seen > 0) & (columns.ints("digest") != columns.ints("seen_digest"))
    found.lost += int(lost.sum())
    found.duplicates += int(twice.sum())
    found.early += int(early.sum())
    found.changed += int(changed.sum())
    yield from _some(part, "O1: delivered or dead-lettered twice, or two fates", twice)
    yield from _some(part, "O2: asked for, and no end", requested & (ends == 0))
    yield from _some(part, "O3: a record without its fate", (seen > 0) & ~ended_well | (dead > 0) & (fate != _DEAD))
    yield from _some(part, "O3: a fate without its record", lost & (ends > 0))
    yield from _some(part, "O4: not the message that was asked for", changed)
    yield from _some(part, "O4: another due time in its header", (seen > 0) & (columns.ints("seen_due") != last_due))
    yield from _some(part, "O5: early", early)
    yield from _some(part, "O8: ended, and nobody asked", ~requested & ((seen > 0) | (dead > 0) | (ends > 0)))
    for wanted, fates in (
        (RequestKind.DELIVER, [_DELIVERED]),
        (RequestKind.DEAD, [_DEAD]),
        (RequestKind.BY_ID, _BY_ID),
        (RequestKind.CONTROL, [_APPLIED]),
    ):
        other = (kind == wanted) & (ends > 0) & ~np.isin(fate, fates)
        yield from _some(part, f"O2: {wanted.name} ended otherwise", other, fate)


def _some(part: int, what: str, chosen: NDArray[np.bool_], fate: Ints | None = None) -> Iterator[str]:
    places = np.flatnonzero(chosen)
    if len(places):
        shown = [f"{at} {FATES[int(fate[at])]}" if fate is not None else str(at) for at in places[:_SHOWN]]
        yield f"{what}: {len(places)} in partition {part}, among them {', '.join(shown)}"
