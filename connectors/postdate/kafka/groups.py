"""Questions to the coordinator of a consumer group, each asked by a client of its own that ends with the question.

The client library's ways shape this module (librdkafka 2.16, read in `rdkafka_admin.c` and `rdkafka_coord.c`; its issue
4605, its open pull requests 5397 and 5457). An admin client looks for a coordinator without a time-out, while the
question that it is for has one. When that runs out, the question is freed; when a broker comes back, the search finds
the freed one, and an assertion ends the process. And a client whose broker has been away may get no answer of a
coordinator any more for as long as it lives (*measured*). So:

- The library's own time-out is one that nobody reaches. Whoever asks waits for a time of his own, and then ends the
  client with the question still whole in it, which fails it in order.
- No client lives longer than its question, so none has a broker that was away.

Thread rule: nothing is shared; any thread may ask.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Tp
from confluent_kafka.admin import AdminClient

from postdate.kafka.classification import classify
from postdate.kafka.errors import Unreachable
from postdate.kafka.futures import result_of
from postdate.kafka.interface import GroupMember, Isolation, Partition
from postdate.kafka.settings import KafkaSettings, log

_NEVER_S: Final = 3_600.0
"""s. The longest time-out of a question that the library takes; every caller gives up long before."""


def describe_group(settings: KafkaSettings, group_id: str, *, with_rights: bool = False) -> Any:
    """What the library says of a group, None where the coordinator knows none. Waits for `admin_timeout_s`. Raises
    KafkaFault. `Any`: the library types none."""
    try:
        client = AdminClient(settings.admin_conf())
    except KafkaException as error:
        raise classify(error, "make an admin client") from error
    try:
        (future,) = client.describe_consumer_groups(
            [group_id], include_authorized_operations=with_rights, request_timeout=_NEVER_S
        ).values()
        doing = f"describe the group {group_id}"
        return result_of(future, doing, settings.admin_timeout_s, absent=KafkaError.GROUP_ID_NOT_FOUND)
    finally:
        # The last reference, and with it the client; it must be gone before anything of a fault is kept.
        del client


def group_members(settings: KafkaSettings, group_id: str) -> list[GroupMember]:
    """The present members of a group; empty where it is empty or unknown. As `describe_group`."""
    group = describe_group(settings, group_id)
    if group is None or group.state is ConsumerGroupState.DEAD:
        return []
    return [
        GroupMember(
            each.member_id or "",
            each.group_instance_id or "",
            each.client_id or "",
            each.host or "",
            tuple(Partition(tp.topic, tp.partition) for tp in each.assignment.topic_partitions),
        )
        for each in group.members
    ]


def committed_offset(settings: KafkaSettings, group_id: str, part: Partition) -> Tp | None:
    """What a group has committed for a partition, None where that is nothing. Asked by a consumer that joins nothing:
    it looks for its coordinator in another way than admin clients do. Raises KafkaFault."""
    doing = f"read the committed offset of group {group_id}"
    conf = settings.reader_conf(Isolation.READ_COMMITTED.value) | {"group.id": group_id}
    try:
        consumer = Consumer(conf, logger=log)
        try:
            (found,) = consumer.committed([Tp(part.topic, part.index)], settings.admin_timeout_s)
        except KafkaException:
            said = consumer.poll(0)  # where an ACL is missing, the call only times out, and the reason comes here
            if said is not None and (why := said.error()) is not None:
                raise classify(why, doing, otherwise=Unreachable) from None
            raise
        finally:
            consumer.close()
    except KafkaException as error:
        raise classify(error, doing, otherwise=Unreachable) from error
    if found.error is not None:
        raise classify(found.error, doing, otherwise=Unreachable)
    return found if found.offset >= 0 else None
