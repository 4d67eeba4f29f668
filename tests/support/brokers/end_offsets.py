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
    """The offsets behind the last records, transaction markers included: of all records, or of the committed ones.

    `admin` lists the topics first. A client that does not know their leaders yet may answer that there is no such
    partition: librdkafka queries unknown topics once, and takes a leader that it does not know for a permanent error
    (`rd_kafka_topic_partition_list_query_leaders`).
    """
    admin.list_topics(timeout=timeout_s)
    asked = {TopicPartition(*part): _LATEST for part in parts}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
    return {(part.topic, part.partition): answer.result().offset for part, answer in answers.items()}
