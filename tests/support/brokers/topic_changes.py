"""Changes of a topic that only administrators make: they change settings and delete records. Postdate does neither, so
its Kafka interface lacks these functions."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark its re-exports
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from postdate.kafka.admin.admin import ConfluentAdmin
from postdate.kafka.interface import Admin, Partition
from support.kafka_simulator.admin import SimAdmin

#: The offset for "delete all records": librdkafka's OFFSET_END.
_EVERYTHING = -1


def alter_topic_config(admin: Admin, topic: str, config: Mapping[str, str]) -> None:
    """Changes these settings of a topic and keeps the others. Raises SettingRefused."""
    if isinstance(admin, SimAdmin):
        admin.alter_topic_config(topic, config)
        return
    assert isinstance(admin, ConfluentAdmin)
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin._open().incremental_alter_configs([resource]).values():
        admin._answer(future, f"change the settings of {topic}")


def delete_records(admin: Admin, before: Mapping[Partition, int]) -> dict[Partition, int]:
    """Deletes all records below the given offsets (-1: all records); returns the new start offsets. Raises
    OffsetOutOfRange if an offset lies above the end."""
    if isinstance(admin, SimAdmin):
        return admin.delete_records(before)
    assert isinstance(admin, ConfluentAdmin)
    bounds = [TopicPartition(part.topic, part.index, _EVERYTHING if at < 0 else at) for part, at in before.items()]
    return {
        Partition(tp.topic, tp.partition): int(admin._answer(future, f"delete records of {tp.topic}").low_watermark)
        for tp, future in admin._open().delete_records(bounds).items()
    }
