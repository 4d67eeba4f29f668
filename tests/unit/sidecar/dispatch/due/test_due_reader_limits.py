"""Goal: a transaction divides its limits between controls, a backlog, messages ahead of the backlog, and parked
messages.

Method: as `test_due_reader`.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from postdate.sidecar.config.settings import DispatchConfig, RequestTopicConfig
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due.backlog_bypass import BacklogBypass, BypassedMessages
from postdate.sidecar.dispatch.due.due_reader import Due, DueReader
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.isolated_targets import OWN, Isolated
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.ingest.limits import ENDING_SIZE_BYTES_MAX
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import LAST_KEY, entry_key
from support.shards.simulated_shard import R, ShardEnvironment, hold_controls, read_due


def backlog(env: ShardEnvironment, shard: Shard, monkeypatch: pytest.MonkeyPatch, count: int) -> TimerIndex:
    """Returns the index of a shard that has read `count` due messages and dispatches none."""
    index = shard._index
    assert index is not None
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(count):
        env.schedule(1)
    env.until(shard, lambda: index.count == count)
    return index


@pytest.mark.parametrize("entries_max", [10_000, 5])
def test_half_of_a_transaction_is_for_messages_ahead_of_a_backlog(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, entries_max: int
) -> None:
    env.dispatch = DispatchConfig(entries_max=entries_max)
    shard = env.shard()
    taken: list[tuple[int, int]] = []

    def take(_: BacklogBypass, _index: TimerIndex, _before_ms: int, entries_max: int, size_bytes_max: int) -> None:
        taken.append((entries_max, size_bytes_max))

    monkeypatch.setattr(BacklogBypass, "next_messages", take)
    read_due(env, shard)
    limit = shard._dispatcher._limit
    assert taken == [(limit.entries // 2 or 1, limit.size_bytes // 2)]
    shard.close()


@pytest.mark.parametrize(
    ("why", "is_used"), [("", True), ("controls", False), ("a fault is attributed", False), ("own topics", False)]
)
def test_the_second_cursor_stops_for_controls_own_topics_and_fault_attribution(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, why: str, is_used: bool
) -> None:
    shard = env.shard()
    if why == "controls":
        hold_controls(env, shard, monkeypatch, 1)
    if why == "own topics":
        own = shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
        own.retry_at = inf
    monkeypatch.setattr(FaultAttribution, "is_attributing", why == "a fault is attributed")
    taken: list[object] = []
    monkeypatch.setattr(BacklogBypass, "next_messages", lambda *arguments: taken.append(arguments))
    due = read_due(env, shard)
    assert (bool(taken), due.ordered) == (is_used, is_used)
    shard.close()


@pytest.mark.parametrize(
    ("searching", "ahead_count", "limit"), [(False, 3, 17), (True, 3, 5), (False, 20, 1), (False, 25, 1)]
)
def test_the_rest_of_a_transaction_is_for_the_backlog_itself(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, searching: bool, ahead_count: int, limit: int
) -> None:
    """The limit is 20 entries. While the second cursor searches, transactions are short, so that the messages that it
    takes leave soon."""
    env.dispatch = DispatchConfig(entries_max=100)
    shard = env.shard()
    backlog(env, shard, monkeypatch, 30)
    keys = [entry_key(5, offset) for offset in range(ahead_count)]
    ahead = BypassedMessages(keys[0], keys, [b"v"] * ahead_count, {keys[1]})
    monkeypatch.setattr(BacklogBypass, "next_messages", lambda *_: ahead)
    reader = shard._dispatcher._reader
    reader._bypass.searching = searching
    due = read_due(env, shard)
    assert len(due.keys) == limit + ahead_count
    assert due.keys[limit:] == keys
    assert due.values[limit:] == ahead.values
    assert (due.full, due.short, due.has_more, due.ordered) == (True, searching, True, True)
    assert (due.read_to, due.keys_after_gaps) == (due.keys[limit - 1], {keys[1]})
    shard.close()


_TRIAL = Isolated("orders", 1, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("due", "is_active", "calls"),
    [
        ({"has_more": False}, True, ["ends"]),
        ({"has_more": True}, True, ["continues"]),
        ({"has_more": True}, False, ["begins", 3]),
        ({"has_more": True, "short": True}, False, ["begins", 3 * 4]),
        ({"has_more": True, "ordered": False}, True, []),
        ({"has_more": True, "trial": _TRIAL}, True, []),
    ],
)
def test_the_second_cursor_begins_continues_and_ends_with_the_backlog(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, due: dict[str, Any], is_active: bool, calls: list[object]
) -> None:
    """The size of a backlog is measured in full transactions; a short transaction is a quarter of one."""
    shard = env.shard()
    reader, noted = shard._dispatcher._reader, list[object]()
    monkeypatch.setattr(BacklogBypass, "active", is_active)
    monkeypatch.setattr(BacklogBypass, "end", lambda _: noted.append("ends"))
    monkeypatch.setattr(BacklogBypass, "committed", lambda *_: noted.append("continues"))
    monkeypatch.setattr(BacklogBypass, "begin", lambda *arguments: noted.extend(("begins", arguments[-1])))
    monkeypatch.setattr(BacklogBypass, "wanted", lambda _index, _before_ms, count: count in calls)
    keys = [entry_key(5, offset) for offset in range(3)]
    assert shard._index is not None
    reader.ended(shard._index, Due(keys, [b"v"] * 3, **{"ordered": True, **due}), set(), 9)
    assert noted == calls
    shard.close()


def test_only_the_first_transaction_of_a_backlog_is_short(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages behind the backlog wait for this transaction and for the search of the second cursor."""
    env.dispatch = DispatchConfig(entries_max=50)
    shard = env.shard()
    index = backlog(env, shard, monkeypatch, 30)
    monkeypatch.setattr(BacklogBypass, "wanted", lambda *_: True)
    due = read_due(env, shard)
    assert (len(due.keys), due.short, due.full, due.has_more, due.read_to) == (2, True, True, True, due.keys[-1])
    monkeypatch.setattr(BacklogBypass, "begin", lambda *_: None)
    shard._dispatcher._reader.ended(index, due, set(), 9)
    due = read_due(env, shard)
    assert (len(due.keys), due.short, due.full, due.has_more, due.read_to) == (10, False, True, True, due.keys[-1])
    shard.close()


@pytest.mark.parametrize(("count", "full"), [(9, False), (10, True)])
def test_a_transaction_that_is_not_full_has_read_all_due_entries(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, count: int, full: bool
) -> None:
    env.dispatch = DispatchConfig(entries_max=50)
    shard = env.shard()
    backlog(env, shard, monkeypatch, count)
    due = read_due(env, shard)
    assert (due.full, due.has_more, due.short) == (full, full, False)
    assert due.read_to == (due.keys[-1] if full else LAST_KEY)
    shard.close()


def test_the_smallest_transaction_still_contains_a_message(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers may be so slow that no larger one ends in time."""
    shard = env.shard(RequestTopicConfig(R, messages_per_second_max=("mails=1000",)))
    backlog(env, shard, monkeypatch, 3)
    limit = shard._dispatcher._limit
    limit._share = 0.0
    assert (limit.entries, limit.size_bytes) == (1, 1)
    sizes: list[int] = []

    def take(*arguments: Any) -> list[object]:
        sizes.append(arguments[4])
        return []

    monkeypatch.setattr(TargetRates, "next_messages", take)
    for is_ready in (False, True):
        monkeypatch.setattr(TargetRates, "is_ready", is_ready)
        assert len(read_due(env, shard).keys) == 1
    assert sizes == [1]
    shard.close()


def test_past_the_end_of_a_backlog_the_second_cursor_has_read_all_due_entries(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    until = entry_key(9, 0)
    for keys in ([], [entry_key(5, 0)]):
        ahead = BypassedMessages(until, keys, [b"v"] * len(keys))
        monkeypatch.setattr(BacklogBypass, "next_messages", lambda *_, ahead=ahead: ahead)
        due = read_due(env, shard)
        assert (due.full, due.read_to, due.has_more) == (False, until, bool(keys))
    shard.close()


@pytest.mark.parametrize(
    ("entries_max", "controls", "waiting", "scanned"),
    [(10_000, 0, 1_000, 1_000), (15, 0, 1, 2), (5, 0, 1, 1), (50, 2, 1, 4), (50, 7, 0, 7)],
)
def test_messages_that_waited_for_their_rate_get_half_of_the_space_after_controls(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, entries_max: int, controls: int, waiting: int, scanned: int
) -> None:
    """The first limit is a fifth of the configured entries. Without controls, at least one parked message may leave."""
    env.dispatch = DispatchConfig(entries_max=entries_max)
    shard = env.shard(RequestTopicConfig(R, messages_per_second_max=("orders=1000",)))
    hold_controls(env, shard, monkeypatch, controls)
    reader, rooms, limits = shard._dispatcher._reader, list[int](), list[int]()
    honest = DueReader._scan

    def scan(self: DueReader, index: TimerIndex, before_ms: int, limit: int, size_max: int) -> Due:
        limits.append(limit)
        return honest(self, index, before_ms, limit, size_max)

    def take(_: TargetRates, _index: TimerIndex, _before_ms: int, entries_max: int, *_more: object) -> list[object]:
        rooms.append(entries_max)
        return []

    monkeypatch.setattr(DueReader, "_scan", scan)
    monkeypatch.setattr(TargetRates, "next_messages", take)
    monkeypatch.setattr(TargetRates, "is_ready", True)
    assert reader._rates is not None
    due = read_due(env, shard)
    assert (rooms, limits) == ([waiting], [scanned])
    assert len(due.keys) == controls, "all of them, whatever else leaves"
    shard.close()


@pytest.mark.parametrize(
    ("controls", "is_own_isolated", "limit"), [(0, False, 10), (3, False, 5), (8, False, 8), (8, True, 18)]
)
def test_a_transaction_has_space_for_all_controls(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, controls: int, is_own_isolated: bool, limit: int
) -> None:
    """Rule 1. If Postdate's own topics are isolated, the transaction reads the controls but leaves them, so messages
    need additional space."""
    env.dispatch = DispatchConfig(entries_max=50, size_bytes_max=1_000)
    shard = env.shard()
    index = hold_controls(env, shard, monkeypatch, controls)
    if is_own_isolated:
        shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
    entries_max, size_bytes_max = shard._dispatcher._reader._limits(index)
    assert entries_max == limit
    assert size_bytes_max >= ENDING_SIZE_BYTES_MAX if controls else size_bytes_max == 200
    shard.close()


def test_a_message_ahead_of_a_backlog_may_fill_a_transaction(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first cursor has taken the whole backlog before the message."""
    shard, key = env.shard(), entry_key(5, 0)
    ahead = BypassedMessages(key, [key], [bytes(shard._dispatcher._limit.size_bytes)])
    monkeypatch.setattr(BacklogBypass, "next_messages", lambda *_: ahead)
    due = read_due(env, shard)
    assert (due.keys, due.full) == ([key], False)
    shard.close()


@pytest.mark.parametrize("ahead_bytes", [None, 500])
def test_a_transaction_that_holds_all_its_bytes_is_full(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, ahead_bytes: int | None
) -> None:
    """Messages ahead of a backlog have a share of the bytes."""
    shard = env.shard()
    index = backlog(env, shard, monkeypatch, 9)
    (size_bytes,) = {len(raw) for raw in index.scan_due(9, 9)[1]}
    if ahead_bytes is not None:
        ahead = BypassedMessages(entry_key(5, 0), [entry_key(5, 0)], [bytes(ahead_bytes)])
        monkeypatch.setattr(BacklogBypass, "next_messages", lambda *_: ahead)
    limit = shard._dispatcher._limit
    limit._share, limit._size_bytes_max = 1.0, 3 * size_bytes + (ahead_bytes or 0)
    due = read_due(env, shard)
    assert len(due.keys) == 3 + (ahead_bytes is not None)
    assert (due.full, due.has_more, due.read_to) == (True, True, due.keys[2])
    shard.close()


def test_entries_that_were_parked_are_left_out_with_their_values() -> None:
    keys = [entry_key(5, offset) for offset in range(3)]
    due = Due(keys, [b"a", b"b", b"c"])
    due.leave_out({keys[1]})
    assert (due.keys, due.values) == ([keys[0], keys[2]], [b"a", b"c"])
