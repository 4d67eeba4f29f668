"""Merges the answers of several processes, each for the shards that it holds.

While a partition is handed over, two processes may answer for one shard, or none. The merged answer contains each entry
once, counts each shard once, and lists the shards without an answer. All pages have the order of `pending`, so every
process understands the cursor of a merged page.

Thread rule: pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from postdate.kafka.interface import Partition
from postdate.sidecar.http.queries.api_client import JsonObject
from postdate.sidecar.http.queries.pending import PARKED, PageCursor
from postdate.sidecar.index.recurrences import PAUSED_MS
from postdate.wheel.keys import entry_key, parked_key
from postdate.wire.origins import parse_origin


def merged_page(answers: Sequence[JsonObject], limit: int) -> JsonObject:
    """Returns the merged page of the pages of several processes, which begin at the same cursor: at most `limit`
    entries, and the cursor of the next page."""
    places = {_place(entry): entry for answer in answers for entry in answer["entries"]}
    cursors = [PageCursor.decode(answer["cursor"]) for answer in answers if answer["cursor"] is not None]
    bound = min(cursors, default=None)  # the least end of a page: beyond it, entries may be missing
    shown = sorted(place for place in places if bound is None or place <= bound)
    if len(shown) > limit:
        shown = shown[:limit]
        bound = shown[-1]
    cursor = None if bound is None else bound.encode()
    return {"entries": [places[place] for place in shown], "cursor": cursor, "shards": shards_of(answers)}


def merged_named(answers: Sequence[JsonObject]) -> JsonObject:
    """Returns all pending entries with one id or origin. They are few, so there is no limit."""
    places = {_place(entry): entry for answer in answers for entry in answer["entries"]}
    return {"entries": [places[place] for place in sorted(places)], "cursor": None, "shards": shards_of(answers)}


def merged_count(answers: Sequence[JsonObject]) -> JsonObject:
    """Returns the sum of the counts of the shards of several processes."""
    shards = shards_of(answers)
    total: JsonObject = {
        "count": sum(shard["count"] for shard in shards),
        "exact": all(shard["exact"] for shard in shards),
    }
    if all("parked" in shard for shard in shards):
        total["parked"] = sum(shard["parked"] for shard in shards)
    return {**total, "shards": shards}


def merged_selected(answers: Sequence[JsonObject]) -> JsonObject:
    """Returns the numbers of selected messages in the shards of several processes, by target."""
    shards = shards_of(answers)
    targets: Counter[str] = Counter()
    for shard in shards:
        targets.update(shard["targets"])
    exact = all(shard["exact"] for shard in shards)
    return {"count": targets.total(), "exact": exact, "targets": dict(sorted(targets.items())), "shards": shards}


def shards_of(answers: Iterable[JsonObject]) -> list[JsonObject]:
    """Returns the first item of each shard in the answers, in order of topic and partition."""
    shards: dict[Partition, JsonObject] = {}
    for answer in answers:
        for shard in answer["shards"]:
            shards.setdefault(part_of(shard), shard)
    return [shards[part] for part in sorted(shards)]


def unanswered_of(answers: Sequence[JsonObject]) -> dict[Partition, JsonObject]:
    """Returns the shards that did not answer, except for shards for which another process has answered."""
    answered = {part_of(shard) for shard in shards_of(answers)}
    return {part: item for part, item in _unanswered(answers) if part not in answered}


def part_of(shard: JsonObject) -> Partition:
    """Returns the shard that an item of an answer names. Raises TypeError or KeyError if the item names none."""
    topic, index = shard["topic"], shard["partition"]
    if not isinstance(topic, str) or not isinstance(index, int):
        raise TypeError("a shard is named by a text and a number")
    return Partition(topic, index)


def _unanswered(answers: Iterable[JsonObject]) -> Iterator[tuple[Partition, JsonObject]]:
    for answer in answers:
        for item in answer["not_asked"]:
            yield part_of(item), item


def _place(entry: JsonObject) -> PageCursor:
    topic, index, offset = parse_origin(entry["origin"].encode())
    due_ms = entry["chosen_ms"] if "chosen_ms" in entry else entry["due_ms"]
    if due_ms is None:
        due_ms = PAUSED_MS
    parked = entry["state"] == PARKED
    key = parked_key(entry["target"], due_ms, offset) if parked else entry_key(due_ms, offset)
    return PageCursor(key, Partition(topic, index))
