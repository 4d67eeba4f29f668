"""Goal: a target with a rate gets its messages at that rate at most, in order and once. Other targets do not wait, and
waiting messages cost no time or memory.

Method: a shard on a simulated cluster, whose clock advances only while the shard waits. The tests read the times and
the order of the deliveries from the topics and the dispatch log. To measure the cost, they count the rows that scans of
the timer log return.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from postdate.kafka.errors import UnknownOutcome
from postdate.kafka.interface import NewTopic
from postdate.sidecar.config.rate_rules import RateRules
from postdate.sidecar.config.settings import DispatchConfig, RequestTopicConfig
from postdate.sidecar.context.holds import NOTHING, Holds
from postdate.sidecar.dispatch.limits import RATE_RETRY_MS, RATE_SAVED_S
from postdate.sidecar.dispatch.targets import target_rates
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import LAST_KEY, entry_key, parked_key
from postdate.wheel.timer_log import changes
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.timer_log import TimerLog
from support.kafka_simulator.producer import SimTransactionalProducer
from support.oracles.order import check_order, delivered
from support.shards.simulated_shard import BUDGET_MS, OWN, R, ShardEnvironment, takeovers
from support.shards.timer_indexes import NOW_MS, open_index

_TARGETS = ("orders", "light", "small")
#: The longest time in ms from the decision of a shard to the broker's timestamp: the timestamps of two transactions may
#: be this much closer than their decisions.
_STAMPED_MS = 30


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    """A cluster with three targets, and transactions of at most a hundred entries."""
    made = ShardEnvironment(tmp_path)
    made.admin.create_topics([NewTopic(name, 1, 1, {}) for name in _TARGETS[1:]])
    made.dispatch = DispatchConfig(retry_budget_ms=BUDGET_MS, entries_max=500)
    return made


def rated(*rules: str) -> RequestTopicConfig:
    return RequestTopicConfig(R, messages_per_second_max=rules)


def left_at(env: ShardEnvironment, target: str) -> list[int]:
    """Returns the commit time of each message for a target, by the broker's clock, ascending."""
    offsets = {offset for _, offset in delivered(env, target)}
    stamps = zip(env.read(OWN.dispatch_log), env.log(), strict=True)
    return sorted(stamped.timestamp_ms for stamped, record in stamps for fate in record.fates if fate.offset in offsets)


def check_rate(env: ShardEnvironment, target: str, per_second: float) -> None:
    """Asserts that the messages in each interval stay within the rate."""
    times_ms = left_at(env, target)
    for first in range(len(times_ms)):
        for last in range(first, len(times_ms)):
            interval_ms = times_ms[last] - times_ms[first]
            count_max = per_second * ((interval_ms + _STAMPED_MS) / 1000 + RATE_SAVED_S) + 1
            assert last - first + 1 <= count_max, f"{last - first + 1} within {interval_ms} ms"


def pass_ms(env: ShardEnvironment, shard: Shard, time_ms: float) -> None:
    until_ms = env.time.now_ms + time_ms
    env.until(shard, lambda: env.time.now_ms >= until_ms)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the rows that scans of the timer log return. Returns a function that returns the number of rows since its
    last call."""
    read = [0]
    honest = TimerLog._scan

    def scan(self: TimerLog, *arguments: object) -> tuple[list[bytes], list[bytes]]:
        keys, values = honest(self, *arguments)  # type: ignore[arg-type]  # passed on unchanged
        read[0] += len(keys)
        return keys, values

    def since() -> int:
        count, read[0] = read[0], 0
        return count

    monkeypatch.setattr(TimerLog, "_scan", scan)
    return since


def note_scans(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Returns a list that collects the start keys of later scans of the timer log."""
    starts: list[bytes] = []
    honest = TimerLog._scan

    def scan(self: TimerLog, family: str, start: bytes, *more: object) -> tuple[list[bytes], list[bytes]]:
        starts.append(start)
        return honest(self, family, start, *more)  # type: ignore[arg-type]  # passed on unchanged

    monkeypatch.setattr(TimerLog, "_scan", scan)
    return starts


def waiting(directory: Path, *places: tuple[str, int], size_bytes: int = 1) -> TimerIndex:
    """Returns a timer index with parked messages, all due at NOW_MS. `places`: target and offset of each message."""
    index = open_index(directory)
    put = EntryChanges()
    for target, offset in places:
        put.insert_parked(parked_key(target, NOW_MS, offset), bytes(size_bytes))
    index.write(put)
    return index


def test_a_burst_leaves_at_the_rate_of_its_target_and_the_others_on_time(env: ShardEnvironment) -> None:
    shard = env.shard(rated("orders=50"))
    due = env.time.now_ms + 1_000
    for _ in range(300):
        env.schedule(due)
    others = [(env.schedule(due + 20 * n, target=b"light"), due + 20 * n) for n in range(200)]
    env.until(shard, lambda: env.ended() == 500)
    check_order(env, _TARGETS)
    check_rate(env, "orders", 50)
    assert env.time.now_ms - due < 6_500, "it may leave at its rate, and does"
    assert 290 <= shard.ctx.counts.rated <= 300
    late = [at - due_ms for at, (_, due_ms) in zip(left_at(env, "light"), others, strict=True)]
    assert max(late) < 200
    assert shard._index is not None
    assert shard._index.parked_count == 0
    shard.close()


def test_missed_occurrences_leave_at_the_rate_of_their_target(env: ShardEnvironment) -> None:
    """Without a rate, many missed occurrences leave in one transaction."""
    env.format_version = 3
    shard = env.shard(rated("orders=2"))
    env.ask(("postdate-topic", b"orders"), ("postdate-id", b"c"), ("postdate-every", b"1s"))
    env.until(shard, lambda: len(env.read("orders")) == 1)
    shard.close()
    env.time.wait(30_000)
    shard = env.shard(rated("orders=2"))
    env.until(shard, lambda: len(env.read("orders")) > 1)
    assert len(env.read("orders")) == 2
    shard.close()


def test_each_delivery_counts_for_the_rate_of_its_target(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.format_version = 3
    spent, honest = Counter[str](), TargetRates.spend

    def spend(self: TargetRates, sent: Mapping[str, int]) -> None:
        spent.update(sent)
        honest(self, sent)

    monkeypatch.setattr(TargetRates, "spend", spend)
    shard = env.shard(rated("orders=1000"))
    for name in (b"c", b"d"):
        env.ask(("postdate-topic", b"orders"), ("postdate-id", name), ("postdate-every", b"1s"))
    for target in (b"orders", b"orders", b"light"):
        env.schedule(env.time.now_ms + 500, target=target)
    env.until(shard, lambda: len(env.read("orders")) >= 6)
    assert spent == {"orders": len(env.read("orders"))}
    shard.close()


def test_after_a_slice_the_shard_rests_until_the_next_one(env: ShardEnvironment) -> None:
    shard = env.shard(rated("orders=10"))
    for _ in range(9):
        env.schedule(1)
    env.until(shard, lambda: len(env.read("orders")) == 5)
    assert shard._dispatcher.parked_in_ms() > 50
    shard.close()


def test_a_message_below_the_rate_of_its_target_does_not_wait(env: ShardEnvironment) -> None:
    shard = env.shard(rated("*=10"))
    pass_ms(env, shard, 1_000)
    due = env.time.now_ms + 100
    for number in range(20):
        env.schedule(due + 250 * number)
    env.until(shard, lambda: env.ended() == 20)
    assert shard.ctx.counts.rated == 0
    assert max(at - (due + 250 * n) for n, at in enumerate(left_at(env, "orders"))) < 50
    shard.close()


def test_a_waiting_message_is_moved_once_and_not_read_in_each_turn(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the cost of a turn nor the memory depends on the number of waiting messages: only a heap of targets is
    kept."""
    shard = env.shard(rated("orders=4"))
    count = 2_000
    due = env.time.now_ms + 3_000
    for _ in range(count):
        env.schedule(due)
    env.until(shard, lambda: shard.next_request == count)
    since = count_reads(monkeypatch)
    index = shard._index
    assert index is not None
    env.until(shard, lambda: index.parked_count >= count - 20)
    assert since() < 4 * count, "by the first cursor, and by the second one that goes ahead of it"
    begun, ended = env.time.now_ms, env.ended()
    for number in range(100):
        env.schedule(begun + 100 * number, target=b"light")
    pass_ms(env, shard, 11_000)
    left = env.ended() - ended
    assert left >= 140, "a hundred others, and four a second"
    assert since() < 6 * left
    rates = shard._dispatcher._rates
    assert rates is not None
    assert len(rates._turns) == 1
    shard.close()


def test_a_rate_is_kept_over_takeovers_with_the_disk_and_without_it(env: ShardEnvironment) -> None:
    topic = rated("orders=20")
    now = env.time.now_ms
    shard = env.shard(topic)
    for _ in range(120):
        env.schedule(now + 500)
    for ended in (20, 50, 90):
        env.until(shard, lambda ended=ended: env.ended() >= ended)  # type: ignore[misc]
        shard.close()
        if ended == 50:
            shutil.rmtree(env.directory / "0")
        shard = env.shard(topic)
    env.until(shard, lambda: env.ended() == 120)
    check_order(env, _TARGETS)
    check_rate(env, "orders", 20)
    assert len(delivered(env, "orders")) == 120
    shard.close()


def test_a_commit_without_an_answer_is_counted(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard(rated("orders=20"))
    due = env.time.now_ms + 500
    for _ in range(30):
        env.schedule(due)
    env.until(shard, lambda: env.ended() >= 2)
    honest = SimTransactionalProducer.commit

    def commit(self: SimTransactionalProducer) -> None:
        before = env.ended()
        honest(self)
        if env.ended() > before:
            raise UnknownOutcome("no answer came")

    monkeypatch.setattr(SimTransactionalProducer, "commit", commit)
    env.until(shard, lambda: env.ended() == 30)
    assert takeovers(shard) > 5
    check_rate(env, "orders", 20)
    assert len(delivered(env, "orders")) == 30
    shard.close()


def test_a_target_that_failed_or_was_held_continues_at_its_rate(env: ShardEnvironment) -> None:
    shard = env.shard(rated("orders=20", "later=20"))
    now = env.time.now_ms
    for _ in range(40):
        env.schedule(now + 100)
        env.schedule(now + 100, target=b"later")
    env.until(shard, lambda: env.ended() >= 10)
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    env.admin.create_topics([NewTopic("later", 1, 1, {})])
    env.until(shard, lambda: len(env.read("later")) == 40)
    assert len(env.read("orders")) < 20
    shard.ctx.held.current = NOTHING
    env.until(shard, lambda: env.ended() == 80)
    check_order(env, ("orders", "later"))
    check_rate(env, "orders", 20)
    check_rate(env, "later", 20)
    shard.close()


def test_a_late_request_with_an_earlier_due_time_leaves_first(env: ShardEnvironment) -> None:
    shard = env.shard(rated("orders=20"))
    due = env.time.now_ms + 500
    for _ in range(10):
        env.schedule(due)
    env.until(shard, lambda: env.ended() >= 3)
    late = env.schedule(due - 100)
    env.time.wait(200)
    env.poll(shard)  # ingested by the turn in which some of the other messages may leave
    before = env.ended()
    env.until(shard, lambda: env.ended() == 11)
    assert delivered(env, "orders")[before] == (int(due - 100), late)
    assert sorted(delivered(env, "orders")[:before]) == delivered(env, "orders")[:before]
    shard.close()


def test_a_message_that_kafka_refuses_is_found_among_waiting_messages(env: ShardEnvironment) -> None:
    """The refused message is moved back and retried alone. Neither this nor the rate keeps the others from leaving."""
    shard = env.shard(rated("small=10"))
    due = env.time.now_ms + 500
    for number in range(20):
        env.schedule(due, target=b"small", value=b"x" * (2_000 if number == 13 else 20))
    env.until(shard, lambda: env.ended() >= 3)
    env.broker.topics["small"].config["max.message.bytes"] = "1500"  # metadata is older than this
    env.until(shard, lambda: env.ended() == 20, 10_000)  # before the target's settings are looked up again
    assert [reason for reason, _ in env.dead_letters()] in ([b"too-large"], [b"record-refused"])
    assert len(env.read("small")) == 19
    assert sum(a > b for a, b in zip(delivered(env, "small"), delivered(env, "small")[1:], strict=False)) == 0
    shard.close()


def test_a_message_that_waits_beyond_its_grace_expires_and_a_cancelled_one_does_not_leave(
    env: ShardEnvironment,
) -> None:
    shard = env.shard(rated("orders=2"))
    due = env.time.now_ms + 500
    kept = [env.schedule(due, ("postdate-id", b"%d" % n)) for n in range(6)]
    short = [env.schedule(due + 1, ("postdate-grace", b"1s")) for _ in range(5)]
    env.until(shard, lambda: env.ended() >= 2)
    for n in (3, 4):
        env.ask(("postdate-action", b"cancel"), ("postdate-id", b"%d" % n))
    far = env.time.now_ms + 4_000
    env.ask(("postdate-action", b"reschedule"), ("postdate-id", b"5"), ("postdate-at", b"%d" % far))
    env.until(shard, lambda: env.ended() == len(kept) + len(short) + 3 + 1)  # `moved` is a fate, too
    ends = dict(pair for fates in env.fates() for pair in fates if pair[1] != "moved")
    assert [ends[offset] for offset in kept] == ["delivered"] * 3 + ["cancelled"] * 2 + ["delivered"]
    assert [ends[offset] for offset in short] == ["dead"] * 5
    assert {reason for reason, _ in env.dead_letters()} == {b"expired"}
    assert delivered(env, "orders")[-1] == (int(far), kept[5])
    shard.close()


@pytest.mark.parametrize("seed", range(6))
def test_each_message_leaves_once_and_in_order(
    env: ShardEnvironment, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds with bursts, late requests, controls, a hold and a takeover, while two of three targets have a
    rate."""
    choose = random.Random(seed)
    monkeypatch.setattr(changes, "SPAN_KEYS_MIN", 2)  # a wrong range would end other entries
    env.dispatch = DispatchConfig(retry_budget_ms=BUDGET_MS, entries_max=choose.choice([10, 60, 500]))
    topic = rated("orders=80", "small=30")
    shard = env.shard(topic)
    scheduled: set[int] = set()
    now = env.time.now_ms
    for step in range(12):
        for _ in range(choose.randrange(40)):
            due = choose.choice([now + 1_000, env.time.now_ms - choose.randrange(50), now + choose.randrange(3_000)])
            target = choose.choice(_TARGETS).encode()
            scheduled.add(env.schedule(due, ("postdate-id", b"%d" % len(scheduled)), target=target))
            if choose.random() < 0.05:
                victim = b"%d" % choose.randrange(len(scheduled))
                env.ask(("postdate-action", b"cancel"), ("postdate-id", victim))
        pass_ms(env, shard, choose.randrange(1, 400))
        shard.ctx.held.current = Holds(targets=frozenset({"small"})) if step == 4 else NOTHING
        if step == 7:
            shard.close()
            shard = env.shard(topic)
    finals = ("delivered", "cancelled")
    env.until(shard, lambda: {o for fates in env.fates() for o, fate in fates if fate in finals} >= scheduled)
    delivered_offsets = sorted(offset for fates in env.fates() for offset, fate in fates if fate == "delivered")
    assert sorted(offset for target in _TARGETS for _, offset in delivered(env, target)) == delivered_offsets
    assert len(delivered_offsets) == len(set(delivered_offsets))
    check_order(env, _TARGETS)
    check_rate(env, "orders", 80)
    check_rate(env, "small", 30)
    shard.close()


@pytest.mark.parametrize(
    ("entries_max", "size_bytes_max", "count"),
    [(100, 1_000, 5), (100, 15, 2), (100, 20, 2), (2, 1_000, 2), (100, 0, 0), (0, 1_000, 0)],
)
def test_a_message_does_not_overtake_an_unread_one(
    tmp_path: Path, entries_max: int, size_bytes_max: int, count: int
) -> None:
    """A transaction takes waiting messages up to a number and a size. The remaining ones leave before all messages that
    are due later."""
    index = waiting(tmp_path, *(("orders", offset) for offset in range(5)), size_bytes=10)
    rates = TargetRates(RateRules.of(("orders=1000",)), 0.0)
    rates.begin(index, 0.0)
    assert not rates.admits("orders", entry_key(NOW_MS + 1, 9), {})
    rates.begin(index, 10_000.0)
    taken = rates.next_messages(index, NOW_MS + 100, entries_max, size_bytes_max, lambda target: LAST_KEY)
    assert len(taken) == count
    assert all(rates.admits("orders", key, {}) for key, _ in taken)
    assert rates.admits("orders", entry_key(NOW_MS + 1, 9), {}) == (count == 5)
    index.close()


def test_a_waiting_message_that_is_not_due_yet_stays_and_is_checked_again_soon(tmp_path: Path) -> None:
    index = waiting(tmp_path, ("orders", 0))
    rates = TargetRates(RateRules.of(("orders=1000",)), 0.0)
    rates.begin(index, 10_000.0)
    rates.wait("orders")
    assert rates.next_messages(index, NOW_MS, 100, 1_000, lambda target: LAST_KEY) == []
    assert rates.next_at() == 10_000.0 + RATE_RETRY_MS
    rates.begin(index, 10_000.0 + RATE_RETRY_MS)
    assert len(rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: LAST_KEY)) == 1
    index.close()


def test_each_target_has_one_turn_which_comes_when_its_own_bucket_is_filled(tmp_path: Path) -> None:
    index = waiting(tmp_path, ("light", 0), ("orders", 1))
    rates = TargetRates(RateRules.of(("light=4", "orders=2")), 0.0)
    rates.begin(index, 0.0)
    for target in ("light", "orders", "light", "orders"):
        rates.parked(target)
    assert (len(rates._turns), rates.next_at()) == (2, 250.0)
    for steady_ms, target, offset in ((250.0, "light", 0), (500.0, "orders", 1)):
        rates.begin(index, steady_ms)
        assert rates.is_ready
        taken = rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: LAST_KEY)
        assert [key for key, _ in taken] == [parked_key(target, NOW_MS, offset)]
        assert rates.next_at() == steady_ms, "the next turn shows whether more waits"
        left = EntryChanges()
        left.delete_parked(taken[0][0], 1)
        index.write(left)
    index.close()


def test_a_read_starts_at_the_first_waiting_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below it lie the tombstones of all messages that have left, which a scan would have to skip."""
    index = waiting(tmp_path, *(("orders", offset) for offset in range(3)))
    rates = TargetRates(RateRules.of(("orders=1000",)), 0.0)
    rates.begin(index, 10_000.0)
    rates.wait("orders")
    left = EntryChanges()
    for key, _ in rates.next_messages(index, NOW_MS + 1, 2, 1_000, lambda target: LAST_KEY):
        left.delete_parked(key, 1)
    index.write(left)
    rates.begin(index, 20_000.0)
    starts = note_scans(monkeypatch)
    rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: LAST_KEY)
    assert starts == [parked_key("orders", NOW_MS, 2)]
    index.close()


@pytest.mark.parametrize(("last", "count"), [(entry_key(NOW_MS, 3), 1), (entry_key(NOW_MS, 2), 0)])
def test_waiting_entries_are_taken_up_to_and_including_a_key(tmp_path: Path, last: bytes, count: int) -> None:
    index = waiting(tmp_path, ("orders", 3))
    rates = TargetRates(RateRules.of(("orders=1000",)), 0.0)
    rates.begin(index, 10_000.0)
    rates.wait("orders")
    assert len(rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: last)) == count
    index.close()


@pytest.mark.parametrize(
    ("entries_max", "size_bytes_max", "count"), [(9, 9, 2), (1, 9, 1), (9, 1, 1), (0, 9, 0), (9, 0, 0)]
)
def test_the_limits_of_a_transaction_hold_over_all_targets(
    tmp_path: Path, entries_max: int, size_bytes_max: int, count: int
) -> None:
    index = waiting(tmp_path, ("light", 0), ("small", 0))
    rates = TargetRates(RateRules.of(("*=1000",)), 0.0)
    rates.begin(index, 10_000.0)
    for target in ("light", "small"):
        rates.wait(target)
    assert len(rates.next_messages(index, NOW_MS + 1, entries_max, size_bytes_max, lambda target: LAST_KEY)) == count
    index.close()


def test_a_target_whose_tokens_were_spent_waits_for_the_next_token(tmp_path: Path) -> None:
    index = waiting(tmp_path, ("orders", 0))
    rates = TargetRates(RateRules.of(("orders=4",)), 0.0)
    rates.begin(index, 0.0)
    rates.wait("orders")
    rates.begin(index, 250.0)
    rates.spend({"orders": 1})
    assert rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: LAST_KEY) == []
    assert rates.next_at() == 500.0
    rates.begin(index, 500.0)
    assert len(rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: LAST_KEY)) == 1
    index.close()


def test_after_a_rebuild_waiting_messages_leave_first_with_an_empty_bucket(tmp_path: Path) -> None:
    rates = TargetRates(RateRules.of(("orders=4",)), 0.0)
    indexes = [open_index(tmp_path / name) for name in ("old", "new")]
    rates.begin(indexes[0], 250.0)
    rates.spend({"orders": 1})
    rates.wait("orders")
    rates.begin(indexes[1], 250.0)
    assert rates.next_at() is None
    rates.wait("orders")
    assert rates.next_at() == 500.0
    for index in indexes:
        index.close()


@pytest.mark.parametrize(("steady_ms", "count"), [(0.0, 2), (3_600_000.0, 2), (3_600_000.0, 9)])
def test_a_target_that_got_more_than_its_rate_gets_no_message(tmp_path: Path, steady_ms: float, count: int) -> None:
    """A message that is retried alone counts but does not wait. Tokens are saved for only a tenth of a second."""
    rates = TargetRates(RateRules.of(("orders=10",)), 0.0)
    index = open_index(tmp_path)
    rates.begin(index, steady_ms)
    rates.spend({"orders": count})
    assert rates.available("orders") == 0
    index.close()


def test_a_target_without_waiting_messages_gets_its_next_message_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next messages need no further seek."""
    index = open_index(tmp_path)
    rates = TargetRates(RateRules.of(("orders=1000",)), 0.0)
    rates.begin(index, 10_000.0)
    rates.wait("orders")
    assert rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: LAST_KEY) == []
    starts = note_scans(monkeypatch)
    assert [rates.admits("orders", entry_key(NOW_MS, offset), {}) for offset in range(3)] == [True] * 3
    assert [rates.admits("mails", entry_key(NOW_MS, offset), {}) for offset in range(3)] == [True] * 3
    assert starts == []
    index.close()


def test_messages_that_are_parked_in_any_order_leave_in_order(tmp_path: Path) -> None:
    index = waiting(tmp_path, *(("orders", offset) for offset in (5, 3, 4)))
    rates = TargetRates(RateRules.of(("orders=1000",)), 0.0)
    rates.begin(index, 10_000.0)
    for offset in (5, 3, 4):
        rates.parked("orders", entry_key(NOW_MS, offset))
    taken = rates.next_messages(index, NOW_MS + 1, 100, 1_000, lambda target: LAST_KEY)
    assert [key for key, _ in taken] == [parked_key("orders", NOW_MS, offset) for offset in (3, 4, 5)]
    index.close()


def test_no_message_leaves_before_the_first_request_is_read(tmp_path: Path) -> None:
    """Until then the cancel gate admits only messages due before 0, and a message may be due at 1."""
    index = open_index(tmp_path)
    put = EntryChanges()
    put.insert_parked(parked_key("orders", 1, 0), b"a")
    index.write(put)
    rates = TargetRates(RateRules.of(("orders=1000",)), 0.0)
    rates.begin(index, 10_000.0)
    rates.wait("orders")
    assert rates.next_messages(index, 0, 100, 1_000, lambda target: LAST_KEY) == []
    index.close()


def test_a_target_that_was_forgotten_starts_with_an_empty_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_rates, "TARGETS_KNOWN_MAX", 2)
    rates = TargetRates(RateRules.of(("*=10",)), 0.0)
    index = open_index(tmp_path)
    rates.begin(index, 10_000.0)
    assert [rates.available(name) > 0 for name in ("a", "b", "c", "a")] == [True, True, False, False]
    index.close()


@pytest.mark.parametrize(("steady_ms", "sent", "is_admitted"), [(249.0, 0, False), (250.0, 0, True), (250.0, 1, False)])
def test_a_due_message_leaves_if_there_is_a_token_for_it(
    tmp_path: Path, steady_ms: float, sent: int, is_admitted: bool
) -> None:
    index = open_index(tmp_path)
    rates = TargetRates(RateRules.of(("orders=4",)), 0.0)
    rates.begin(index, 0.0)
    assert not rates.admits("orders", entry_key(NOW_MS, 0), {})
    rates.begin(index, steady_ms)
    assert rates.admits("orders", entry_key(NOW_MS, 0), {"orders": sent, "mails": 9}) is is_admitted
    index.close()


def test_a_waiting_message_leaves_when_its_bucket_has_a_token(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    rates = TargetRates(RateRules.of(("orders=4",)), 0.0)
    rates.begin(index, 0.0)
    assert not rates.admits("orders", entry_key(NOW_MS, 0), {})
    rates.parked("orders", entry_key(NOW_MS, 0))
    assert rates.next_at() == 250.0
    rates.begin(index, 249.0)
    assert not rates.is_ready
    rates.begin(index, 250.0)
    assert rates.is_ready
    index.close()
