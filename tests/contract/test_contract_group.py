"""Goal: a group consumer receives partitions paused, starts them at the given offset, and hands them over without a
gap.

Method: members record every event and record. To show that a member receives nothing, the test polls it for a while.
The differences between the group protocols are in test_contract_group_static.py.
"""

from __future__ import annotations

import pytest

from postdate.kafka.errors import KafkaFault, OffsetOutOfRange
from postdate.kafka.interface import Isolation, Kafka, Partition
from support.brokers.broker import unique_name
from support.brokers.kafka_clock import now_s
from support.brokers.kafka_steps import (
    Join,
    Member,
    abort_values,
    append,
    commit_values,
    confirms,
    new_topic,
    open_producer,
    poll_for,
    poll_until,
)
from support.brokers.topic_changes import delete_records

pytestmark = pytest.mark.parametrize("kafka", ["simulated", "confluent", "consumer"], indirect=True)


def _fill(kafka: Kafka, topic: str, partitions: int, count: int) -> None:
    producer = open_producer(kafka)
    for index in range(partitions):
        commit_values(producer, topic, [b"%d" % n for n in range(count)], index)
    producer.destroy()


class TestStart:
    def test_an_assigned_partition_is_silent_until_it_is_started(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        _fill(kafka, topic, 1, 10)
        member = join(unique_name("group"), topic, first_offset=None)
        poll_until([member], lambda: bool(member.events), "an assignment")
        assert member.events == [("assigned", (part,))]
        poll_for([member], 1.0)
        assert member.seen == {}
        member.consumer.start(part, 4)
        poll_until([member], lambda: len(member.offsets(part)) == 6, "six records")
        assert member.offsets(part) == list(range(4, 10))
        assert member.consumer.assignment() == {part}
        assert member.consumer.member_id() != ""

    def test_a_log_that_begins_later_is_started_at_its_beginning(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        _fill(kafka, topic, 1, 10)
        delete_records(kafka.admin(), {part: 6})
        member = join(unique_name("group"), topic, first_offset=6)
        poll_until([member], lambda: len(member.offsets(part)) == 4, "four records")
        assert member.offsets(part) == [6, 7, 8, 9]
        assert member.consumer.errors() == []

    def test_a_partition_started_at_its_end_returns_only_later_records(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        offset, _ = append(kafka, topic)
        member = join(unique_name("group"), topic, first_offset=offset + 1)
        poll_until([member], lambda: bool(member.events), "an assignment")
        poll_for([member], 0.5)
        append(kafka, topic, b"new")
        poll_until([member], lambda: bool(member.offsets(part)), "the new record")
        assert member.offsets(part) == [offset + 1]

    def test_aborted_requests_are_never_returned(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        producer = open_producer(kafka)
        abort_values(producer, topic, [b"no"] * 3)
        commit_values(producer, topic, [b"yes"])
        member = join(unique_name("group"), topic)
        poll_until([member], lambda: bool(member.offsets(part)), "the committed record")
        assert [r.value for r in member.seen[part]] == [b"yes"]
        producer.destroy()

    def test_out_of_range_is_reported_and_a_new_start_continues(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        _fill(kafka, topic, 1, 5)
        member = join(unique_name("group"), topic, first_offset=1000)
        errors: list[tuple[Partition | None, KafkaFault]] = []

        def reported() -> bool:
            errors.extend(member.consumer.errors())
            return any(isinstance(fault, OffsetOutOfRange) for _, fault in errors)

        poll_until([member], reported, "an error of the partition")
        assert [at for at, fault in errors if isinstance(fault, OffsetOutOfRange)] == [part]
        assert member.seen == {}
        member.consumer.start(part, 2)
        poll_until([member], lambda: len(member.offsets(part)) == 3, "three records")
        assert member.offsets(part) == [2, 3, 4]

    def test_a_partition_that_is_not_assigned_cannot_be_started(self, kafka: Kafka, join: Join) -> None:
        member = join(unique_name("group"), new_topic(kafka))
        with pytest.raises(KafkaFault):
            member.consumer.start(Partition("elsewhere", 0), 0)


class TestPause:
    def test_a_full_partition_pauses_and_continues_where_it_stopped(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=2)
        full, other = Partition(topic, 0), Partition(topic, 1)
        _fill(kafka, topic, 2, 200)
        member = join(unique_name("group"), topic)
        poll_until([member], lambda: len(member.offsets(full)) > 0, "the first records")
        member.consumer.pause([full, Partition("elsewhere", 0)])
        stopped_at = len(member.offsets(full))
        append(kafka, topic, b"while paused", partition=0)
        append(kafka, topic, b"other", partition=1)
        poll_until([member], lambda: len(member.offsets(other)) == 201, "the other partition's records")
        poll_for([member], 0.5)
        assert len(member.offsets(full)) == stopped_at
        member.consumer.resume([full, Partition("elsewhere", 0)])
        poll_until([member], lambda: len(member.offsets(full)) == 201, "the paused partition's records")
        assert member.offsets(full) == [*range(200), 201]  # offset 200 is the transaction marker

    def test_many_pauses_lose_and_repeat_nothing(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        producer = open_producer(kafka)
        for _ in range(20):
            commit_values(producer, topic, [b"x"] * 50)
        member = Member(kafka.group_consumer(unique_name("group")), now_s=lambda: now_s(kafka))
        member.consumer.subscribe([topic], member)
        poll_until([member], lambda: bool(member.events), "an assignment")
        offsets: list[int] = []
        poll_until([member], lambda: bool(member.offsets(part)), "the first records")
        while len(offsets) + len(member.offsets(part)) < 1000:
            member.consumer.pause([part])
            member.consumer.resume([part])
            for _, records in member.consumer.poll(37, 5.0):
                offsets += [r.offset for r in records]
        assert member.offsets(part) + offsets == [n for n in range(1020) if n % 51 != 50]
        member.consumer.close()
        producer.destroy()


class TestGroup:
    def test_a_second_member_takes_a_share_and_gives_it_back(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=4)
        group = unique_name("group")
        first = join(group, topic)
        poll_until([first], lambda: len(first.consumer.assignment()) == 4, "all partitions")
        second = join(group, topic)
        both = [first, second]
        poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [2, 2], "two partitions each")
        kept = first.consumer.assignment()
        assert kept.isdisjoint(second.consumer.assignment())
        moved = [part for kind, parts in first.events if kind == "revoked" for part in parts]
        assert set(moved) == second.consumer.assignment()  # cooperative: partitions that stay are not revoked
        _fill(kafka, topic, 4, 3)
        poll_until(both, lambda: sum(map(len, first.seen.values())) + sum(map(len, second.seen.values())) == 12, "all")
        assert set(first.seen) == kept
        assert set(second.seen) == set(moved)
        second.consumer.close()
        poll_until([first], lambda: len(first.consumer.assignment()) == 4, "all partitions again")
        assert [kind for kind, _ in second.events] == ["assigned", "revoked"]

    def test_a_partition_that_comes_back_is_silent_until_it_is_started_again(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=2)
        group = unique_name("group")
        _fill(kafka, topic, 2, 5)
        first = join(group, topic)
        poll_until([first], lambda: sum(map(len, first.seen.values())) == 10, "all records")
        second = join(group, topic)
        both = [first, second]
        poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [1, 1], "one partition each")
        (moved,) = second.consumer.assignment()
        first.first_offset, first.seen = None, {}
        second.consumer.close()
        poll_until([first], lambda: len(first.consumer.assignment()) == 2, "both partitions again")
        poll_for([first], 0.5)
        assert first.seen == {}
        first.consumer.start(moved, 3)
        poll_until([first], lambda: len(first.offsets(moved)) == 2, "the last two records")
        assert first.offsets(moved) == [3, 4]

    def test_committed_offsets_are_published_per_partition(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=2)
        one, other = Partition(topic, 0), Partition(topic, 1)
        member = join(unique_name("group"), topic)
        poll_until([member], lambda: len(member.consumer.assignment()) == 2, "an assignment")
        assert member.consumer.committed([one, other], 10) == {one: None, other: None}
        member.consumer.commit({one: 0, Partition("elsewhere", 0): 3})
        poll_until([member], lambda: member.consumer.committed([one], 10) == {one: 0}, "the commit")
        assert member.consumer.committed([one, other], 10) == {one: 0, other: None}

    def test_the_cluster_names_the_members(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=2)
        group = unique_name("group")
        admin = kafka.admin()
        assert admin.group_members(group) == []
        member = join(group, topic, instance_id="pod-0")
        poll_until([member], lambda: len(member.consumer.assignment()) == 2, "an assignment")
        (named,) = admin.group_members(group)
        assert (named.member_id, named.instance_id) == (member.consumer.member_id(), "pod-0")
        assert set(named.partitions) == {Partition(topic, 0), Partition(topic, 1)}
        assert named.address == ""

    def test_a_group_that_is_no_consumer_group_reads_at_kafkas_default_isolation(
        self, kafka: Kafka, join: Join
    ) -> None:
        group, admin = unique_name("group"), kafka.admin()
        assert admin.share_isolation(group) is Isolation.READ_UNCOMMITTED
        member = join(group, new_topic(kafka))
        poll_until([member], lambda: bool(member.consumer.assignment()), "an assignment")
        assert admin.share_isolation(group) is None, "each member sets its own"

    def test_a_member_without_a_share_has_joined_too(self, kafka: Kafka, join: Join) -> None:
        topic, group = new_topic(kafka), unique_name("group")
        first = join(group, topic)
        assert first.consumer.member_id() == ""
        poll_until([first], lambda: bool(first.consumer.assignment()), "an assignment")
        second = join(group, topic)
        poll_until([first, second], lambda: second.consumer.member_id() != "", "a member id")
        assert len(first.consumer.assignment()) + len(second.consumer.assignment()) == 1

    def test_a_description_of_the_group_has_the_address_of_each_member(self, kafka: Kafka) -> None:
        topic, group = new_topic(kafka), unique_name("group")
        member = Member(kafka.group_consumer(group, address="[::1]:8081"), now_s=lambda: now_s(kafka))
        member.consumer.subscribe([topic], member)
        poll_until([member], lambda: bool(member.events), "an assignment")
        (named,) = kafka.admin().group_members(group)
        assert named.address == "[::1]:8081"
        member.consumer.close()


class TestOwnership:
    def test_a_position_passes_markers_and_is_absent_before_the_first_fetch(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        producer = open_producer(kafka)
        commit_values(producer, topic, [b"a", b"b"])
        abort_values(producer, topic, [b"x"])
        member = join(unique_name("group"), topic, first_offset=None)
        assert not member.consumer.positions([part])
        poll_until([member], lambda: bool(member.events), "an assignment")
        member.consumer.start(part, 0)
        poll_until(
            [member], lambda: member.consumer.positions([part]) == {part: 5}, "the position behind the abort marker"
        )
        assert member.offsets(part) == [0, 1]
        producer.destroy()

    def test_the_coordinator_confirms_what_a_member_holds(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        group = unique_name("group")
        member = join(group, topic)
        elsewhere = Partition("elsewhere", 0)
        assert not member.consumer.confirm([part], 10)
        poll_until([member], lambda: bool(member.events), "an assignment")
        poll_until([member], lambda: confirms(member, part), "a group that has settled")
        assert member.consumer.confirm([part, elsewhere], 10) == {part}
        assert not member.consumer.confirm([elsewhere], 10)
        assert kafka.admin().group_offset(group, part) is None, "to ask is not to commit"
        member.consumer.commit({part: 0})
        poll_until([member], lambda: kafka.admin().group_offset(group, part) == 0, "the commit")
        assert confirms(member, part)

    def test_the_coordinator_confirms_each_partition_to_one_member_only(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=2)
        group = unique_name("group")
        both = [join(group, topic), join(group, topic)]
        poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [1, 1], "one partition each")
        held = [set(m.consumer.assignment()) for m in both]
        parts = [Partition(topic, 0), Partition(topic, 1)]
        confirmed: list[set[Partition]] = [set(), set()]

        def settled() -> bool:
            confirmed[:] = [set(m.consumer.confirm(parts, 10)) for m in both]
            return all(confirmed)

        poll_until(both, settled, "a group that has settled")
        assert confirmed == held

    def test_the_group_offset_can_be_read_from_outside_the_group(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=2)
        part = Partition(topic, 0)
        group = unique_name("group")
        admin = kafka.admin()
        assert admin.group_offset(group, part) is None
        member = join(group, topic)
        poll_until([member], lambda: len(member.consumer.assignment()) == 2, "an assignment")
        member.consumer.commit({part: 7})
        poll_until([member], lambda: admin.group_offset(group, part) == 7, "the commit")
        assert admin.group_offset(group, Partition(topic, 1)) is None

    def test_a_note_stays_beside_the_offset_until_a_commit_without_it(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        group = unique_name("group")
        admin = kafka.admin()
        assert admin.group_note(group, part) == ""
        member = join(group, topic)
        with pytest.raises(KafkaFault):
            member.consumer.commit_note(part, 0, "too early")
        poll_until([member], lambda: len(member.consumer.assignment()) == 1, "an assignment")
        member.consumer.commit_note(part, 3, "a note")
        assert (admin.group_note(group, part), admin.group_offset(group, part)) == ("a note", 3)
        member.consumer.commit({part: 4}, {part: "another"})
        poll_until([member], lambda: admin.group_offset(group, part) == 4, "the commit")
        assert admin.group_note(group, part) == "another"
        member.consumer.commit({part: 5})
        poll_until([member], lambda: admin.group_offset(group, part) == 5, "the commit")
        assert admin.group_note(group, part) == ""

    def test_a_member_that_leaves_gives_its_partitions_to_the_others_at_once(self, kafka: Kafka, join: Join) -> None:
        topic = new_topic(kafka, partitions=2)
        group = unique_name("group")
        leaver, stays = join(group, topic), join(group, topic)
        both = [leaver, stays]
        poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [1, 1], "one partition each")
        leaver.consumer.leave()
        poll_until(both, lambda: [len(m.consumer.assignment()) for m in both] == [0, 2], "all for the other")
        poll_until(both, lambda: len(kafka.admin().group_members(group)) == 1, "one member")
        poll_for(both, 1.0)
        assert leaver.consumer.assignment() == frozenset()
