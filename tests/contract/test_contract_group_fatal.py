"""Contract of a group consumer whose client has failed: it raises that from its next poll, and holds nothing any more.

Method: a second member of the same name fences a static one, as on any broker.
"""

from __future__ import annotations

import pytest

from postdate.kafka.errors import FatalClient, Fenced, KafkaFault
from postdate.kafka.interface import Kafka, Partition
from support.broker import unique_name
from support.kafka_steps import Join, Member, confirms, new_topic, poll_until


def test_a_static_member_that_was_replaced_raises_fenced(kafka: Kafka, join: Join) -> None:
    topic = new_topic(kafka)
    group = unique_name("group")
    old = join(group, topic, instance_id="pod-0")
    poll_until([old], lambda: bool(old.events), "an assignment")
    new = join(group, topic, instance_id="pod-0")
    fault = _fatal_fault(old, [new])
    assert isinstance(fault, Fenced), fault
    assert "same group.instance.id" in str(fault)
    assert old.consumer.assignment() == frozenset()
    with pytest.raises(Fenced):  # it stays so
        old.consumer.poll(10, 0.0)
    events = list(old.events)
    old.consumer.close()
    assert old.events == events, "the listener of a dead client is called no more"
    poll_until([new], lambda: len(new.consumer.assignment()) == 1, "the successor goes on")


def test_a_new_client_takes_the_place_of_a_fenced_one(kafka: Kafka, join: Join) -> None:
    topic = new_topic(kafka)
    group = unique_name("group")
    old = join(group, topic, instance_id="pod-0")
    poll_until([old], lambda: bool(old.events), "an assignment")
    stranger = join(group, topic, instance_id="pod-0")
    assert isinstance(_fatal_fault(old, [stranger]), Fenced)
    old.consumer.close()
    stranger.consumer.close()
    again = join(group, topic, instance_id="pod-0")
    poll_until([again], lambda: len(again.consumer.assignment()) == 1, "the partition comes back")


def test_a_fence_that_a_commit_meets_is_raised_by_the_next_poll(kafka: Kafka, join: Join) -> None:
    topic = new_topic(kafka)
    part, group = Partition(topic, 0), unique_name("group")
    old = join(group, topic, instance_id="pod-0")
    poll_until([old], lambda: confirms(old, part), "a group that has settled")
    new = join(group, topic, instance_id="pod-0")
    poll_until([new], lambda: confirms(new, part), "the successor")
    with pytest.raises(KafkaFault):
        old.consumer.commit_note(part, 0, "mine")
    assert isinstance(_fatal_fault(old, [new]), Fenced)


def _fatal_fault(member: Member, others: list[Member]) -> KafkaFault:
    """What a poll of `member` raises in the end."""
    raised: list[KafkaFault] = []

    def has_raised() -> bool:
        try:
            member.poll()
        except (FatalClient, Fenced) as fault:
            raised.append(fault)
        return bool(raised)

    poll_until(others, has_raised, "a fatal error")
    return raised[0]
