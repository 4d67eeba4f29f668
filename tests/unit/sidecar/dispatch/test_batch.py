"""Goal: a transaction contains the right records: verdicts true at its commit, and dead letters that fit their topic.

Method: the test ingests requests into a real timer index, builds transactions from the due entries with `BatchBuilder`,
and calls `finish` as after a commit. `apply_fate` stands in for the actions of a successor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.config.settings import RequestTopicConfig, Verdicts
from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.dispatch import batch as batch_module
from postdate.sidecar.dispatch.after_commit import finish
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.decisions import Decision, MessageRules
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.due.own_topics_filter import OwnTopicsFilter
from postdate.sidecar.dispatch.limits import TARGET_FRESH_MS_MAX
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.targets import Target
from postdate.sidecar.index.apply_fates import apply_fate
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.sidecar.ingest.quota import Quota
from postdate.sidecar.transaction.transaction import OutgoingRecord
from postdate.sidecar.transaction.verdict_records import VerdictWriter
from postdate.wheel.entry import decode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key, parked_key, split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log import changes
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.delivered import delivered_headers, record_size_bytes
from postdate.wire.dispatch_log import APPLIED, DEAD, DELIVERED, STORED, Fate, PlainFate
from postdate.wire.headers import Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics

BASE_MS = 1_000_000_000_000
SOON_MS = BASE_MS + 500
FAR_MS = BASE_MS + 50_000
WINDOW_MS = 60_000
BUDGET_MS = 30_000
OWN = OwnTopics.of("requests")
RULES = RequestRules(topic="requests", horizon_ms=86_400_000)


class _Shard:
    """A shard's index with the parts that build transactions, at a time that the test sets."""

    def __init__(self, directory: Path, mode: Verdicts) -> None:
        options = IndexOptions(ended_window_ms=WINDOW_MS)
        self.index = TimerIndex.open(directory, Identity("cluster", "r", "l", 0), options, BASE_MS)
        overlay = IndexOverlay(self.index)
        overlay.advance(next_request=0, next_dispatch=0, seq=0)
        overlay.write()
        self.now_ms = BASE_MS
        self.targets = {"orders": Target("orders", partitions=3), OWN.dead_letters: Target(OWN.dead_letters, 1)}
        verdicts = VerdictWriter(OWN, 0, mode, lambda: self.now_ms)
        faults = FaultAttribution(SystemClock(), BUDGET_MS, OWN.names())
        rules = MessageRules(self.targets.get, RULES, faults, BUDGET_MS, HoldState(), b"requests/0/")
        self._builder = BatchBuilder(OWN, 0, rules, verdicts)

    def feed(self, *records: Record, quota: Quota | None = None) -> None:
        assert ingest(self.index, Intake(RULES, 0, quota), list(records), self.now_ms) == len(records)

    def recover(self, *fates: Fate) -> None:
        overlay = IndexOverlay(self.index, self.now_ms)
        for fate in fates:
            apply_fate(overlay, fate, read_up_to(self.index))
        overlay.write()

    def commit(
        self,
        now_ms: int,
        own_filter: OwnTopicsFilter | None = None,
        steady_ms: float = 0.0,
        leave_out: int | None = None,
    ) -> Batch:
        """Commits a transaction with all entries due before `now_ms`, or only those that the filter takes. Returns its
        batch. `leave_out`: a request that the second cursor has not read; the key after it is in `keys_after_gaps`."""
        self.now_ms = now_ms
        overlay = IndexOverlay(self.index, now_ms)
        due = Due(*self.index.scan_due(now_ms, 1_000), now_ms=now_ms, own_filter=own_filter)
        if leave_out is not None:
            at = [split_key(key)[1] for key in due.keys].index(leave_out)
            del due.keys[at], due.values[at]
            due.keys_after_gaps = {due.keys[at]}
        batch = self._builder.build(overlay, due, steady_ms)
        assert not batch.unknown
        finish(overlay, batch)
        overlay.write()
        return batch

    def verdicts(self, now_ms: int) -> list[tuple[str, int, int | None]]:
        """Returns the verdicts of the next transaction: (verdict, offset answered, offset acted on)."""
        answers = []
        for _, topic, _, key, value, _ in self.commit(now_ms).messages:
            if topic == OWN.verdicts:
                assert value is not None
                verdict = json.loads(value)
                assert key == (verdict["id"].encode() if verdict["id"] else None)
                acted_on = None if verdict["of"] is None else int(verdict["of"].rpartition("/")[2])
                answers.append((verdict["verdict"], int(verdict["origin"].rpartition("/")[2]), acted_on))
        return answers


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[_Shard]:
    made = _Shard(tmp_path / "0", "control")
    yield made
    made.index.close()


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[_Shard]:
    made = _Shard(tmp_path / "0", "all")
    yield made
    made.index.close()


def request(offset: int, **headers: str | int) -> Record:
    given: Headers = [(f"postdate-{name}", str(text).encode()) for name, text in headers.items()]
    return Record(offset, BASE_MS, True, b"key", b"body", given)


def schedule(offset: int, due_ms: int, **headers: str | int) -> Record:
    return request(offset, topic="orders", at=due_ms, **headers)


def test_a_cancel_in_time_is_answered_cancelled_and_a_second_one_not_found(shard: _Shard) -> None:
    shard.feed(schedule(0, FAR_MS, id="a"), request(1, action="cancel", id="a"), request(2, action="cancel", id="a"))
    shard.feed(request(3, action="cancel", origin="requests/0/0"))
    assert shard.verdicts(SOON_MS) == [("cancelled", 1, 0), ("not-found", 2, None), ("not-found", 3, None)]
    shard.feed(request(4, action="cancel", id="a"), request(5, action="cancel", origin="requests/0/0"))
    assert shard.verdicts(SOON_MS) == [("not-found", 4, None), ("not-found", 5, None)]


def test_a_control_on_a_delivered_message_is_too_late_by_id_and_by_origin(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS))
    assert shard.verdicts(SOON_MS + 1) == []
    shard.feed(
        request(2, action="cancel", id="a"),
        request(3, action="reschedule", id="a", at=FAR_MS),
        request(4, action="cancel", origin="requests/0/1"),
        request(5, action="cancel", id="never"),
        request(6, action="cancel", origin="requests/0/5"),
    )
    expected = [("too-late", 2, 0), ("too-late", 3, 0), ("too-late", 4, 1), ("not-found", 5, None)]
    assert shard.verdicts(SOON_MS + 1) == [*expected, ("not-found", 6, None)]


def test_a_second_cancel_beside_the_first_does_not_find_an_earlier_message_of_the_id(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS, id="a"))
    shard.commit(SOON_MS + 1)
    shard.feed(schedule(1, FAR_MS, id="a"), request(2, action="cancel", id="a"), request(3, action="cancel", id="a"))
    assert shard.verdicts(SOON_MS + 1) == [("cancelled", 2, 1), ("not-found", 3, None)]


def test_a_message_frees_its_id_even_after_a_control_in_the_same_transaction(shard: _Shard) -> None:
    shard.feed(request(0, action="cancel", id="nobody"), schedule(1, SOON_MS, id="a"))
    assert [fate.name for fate in shard.commit(SOON_MS + 1).fates] == [APPLIED, DELIVERED]
    assert shard.index.timer_log.id_key(b"a") is None
    shard.feed(request(2, action="cancel", id="a"))
    assert shard.verdicts(SOON_MS + 2) == [("too-late", 2, 1)]


def test_the_end_of_an_id_is_forgotten_after_the_window(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS, id="a"))
    shard.commit(SOON_MS + 1)
    late_ms = SOON_MS + 3 * WINDOW_MS
    shard.index.forget_outcomes(late_ms)
    shard.feed(request(1, action="cancel", id="a"))
    assert shard.verdicts(late_ms) == [("not-found", 1, None)]
    assert list(shard.index._log._db.range("ended", b"i", b"j").collect_keys(10)) == []


def test_a_reschedule_is_answered_and_one_that_a_cancel_overtook_is_not_found(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS, id="a"), request(1, action="reschedule", id="a", at=FAR_MS))
    assert shard.verdicts(SOON_MS + 1) == [("rescheduled", 1, 0)]
    shard.feed(request(2, action="reschedule", id="a", at=FAR_MS + 1), request(3, action="cancel", id="a"))
    assert shard.verdicts(SOON_MS + 1) == [("not-found", 2, None), ("cancelled", 3, 0)]


def test_a_replacing_request_gets_the_origin_that_it_replaced(shard: _Shard) -> None:
    shard.feed(schedule(0, FAR_MS, id="a"), schedule(1, FAR_MS, id="a"), schedule(2, FAR_MS, id="a"))
    assert shard.verdicts(SOON_MS) == [("replaced", 1, 0), ("replaced", 2, 1)]
    shard.feed(request(3, action="cancel", id="a"))
    assert shard.verdicts(SOON_MS) == [("cancelled", 3, 2)]


def test_a_control_on_a_message_that_a_successor_delivered_is_too_late(shard: _Shard) -> None:
    """Rule 2: an owner that was frozen ingested the cancels before it read the fates of the messages."""
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS))
    shard.feed(request(2, action="cancel", id="a"), request(3, action="cancel", origin="requests/0/1"))
    shard.recover(PlainFate(0, SOON_MS, DELIVERED), PlainFate(1, SOON_MS, DELIVERED))
    assert shard.verdicts(SOON_MS + 1) == [("too-late", 2, 0), ("too-late", 3, 1)]


def test_a_cancel_is_too_late_even_if_the_fate_was_read_before_its_request(shard: _Shard) -> None:
    shard.recover(PlainFate(0, SOON_MS, DELIVERED))
    shard.feed(schedule(0, SOON_MS, id="a"), request(1, action="cancel", id="a"))
    assert shard.verdicts(SOON_MS + 1) == [("too-late", 1, 0)]


def test_a_refused_control_is_rejected_and_a_refused_schedule_only_with_verdicts_all(shard: _Shard) -> None:
    shard.feed(request(0, action="cancel"), request(1, action="cansel", id="a"), request(2, topic="orders"))
    assert shard.verdicts(SOON_MS) == [("rejected", 0, None), ("rejected", 1, None)]


def test_with_verdicts_all_each_request_gets_its_final_fate(answering: _Shard) -> None:
    answering.feed(
        schedule(0, SOON_MS),
        schedule(1, FAR_MS, id="a"),
        request(2, action="cancel", id="a"),
        schedule(3, FAR_MS, id="b"),
        schedule(4, FAR_MS, id="b"),
        request(5, topic="orders"),
        request(6, topic="orders", at=SOON_MS, partition=7),
    )
    assert sorted(answering.verdicts(SOON_MS + 1), key=lambda answer: (answer[1], answer[2] or -1)) == [
        ("delivered", 0, None),
        ("cancelled", 1, None),
        ("cancelled", 2, 1),
        ("replaced", 3, None),
        ("replaced", 4, 3),
        ("rejected", 5, None),
        ("dead", 6, None),
    ]


def test_a_dead_letter_that_does_not_fit_drops_its_value_then_its_headers(shard: _Shard) -> None:
    shard.targets[OWN.dead_letters].size_bytes_max = 2_000
    headers: Headers = [("postdate-topic", b"orders"), ("big", b"x" * 3_000)]
    shard.feed(
        Record(0, BASE_MS, True, b"key", b"v" * 5_000, headers[:1]), Record(1, BASE_MS, True, b"key", b"v", headers)
    )
    first, second = shard.commit(SOON_MS).messages
    for message, words in ((first, b"the value is too large"), (second, b"headers and the value")):
        dead_letter_headers = dict(message[5])
        detail = dead_letter_headers["postdate-dead-detail"]
        assert detail is not None
        assert (message[3], message[4]) == (b"key", None)
        assert detail.startswith(words)
        assert detail.endswith(b"needs one of postdate-at, postdate-delay and postdate-level")
    assert ("postdate-topic", b"orders") in first[5]


def _dead_letter(shard: _Shard, offset: int, size_bytes_max: int) -> OutgoingRecord:
    """Returns the dead letter of a request without a time, for a topic that accepts records up to a size."""
    shard.targets[OWN.dead_letters].size_bytes_max = size_bytes_max
    headers: Headers = [("postdate-topic", b"orders"), ("big", b"x" * 300)]
    shard.feed(Record(offset, BASE_MS, True, b"key", b"v" * 1_000, headers))
    (message,) = shard.commit(SOON_MS).messages
    return message


def test_a_dead_letter_that_just_fits_is_complete(shard: _Shard) -> None:
    whole = _dead_letter(shard, 0, 10_000)
    size_bytes = record_size_bytes(*whole[3:])
    assert _dead_letter(shard, 1, size_bytes)[4] == b"v" * 1_000
    without_value = _dead_letter(shard, 2, size_bytes - 1)
    assert without_value[4] is None
    size_bytes = record_size_bytes(*without_value[3:])
    assert ("big", b"x" * 300) in _dead_letter(shard, 3, size_bytes)[5]
    assert ("big", b"x" * 300) not in _dead_letter(shard, 4, size_bytes - 1)[5]


@pytest.mark.parametrize(
    ("partitions_max", "transactions"), [(5, [[0, 1, 2]]), (4, [[0], [1], [2]]), (2, [[0], [1], [2]])]
)
def test_a_transaction_has_a_bounded_number_of_partitions(
    shard: _Shard, monkeypatch: pytest.MonkeyPatch, partitions_max: int, transactions: list[list[int]]
) -> None:
    monkeypatch.setattr(batch_module, "TARGET_PARTITIONS_PER_TRANSACTION_MAX", partitions_max)
    shard.targets["mails"] = Target("mails", partitions=2)
    for offset, target in enumerate(("orders", "mails", "orders")):
        shard.feed(request(offset, topic=target, at=SOON_MS + offset))
    left = [[fate.offset for fate in shard.commit(SOON_MS + 9).fates] for _ in transactions]
    assert left == transactions


@pytest.mark.parametrize("action", [{"action": "cancel"}, {"action": "reschedule", "at": SOON_MS + 9}])
def test_a_message_without_an_id_that_a_control_acts_on_leaves_no_place_behind(
    shard: _Shard, action: dict[str, str | int]
) -> None:
    shard.feed(schedule(0, SOON_MS), request(1, origin="requests/0/0", **action))
    assert shard.index.timer_log.place(0) is not None
    shard.commit(SOON_MS)
    shard.commit(SOON_MS + 10)
    assert shard.index.timer_log.place(0) is None


def test_an_own_topic_whose_limit_is_unknown_is_looked_up(shard: _Shard) -> None:
    shard.feed(request(0, topic="orders"))
    del shard.targets[OWN.dead_letters]
    due = Due(*shard.index.scan_due(SOON_MS, 10), now_ms=SOON_MS)
    batch = shard._builder.build(IndexOverlay(shard.index, SOON_MS), due, 0.0)
    assert (len(batch.dead), batch.unknown) == (1, {OWN.dead_letters: []})


def test_a_delivery_is_late_from_its_due_time_or_from_its_request_if_that_was_later(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS), schedule(1, BASE_MS - 500), schedule(2, SOON_MS + 1))
    batch = shard.commit(SOON_MS + 9)
    assert (batch.dues_ms, batch.due_max_ms) == ([BASE_MS, SOON_MS, SOON_MS + 1], SOON_MS + 1)


def test_the_size_of_a_delivery_counts_the_longest_origin(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS))
    entry = decode_entry(shard.index.scan_due(SOON_MS + 1, 1)[1][0])
    headers = delivered_headers(entry.headers, b"requests/0/%d" % (2**63 - 1), entry.due, entry.id)
    size_bytes = record_size_bytes(entry.key, entry.value, headers)
    assert shard._builder._rules.delivered_size_bytes(entry) == size_bytes


def test_parked_messages_leave_among_the_others_by_due_time(shard: _Shard) -> None:
    shard.feed(*(schedule(offset, SOON_MS + offset) for offset in range(4)))
    keys, values = shard.index.scan_due(SOON_MS + 9, 10)
    waiting = [(parked_key("orders", *split_key(keys[at])), values[at]) for at in (0, 2)]
    due = Due([keys[1], keys[3]], [values[1], values[3]], parked=waiting, now_ms=SOON_MS + 9)
    batch = shard._builder.build(IndexOverlay(shard.index, SOON_MS), due, 0.0)
    assert [fate.offset for fate in batch.fates] == [0, 1, 2, 3]


def test_a_compacted_target_takes_no_message_without_a_key(shard: _Shard) -> None:
    shard.targets["orders"].compacted = True
    given: Headers = [("postdate-topic", b"orders"), ("postdate-at", b"%d" % SOON_MS)]
    shard.feed(Record(0, BASE_MS, True, None, b"v", given), Record(1, BASE_MS, True, b"key", b"v", given))
    reasons = [dict(message[5]).get("postdate-dead-reason") for message in shard.commit(SOON_MS + 1).messages]
    assert reasons == [b"bad-key", None]


def test_each_message_of_a_target_is_judged_separately(shard: _Shard) -> None:
    """An earlier message of the target in the same transaction shows only that the target accepts messages."""
    shard.targets["orders"] = Target("orders", partitions=3, size_bytes_max=2_000_000, compacted=True)
    large = schedule(5, SOON_MS)
    large = Record(5, BASE_MS, True, b"key", bytes(2_000_000), large.headers)
    without_key = Record(7, BASE_MS, True, None, b"body", schedule(7, SOON_MS).headers)
    shard.feed(
        schedule(0, SOON_MS),
        schedule(1, SOON_MS, partition=2),
        schedule(2, SOON_MS, partition=3),
        schedule(3, SOON_MS, grace="1ms"),
        schedule(4, SOON_MS, grace="1h"),
        large,
        schedule(6, SOON_MS),
        without_key,
    )
    batch = shard.commit(SOON_MS + 100)
    fates = [(fate.offset, fate.name) for fate in batch.fates]
    ended = ["delivered", "delivered", "dead", "dead", "delivered", "dead", "delivered", "dead"]
    assert fates == list(enumerate(ended))
    assert batch.dead == ["bad-partition", "expired", "too-large", "bad-key"]


@pytest.mark.parametrize(
    ("late_ms", "failing_ms", "dead"),
    [(BUDGET_MS - 1, 3_600_000, False), (BUDGET_MS, BUDGET_MS - 1, False), (BUDGET_MS, BUDGET_MS, True)],
)
def test_a_message_has_the_whole_retry_budget_from_its_due_time_and_its_target_too(
    shard: _Shard, late_ms: int, failing_ms: int, dead: bool
) -> None:
    shard.targets["orders"] = Target("orders", partitions=3, failing_since=700.0, looked_up_at=700.0 + failing_ms)
    shard.feed(schedule(0, SOON_MS))
    batch = shard.commit(SOON_MS + late_ms, steady_ms=700.0 + failing_ms)
    assert len(batch.dead) == dead
    assert len(batch.park) == (not dead)


@pytest.mark.parametrize(
    ("due_ms", "now_ms", "looked_up_ms"),
    [
        (BASE_MS - 2 * BUDGET_MS, BASE_MS + 60_000, BASE_MS),
        (BASE_MS - 2 * BUDGET_MS, BASE_MS + 10, BASE_MS),
        (SOON_MS, SOON_MS + 60_000, SOON_MS + BUDGET_MS),
        (SOON_MS, SOON_MS + BUDGET_MS + 10, SOON_MS + BUDGET_MS + 10 - TARGET_FRESH_MS_MAX),
        (BASE_MS - 3 * BUDGET_MS, BASE_MS - BUDGET_MS, BASE_MS - BUDGET_MS - TARGET_FRESH_MS_MAX),
    ],
    ids=["request", "request, fresh", "budget", "budget, fresh", "request stamped ahead"],
)
@pytest.mark.parametrize(("before_ms", "dead"), [(0, True), (1, False)])
def test_a_missing_target_ends_a_message_only_after_a_look_up_past_its_request_and_budget(
    shard: _Shard, due_ms: int, now_ms: int, looked_up_ms: int, before_ms: int, dead: bool
) -> None:
    """Metadata from before the end of the budget is good enough if it is at most one second old."""
    steady_ms = 4.0 * BUDGET_MS
    looked_up_at = steady_ms - (now_ms - looked_up_ms) - before_ms
    shard.targets["orders"] = Target("orders", partitions=3, failing_since=0.0, looked_up_at=looked_up_at)
    shard.feed(schedule(0, due_ms))
    assert len(shard.commit(now_ms, steady_ms=steady_ms).dead) == dead


def waits_for_metadata(shard: _Shard, now_ms: int, age_ms: int) -> bool:
    """True if a message that metadata of this age refuses waits for newer metadata."""
    steady_ms = 9_000.0
    shard.targets["orders"] = Target("orders", partitions=3, size_bytes_max=10, looked_up_at=steady_ms - age_ms)
    shard.feed(schedule(0, SOON_MS))
    raw = shard.index.scan_due(SOON_MS + 1, 1)[1][0]
    return shard._builder._rules.decide(decode_entry(raw), len(raw), now_ms, steady_ms, None) is Decision.DEFER


@pytest.mark.parametrize(("before_request_ms", "waits"), [(0, False), (1, True)])
def test_metadata_from_before_a_request_does_not_refuse_it(shard: _Shard, before_request_ms: int, waits: bool) -> None:
    now_ms = SOON_MS + 5_000
    assert waits_for_metadata(shard, now_ms, now_ms - BASE_MS + before_request_ms) is waits


@pytest.mark.parametrize(("age_ms", "waits"), [(TARGET_FRESH_MS_MAX, False), (TARGET_FRESH_MS_MAX + 1, True)])
def test_fresh_metadata_refuses_a_newer_request(shard: _Shard, age_ms: int, waits: bool) -> None:
    assert waits_for_metadata(shard, BASE_MS + 1, age_ms) is waits


@pytest.mark.parametrize("why", ["acted on", "batch is full", "target fails", "entries unread"])
def test_an_entry_that_stays_between_ended_entries_is_not_deleted(
    shard: _Shard, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Ended entries are deleted as a range of keys: an entry that stays must end that range."""
    monkeypatch.setattr(changes, "SPAN_KEYS_MIN", 2)
    shard.targets["small"] = Target("small", partitions=1, size_bytes_max=300)
    shard.targets["away"] = Target("away", partitions=1, failing_since=0.0)
    target = {"batch is full": "small", "target fails": "away"}.get(why, "orders")
    shard.feed(schedule(0, SOON_MS), *(request(n, topic="small", at=SOON_MS) for n in (1, 2)), schedule(3, SOON_MS))
    shard.feed(request(4, topic=target, at=SOON_MS, key="other"), schedule(5, SOON_MS), schedule(6, SOON_MS))
    own_filter = OwnTopicsFilter((), acted_on={4}) if why == "acted on" else None
    batch = shard.commit(SOON_MS + 1, own_filter, leave_out=4 if why == "entries unread" else None)
    gone = {fate.offset for fate in batch.fates}
    assert 4 not in gone
    assert gone >= {0, 3, 5, 6}
    keys = shard.index.timer_log.scan_keys(entry_key(1, 0), None, 100)
    assert {split_key(key)[1] for key in keys} == set(range(7)) - gone


@pytest.mark.parametrize(
    ("messages_max", "spare_bytes", "leaving"), [(1, 0, 1), (2, 0, 2), (2, -1, 1), (3, 0, 3), (3, -1, 2)]
)
def test_messages_fill_a_batch_of_a_target_with_small_batches_to_the_byte(
    shard: _Shard, messages_max: int, spare_bytes: int, leaving: int
) -> None:
    shard.feed(*(schedule(offset, SOON_MS) for offset in range(3)))
    (size_bytes,) = {
        shard._builder._rules.delivered_size_bytes(decode_entry(raw))
        for raw in shard.index.scan_due(SOON_MS + 1, 10)[1]
    }
    limit = messages_max * size_bytes + spare_bytes
    shard.targets["orders"] = Target("orders", partitions=3, size_bytes_max=limit)
    assert len(shard.commit(SOON_MS + 1).fates) == leaving


def test_a_target_that_accepts_full_client_batches_has_no_batch_limit(
    shard: _Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "CLIENT_BATCH_BYTES", 300)
    shard.targets["orders"] = Target("orders", partitions=3, size_bytes_max=300)
    shard.feed(*(schedule(offset, SOON_MS) for offset in range(9)))
    assert len(shard.commit(SOON_MS + 1).fates) == 9


def test_a_message_may_still_leave_at_the_end_of_its_grace(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS, grace="1s"))
    batch = shard.commit(SOON_MS + 1_000)
    assert batch.dead == []
    assert [fate.name for fate in batch.fates] == [DELIVERED]


@pytest.mark.parametrize(("late_ms", "fate"), [(0, DELIVERED), (1, DEAD)])
def test_a_message_without_any_grace_leaves_on_time_or_expires(shard: _Shard, late_ms: int, fate: str) -> None:
    shard.feed(schedule(0, SOON_MS, grace="0"), schedule(1, SOON_MS), schedule(2, SOON_MS, grace="0"))
    overlay = IndexOverlay(shard.index, SOON_MS)
    due = Due(*shard.index.scan_due(SOON_MS + 1, 10), now_ms=SOON_MS + late_ms)
    assert [ended.name for ended in shard._builder.build(overlay, due, 0.0).fates] == [fate, DELIVERED, fate]


@pytest.mark.parametrize(
    ("graces", "end_ms"),
    [((), INTEGER_END), (("0",), SOON_MS), (("1s",), SOON_MS + 1_000), (("1s", "500ms", "2s"), SOON_MS + 500)],
)
def test_a_transaction_ends_before_the_first_grace_of_its_messages(
    shard: _Shard, graces: tuple[str, ...], end_ms: int
) -> None:
    shard.feed(schedule(0, SOON_MS), *(schedule(o, SOON_MS, grace=grace) for o, grace in enumerate(graces, 1)))
    due = Due(*shard.index.scan_due(SOON_MS + 1, 10), now_ms=SOON_MS)
    batch = shard._builder.build(IndexOverlay(shard.index, SOON_MS), due, 0.0)
    assert (len(batch.fates), batch.grace_end_ms) == (1 + len(graces), end_ms)


def test_an_expiry_counts_only_if_the_broker_stamps_it_after_the_grace(shard: _Shard) -> None:
    """Otherwise a message could expire before it is due, if this process overestimates the broker's time."""
    shard.feed(schedule(0, SOON_MS, grace="1s"))
    batch = shard.commit(SOON_MS + 5_000)
    assert batch.dead == ["expired"]
    assert batch.due_max_ms == SOON_MS + 1_001


def test_a_message_that_waits_for_an_own_topic_keeps_the_order_of_its_key(shard: _Shard) -> None:
    shard.targets["mails"] = Target("mails", partitions=1)
    first, second, elsewhere = (schedule(offset, SOON_MS - 9 + offset) for offset in range(3))
    elsewhere = msgspec.structs.replace(elsewhere, key=b"other")
    keyless = [msgspec.structs.replace(schedule(offset, SOON_MS - 9 + offset), key=None) for offset in (3, 4)]
    other_target = request(5, topic="mails", at=SOON_MS - 1)
    shard.feed(first, second, elsewhere, *keyless, other_target)
    waits_for_us = OwnTopicsFilter((OWN.verdicts,), acted_on={0, 3})
    assert [fate.offset for fate in shard.commit(SOON_MS, waits_for_us).fates] == [2, 4, 5]
    ours_alone = OwnTopicsFilter((OWN.verdicts,), own_left=9)
    assert shard.commit(SOON_MS, ours_alone).fates == []
    assert [fate.offset for fate in shard.commit(SOON_MS).fates] == [0, 1, 3]


def test_a_message_leaves_before_a_later_one_of_its_key_that_waits_for_an_own_topic(shard: _Shard) -> None:
    shard.feed(schedule(0, SOON_MS - 9), schedule(1, SOON_MS - 7))
    behind: dict[tuple[str, bytes | None], bytes] = {("orders", b"key"): entry_key(SOON_MS - 8, 2)}
    assert [fate.offset for fate in shard.commit(SOON_MS, OwnTopicsFilter((), behind=behind)).fates] == [0]


def test_a_stored_message_waits_while_the_store_is_isolated(shard: _Shard) -> None:
    """The delivery of a stored message writes a tombstone to STORE."""
    shard.feed(schedule(0, SOON_MS), msgspec.structs.replace(schedule(1, SOON_MS), key=b"other"))
    shard.recover(PlainFate(0, SOON_MS, STORED))
    assert [fate.offset for fate in shard.commit(SOON_MS + 1, OwnTopicsFilter((OWN.store,))).fates] == [1]
    others = OwnTopicsFilter((OWN.verdicts, OWN.dead_letters))
    assert [fate.offset for fate in shard.commit(SOON_MS + 1, others).fates] == [0]


@pytest.mark.parametrize(("topic", "ends"), [(OWN.dead_letters, False), (OWN.verdicts, True), (OWN.store, True)])
def test_a_message_that_its_target_refuses_waits_while_the_dead_letters_are_isolated(
    shard: _Shard, topic: str, ends: bool
) -> None:
    shard.feed(schedule(0, SOON_MS, partition=99))
    assert bool(shard.commit(SOON_MS + 1, OwnTopicsFilter((topic,))).dead) is ends


def test_a_message_that_waits_for_an_own_topic_is_recorded(answering: _Shard) -> None:
    answering.feed(schedule(0, SOON_MS))
    waiting = answering.commit(SOON_MS + 1, OwnTopicsFilter((OWN.verdicts,)))
    assert (waiting.skipped_own, waiting.fates) == (True, [])
    gone = answering.commit(SOON_MS + 1, OwnTopicsFilter((OWN.store,)))
    assert (gone.skipped_own, len(gone.fates)) == (False, 1)


@pytest.mark.parametrize(
    ("topic", "refused"),
    [
        (RequestTopicConfig(pending_max=2), [3, 4]),
        (RequestTopicConfig(pending_size_bytes_max=20), [3, 4]),
        (RequestTopicConfig(requests_per_second_max=2), [3]),
    ],
)
def test_beyond_a_limit_requests_to_schedule_are_refused_and_controls_are_not(
    shard: _Shard, topic: RequestTopicConfig, refused: list[int]
) -> None:
    given: Headers = [("postdate-topic", b"orders"), ("postdate-at", b"%d" % FAR_MS), ("postdate-id", b"a")]
    records = [
        Record(0, BASE_MS, True, b"key", b"123456", given),
        Record(1, BASE_MS, True, b"key", b"123456", given[:2]),
        request(2, action="reschedule", id="a", at=FAR_MS),
        Record(3, BASE_MS + 499, True, b"key", b"123456", given[:2]),
        Record(4, BASE_MS + 2_000, True, b"key", b"123456", given[:2]),
    ]
    shard.feed(*records, quota=Quota(topic))
    batch = shard.commit(SOON_MS)
    ended = {message[0]: dict(message[5])["postdate-dead-reason"] for message in batch.messages if message[0] >= 0}
    assert ended == dict.fromkeys(refused, b"limit-exceeded")


def test_the_byte_limit_counts_pending_entries_at_the_start_of_a_batch(shard: _Shard) -> None:
    quota = Quota(RequestTopicConfig(pending_size_bytes_max=1_500))
    given: Headers = [("postdate-topic", b"orders"), ("postdate-at", b"%d" % SOON_MS)]
    shard.feed(Record(0, BASE_MS, True, b"key", bytes(1_000), given), quota=quota)
    shard.feed(Record(1, BASE_MS, True, b"key", bytes(600), given), quota=quota)
    assert [fate.name for fate in shard.commit(SOON_MS + 1).fates] == [DEAD, DELIVERED]
    shard.feed(Record(2, BASE_MS, True, b"key", bytes(1_000), given), quota=quota)
    assert [fate.name for fate in shard.commit(SOON_MS + 1).fates] == [DELIVERED]


@pytest.mark.parametrize(("limit", "fate"), [(9, DELIVERED), (8, DEAD)])
def test_a_request_may_use_up_the_limit_of_bytes(shard: _Shard, limit: int, fate: str) -> None:
    given: Headers = [("postdate-topic", b"orders"), ("postdate-at", b"%d" % SOON_MS)]
    shard.feed(
        Record(0, BASE_MS, True, b"key", b"123456", given),
        quota=Quota(RequestTopicConfig(pending_size_bytes_max=limit)),
    )
    assert [ended.name for ended in shard.commit(SOON_MS + 1).fates] == [fate]


@pytest.mark.parametrize(("after_ms", "fate"), [(500, DELIVERED), (499, DEAD)])
def test_a_request_is_accepted_as_soon_as_the_rate_allows_it(shard: _Shard, after_ms: int, fate: str) -> None:
    quota = Quota(RequestTopicConfig(requests_per_second_max=2))
    given: Headers = [("postdate-topic", b"orders"), ("postdate-at", b"%d" % SOON_MS)]
    at_ms = [BASE_MS, BASE_MS, BASE_MS + after_ms]
    shard.feed(*(Record(n, at, True, b"key", b"v", given) for n, at in enumerate(at_ms)), quota=quota)
    assert {ended.offset: ended.name for ended in shard.commit(SOON_MS + 1).fates}[2] == fate
