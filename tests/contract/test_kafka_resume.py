"""Goal: a partition that is started or resumed returns its next record at once, not up to a second later.

Method: a partition is paused for a while and resumed, by the client library alone and by the group consumer. If only
the library resumes the partition, its thread notices this after a sleep of up to a second, so the sums of the waits
differ by seconds, even on a busy machine. A start takes the same path. Only the real client is tested.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import Partition
from postdate.kafka.settings import KafkaSettings
from support.brokers.broker import RunningBroker, unique_name
from support.brokers.kafka_steps import Member, commit_values, new_topic, open_producer, poll_until
from support.deployments.sidecars import wait_until

_ROUNDS = 8
#: Seconds: the duration of a pause, in which the library's thread notices the pause and sleeps.
_PAUSE_S = 0.3
#: Seconds: the least difference of the two sums. Without the group consumer, the library waits for 0.7 s in each round.
_DIFFERENCE_S = 1.5


def test_a_resumed_partition_continues_at_once(broker: RunningBroker) -> None:
    kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
    part = Partition(new_topic(kafka), 0)
    producer = open_producer(kafka)
    commit_values(producer, part.topic, [b"x" * 100] * 20_000)
    producer.destroy()

    place = TopicPartition(part.topic, part.index, 0)
    raw = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": unique_name("group")})
    raw.assign([place])
    by_library_s = _resumed_s(lambda: raw.pause([place]), lambda: raw.resume([place]), lambda: bool(raw.poll(0.05)))
    raw.close()

    member = Member(kafka.group_consumer(unique_name("group")), first_offset=None)
    ours = member.consumer
    ours.subscribe([part.topic], member)
    poll_until([member], lambda: bool(member.events), "an assignment")
    ours.start(part, 0)
    by_us_s = _resumed_s(lambda: ours.pause([part]), lambda: ours.resume([part]), lambda: bool(ours.poll(1, 0.05)))
    ours.close()

    print(f"resumed {_ROUNDS} times: {by_library_s:.2f} s by the library alone, {by_us_s:.2f} s by the group consumer")
    assert by_library_s - by_us_s >= _DIFFERENCE_S


def _resumed_s(pause: Callable[[], None], resume: Callable[[], None], has_next: Callable[[], bool]) -> float:
    """Returns the sum of the waits for the next records."""
    wait_until(has_next, "the first record")
    took_s = 0.0
    for _ in range(_ROUNDS):
        pause()
        time.sleep(_PAUSE_S)
        began = time.monotonic()
        resume()
        wait_until(has_next, "the next record")
        took_s += time.monotonic() - began
    return took_s
