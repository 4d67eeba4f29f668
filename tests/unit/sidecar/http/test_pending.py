"""Goal: pages of pending messages contain each selected entry once and in order, for every page size. Counts agree with
the pages.

Method: several real timer indexes, as the shards of one process, are filled at random. The pages are compared with the
sorted list of the inserted entries.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

import msgspec
import pytest
from starlette.datastructures import QueryParams

from postdate.kafka.interface import Partition
from postdate.sidecar.http import limits
from postdate.sidecar.http.api import local
from postdate.sidecar.http.api.bulk import count_selected
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries import pending, queries
from postdate.sidecar.http.queries.pending import PARKED, BadQuery, PageCursor, PendingFilters, QueryableShard, as_json
from postdate.sidecar.states import State
from postdate.wheel.entry import Entry, Kind, Next, encode_entry, pack_stripped
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key, parked_key, split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.headers import ATTEMPT, ID

T = TypeVar("T")
SHARDS, ENTRIES = 3, 80
Put = tuple[int, int, int, str]
"""(due, offset, shard, target)"""


class IndexShard:
    """A shard that answers immediately."""

    def __init__(self, part: Partition, index: TimerIndex) -> None:
        self.part = part
        self.index = index
        self.slices = 0

    def query(self, query: Callable[[TimerIndex], T]) -> T:
        self.slices += 1
        return query(self.index)


def entry(due_ms: int, target: str, kind: Kind = Kind.DELIVER, caller_id: bytes = b"") -> Entry:
    return Entry(kind, False, due_ms, due_ms, target, b"k", b"v" * 50, [("h", b"x")], id=caller_id, accepted_ms=5)


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[list[IndexShard]]:
    opened = []
    for number in range(SHARDS):
        identity = Identity("cluster", "requests", "log", number)
        index = TimerIndex.open(tmp_path / str(number), identity, IndexOptions(), 1_000)
        opened.append(IndexShard(Partition("requests", number), index))
    yield opened
    for shard in opened:
        shard.index.close()


def holder_of(shard: IndexShard, state: State = State.RUNNING) -> ProcessState:
    """Returns a process that holds only this shard."""
    answers = SimpleNamespace(query=lambda query, *_: query(shard.index))
    held = SimpleNamespace(state=state, ctx=SimpleNamespace(index_queries=answers))
    thread = SimpleNamespace(shard=held, inbox=SimpleNamespace(wake=None))
    return cast(ProcessState, SimpleNamespace(shards=lambda: [(shard.part, thread)]))


def fill(shards: list[IndexShard], seed: int = 1) -> list[Put]:
    """Inserts entries with few different due times, so that many due times are equal across shards. Returns the entries
    in the order of pages."""
    chance = random.Random(seed)
    put: list[Put] = []
    for number, shard in enumerate(shards):
        changes = EntryChanges()
        for offset in range(ENTRIES):
            due_ms, target = 10_000 + chance.randrange(40), chance.choice(["orders", "mails"])
            changes.insert(entry_key(due_ms, offset), encode_entry(entry(due_ms, target)))
            put.append((due_ms, offset, number, target))
        changes.insert(entry_key(0, ENTRIES), encode_entry(entry(0, "", Kind.APPLIED)))
        changes.next_request = ENTRIES + 1
        shard.index.write(changes)
    return sorted(put)


def as_put(found: pending.Found) -> Put:
    key, part, shown = found
    return shown.due, split_key(key)[1], part.index, shown.target


def walk(shards: list[IndexShard], filters: PendingFilters, limit: int) -> list[Put]:
    """Returns the entries of all pages, one page after the other."""
    seen: list[Put] = []
    after: PageCursor | None = None
    queryable: list[QueryableShard] = list(shards)
    for _ in range(10_000):
        page = pending.page(queryable, filters, after, limit, keep_payload=False)
        assert len(page.entries) <= limit
        seen += map(as_put, page.entries)
        if page.cursor is None:
            return seen
        after = PageCursor.decode(page.cursor)
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("limit", [1, 7, 100, 1_000])
def test_the_pages_contain_each_entry_once_and_in_order(shards: list[IndexShard], limit: int) -> None:
    put = fill(shards)
    assert walk(shards, PendingFilters(), limit) == put


@pytest.mark.parametrize("looks_max", [10, 64, 100_000])
def test_filters_find_all_matches_even_if_a_page_examines_few_entries(
    shards: list[IndexShard], monkeypatch: pytest.MonkeyPatch, looks_max: int
) -> None:
    monkeypatch.setattr(limits, "PAGE_VISITED_MAX", looks_max)
    monkeypatch.setattr(limits, "SLICE_ENTRIES_MAX", 10)
    put = fill(shards)
    filters = PendingFilters(10_005, 10_030, frozenset({"mails"}))
    expected = [entry for entry in put if 10_005 <= entry[0] < 10_030 and entry[3] == "mails"]
    assert expected
    assert walk(shards, filters, 13) == expected
    assert pending.count(list(shards), filters) == (len(expected), True)


def test_a_cursor_stays_valid_while_entries_end(shards: list[IndexShard]) -> None:
    put = fill(shards)
    first = pending.page(list(shards), PendingFilters(), None, 50, keep_payload=False)
    for shard in shards:  # all entries before 10,003 are delivered
        keys, values = shard.index.scan_due(10_003, 1_000)
        changes = EntryChanges()
        for key, value in zip(keys, values, strict=True):
            changes.delete(key, len(value))
        shard.index.write(changes)
    assert first.cursor is not None
    rest = pending.page(list(shards), PendingFilters(), PageCursor.decode(first.cursor), 1_000, keep_payload=False)
    expected = [each for each in put[50:] if each[0] >= 10_003]
    assert list(map(as_put, rest.entries)) == expected


def test_counting_keys_stops_at_its_bound_and_is_marked_inexact(
    shards: list[IndexShard], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = fill(shards)
    window = PendingFilters(10_010, 10_020)
    expected = sum(10_010 <= due_ms < 10_020 for due_ms, *_ in put)
    monkeypatch.setattr(limits, "SLICE_KEYS_MAX", 8)
    assert pending.count(list(shards), window) == (expected, True)
    monkeypatch.setattr(limits, "COUNTED_KEYS_MAX", 16)
    counted, exact = pending.count(list(shards), window)
    assert not exact
    assert 16 * SHARDS <= counted < expected


def test_a_page_of_one_entry_takes_one_slice_of_each_shard(shards: list[IndexShard]) -> None:
    fill(shards)
    for shard in shards:
        shard.slices = 0
    pending.page(list(shards), PendingFilters(), None, 1, keep_payload=False)
    assert [shard.slices for shard in shards] == [1] * SHARDS


def test_parked_entries_are_listed_separately_in_the_order_of_targets(shards: list[IndexShard]) -> None:
    shard = shards[0]
    changes = EntryChanges()
    for offset, target in enumerate(["b", "a", "b"]):
        key = parked_key(target, 100 - offset, offset)
        changes.insert_parked(key, encode_entry(entry(100 - offset, target)))
        changes.places[offset] = key
    changes.ids[b"its-id"] = entry_key(98, 2)  # the entry's key before it was parked
    changes.next_request = 3
    shard.index.write(changes)
    seen = walk(shards, PendingFilters(state=PARKED), 2)
    assert [(target, due_ms) for due_ms, _, _, target in seen] == [("a", 99), ("b", 98), ("b", 100)]
    assert pending.count(list(shards), PendingFilters(state=PARKED, targets=frozenset({"b"}))) == (2, True)
    for found in (pending.find_offset(shard, 2), pending.find_id(shard, b"its-id")):
        assert found is not None
        shown = pending.as_json(shard.part, *found, now_ms=0, payload=False)
        assert (shown["state"], shown["origin"]) == ("parked", "requests/0/2")


def test_an_entry_is_found_by_id_and_by_offset_and_shown_without_its_payload(shards: list[IndexShard]) -> None:
    shard = shards[1]
    changes = EntryChanges()
    key = entry_key(500, 3)
    changes.insert(key, encode_entry(entry(500, "orders", caller_id=b"order-9")))
    changes.ids[b"order-9"] = key
    changes.firsts.append((3, (500).to_bytes(8, "little")))
    changes.next_request = 4
    shard.index.write(changes)
    by_id, by_offset = pending.find_id(shard, b"order-9"), pending.find_offset(shard, 3)
    assert by_id is not None
    assert by_id == by_offset
    shown = pending.as_json(shard.part, *by_id, now_ms=0, payload=False)
    assert shown["origin"] == "requests/1/3"
    assert (shown["id"], shown["due_ms"], shown["state"]) == ("order-9", 500, "waiting")
    assert "payload" not in shown
    assert pending.as_json(shard.part, *by_id, now_ms=0, payload=True)["payload"]["key"] == "aw=="
    assert pending.find_id(shard, b"order-8") is None
    assert pending.find_offset(shard, 2) is None


def test_a_page_without_payload_shows_the_attempt_of_a_return(shards: list[IndexShard]) -> None:
    returned: list[tuple[str, bytes | None]] = [
        ("h", b"x"),
        ("postdate-attempt", b"2"),
        ("postdate-first-origin", b"requests/1/0"),
    ]
    changes = EntryChanges()
    again = Entry(Kind.DELIVER, False, 500, 500, "orders", b"k", b"v", returned)
    changes.insert(entry_key(500, 3), encode_entry(again))
    changes.next_request = 4
    shards[1].index.write(changes)
    (found,) = pending.page(list(shards), PendingFilters(), None, 10, keep_payload=False).entries
    key, part, shown = found
    assert pending.as_json(part, key, shown, now_ms=0, payload=False)["attempt"] == 2
    assert (shown.key, shown.value, shown.headers) == (None, None, [("postdate-attempt", b"2")])


@pytest.mark.parametrize("cursor", ["", "x", "bm90IGpzb24", "WzEsMl0", "W251bGwsIDEsIDJd", "ü"])
def test_a_malformed_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(BadQuery, match="cursor"):
        PageCursor.decode(cursor)


def test_a_count_by_target_reads_a_bounded_number_of_entries_in_order_of_due_time(
    shards: list[IndexShard], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = [entry for entry in fill(shards) if entry[2] == 0]
    monkeypatch.setattr(limits, "SLICE_ENTRIES_MAX", 10)
    monkeypatch.setattr(limits, "COUNTED_ENTRIES_MAX", 30)
    filters = PendingFilters(targets=frozenset({"orders"}))
    assert pending.count([shards[0]], filters) == (sum(target == "orders" for *_, target in put[:30]), False)
    assert shards[0].slices == 3


@pytest.mark.parametrize(("state", "exact"), [(State.CATCHING_UP, False), (State.RUNNING, True)])
@pytest.mark.parametrize("query", ["", "target=orders", "until=10020"])
def test_a_count_is_a_lower_bound_until_its_shard_has_read_all_requests(
    shards: list[IndexShard], state: State, exact: bool, query: str
) -> None:
    fill(shards)
    answer = local.count(holder_of(shards[0], state), QueryParams(query))
    assert (answer["exact"], answer["shards"][0]["exact"]) == (exact, exact)
    assert answer["count"] > 0


def test_the_count_of_waiting_messages_excludes_parked_and_ended_entries(
    shards: list[IndexShard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COUNTED_KEYS_MAX", 1)
    fill(shards)
    changes = EntryChanges()
    for offset in (200, 201, 202):
        changes.insert_parked(parked_key("orders", 10_000, offset), encode_entry(entry(10_000, "orders")))
    shards[0].index.write(changes)
    process = holder_of(shards[0])
    every, waiting, parked = (
        local.count(process, QueryParams(query)) for query in ("", "state=waiting", "state=parked")
    )
    assert (every["count"], every["parked"]) == (ENTRIES + 3, 3)
    assert (waiting["count"], waiting["exact"]) == (ENTRIES, True)
    assert (parked["count"], parked["exact"]) == (3, True)


@pytest.mark.parametrize("query", ["target=orders", "until=10020"])
def test_a_count_without_a_state_includes_parked_messages(shards: list[IndexShard], query: str) -> None:
    fill(shards)
    changes = EntryChanges()
    for offset in (200, 201, 202):
        changes.insert_parked(parked_key("orders", 10_000, offset), encode_entry(entry(10_000, "orders")))
    shards[0].index.write(changes)
    process = holder_of(shards[0])
    both, waiting, parked = (
        local.count(process, QueryParams(query + state)) for state in ("", "&state=waiting", "&state=parked")
    )
    assert parked["count"] == both["parked"] == both["shards"][0]["parked"] == 3
    assert (both["count"], both["exact"]) == (waiting["count"] + 3, True)
    assert waiting["count"] > 0


def test_messages_are_selected_by_the_beginning_of_their_id_and_by_their_key(shards: list[IndexShard]) -> None:
    fill(shards)
    changes = EntryChanges()
    for offset, (caller_id, key) in enumerate([(b"order-1", b"a"), (b"order-2", None), (b"mail-1", b"a"), (b"", b"")]):
        named = msgspec.structs.replace(entry(9_000, "orders", caller_id=caller_id), key=key)
        changes.insert(entry_key(9_000, 1_000 + offset), encode_entry(named))
    returned = msgspec.structs.replace(entry(9_000, "orders"), headers=[(ID, b"order-3"), (ATTEMPT, b"1")])
    changes.insert(entry_key(9_000, 1_004), encode_entry(returned))
    shards[1].index.write(changes)
    for text, offsets in (
        ("id_prefix=order-", [1_000, 1_001, 1_004]),
        ("id_prefix=rder", []),
        ("key=a", [1_000, 1_002]),
        ("key=a&id_prefix=mail-1", [1_002]),
        ("key=", [1_003]),
    ):
        filters = queries.filters_of(QueryParams(text))
        assert [offset for _, offset, _, _ in walk(shards, filters, 1)] == offsets
        assert pending.count(list(shards), filters) == (len(offsets), True)
    page = pending.page(list(shards), PendingFilters(id_prefix=b"order-3"), None, 10, False)
    assert [as_json(part, key, found, 0, False)["id"] for key, part, found in page.entries] == ["order-3"]
    clock = SimpleNamespace(wall_ms=lambda: 0)
    process = cast(ProcessState, SimpleNamespace(shards=holder_of(shards[1]).shards, clock=clock))
    assert count_selected(process, QueryParams("id_prefix=order-"))["count"] == 3


def test_recurring_selects_only_schedules_and_shows_their_next_times(shards: list[IndexShard]) -> None:
    fill(shards)
    given = (("postdate-every", b"1m/5s"), ("postdate-count", b"7"), ("postdate-id", b"s"))
    control = pack_stripped([(number, name, value) for number, (name, value) in enumerate(given)])
    plain = entry(65_000, "orders", caller_id=b"s")
    schedule = msgspec.structs.replace(plain, stripped=control, next=Next(5, 65_000))
    changes = EntryChanges()
    changes.insert(entry_key(65_000, 999), encode_entry(schedule))
    shards[1].index.write(changes)
    every = PendingFilters(recurring=True)
    for payload in (True, False):
        found = pending.page(list(shards), every, None, 10, payload)
        ((key, part, shown),) = found.entries
        listed = pending.as_json(part, key, shown, now_ms=70_000, payload=False)
        assert (listed["origin"], listed["occurrence"]) == ("requests/1/999", 5)
        assert listed["schedule"] == {"every": "1m/5s", "count": "7"}
        assert listed["next_ms"] == [65_000, 125_000, 185_000], "numbers 5 to 7"
        paused = msgspec.structs.replace(shown, next=Next(5, 65_000, ((1_000, 60_000, True),)))
        for now_ms, times in ((65_000, [65_000, 125_000, 185_000]), (125_001, [185_000]), (185_001, [])):
            listed_then = pending.as_json(part, key, paused, now_ms=now_ms, payload=False)
            assert listed_then["next_ms"] == times, "a resume skips earlier ones"
        assert listed["words"].startswith("Every 1m: at its multiples")
    assert pending.count(list(shards), every) == (1, True)
    with pytest.raises(BadQuery, match="recurring takes true or false"):
        queries.filters_of(QueryParams("recurring=yes"))


def test_a_relative_time_is_the_same_for_every_queried_process() -> None:
    query = QueryParams("from=-2h&until=now&target=a&target=b")
    assert queries.at_fixed_times(query, 10_000_000).multi_items() == [
        ("from", "2800000"),
        ("until", "10000000"),
        ("target", "a"),
        ("target", "b"),
    ]
