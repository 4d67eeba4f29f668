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


def dead_letter_as_json(requests: str, letter: DeadLetter) -> dict[str, object]:
    """Returns the JSON object of a dead letter. `dead_letter` is its own position; a key that is not UTF-8 has its
    bytes escaped.

    `key` is the key of the message, `request_key` that of the request. They usually differ if the request has an id.
    """
    topic = OwnTopics.of(requests).dead_letters
    return {
        "origin": letter.origin.decode(),
        "dead_letter": f"{topic}/{letter.request[0]}/{letter.offset}",
        "died_ms": letter.timestamp_ms,
        "reason": letter.reason,
        "detail": letter.detail,
        "target": letter.target or None,
        "id": letter.id,
        "key": _escaped(letter.message_key),
        "request_key": _escaped(letter.key),
        "value_size_bytes": letter.value_size_bytes,
        "attempt": _escaped(letter.last(ATTEMPT)),
    }


def dead_letters_as_table(letters: Sequence[DeadLetter]) -> list[str]:
    """Returns a table with one line for each letter; empty if there are no letters."""
    if not letters:
        return []
    rows = [_COLUMNS, *(_row(letter) for letter in letters)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    return [
        "  ".join((*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1])) for row in rows
    ]


def outcome_as_json(outcome: RequeueOutcome) -> dict[str, object]:
    """Returns the JSON object of an outcome; `now` is the origin of the new request."""
    letter = outcome.letter
    fields = {"origin": letter.origin.decode(), "status": outcome.status, "now": outcome.now}
    return {
        **fields,
        "reason": letter.reason,
        "target": letter.target or None,
        "id": letter.id,
        "why": _why(outcome) or None,
    }


def outcome_as_line(outcome: RequeueOutcome) -> str:
    """Returns one line for an outcome."""
    origin = outcome.letter.origin.decode()
    match outcome.status:
        case RequeueStatus.DONE:
            return f"{origin} -> {outcome.now}"
        case RequeueStatus.BEFORE:
            return f"{origin} was already requeued as {outcome.now}"
        case RequeueStatus.CANNOT:
            return f"{origin} cannot be requeued: {_why(outcome)}"
        case RequeueStatus.WOULD:
            return f"{origin} would be requeued ({outcome.letter.reason}, {outcome.letter.target})"


def _why(outcome: RequeueOutcome) -> str:
    return f"{outcome.why}: {outcome.detail}" if outcome.detail else outcome.why


def summary(counts: Mapping[RequeueStatus, int], with_id: int, is_applied: bool) -> str:
    """Returns one sentence about all outcomes; `with_id`: the number of requeued letters with an id."""
    wanted = RequeueStatus.DONE if is_applied else RequeueStatus.WOULD
    parts = [
        f"{counts.get(wanted, 0)} {'' if is_applied else 'would be '}requeued",
        f"{counts.get(RequeueStatus.BEFORE, 0)} already requeued",
        f"{counts.get(RequeueStatus.CANNOT, 0)} not possible",
    ]
    text = ", ".join(parts)
    if with_id:
        text += f"; {with_id} with an id, which replace{'d' if is_applied else ''} pending messages with the same id"
    return text if is_applied else f"dry run: {text}; --apply does it"


def _row(letter: DeadLetter) -> tuple[str, ...]:
    target = ascii(letter.target)[1:-1] or "-"
    names = (_cell(letter.id), _cell(_escaped(letter.message_key)))
    detail = " ".join(letter.detail.split())
    return (format_instant(letter.timestamp_ms), letter.reason, letter.origin.decode(), target, *names, detail)


def _escaped(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "backslashreplace")


def _cell(text: str | None) -> str:
    return "-" if text is None else ascii(text)[1:-1][:CELL_LENGTH_MAX]
