"""A record ready to be produced: a value that unpacks into the arguments of any producer's call.

    producer.produce(**record)          confluent-kafka
    producer.send(**record)             kafka-python
    await producer.send(**record)       aiokafka

All three name their arguments `topic`, `key`, `value`, `headers` and `partition`. If the record may go to any
partition, `partition` is left out, since the clients express this differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request to be produced. Immutable; equal if all five fields are."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    """The partition to produce to: that of the id, the origin or the key, or the one on which a bulk control acts. None
    lets the producer choose."""

    def keys(self) -> tuple[str, ...]:
        """Returns the names of the arguments in `**record`."""
        names = ("topic", "key", "value", "headers")
        return names if self.partition is None else (*names, "partition")

    def __getitem__(self, name: str) -> Any:
        """Returns the argument `name`. Headers are returned as a list, which producers require."""
        if name not in self.keys():
            raise KeyError(name)
        return list(self.headers) if name == "headers" else getattr(self, name)
