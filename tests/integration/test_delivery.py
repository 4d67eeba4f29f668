"""Goal: each message is delivered once, at its due time, in order, with every byte and header as requested.

Method: a plain producer sends requests to a real sidecar. Then the oracle checks all records that Kafka holds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Producer

from postdate.wire.headers import ACTION, AT, DELAY, DUE, ID, KEY, LEVEL, ORIGIN, PARTITION, TOPIC, Headers
from postdate.wire.values.murmur2 import partition_for
from support.brokers.broker import unique_name
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Outcome, Seen, Sent, overtaken
from support.waiting.contention import watch_contention
from support.waiting.rounds import LONGER, expect, first_round_in_time
from support.waiting.timeouts import WAIT_TIMEOUT_S

_BINARY = bytes(range(256))
#: Milliseconds: the retry budget of a target that does not exist.
_BUDGET_MS = 1_500
_HEADERS: Sequence[Headers] = (
    [],
    [("plain", b"text"), ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")],
    [("null", None), ("empty", b""), ("binary", _BINARY)],
    [("twice", b"1"), ("between", b"x"), ("twice", b"2"), ("twice", b"1")],
    [
        ("", b"a name without a character"),
        ("gr\u00fc\u00df", b"beyond ASCII"),
        ("post", b"date-"),
        ("ostdate-id", b"7"),
    ],
)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _at(target: str, due_ms: int, key: bytes | None, value: bytes | None, *more: tuple[str, bytes | None]) -> Sent:
    """Returns a request that is due at an instant. `more` may contain headers of Postdate and of the message."""
    headers = [(TOPIC, target.encode()), *more, (AT, b"%d" % due_ms)]
    return Sent(target, key, value, headers, due_ms)


def _serve(deployment: SidecarDeployment, shards: int, **dispatch: int) -> None:
    sidecar = deployment.new_sidecar(dispatch=dispatch)
    sidecar.start()
    sidecar.wait_for_shards(shards)


def test_every_byte_arrives_on_the_partition_of_java(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(2), deployment.new_target(5)
    due_ms = _now_ms() + 1500
    messages = [(key, value) for key in (None, b"", b"key", _BINARY) for value in (None, b"", b"value", _BINARY * 400)]
    requested = [_at(target, due_ms, key, value, *headers) for key, value in messages for headers in _HEADERS]
    other_key = _at(target, due_ms, b"the request's own", b"v", (KEY, b"the target's"))
    other_key.target_key = b"the target's"
    placed = _at(target, due_ms, b"key", b"v", (PARTITION, b"3"), (ID, b"order-9"))
    requested += [other_key, placed]
    _serve(deployment, 2)
    sender = deployment.sender()
    for sent in requested:
        sender.send(requests, sent)
    sender.flush()
    deployment.wait_for_ends(len(requested))
    seen = {record.origin: record for record in deployment.judge(requested).delivered}
    for sent in requested:
        key = sent.target_key or sent.key
        if sent is not placed and key is not None:
            assert seen[sent.origin].partition == partition_for(key, 5), sent
    assert seen[placed.origin].partition == 3


def test_a_null_target_key_replaces_the_key_of_the_request(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(), deployment.new_target(2)
    _serve(deployment, 1)
    sender = deployment.sender()
    sender.send(requests, _at(target, _now_ms(), b"key", b"v", (KEY, None)))
    sender.flush()
    deployment.wait_for_ends(1)
    reader = deployment.reader(target)
    reader.until(lambda: len(reader.records) == 1, "the message arrives")
    assert reader.records[0].key is None
    reader.close()


def test_every_notation_of_a_due_time_is_kept(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(), deployment.new_target()
    _serve(deployment, 1)
    base_ms = _now_ms()
    notations: list[tuple[str, bytes, int]] = [
        (DELAY, b"0", 0),
        (DELAY, b"700", 700),
        (DELAY, b"1500ms", 1500),
        (DELAY, b"PT1.25S", 1250),
        (DELAY, b"1s", 1000),
        (LEVEL, b"0", 0),
        (LEVEL, b"1", 1000),
    ]
    sender = deployment.sender()
    requested = [Sent(target, b"k", b"v", [(TOPIC, target.encode()), (name, text)]) for name, text, _ in notations]
    past = _at(target, base_ms - 86_400_000, b"k", b"from yesterday")
    instant = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(base_ms // 1000 + 2)).encode()
    iso = Sent(target, b"k", b"v", [(TOPIC, target.encode()), (AT, instant)], (base_ms // 1000 + 2) * 1000)
    for sent in (*requested, past, iso):
        sender.send(requests, sent)
    sender.flush()
    for sent, (_, _, delay_ms) in zip(requested, notations, strict=True):
        sent.due_ms = sent.appended_ms + delay_ms
    deployment.wait_for_ends(len(requested) + 2)
    deployment.judge([*requested, past, iso])


def test_messages_of_one_key_leave_in_order_of_due_time_then_of_request(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(2), deployment.new_target(3)
    _serve(deployment, 2)
    keys, all_sent, sender = [b"a", b"b", b"c", b"d"], list[Sent](), deployment.sender()

    def position(seen: Seen) -> tuple[int, int]:
        return int(seen.last(DUE)), int(seen.origin.rpartition(b"/")[2])

    def attempt(slower: int) -> None:
        """Fails if the messages of a key are out of order.

        On a slow machine, a request may be appended after its due time, and later messages may be delivered first. Such
        a round counts as disturbed.
        """
        base_ms, before = _now_ms() + 1500 * slower, {sent.origin for sent in all_sent}
        requested = [_at(target, base_ms + (n * 7919 % 50) * 10, keys[n % 4], b"%d" % n) for n in range(2_000)]
        all_sent.extend(sender.send(requests, sent) for sent in requested)
        sender.flush()
        deployment.wait_for_ends(len(all_sent))
        outcome = deployment.judge(all_sent)
        assert overtaken(outcome) == []
        new = sorted((seen for seen in outcome.delivered if seen.origin not in before), key=lambda seen: seen.offset)
        for key in keys:
            arrived = [position(seen) for seen in new if seen.key == key]
            assert len(arrived) == 500
            expect(arrived == sorted(arrived), f"{key!r} is not in order: requests may have come too late")

    first_round_in_time(attempt, LONGER)


def test_replace_cancel_and_reschedule_take_effect(deployment: SidecarDeployment) -> None:
    first_round_in_time(lambda slower: _replace_cancel_and_reschedule(deployment.another(), 2_500 * slower), LONGER)


def _replace_cancel_and_reschedule(deployment: SidecarDeployment, lead_ms: int) -> None:
    requests, target = deployment.new_requests(), deployment.new_target()
    _serve(deployment, 1)
    sender = deployment.sender()
    soon_ms, far_ms = _now_ms() + lead_ms, _now_ms() + 3_600_000

    def control(action: bytes, *headers: tuple[str, bytes | None]) -> Sent:
        return sender.send(requests, Sent("", b"k", None, [(ACTION, action), *headers]), 0)

    first = sender.send(requests, _at(target, far_ms, b"k", b"replaced", (ID, b"debounce")), 0)
    second = sender.send(requests, _at(target, soon_ms, b"k", b"the last one wins", (ID, b"debounce")), 0)
    by_id = sender.send(requests, _at(target, soon_ms, b"k", b"cancelled by id", (ID, b"order-1")), 0)
    by_origin = sender.send(requests, _at(target, soon_ms, b"k", b"cancelled by origin"), 0)
    moved = sender.send(requests, _at(target, far_ms, b"k", b"moved nearer", (ID, b"order-2")), 0)
    moved_twice = sender.send(requests, _at(target, soon_ms, b"k", b"moved away and back"), 0)
    sender.flush()
    silent = [first, by_id, by_origin, control(b"cancel", (ID, b"order-1")), control(b"cancel", (ID, b"never seen"))]
    silent.append(control(b"cancel", (ORIGIN, by_origin.origin)))
    silent.append(control(b"reschedule", (ID, b"order-2"), (AT, b"%d" % (soon_ms + 200))))
    silent.append(control(b"reschedule", (ORIGIN, moved_twice.origin), (AT, b"%d" % far_ms)))
    silent.append(control(b"reschedule", (ORIGIN, moved_twice.origin), (AT, b"%d" % (soon_ms + 400))))
    sender.flush()
    expect(_now_ms() < soon_ms, "a message was due before its cancel was written")
    moved.due_ms, moved_twice.due_ms = soon_ms + 200, soon_ms + 400
    deployment.wait_for_ends(3 + len(silent))
    outcome = deployment.judge([second, moved, moved_twice], silent=silent)
    ends = {origin: fates[0][0] for origin, fates in outcome.fates.items()}
    assert [ends[sent.origin] for sent in (first, by_id, by_origin)] == ["replaced", "cancelled", "cancelled"]
    assert {ends[sent.origin] for sent in silent[3:]} == {"applied"}


def test_an_aborted_request_does_not_exist(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(), deployment.new_target()
    _serve(deployment, 1)
    producer = Producer({"bootstrap.servers": deployment.bootstrap, "transactional.id": unique_name("shop")})
    producer.init_transactions(WAIT_TIMEOUT_S)
    due_ms = _now_ms() + 500

    def request(value: bytes) -> Sent:
        sent = _at(target, due_ms, b"k", value)
        producer.produce(requests, value, b"k", headers=list(sent.headers))
        return sent

    producer.begin_transaction()
    for index in range(50):
        request(b"aborted %d" % index)
    assert producer.flush(WAIT_TIMEOUT_S) == 0
    producer.abort_transaction(WAIT_TIMEOUT_S)
    producer.begin_transaction()
    request(b"committed")
    producer.commit_transaction(WAIT_TIMEOUT_S)
    last = deployment.sender().send(requests, _at(target, due_ms + 300, b"k", b"after it"))
    deployment.wait_for_ends(2)
    reader = deployment.reader(target)
    assert [seen.value for seen in reader.to_end()] == [b"committed", last.value]
    reader.close()


def test_several_request_topics_share_a_process(deployment: SidecarDeployment) -> None:
    topics = [deployment.new_requests(2), deployment.new_requests(3)]
    target = deployment.new_target(2)
    _serve(deployment, 5)
    due_ms = _now_ms() + 1000
    sender = deployment.sender()
    requested = [
        sender.send(topics[index % 2], _at(target, due_ms + index % 300, b"%d" % index, b"v%d" % index), partition)
        for partition in range(2)
        for index in range(600)
    ]
    sender.flush()
    deployment.wait_for_ends(len(requested))
    deployment.judge(requested)


def _reasons_of(outcome: Outcome) -> dict[str, int]:
    return dict(outcome.reasons())


def test_an_unknown_target_ends_as_a_dead_letter_and_delays_no_other(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(), deployment.new_target()
    _serve(deployment, 1, retry_budget_ms=_BUDGET_MS)
    with watch_contention() as watch:
        sender, due_ms = deployment.sender(), _now_ms() + 300
        lost = [sender.send(requests, _at(unique_name("nowhere"), due_ms, b"k", b"v")) for _ in range(5)]
        requested = [sender.send(requests, _at(target, due_ms + index, b"k", b"%d" % index)) for index in range(1000)]
        sender.flush()
        reader = deployment.reader(target)
        reader.until(lambda: len(reader.records) == len(requested), "the others arrive")
        reader.close()
        due = {sent.origin: max(sent.due_ms, sent.appended_ms) for sent in requested}
        arrivals = [seen.arrived_ms for seen in reader.records]
        late_ms = watch.most().undisturbed([due[seen.origin] for seen in reader.records], arrivals)
    deployment.wait_for_ends(len(lost) + len(requested))
    outcome = deployment.judge(requested, dead=lost)
    assert _reasons_of(outcome) == {"unknown-target": 5}
    ended = {origin: appended_ms for origin, fates in outcome.fates.items() for _, appended_ms in fates}
    assert min(ended[sent.origin] for sent in lost) >= due_ms + _BUDGET_MS
    assert max(late_ms) < _BUDGET_MS, "the others wait until the unknown target is given up"
