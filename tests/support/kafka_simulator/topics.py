"""Topics of the simulated cluster and their settings, with Kafka's names, defaults and refusals.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from support.kafka_simulator.error_responses import refusal
from support.kafka_simulator.log import PartitionLog

_DAY_MS = 86_400_000

#: Setting -> its default. If the default is a number, only numbers are accepted.
SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": str(_DAY_MS),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": str(7 * _DAY_MS),
    "segment.bytes": "1073741824",
    "segment.ms": str(7 * _DAY_MS),
}
_CHOICES: Mapping[str, frozenset[str]] = {
    "cleanup.policy": frozenset({"delete", "compact", "compact,delete", "delete,compact"}),
    "message.timestamp.type": frozenset({"CreateTime", "LogAppendTime"}),
}


@dataclass
class Topic:
    """One topic; `topic_id` is new each time a topic of this name is created."""

    name: str
    topic_id: str
    config: dict[str, str] = field(default_factory=dict)
    logs: list[PartitionLog] = field(default_factory=list)

    @property
    def log_append(self) -> bool:
        """True if the broker's clock stamps the records."""
        return self.setting("message.timestamp.type") == "LogAppendTime"

    @property
    def message_bytes_max(self) -> int:
        """The maximum size of a record."""
        return int(self.setting("max.message.bytes"))

    @property
    def ahead_ms_max(self) -> int:
        """The maximum time by which a record may be stamped ahead of the broker's clock."""
        return int(self.setting("message.timestamp.after.max.ms"))

    def setting(self, name: str) -> str:
        """Returns the value of a setting, or its default."""
        return self.config.get(name, SETTINGS[name])

    def grow(self, partitions: int) -> None:
        """Increases the number of partitions. Raises INVALID_PARTITIONS if it is not larger."""
        if partitions <= len(self.logs):
            raise refusal(KafkaError.INVALID_PARTITIONS, f"{self.name} has {len(self.logs)} partitions")
        self.logs += [PartitionLog() for _ in range(partitions - len(self.logs))]

    def configure(self, config: Mapping[str, str]) -> None:
        """Sets these settings. Raises INVALID_CONFIG, and then sets none."""
        check_settings(config)
        self.config.update(config)


def check_settings(config: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG for a name or a value that Kafka would refuse."""
    for name, value in config.items():
        if name not in SETTINGS:
            raise refusal(KafkaError.INVALID_CONFIG, f"unknown topic config name: {name}")
        choices = _CHOICES.get(name)
        if (choices is not None and value not in choices) or (_is_number(SETTINGS[name]) and not _is_number(value)):
            raise refusal(KafkaError.INVALID_CONFIG, f"invalid value {value} for configuration {name}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
