"""The high watermarks of partitions, from an admin client."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from support.waiting.timeouts import WAIT_TIMEOUT_S

_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def end_offsets(
    admin: AdminClient,
    parts: Iterable[tuple[str, int]],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout_s: float = WAIT_TIMEOUT_S,
) -> dict[tuple[str, int], int]:
    """Returns the end offsets, which include transaction markers: of all records, or of the committed ones.

    Lists the topics first: librdkafka queries unknown topics only once, and treats an unknown leader as a permanent
    error (`rd_kafka_topic_partition_list_query_leaders`). So a client that does not know the leaders yet may report
    that the partition does not exist.
    """
    admin.list_topics(timeout=timeout_s)
    requested = {TopicPartition(*part): _LATEST for part in parts}
    answers = admin.list_offsets(requested, isolation_level=isolation, request_timeout=timeout_s)
    return {(part.topic, part.partition): answer.result().offset for part, answer in answers.items()}
