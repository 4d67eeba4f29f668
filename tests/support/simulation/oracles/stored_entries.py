"""The oracle of STORE: it contains exactly the stored entries that have not ended, each in its present state.

The topic is read as any reader finds it, compacted or not, and compared with the requests and the dispatch log. Pending
requests that are no longer in the request topic must be in STORE, since no other topic has them (invariant I5).

The records are decoded here by their documented format, not by the code that writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from postdate.kafka.interface import Headers, Record
from support.simulation.requests.traffic import REQUESTS, SimulatedRequest

if TYPE_CHECKING:
    from support.kafka_simulator import SimBroker
    from support.simulation.oracles.interpretations import Readings
    from support.simulation.oracles.outcomes import JudgedOutcome

STORE = f"{REQUESTS}.store"


def held(records: Iterable[Record]) -> dict[int, Record]:
    """Returns the content of a store topic: request offset -> the last record, if it is not a tombstone."""
    last = {int(record.key): record for record in records if record.key and record.key.isdigit()}
    return {offset: record for offset, record in last.items() if record.value is not None}


def judge_stores(outcome: JudgedOutcome, broker: SimBroker, partitions: int) -> None:
    """Checks that STORE contains no ended request; adds violations to `outcome.wrong`."""
    for index in range(partitions):
        records = broker.topics[STORE].logs[index].committed()
        outcome.reached["tombstone written"] += sum(record.value is None for record in records)
        for offset in held(records):
            if fate := outcome.final((index, offset)):
                outcome.wrong.append(f"STORE: {index}/{offset} is kept, though it is {fate}")


def differences(request: SimulatedRequest, moved_ms: int, readings: Readings, record: Record) -> list[str]:
    """Returns an error if a record in STORE matches no interpretation of its request. `moved_ms`: the due time that a
    control has set; -1 if no control has."""
    if request.returned is not None and request.returned.name:
        return []  # the due time is known only at the end
    headers: Headers = record.headers or []
    by_name = dict(headers)
    meaning = json.loads(by_name["postdate-stored"] or b"")
    if request.latest_ms:  # as above, but the record contains the start of the series
        is_kept = meaning["v"] == 2 and meaning.get("series", request.appended_ms + 1) <= request.appended_ms
        return [] if is_kept else [f"STORE: the start of the series of {request.offset} is not kept: {meaning}"]
    first_due_ms = int(by_name["postdate-due"] or b"")
    found = (
        request.action,
        meaning["target"],
        by_name["postdate-record-key"] if meaning["key"] < 0 else headers[meaning["key"]][1],
        None if meaning["null"] else record.value,
        [pair for at, pair in enumerate(headers[: meaning["headers"]]) if at not in meaning["control"]],
        by_name["postdate-record-key"],
        first_due_ms,
        int(by_name.get("postdate-moved") or first_due_ms),
        meaning["id"].encode(),
        _window_kept(meaning, int(by_name.get("postdate-moved") or first_due_ms)),
    )
    expected = [
        (
            "schedule",
            each.target,
            request.target_key,
            request.value,
            [*each.headers, *each.tail],
            request.key,
            each.due_ms,
            moved_ms if moved_ms >= 0 else each.due_ms,
            request.id,
            request.window_ms,
        )
        for each in readings.of(request)
        if each.accepts
    ]
    return [] if found in expected else [f"STORE: asked {expected}, kept {found}"]


def _window_kept(meaning: dict[str, Any], due_ms: int) -> int:
    """Returns the length of the window in a record, 0 for none; -1 if its chosen time lies outside the window."""
    window_ms, chosen_ms = meaning.get("window", (0, due_ms))
    is_right = due_ms <= chosen_ms <= due_ms + window_ms and (meaning["v"] == 2) == ("window" in meaning)
    return int(window_ms) if is_right else -1
