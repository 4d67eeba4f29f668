"""Requests to the coordinator of a consumer group; each request uses a separate client.

The behaviour of the client library shapes this module (librdkafka 2.16, read in `rdkafka_admin.c` and
`rdkafka_coord.c`; its issue 4605, its open pull requests 5397 and 5457). An admin client's search for a coordinator has
no time-out, but the request that waits for the search has one. A request that times out is freed. When a broker comes
back, the search uses the freed request, and an assertion ends the process. Also, a client whose broker was down may
never get an answer from a coordinator again (*measured*). So:

- The library's time-out is so long that it never expires. The caller has a shorter one, and then destroys the client,
  which fails the pending request cleanly.
- No client outlives its request, so no client uses a broker again that was down meanwhile.

Thread rule: nothing is shared; callable from any thread.
"""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Tp
from confluent_kafka.admin import AdminClient

from postdate.kafka.classification import classify, result_of
from postdate.kafka.errors import Unreachable
from postdate.kafka.interface import GroupMember, Isolation, Partition
from postdate.kafka.settings import KafkaSettings, log

_NEVER_S: Final = 3_600.0
"""Seconds: the longest time-out that the library accepts; every caller times out long before."""


def describe_group(settings: KafkaSettings, group_id: str, *, with_rights: bool = False) -> Any:
    """Returns the library's description of a group. For an unknown group, returns None if the coordinator answers
    GROUP_ID_NOT_FOUND, otherwise a description with the state DEAD. Waits for up to `admin_timeout_s`. Raises
    KafkaFault. `Any`: the library has no types."""
    try:
        client = AdminClient(settings.admin_conf())
    except KafkaException as error:
        raise classify(error, "create an admin client") from error
    try:
        (future,) = client.describe_consumer_groups(
            [group_id], include_authorized_operations=with_rights, request_timeout=_NEVER_S
        ).values()
        doing = f"describe the group {group_id}"
        return result_of(future, doing, settings.admin_timeout_s, absent=KafkaError.GROUP_ID_NOT_FOUND)
    finally:
        # The traceback of a raised fault would otherwise keep the client alive.
        del client


def group_members(settings: KafkaSettings, group_id: str) -> list[GroupMember]:
    """Returns the present members of a group. The list is empty if the group is empty or unknown. Raises as
    `describe_group`."""
    group = describe_group(settings, group_id)
    if group is None or group.state is ConsumerGroupState.DEAD:
        return []
    return [
        GroupMember(
            member.member_id or "",
            member.group_instance_id or "",
            member.client_id or "",
            member.host or "",
            tuple(Partition(tp.topic, tp.partition) for tp in member.assignment.topic_partitions),
        )
        for member in group.members
    ]


def knows_consumer_group(settings: KafkaSettings, group_id: str) -> bool:
    """True if the coordinator has a consumer group of this name, with members or without. A share group counts as
    unknown, since the library does not describe share groups. Raises as `describe_group`."""
    group = describe_group(settings, group_id)
    return group is not None and group.state is not ConsumerGroupState.DEAD


def committed_offset(settings: KafkaSettings, group_id: str, part: Partition) -> Tp | None:
    """Returns the committed offset of a group for a partition, or None if there is none. Uses a consumer that joins no
    group, since a consumer searches for its coordinator in another way than an admin client. Raises KafkaFault."""
    doing = f"read the committed offset of group {group_id}"
    conf = settings.reader_conf(Isolation.READ_COMMITTED.value) | {"group.id": group_id}
    try:
        consumer = Consumer(conf, logger=log)
        try:
            (found,) = consumer.committed([Tp(part.topic, part.index)], settings.admin_timeout_s)
        except KafkaException:
            event = consumer.poll(0)  # if an ACL is missing, the call only times out, and an event has the reason
            if event is not None and (why := event.error()) is not None:
                raise classify(why, doing, otherwise=Unreachable) from None
            raise
        finally:
            consumer.close()
    except KafkaException as error:
        raise classify(error, doing, otherwise=Unreachable) from error
    if found.error is not None:
        raise classify(found.error, doing, otherwise=Unreachable)
    return found if found.offset >= 0 else None


def assign_again(settings: KafkaSettings, group_id: str, topic: str) -> None:
    """Lets a member that reads `topic` join the group and leave it; see `Admin.assign_again`. Raises KafkaFault."""
    has_joined: list[bool] = []
    doing = f"have the group {group_id} assign its partitions again"
    deadline = time.monotonic() + settings.admin_timeout_s
    try:
        consumer = Consumer(settings.group_consumer_conf(group_id, None), logger=log)
        try:
            consumer.subscribe([topic], on_assign=lambda *_: has_joined.append(True))
            while not has_joined and time.monotonic() < deadline:
                event = consumer.poll(0.1)
                if event is not None and (why := event.error()) is not None and why.fatal():
                    raise KafkaException(why)
        finally:
            consumer.close()
    except KafkaException as error:
        raise classify(error, doing, otherwise=Unreachable) from error
