"""Goal: a static member keeps its place in the group. A group consumer whose client has failed raises the fault from
its next poll on, and holds no partition.

Method: a second member of the same static name joins. It fences the first member, or is refused if the broker assigns
the partitions (KIP-848).
"""

from __future__ import annotations

import pytest

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import FatalClient, Fenced, KafkaFault, NameInUse, OtherProtocol
from postdate.kafka.interface import Kafka, Partition
from postdate.kafka.settings import KafkaSettings
from support.brokers.broker import RunningBroker, unique_name
from support.brokers.kafka_clock import now_s
from support.brokers.kafka_steps import Join, Member, append, confirms, new_topic, poll_for, poll_until


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
    with pytest.raises(Fenced):  # every later poll raises it as well
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


def test_a_static_member_that_was_replaced_is_not_confirmed(kafka: Kafka, join: Join) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    group = unique_name("group")
    old = join(group, topic, instance_id="pod-0")
    poll_until([old], lambda: confirms(old, part), "a group that has settled")
    new = join(group, topic, instance_id="pod-0")
    poll_until([new], lambda: confirms(new, part), "the successor")
    assert part in old.consumer.assignment()
    assert not old.consumer.confirm([part], 10)


def test_a_member_that_was_replaced_can_store_no_note(kafka: Kafka, join: Join) -> None:
    topic = new_topic(kafka)
    part = Partition(topic, 0)
    group = unique_name("group")
    old = join(group, topic, instance_id="pod-0")
    poll_until([old], lambda: confirms(old, part), "a group that has settled")
    new = join(group, topic, instance_id="pod-0")
    poll_until([new], lambda: confirms(new, part), "the successor")
    with pytest.raises(KafkaFault):
        old.consumer.commit_note(part, 0, "mine")
    assert kafka.admin().group_note(group, part) == ""


def test_a_static_member_leaves_for_good_and_gives_all_to_the_others_at_once(kafka: Kafka, join: Join) -> None:
    topic = new_topic(kafka, partitions=2)
    group = unique_name("group")
    leaver, stays = join(group, topic, instance_id="pod-0"), join(group, topic)
    both = [leaver, stays]
    poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [1, 1], "one partition each")
    leaver.consumer.leave()
    poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [0, 2], "all for the other")
    poll_until(both, lambda: len(kafka.admin().group_members(group)) == 1, "one member")
    poll_for(both, 1.0)
    assert leaver.consumer.assignment() == frozenset()


@pytest.mark.parametrize("kafka", ["consumer"], indirect=True)
class TestConsumerProtocol:
    """The group protocol consumer (KIP-848): of two members with one static name, the first stays."""

    def test_a_second_member_of_a_name_is_refused_and_the_first_continues(self, kafka: Kafka, join: Join) -> None:
        topic, group = new_topic(kafka), unique_name("group")
        part = Partition(topic, 0)
        first = join(group, topic, instance_id="pod-0")
        poll_until([first], lambda: confirms(first, part), "a group that has settled")
        second = join(group, topic, instance_id="pod-0")
        fault = _fatal_fault(second, [first])
        assert isinstance(fault, NameInUse), fault
        with pytest.raises(NameInUse):  # every later poll raises it as well
            second.consumer.poll(10, 0.0)
        second.consumer.close()
        assert second.events == []
        offset, _ = append(kafka, topic)
        poll_until([first], lambda: first.offsets(part) == [offset], "the first member reads on")

    def test_a_name_is_free_when_its_member_has_closed(self, kafka: Kafka, join: Join) -> None:
        topic, group = new_topic(kafka), unique_name("group")
        first = join(group, topic, instance_id="pod-0")
        poll_until([first], lambda: bool(first.consumer.assignment()), "an assignment")
        first.consumer.close()
        again = join(group, topic, instance_id="pod-0")
        poll_until([again], lambda: len(again.consumer.assignment()) == 1, "the partition comes back")

    def test_a_member_joins_after_the_last_classic_one_and_finds_the_committed_offsets(
        self, kafka: Kafka, join: Join, broker: RunningBroker
    ) -> None:
        topic, group = new_topic(kafka, partitions=2), unique_name("group")
        part = Partition(topic, 0)
        classic = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
        first, second = (Member(classic.group_consumer(group), now_s=lambda: now_s(kafka)) for _ in range(2))
        for member in (first, second):
            member.consumer.subscribe([topic], member)
        poll_until([first, second], lambda: len(second.consumer.assignment()) == 1, "one partition each")
        second.consumer.close()
        poll_until([first], lambda: len(first.consumer.assignment()) == 2, "both partitions")
        first.consumer.commit_note(part, 7, "held")
        early = join(group, topic)
        assert isinstance(_fatal_fault(early, [first]), OtherProtocol)
        early.consumer.close()
        first.consumer.close()
        late = join(group, topic)
        poll_until([late], lambda: len(late.consumer.assignment()) == 2, "both partitions")
        admin = kafka.admin()
        assert (admin.group_note(group, part), admin.group_offset(group, part)) == ("held", 7)

    def test_a_static_member_that_leaves_keeps_its_share_until_its_session_is_over(
        self, kafka: Kafka, join: Join
    ) -> None:
        topic, group = new_topic(kafka, partitions=2), unique_name("group")
        leaver, stays = join(group, topic, instance_id="pod-0"), join(group, topic)
        both = [leaver, stays]
        poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [1, 1], "one partition each")
        leaver.consumer.leave()
        poll_until(both, lambda: not leaver.consumer.assignment(), "the leaver gave its partition back")
        assert len(stays.consumer.assignment()) == 1
        poll_until(both, lambda: len(stays.consumer.assignment()) == 2, "the session is over")


def _fatal_fault(member: Member, others: list[Member]) -> KafkaFault:
    """Returns the fault that a poll of `member` finally raises."""
    raised: list[KafkaFault] = []

    def has_raised() -> bool:
        try:
            member.poll()
        except (FatalClient, Fenced) as fault:
            raised.append(fault)
        return bool(raised)

    poll_until(others, has_raised, "a fatal error")
    return raised[0]
