"""Formats dead letters, and the outcomes of requeueing them, as text and as JSON objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postdate.sidecar.dead_letters.reading import DeadLetter
from postdate.sidecar.dead_letters.requeue import RequeueOutcome, RequeueStatus
from postdate.wire.headers import ATTEMPT
from postdate.wire.topics import OwnTopics
from postdate.wire.values.instants import format_instant

CELL_LENGTH_MAX = 32
_COLUMNS = ("died", "reason", "origin", "target", "id", "key", "detail")


def dead_letter_as_json(requests: str, dead_letter: DeadLetter) -> dict[str, object]:
    """Returns the JSON object of a dead letter. The field `dead_letter` is the position of the record on the
    dead-letter topic. In keys, bytes that are not UTF-8 are escaped.

    `key` is the key of the message, and `request_key` is the key of the request. They usually differ if the request has
    an id.
    """
    topic = OwnTopics.of(requests).dead_letters
    return {
        "origin": dead_letter.origin.decode(),
        "dead_letter": f"{topic}/{dead_letter.request[0]}/{dead_letter.offset}",
        "died_ms": dead_letter.timestamp_ms,
        "reason": dead_letter.reason,
        "detail": dead_letter.detail,
        "target": dead_letter.target or None,
        "id": dead_letter.id,
        "key": _escaped(dead_letter.message_key),
        "request_key": _escaped(dead_letter.key),
        "value_size_bytes": dead_letter.value_size_bytes,
        "attempt": _escaped(dead_letter.last(ATTEMPT)),
    }


def dead_letters_as_table(dead_letters: Sequence[DeadLetter]) -> list[str]:
    """Returns the lines of a table with one row for each dead letter; empty if there are no dead letters."""
    if not dead_letters:
        return []
    rows = [_COLUMNS, *(_row(dead_letter) for dead_letter in dead_letters)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    return [
        "  ".join((*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1])) for row in rows
    ]


def outcome_as_json(outcome: RequeueOutcome) -> dict[str, object]:
    """Returns the JSON object of an outcome; `now` is the origin of the new request."""
    dead_letter = outcome.dead_letter
    fields = {"origin": dead_letter.origin.decode(), "status": outcome.status, "now": outcome.now}
    return {
        **fields,
        "reason": dead_letter.reason,
        "target": dead_letter.target or None,
        "id": dead_letter.id,
        "why": _why(outcome) or None,
    }


def outcome_as_line(outcome: RequeueOutcome) -> str:
    """Returns an outcome as one line of text."""
    origin = outcome.dead_letter.origin.decode()
    match outcome.status:
        case RequeueStatus.DONE:
            return f"{origin} -> {outcome.now}"
        case RequeueStatus.BEFORE:
            return f"{origin} was already requeued as {outcome.now}"
        case RequeueStatus.CANNOT:
            return f"{origin} cannot be requeued: {_why(outcome)}"
        case RequeueStatus.WOULD:
            return f"{origin} would be requeued ({outcome.dead_letter.reason}, {outcome.dead_letter.target})"


def _why(outcome: RequeueOutcome) -> str:
    return f"{outcome.why}: {outcome.detail}" if outcome.detail else outcome.why


def summary(counts: Mapping[RequeueStatus, int], with_id: int, is_applied: bool) -> str:
    """Returns one line about all outcomes. `with_id`: the number of dead letters with an id among those that were, or
    would be, requeued."""
    requeued = RequeueStatus.DONE if is_applied else RequeueStatus.WOULD
    parts = [
        f"{counts.get(requeued, 0)} {'' if is_applied else 'would be '}requeued",
        f"{counts.get(RequeueStatus.BEFORE, 0)} already requeued",
        f"{counts.get(RequeueStatus.CANNOT, 0)} not possible",
    ]
    text = ", ".join(parts)
    if with_id:
        text += f"; {with_id} with an id, which replace{'d' if is_applied else ''} pending messages with the same id"
    return text if is_applied else f"dry run: {text}; --apply does it"


def _row(dead_letter: DeadLetter) -> tuple[str, ...]:
    target = ascii(dead_letter.target)[1:-1] or "-"
    names = (_cell(dead_letter.id), _cell(_escaped(dead_letter.message_key)))
    detail = " ".join(dead_letter.detail.split())
    return (
        format_instant(dead_letter.timestamp_ms),
        dead_letter.reason,
        dead_letter.origin.decode(),
        target,
        *names,
        detail,
    )


def _escaped(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "backslashreplace")


def _cell(text: str | None) -> str:
    return "-" if text is None else ascii(text)[1:-1][:CELL_LENGTH_MAX]
