"""Pages and counts of pending messages, from the timer indexes of the shards of this process.

An index belongs to the thread of its shard, which answers in slices (`index_queries`). A slice is one bounded scan; the
calling thread does all other work. Between two slices the shard dispatches due entries.

The entries of a page are ordered over all shards: by due time, then request offset, then shard. Parked entries are
ordered by target first. The cursor names the last returned or examined entry. The next page continues there, even if
entries have ended or arrived meanwhile. A message that is rescheduled meanwhile may appear twice or not at all.

Thread rule: any thread but a shard's.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from postdate.kafka.interface import Partition
from postdate.sidecar.http import limits
from postdate.sidecar.index.bulk import delivered_id
from postdate.sidecar.index.recurrences import PAUSED_MS, is_held, next_occurrences, schedule_of
from postdate.wheel.entry import NO_STRIPPED, PENDING, Entry, Spread, decode_entry, stripped_of
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import DUE_MS_MAX, ENTRY_KEY_SIZE_BYTES, entry_key, split_key
from postdate.wire.headers import ATTEMPT, ID, PREFIX, SCHEDULE, attempt_of, split_redelivery
from postdate.wire.origins import format_origin
from postdate.wire.schedules.extras import Extra
from postdate.wire.schedules.words import describe

T = TypeVar("T")

WAITING, PARKED, ENDING = "waiting", "parked", "ending"
"""The states of an entry: it waits for its due time, is parked, or ends with the next transaction."""


class QueryableShard(Protocol):
    """A shard that answers queries about its index."""

    @property
    def part(self) -> Partition:
        """The shard's partition."""

    def query(self, query: Callable[[TimerIndex], T]) -> T:
        """Runs the query on the shard's thread, and returns its result. Raises Unanswered if the shard cannot answer
        now, and TimerIndexError if its index fails."""


class BadQuery(ValueError):
    """The query is invalid; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class PendingFilters:
    """Selects entries: due in [from_ms, until_ms), for one of `targets` (empty: any), in `state` (WAITING or PARKED),
    with an id that begins with `id_prefix`, and with the message key `key` (None: any). `recurring`: only recurring
    schedules."""

    from_ms: int = 1
    until_ms: int = DUE_MS_MAX
    targets: frozenset[str] = frozenset()
    state: str = WAITING
    recurring: bool = False
    id_prefix: bytes = b""
    key: bytes | None = None

    @property
    def needs_entries(self) -> bool:
        """True if the index key of an entry does not show whether the entry is selected."""
        return self.is_sparse or self.state == PARKED

    @property
    def is_sparse(self) -> bool:
        """True if the filters may select only a few of the examined entries."""
        return bool(self.targets) or self.recurring or bool(self.id_prefix) or self.key is not None

    def select(self, key: bytes, entry: Entry) -> bool:
        """True if the filters select an entry."""
        due_ms = split_key(key)[0]
        if not self.from_ms <= due_ms < self.until_ms or (self.targets and entry.target not in self.targets):
            return False
        if self.key is not None and entry.key != self.key:
            return False
        if self.id_prefix and not delivered_id(entry).startswith(self.id_prefix):
            return False
        return entry.kind in PENDING and (entry.next is not None or not self.recurring)


class PageCursor(NamedTuple):
    """A position between two entries: directly after this index key of this shard."""

    key: bytes
    part: Partition

    def encode(self) -> str:
        """Returns the cursor of a page that ends here."""
        text = json.dumps([self.key.hex(), self.part.topic, self.part.index])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, cursor: str) -> PageCursor:
        """Decodes a cursor. Raises BadQuery if it is malformed."""
        try:
            text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            key, topic, index = json.loads(text)
            return cls(bytes.fromhex(key), Partition(str(topic), int(index)))
        except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
            raise BadQuery("cursor is not the cursor of a page") from error


Found = tuple[bytes, Partition, Entry]


class Page(NamedTuple):
    """Entries in order, and the cursor of the next page; None if there are no more."""

    entries: list[Found]
    cursor: str | None


def page(
    shards: list[QueryableShard], filters: PendingFilters, after: PageCursor | None, limit: int, keep_payload: bool
) -> Page:
    """Returns up to `limit` entries after `after`. A page may be short or empty and still have a cursor, since the scan
    of a shard ends after PAGE_VISITED_MAX entries, or after a bounded size of payloads. `keep_payload`: the entries
    keep key, value and headers. Raises Unanswered. O(entries examined)."""
    found: list[Found] = []
    payload_max = limits.PAGE_PAYLOAD_BYTES_MAX // max(len(shards), 1)
    # The smallest last-examined key of the shards whose scan ended early; entries beyond it may be missing.
    bound: tuple[bytes, Partition] | None = None
    for shard in shards:
        start = _start(filters, after, shard.part)
        matches, reached = _matches(shard, filters, start, limit, payload_max if keep_payload else -1)
        found += matches
        if reached is not None and (bound is None or (reached, shard.part) < bound):
            bound = (reached, shard.part)
    found.sort(key=lambda item: item[:2])
    shown = [item for item in found if bound is None or item[:2] <= bound][:limit]
    if len(shown) < len(found) and len(shown) == limit:
        return Page(shown, PageCursor(*shown[-1][:2]).encode())
    return Page(shown, None if bound is None else PageCursor(*bound).encode())


def count(shards: list[QueryableShard], filters: PendingFilters) -> tuple[int, bool]:
    """Returns the number of selected entries, and whether it is exact: a count of many entries stops at a bound. Raises
    Unanswered."""
    total, exact = 0, True
    for shard in shards:
        if filters.needs_entries:
            visited = 0
            for keys, entries in _slices(shard, filters, _first(filters)):
                total += sum(map(filters.select, keys, entries))
                visited += len(keys)
                if visited >= limits.COUNTED_ENTRIES_MAX:
                    exact = False
                    break
        else:
            counted, whole = _count_keys(shard, filters)
            total += counted
            exact &= whole
    return total, exact


def find_id(shard: QueryableShard, caller_id: bytes) -> tuple[bytes, Entry] | None:
    """Returns the pending entry with an id, and its key; None if there is none. Raises Unanswered."""

    def find(index: TimerIndex) -> tuple[bytes, bytes | None] | None:
        key = index.timer_log.id_key(caller_id)
        return None if key is None else _read(index, split_key(key)[1], key)

    return _decoded(shard.query(find))


def find_offset(shard: QueryableShard, offset: int) -> tuple[bytes, Entry] | None:
    """Returns the entry of the request at an offset, and its key; None if it is not pending. Raises Unanswered."""

    def find(index: TimerIndex) -> tuple[bytes, bytes | None] | None:
        key = index.timer_log.find(offset)
        return None if key is None else _read(index, offset, key)

    return _decoded(shard.query(find))


def as_json(part: Partition, key: bytes, entry: Entry, now_ms: int, payload: bool) -> dict[str, Any]:
    """Returns the JSON object of an entry. With `payload` also key, headers and value, in base64."""
    shown: dict[str, Any] = {
        "origin": format_origin(part.topic, part.index, split_key(key)[1]).decode(),
        "state": _state(key, entry),
        "target": entry.target,
        "due_ms": entry.requested_due,
        "first_due_ms": entry.first_due,
        "accepted_ms": entry.accepted_ms if entry.accepted_ms >= 0 else None,
        "id": delivered_id(entry).decode("utf-8", "backslashreplace") or None,
        "partition": entry.partition if entry.partition >= 0 else None,
        "grace_ms": entry.grace_ms if entry.grace_ms >= 0 else None,
        "stored": entry.stored,
        "attempt": attempt_of(entry.headers),
    }
    if entry.window is not None:
        shown |= {"window_ms": entry.window.length_ms, "chosen_ms": entry.due}
        shown["spread"] = "drawn" if entry.window.spread == Spread.DRAWN else "even"
    if entry.series_ms >= 0:
        shown["series_ms"] = entry.series_ms
    if entry.next is not None:
        is_paused = is_held(entry.next)
        leaves = None if entry.due == PAUSED_MS else entry.due
        shown |= {"occurrence": entry.next.number, "chosen_ms": leaves}
        shown["extras"] = [_extra(part, extra) for extra in entry.next.extras]
        shown |= {"paused": is_paused, "schedule": _schedule(entry), "words": describe(schedule_of(entry.stripped))}
        upcoming = next_occurrences(entry, limits.OCCURRENCES_SHOWN, now_ms)
        shown["next_ms"] = [occurrence.nominal_ms for occurrence in upcoming]
    if payload:
        shown["payload"] = {
            "key": _base64(entry.key),
            "value": _base64(entry.value),
            "headers": [[name, _base64(value)] for name, value in entry.headers],
        }
    return shown


def _extra(part: Partition, extra: Extra) -> dict[str, Any]:
    """Returns the pending extra deliveries of one control."""
    control, number, due_ms, end_ms, _ = extra
    by = format_origin(part.topic, part.index, control).decode()
    return {"by": by, "number": number, "due_ms": due_ms, "end_ms": end_ms}


def _schedule(entry: Entry) -> dict[str, str]:
    """Returns the headers that describe the schedule of an entry, by their names without the prefix."""
    headers = {name: value or b"" for _, name, value in stripped_of(entry) if name in SCHEDULE}
    return {name.removeprefix(PREFIX): value.decode("utf-8", "backslashreplace") for name, value in headers.items()}


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _state(key: bytes, entry: Entry) -> str:
    if len(key) > ENTRY_KEY_SIZE_BYTES:
        return PARKED
    return WAITING if entry.kind in PENDING else ENDING


def slices_of(shard: QueryableShard, filters: PendingFilters) -> Iterator[tuple[list[bytes], list[Entry]]]:
    """Returns the keys and entries of a shard, in slices: all parked entries, or the waiting ones within the times of
    the filters. Raises Unanswered."""
    return _slices(shard, filters, _first(filters))


# ---- slices ----------------------------------------------------------------------------------------------------------


def _first(filters: PendingFilters) -> bytes:
    """Returns the inclusive start of a scan with these filters."""
    return b"" if filters.state == PARKED else entry_key(max(filters.from_ms, 1), 0)


def _start(filters: PendingFilters, after: PageCursor | None, part: Partition) -> bytes:
    """Returns the inclusive start of the scan of one shard after a cursor."""
    first = _first(filters)
    if after is None:
        return first
    return max(first, after.key + b"\0" if part <= after.part else after.key)


def _slices(
    shard: QueryableShard, filters: PendingFilters, start: bytes, slice_max: int = limits.SLICE_ENTRIES_MAX
) -> Iterator[tuple[list[bytes], list[Entry]]]:
    """Yields keys and entries from `start` on, in slices, until there are no more. A slice has at most `slice_max`
    entries, or SLICE_ENTRIES_MAX if the filters are sparse."""
    most = limits.SLICE_ENTRIES_MAX if filters.is_sparse else min(slice_max, limits.SLICE_ENTRIES_MAX)
    before = entry_key(min(filters.until_ms, DUE_MS_MAX), 0)

    def scan(index: TimerIndex) -> tuple[list[bytes], list[bytes]]:
        if filters.state == PARKED:
            return _scan_parked(index, start, most)
        first = _before(max(start, index.messages_from))
        return index.timer_log.scan(first, before, most, limits.SLICE_SIZE_BYTES_MAX)

    while True:
        keys, values = shard.query(scan)
        if not keys:
            return
        yield keys, [decode_entry(value) for value in values]
        start = keys[-1] + b"\0"


def _scan_parked(index: TimerIndex, start: bytes, most: int) -> tuple[list[bytes], list[bytes]]:
    keys = index.timer_log.scan_parked_keys(start, most)
    values: list[bytes] = []
    size_bytes = 0
    for key in keys:
        values.append(index.timer_log.parked(key) or b"")
        size_bytes += len(values[-1])
        if size_bytes >= limits.SLICE_SIZE_BYTES_MAX:
            break
    return keys[: len(values)], values


def _before(start: bytes) -> bytes:
    """Returns the exclusive lower bound of a scan that includes `start`, which may be a key with a trailing 0 byte."""
    if len(start) > ENTRY_KEY_SIZE_BYTES:
        return start[:ENTRY_KEY_SIZE_BYTES]
    return (int.from_bytes(start, "big") - 1).to_bytes(ENTRY_KEY_SIZE_BYTES, "big")


def _matches(
    shard: QueryableShard, filters: PendingFilters, start: bytes, limit: int, payload_max: int
) -> tuple[list[Found], bytes | None]:
    """Returns up to `limit` selected entries of one shard, and the last examined key if more entries may follow.

    `payload_max`: the scan also ends after this many bytes of payload; -1: the entries have no payload.
    """
    matches: list[Found] = []
    visited = payload_bytes = 0
    for keys, entries in _slices(shard, filters, start, limit):
        for key, entry in zip(keys, entries, strict=True):
            if filters.select(key, entry):
                payload_bytes += _payload_size_bytes(entry) if payload_max >= 0 else 0
                matches.append((key, shard.part, entry if payload_max >= 0 else _without_payload(entry)))
                if len(matches) >= limit or payload_bytes > max(payload_max, 0):
                    return matches, key
        visited += len(keys)
        if visited >= limits.PAGE_VISITED_MAX:
            return matches, keys[-1]
    return matches, None


def _payload_size_bytes(entry: Entry) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in entry.headers)
    return len(entry.key or b"") + len(entry.value or b"") + headers


def _without_payload(entry: Entry) -> Entry:
    """Returns the entry without key, value and headers, except for the id and the attempt number of a return."""
    attempt = [header for header in split_redelivery(entry.headers)[1] if header[0] in (ID, ATTEMPT)]
    # The schedule of an entry is in `stripped`.
    stripped = NO_STRIPPED if entry.next is None else entry.stripped
    return msgspec.structs.replace(entry, key=None, value=None, headers=attempt, own_key=(), stripped=stripped)


def _count_keys(shard: QueryableShard, filters: PendingFilters) -> tuple[int, bool]:
    start, before = _first(filters), entry_key(min(filters.until_ms, DUE_MS_MAX), 0)
    total = 0

    def scan(index: TimerIndex) -> list[bytes]:
        return index.timer_log.scan_keys(max(start, index.messages_from), before, limits.SLICE_KEYS_MAX)

    while total < limits.COUNTED_KEYS_MAX:
        keys = shard.query(scan)
        total += len(keys)
        if len(keys) < limits.SLICE_KEYS_MAX:
            return total, True
        start = keys[-1] + b"\0"
    return total, False


def _read(index: TimerIndex, offset: int, key: bytes) -> tuple[bytes, bytes | None]:
    """Returns the present key and the encoded entry of a request. `key` may be out of date: the timer log's table of
    ids keeps the key from before the entry was parked."""
    place = index.timer_log.find(offset) or key
    return place, index.timer_log.entry(place) if len(place) == ENTRY_KEY_SIZE_BYTES else index.timer_log.parked(place)


def _decoded(found: tuple[bytes, bytes | None] | None) -> tuple[bytes, Entry] | None:
    if found is None or found[1] is None:
        return None
    return found[0], decode_entry(found[1])
