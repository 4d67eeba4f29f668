"""Goal: each trial and each small transaction contains what it should, and no more.

Method: one shard on the simulated cluster. The test isolates a target as faults would, and reads the input of the next
transactions, or what was committed.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from postdate.sidecar.config.settings import DispatchConfig, RequestTopicConfig
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.dispatch import sweep
from postdate.sidecar.dispatch.backlog_bypass import Ahead, BacklogBypass
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due_reader import Due, DueReader
from postdate.sidecar.dispatch.fault_attribution import OWN, FaultAttribution, Isolated, Refused
from postdate.sidecar.dispatch.limits import RATE_RETRY_MS
from postdate.sidecar.dispatch.sweep import Sweep
from postdate.sidecar.dispatch.target_rates import TargetRates
from postdate.sidecar.dispatch.targets import Refusal
from postdate.sidecar.ingest.limits import CONTROL_SIZE_BYTES_MAX
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import LAST_KEY, entry_key, split_key
from postdate.wire.reasons import Reason
from support.shard_bench import Bench, R


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _isolated(
    bench: Bench, shard: Shard, count: int, messages_max: int, due_ms: int = 1
) -> tuple[TimerIndex, Isolated]:
    """The index and an isolated target, for which so many messages are parked, from request 1 on."""
    index = shard._index
    assert index is not None
    bench.schedule(1)
    bench.until(shard, lambda: bench.ended() == 1)  # the target is known
    shard.ctx.held.now = Holds(targets=frozenset({"orders"}))
    for number in range(count):
        bench.schedule(due_ms, ("postdate-id", b"%d" % (number + 1)))
    bench.until(shard, lambda: index.parked_count == count)
    shard.ctx.held.now = Holds()
    return index, shard._dispatcher._faults._isolate("orders", messages_max, None, shard.ctx.clock.steady_ms())


def _trials(bench: Bench, shard: Shard, index: TimerIndex, count: int) -> list[list[int]]:
    """The requests in each of the next trials, if none of them has a result."""
    reader, steady_ms, now_ms = shard._dispatcher._reader, shard.ctx.clock.steady_ms(), bench.broker.now_ms()
    read = [reader.read(index, steady_ms, now_ms) for _ in range(count)]
    return [[split_key(key)[1] for key, _ in due.parked] for due in read if due.trial is not None]


def _controls(bench: Bench, shard: Shard, monkeypatch: pytest.MonkeyPatch, count: int) -> TimerIndex:
    """The index with so many entries under key 0, which do not leave."""
    index = shard._index
    assert index is not None
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(count):
        bench.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
    bench.until(shard, lambda: index.control_count == count)
    return index


def _read(bench: Bench, shard: Shard) -> Due:
    """The input of the next transaction."""
    assert shard._index is not None
    return shard._dispatcher._reader.read(shard._index, shard.ctx.clock.steady_ms(), bench.broker.now_ms())


def test_refused_messages_and_the_others_take_turns(bench: Bench) -> None:
    """Otherwise many messages that are refused again and again would hold up those that the target accepts."""
    shard = bench.shard()
    index, isolated = _isolated(bench, shard, 6, messages_max=2)
    isolated.refused = {1: Refused(0.0, 0.0), 2: Refused(0.0, 0.0)}
    assert _trials(bench, shard, index, 4) == [[3, 4], [1], [3, 4], [1]]
    shard.close()


def test_a_trial_is_full_although_the_first_messages_are_refused_or_condemned(bench: Bench) -> None:
    shard = bench.shard()
    index, isolated = _isolated(bench, shard, 8, messages_max=2)
    isolated.refused = {1: Refused(0.0, 1e12)}
    shard._dispatcher._faults.condemned = {each: Refusal(Reason.TOO_LARGE, "") for each in (2, 3, 4)}
    assert _trials(bench, shard, index, 1) == [[5, 6]]
    shard.close()


def test_a_trial_leaves_out_messages_on_which_entries_under_key_0_act(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 4: a request that request 1 makes unnecessary ends before request 1."""
    bench.format_version = 2
    shard = bench.shard()
    index, _ = _isolated(bench, shard, 3, messages_max=2)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    bench.schedule(1, ("postdate-id", b"1"), ("postdate-if-pending", b"keep"))
    bench.until(shard, lambda: index.control_count == 1)
    assert _trials(bench, shard, index, 1) == [[2, 3]]
    shard.close()


def test_a_trial_that_must_wait_is_not_repeated_at_once(bench: Bench) -> None:
    """The thread of the shard would never rest."""
    shard = bench.shard()
    index, isolated = _isolated(bench, shard, 2, messages_max=2)
    isolated.refused = {1: Refused(0.0, 1e12), 2: Refused(0.0, 1e12)}
    assert _trials(bench, shard, index, 1) == []
    assert shard._dispatcher.parked_in_ms() == RATE_RETRY_MS
    shard.close()


def test_no_trial_is_due_while_nothing_waits_for_it(bench: Bench) -> None:
    shard = bench.shard()
    index, _ = _isolated(bench, shard, 0, messages_max=1)
    assert _trials(bench, shard, index, 1) == []
    assert shard._dispatcher.parked_in_ms() == inf
    shard.close()


def test_a_trial_waits_for_an_earlier_message_that_is_not_parked_yet(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parked ones would overtake it."""
    shard = bench.shard()
    index, _ = _isolated(bench, shard, 2, messages_max=2, due_ms=5)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    bench.schedule(1)
    bench.until(shard, lambda: index.count == 3)
    assert _trials(bench, shard, index, 1) == []
    assert shard._dispatcher.parked_in_ms() == RATE_RETRY_MS
    shard.close()


def test_a_message_that_waits_for_the_store_keeps_the_order_of_its_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard did not dispatch for two seconds, and then the store topic was isolated. Request 1 is not due yet."""
    shard = bench.shard(RequestTopicConfig(R, store_after_ms=1_000))
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    index, started_ms = shard._index, bench.time.now_ms
    assert index is not None
    bench.schedule(started_ms + 1_500)
    bench.schedule(started_ms + 60_000, target=b"mails")
    bench.until(shard, lambda: bench.time.now_ms >= started_ms + 2_000)
    bench.schedule(started_ms + 1_600)
    bench.until(shard, lambda: index.count == 3)
    faults, steady_ms = shard._dispatcher._faults, shard.ctx.clock.steady_ms()
    faults._isolate(OWN, 1, None, steady_ms).retry_at = inf
    due = shard._dispatcher._reader.read(index, steady_ms, bench.broker.now_ms())
    assert [split_key(key)[1] for key in due.keys] == [2]
    assert due.own_filter is not None
    assert due.own_filter.waiting == {("orders", b"k"): entry_key(int(started_ms) + 1_500, 0)}
    shard.close()


def test_a_trial_waits_for_an_earlier_message_that_is_to_be_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has moved the first of two parked messages under key 0."""
    shard = bench.shard()
    index, _ = _isolated(bench, shard, 2, messages_max=2, due_ms=5)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    monkeypatch.setattr(sweep, "SWEEP_OFFSETS_MAX", 1)
    assert Sweep(1).step(index, int(bench.time.now_ms) + 100) == 1
    assert _trials(bench, shard, index, 1) == []
    shard.close()


def test_a_trial_takes_the_messages_before_one_that_is_not_parked_yet(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = bench.shard()
    index, isolated = _isolated(bench, shard, 1, messages_max=2, due_ms=1)
    shard.ctx.held.now = Holds(targets=frozenset({"orders"}))
    bench.schedule(9)
    bench.until(shard, lambda: index.parked_count == 2)
    shard.ctx.held.now = Holds()
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    bench.schedule(5)
    bench.until(shard, lambda: index.count == 3)
    isolated.retry_at = 0.0
    assert _trials(bench, shard, index, 1) == [[1]]
    shard.close()


def test_only_refused_messages_that_are_still_parked_are_tried(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the three, request 99 has ended, and request 3 was moved back: it is parked again before it is tried."""
    shard = bench.shard()
    index, isolated = _isolated(bench, shard, 2, messages_max=2)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    assert bench.schedule(1) == 3
    bench.until(shard, lambda: index.count == 3)
    isolated.refused = {offset: Refused(0.0, 0.0) for offset in (99, 3, 1)}
    isolated.alone_next = True
    assert _trials(bench, shard, index, 1) == [[1]]
    assert list(isolated.refused) == [3, 1]
    shard.close()


def test_a_refused_message_is_not_tried_before_it_may_leave(bench: Bench) -> None:
    """Nothing may leave while a bulk control waits for requests before it."""
    shard = bench.shard()
    index, isolated = _isolated(bench, shard, 1, messages_max=1)
    isolated.refused = {1: Refused(0.0, 0.0)}
    assert shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), 1).trial is None
    shard.close()


@pytest.mark.parametrize(("before_ms", "is_tried"), [(9, False), (10, True)])
def test_a_trial_contains_no_message_that_the_cancel_gate_holds_back(
    bench: Bench, before_ms: int, is_tried: bool
) -> None:
    shard = bench.shard()
    index, _ = _isolated(bench, shard, 1, messages_max=1, due_ms=9)
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), before_ms)
    assert (due.trial is not None) is is_tried
    shard.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_waiting_messages_may_leave_up_to_where_others_of_their_target_were_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    """In a backlog of other targets the second cursor has read further, unless this transaction does not have it."""
    shard = bench.shard()
    read_to, passed = entry_key(5, 0), entry_key(9, 0)
    monkeypatch.setattr(BacklogBypass, "passed", lambda *_: passed)
    due = Due([], [], read_to=read_to, ordered=ordered)
    assert shard._dispatcher._reader._may_go(due, "orders") == (passed if ordered else read_to)
    shard.close()


@pytest.mark.parametrize("entries_max", [10_000, 5])
def test_half_of_a_transaction_is_for_messages_beside_a_backlog(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, entries_max: int
) -> None:
    bench.dispatch = DispatchConfig(entries_max=entries_max)
    shard = bench.shard()
    taken: list[tuple[int, int]] = []

    def take(_: BacklogBypass, _index: TimerIndex, _before_ms: int, entries_max: int, size_bytes_max: int) -> None:
        taken.append((entries_max, size_bytes_max))

    monkeypatch.setattr(BacklogBypass, "take", take)
    _read(bench, shard)
    limit = shard._dispatcher._limit
    assert taken == [(limit.entries // 2 or 1, limit.size_bytes // 2)]
    shard.close()


@pytest.mark.parametrize(
    ("why", "is_used"), [("", True), ("controls", False), ("a fault is attributed", False), ("own topics", False)]
)
def test_no_message_leaves_from_behind_a_backlog_before_controls_or_while_a_fault_is_attributed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, why: str, is_used: bool
) -> None:
    shard = bench.shard()
    if why == "controls":
        _controls(bench, shard, monkeypatch, 1)
    if why == "own topics":
        own = shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
        own.retry_at = inf
    monkeypatch.setattr(FaultAttribution, "is_attributing", why == "a fault is attributed")
    taken: list[object] = []
    monkeypatch.setattr(BacklogBypass, "take", lambda *arguments: taken.append(arguments))
    due = _read(bench, shard)
    assert (bool(taken), due.ordered) == (is_used, is_used)
    shard.close()


@pytest.mark.parametrize(
    ("searching", "ahead_count", "limit"), [(False, 3, 17), (True, 3, 5), (False, 20, 1), (False, 25, 1)]
)
def test_the_rest_of_a_transaction_is_for_the_backlog_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, searching: bool, ahead_count: int, limit: int
) -> None:
    """Of 20 entries. While the second cursor searches, a transaction is short, so that what it finds leaves soon."""
    bench.dispatch = DispatchConfig(entries_max=100)
    shard = bench.shard()
    index = shard._index
    assert index is not None
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(30):
        bench.schedule(1)
    bench.until(shard, lambda: index.count == 30)
    keys = [entry_key(5, offset) for offset in range(ahead_count)]
    ahead = Ahead(keys[0], keys, [b"v"] * ahead_count, {keys[1]})
    monkeypatch.setattr(BacklogBypass, "take", lambda *_: ahead)
    reader = shard._dispatcher._reader
    reader._ahead.searching = searching
    due = _read(bench, shard)
    assert len(due.keys) == limit + ahead_count
    assert due.keys[limit:] == keys
    assert due.values[limit:] == ahead.values
    assert (due.full, due.short, due.goes_on, due.ordered) == (True, searching, True, True)
    assert (due.read_to, due.apart) == (due.keys[limit - 1], {keys[1]})
    shard.close()


def test_behind_the_end_of_a_backlog_the_second_cursor_has_read_everything(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = bench.shard()
    until = entry_key(9, 0)
    for keys in ([], [entry_key(5, 0)]):
        ahead = Ahead(until, keys, [b"v"] * len(keys))
        monkeypatch.setattr(BacklogBypass, "take", lambda *_, ahead=ahead: ahead)
        due = _read(bench, shard)
        assert (due.full, due.read_to, due.goes_on) == (False, until, bool(keys))
    shard.close()


@pytest.mark.parametrize(
    ("entries_max", "controls", "waiting", "scanned"),
    [(10_000, 0, 1_000, 1_000), (15, 0, 1, 2), (5, 0, 1, 1), (50, 2, 1, 4), (50, 7, 0, 7)],
)
def test_messages_that_waited_for_their_rate_get_half_of_what_controls_leave(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, entries_max: int, controls: int, waiting: int, scanned: int
) -> None:
    """A fifth of the configured entries is the first limit. Without controls, at least one message gets a place."""
    bench.dispatch = DispatchConfig(entries_max=entries_max)
    shard = bench.shard(RequestTopicConfig(R, messages_per_second_max=("orders=1000",)))
    _controls(bench, shard, monkeypatch, controls)
    reader, rooms, limits = shard._dispatcher._reader, list[int](), list[int]()
    honest = DueReader._scan

    def scan(self: DueReader, index: TimerIndex, before_ms: int, limit: int, size_max: int) -> Due:
        limits.append(limit)
        return honest(self, index, before_ms, limit, size_max)

    def take(_: TargetRates, _index: TimerIndex, _before_ms: int, entries_max: int, *_more: object) -> list[object]:
        rooms.append(entries_max)
        return []

    monkeypatch.setattr(DueReader, "_scan", scan)
    monkeypatch.setattr(TargetRates, "take", take)
    monkeypatch.setattr(TargetRates, "is_ready", True)
    assert reader._rates is not None
    due = _read(bench, shard)
    assert (rooms, limits) == ([waiting], [scanned])
    assert len(due.keys) == controls, "all of them, whatever else leaves"
    shard.close()


@pytest.mark.parametrize(
    ("controls", "is_own_isolated", "limit"), [(0, False, 10), (3, False, 5), (8, False, 8), (8, True, 18)]
)
def test_a_transaction_has_room_for_all_controls(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, controls: int, is_own_isolated: bool, limit: int
) -> None:
    """Rule 1. If Postdate's own topics are isolated, the controls are read and stay, so messages need room beside
    them."""
    bench.dispatch = DispatchConfig(entries_max=50, size_bytes_max=1_000)
    shard = bench.shard()
    index = _controls(bench, shard, monkeypatch, controls)
    if is_own_isolated:
        shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
    entries_max, size_bytes_max = shard._dispatcher._reader._limits(index)
    assert entries_max == limit
    assert size_bytes_max >= CONTROL_SIZE_BYTES_MAX if controls else size_bytes_max == 200
    shard.close()


@pytest.mark.parametrize("why", ["works", "unknown", "held", "fails", "isolated"])
def test_waiting_messages_leave_unless_their_target_is_known_to_be_in_trouble(bench: Bench, why: str) -> None:
    shard = bench.shard()
    if why != "unknown":
        bench.schedule(1)
        bench.until(shard, lambda: bench.ended() == 1)
    target = shard._dispatcher._targets.get("orders")
    assert (target is None) == (why == "unknown")
    if why == "held":
        shard.ctx.held.now = Holds(targets=frozenset({"orders"}))
    if target is not None and why == "fails":
        target.failing_since = 0.0
    if why == "isolated":
        shard._dispatcher._faults._isolate("orders", 1, None, shard.ctx.clock.steady_ms())
    may_go = shard._dispatcher._reader._may_go(Due([], [], read_to=LAST_KEY), "orders")
    assert may_go == (LAST_KEY if why in ("works", "unknown") else None)
    shard.close()


@pytest.mark.parametrize("is_own_isolated", [True, False])
def test_a_trial_of_a_target_contains_no_message_for_an_isolated_own_topic(bench: Bench, is_own_isolated: bool) -> None:
    shard = bench.shard()
    index, _ = _isolated(bench, shard, 1, messages_max=1)
    if is_own_isolated:
        own = shard._dispatcher._faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms(), {"requests.verdicts"})
        own.retry_at = inf
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), bench.broker.now_ms())
    assert due.trial is not None
    assert due.surplus_max == 0
    filtered = due.own_filter.topics if due.own_filter is not None else None
    assert filtered == ({"requests.verdicts"} if is_own_isolated else None)
    shard.close()


@pytest.mark.parametrize(("messages_max", "own_left"), [(2, None), (5, 2), (3, 0)])
def test_a_trial_of_own_topics_takes_controls_and_then_messages_that_write_to_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, messages_max: int, own_left: int | None
) -> None:
    """Three controls: a smaller trial is a piece of them, and more follow."""
    shard = bench.shard()
    index = _controls(bench, shard, monkeypatch, 3)
    own = shard._dispatcher._faults._isolate(
        OWN, messages_max, None, shard.ctx.clock.steady_ms(), {"requests.verdicts"}
    )
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), bench.broker.now_ms())
    assert due.trial is own
    assert len(due.keys) == min(messages_max, 3)
    if own_left is None:
        assert (due.own_filter, due.goes_on, due.apart) == (None, True, set())
    else:
        assert due.own_filter is not None
        assert (due.own_filter.own_left, due.goes_on) == (own_left, False)
    shard.close()


def test_a_message_beside_a_backlog_may_fill_a_transaction(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the backlog lies before it any more."""
    shard, key = bench.shard(), entry_key(5, 0)
    ahead = Ahead(key, [key], [bytes(shard._dispatcher._limit.size_bytes)])
    monkeypatch.setattr(BacklogBypass, "take", lambda *_: ahead)
    due = _read(bench, shard)
    assert (due.keys, due.full) == ([key], False)
    shard.close()


def test_half_of_the_bytes_of_a_transaction_is_for_messages_that_waited_for_their_rate(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.dispatch = DispatchConfig(size_bytes_max=20_000)
    shard = bench.shard(RequestTopicConfig(R, messages_per_second_max=("orders=1000",)))
    index, isolated = _isolated(bench, shard, 30, messages_max=1)
    dispatcher = shard._dispatcher
    dispatcher._faults._return(isolated)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(30):
        bench.schedule(1)
    bench.until(shard, lambda: index.count == 60)
    assert dispatcher._rates is not None
    dispatcher._rates.begin(index, shard.ctx.clock.steady_ms())
    due = dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), bench.broker.now_ms())
    half = dispatcher._limit.size_bytes // 2
    for values in (due.values, [raw for _, raw in due.parked]):
        assert half <= sum(map(len, values)) < half + len(values[-1])
    shard.close()


def test_entries_that_wait_for_an_isolated_own_topic_leave_room_for_messages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read first, since they lie under key 0, and nothing of them may leave."""
    bench.dispatch = DispatchConfig(entries_max=20)
    shard = bench.shard()
    index, faults = shard._index, shard._dispatcher._faults
    assert index is not None
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    for _ in range(8):
        bench.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
    for _ in range(3):
        bench.schedule(1)
    bench.until(shard, lambda: index.count == 11)
    own = faults._isolate(OWN, 1, None, shard.ctx.clock.steady_ms())
    own.retry_at, own.waits = 1e12, False
    due = shard._dispatcher._reader.read(index, shard.ctx.clock.steady_ms(), bench.broker.now_ms())
    assert [split_key(key)[1] for key in due.keys] == [8, 9, 10]
    assert own.waits, "its next trial takes them"
    shard.close()


def test_a_hold_ends_the_outage_of_its_target(bench: Bench) -> None:
    """Otherwise the first failed trial after a long hold would end all parked messages."""
    shard = bench.shard()
    index, isolated = _isolated(bench, shard, 1, messages_max=1)
    isolated.failing_since = since = isolated.acknowledged_at + 5.0
    assert _trials(bench, shard, index, 1) == [[1]]
    assert isolated.failing_since == since
    shard.ctx.held.now = Holds(targets=frozenset({"orders"}))
    assert _trials(bench, shard, index, 1) == []
    assert isolated.failing_since < isolated.acknowledged_at
    shard.close()


@pytest.mark.parametrize(("entries_max", "most"), [(20, 1 + 4), (10_000, 1_000)])
def test_missed_occurrences_leave_within_the_size_of_a_transaction(bench: Bench, entries_max: int, most: int) -> None:
    """The first one of a shard takes a fifth of the configured entries, beside the occurrence that is due next."""
    bench.format_version, bench.dispatch = 3, DispatchConfig(entries_max=entries_max)
    shard = bench.shard()
    bench.ask(("postdate-topic", b"orders"), ("postdate-id", b"c"), ("postdate-every", b"1s"))
    bench.until(shard, lambda: bench.ended() == 1)
    shard.close()
    bench.time.wait(1_500_000)
    shard = bench.shard()
    bench.until(shard, lambda: len(bench.read("orders")) > 0)
    assert len(bench.read("orders")) == most
    shard.close()


def test_missed_occurrences_leave_within_the_bytes_of_a_transaction(bench: Bench) -> None:
    bench.format_version, bench.dispatch = 3, DispatchConfig(size_bytes_max=20_000)
    shard = bench.shard()
    every = ("postdate-every", b"1s")
    bench.ask(("postdate-topic", b"orders"), ("postdate-id", b"c"), every, value=bytes(1_000))
    bench.until(shard, lambda: bench.ended() == 1)
    shard.close()
    bench.time.wait(100_000)
    shard = bench.shard()
    bench.until(shard, lambda: len(bench.read("orders")) > 0)
    assert len(bench.read("orders")) == 1 + 3  # a fifth of 20,000 bytes
    shard.close()


def test_while_a_fault_is_being_attributed_no_missed_occurrences_leave_with_the_next_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = bench.shard()
    assert shard._index is not None
    monkeypatch.setattr(FaultAttribution, "is_attributing", True)
    due = shard._dispatcher._reader.read(shard._index, shard.ctx.clock.steady_ms(), bench.broker.now_ms())
    assert (due.short, due.surplus_max) == (True, 0)
    shard.close()


def test_a_condemned_message_of_a_target_with_a_rate_ends_once(bench: Bench) -> None:
    """The target may have returned from its isolation since, while the dead-letter topic did not accept records."""
    shard = bench.shard(RequestTopicConfig(R, messages_per_second_max=("orders=1000",)))
    _, isolated = _isolated(bench, shard, 3, messages_max=2)
    faults = shard._dispatcher._faults
    faults._return(isolated)
    faults.condemned = {2: Refusal(Reason.TOO_LARGE, "")}
    bench.until(shard, lambda: bench.ended() == 4)
    assert sorted(offset for fates in bench.fates() for offset, _ in fates) == [0, 1, 2, 3]
    assert [reason for reason, _ in bench.letters()] == [b"too-large"]
    shard.close()
