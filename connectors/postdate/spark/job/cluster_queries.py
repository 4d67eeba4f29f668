"""Queries of the cluster that Spark's Kafka source does not offer: end offsets, partitions, settings.

The queries run in the driver's JVM. They use the admin client of Kafka's Java library, on which the connector depends.
So queries and reads reach the same cluster with the same credentials. A `Cluster` is for one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from postdate.spark.errors import CannotRun, ConnectorMissing
from postdate.spark.limits import ADMIN_TIMEOUT_MS


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the timestamp of its record if the query was for a record; otherwise -1."""

    offset: int
    timestamp_ms: int


class Retention(NamedTuple):
    """The retention of a topic: the maximum age `ms` of records, -1 if unlimited; and whether the topic deletes records
    `by_size`."""

    ms: int
    by_size: bool


class Cluster:
    """The cluster behind `properties`, settings of Kafka's Java clients including `bootstrap.servers`."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._where = properties["bootstrap.servers"]
        settings = {
            "default.api.timeout.ms": str(ADMIN_TIMEOUT_MS),
            "request.timeout.ms": str(ADMIN_TIMEOUT_MS // 2),
            **properties,
        }
        self._admin: Any = self._queried(lambda: self._class("clients.admin.AdminClient").create(settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(5))

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the partition count of each existing topic."""
        return {topic: int(found.partitions().size()) for topic, found in self._described(topics).items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the id of each existing topic. A topic that is deleted and created again gets a new id."""
        return {topic: str(found.topicId().toString()) for topic, found in self._described(topics).items()}

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the start offset of each partition."""
        spec = self._class("clients.admin.OffsetSpec").earliest()
        return {partition: place.offset for partition, place in self._places(partitions, spec, False).items()}

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition, or with `committed` its last stable offset."""
        spec = self._class("clients.admin.OffsetSpec").latest()
        return {partition: place.offset for partition, place in self._places(partitions, spec, committed).items()}

    def first_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first record of each partition with a timestamp of `timestamp_ms` or later, None for a partition
        without such a record."""
        spec = self._class("clients.admin.OffsetSpec").forTimestamp(timestamp_ms)
        places = self._places(partitions, spec, False)
        return {partition: place if place.offset >= 0 else None for partition, place in places.items()}

    def settings(self, topics: Iterable[str], name: str) -> dict[str, str]:
        """Returns the value of the setting `name` of each topic. Requires that all topics exist."""
        return {topic: str(config.get(name).value()) for topic, config in self._configured(topics).items()}

    def retentions(self, topics: Iterable[str]) -> dict[str, Retention]:
        """Returns the retention of each topic. Requires that all topics exist."""
        found = {}
        for topic, config in self._configured(topics).items():
            ms, size = (int(str(config.get(name).value())) for name in ("retention.ms", "retention.bytes"))
            deletes = "delete" in str(config.get("cleanup.policy").value())
            found[topic] = Retention(ms if deletes else -1, deletes and size >= 0)
        return found

    def _configured(self, topics: Iterable[str]) -> dict[str, Any]:
        resource = self._class("common.config.ConfigResource")
        kind = self._class("common.config.ConfigResource$Type").TOPIC
        resources = [resource(kind, topic) for topic in topics]
        response = self._queried(lambda: self._admin.describeConfigs(resources).all().get())
        return {str(resource.name()): config for resource, config in _items(response)}

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        futures = self._queried(lambda: self._admin.describeTopics(list(topics)).topicNameValues())
        for topic, future in _items(futures):
            try:
                found[str(topic)] = future.get()
            except Py4JJavaError as error:
                if "UnknownTopicOrPartition" not in _reason(error) and "InvalidTopic" not in _reason(error):
                    raise self._failure(error) from error
        return found

    def _places(
        self, partitions: Iterable[TopicPartition], spec: Any, committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        place, wanted = self._class("common.TopicPartition"), getattr(self._jvm, "java.util.HashMap")()
        keys = {partition: place(*partition) for partition in partitions}
        if not keys:
            return {}
        for key in keys.values():  # each key of a dict would cost two more calls
            wanted[key] = spec
        level = self._class("common.IsolationLevel")
        isolation = level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        options = self._class("clients.admin.ListOffsetsOptions")(isolation)
        response = self._queried(lambda: self._admin.listOffsets(wanted, options).all().get())
        found = {partition: response[key] for partition, key in keys.items()}
        return {partition: OffsetAndTimestamp(int(at.offset()), int(at.timestamp())) for partition, at in found.items()}

    def _class(self, name: str) -> Any:
        """Returns a class of Kafka's library. The full name saves the JVM a search of all jars for each parent
        package."""
        return getattr(self._jvm, f"org.apache.kafka.{name}")

    def _queried(self, query: Callable[[], Any]) -> Any:
        try:
            return query()
        except Py4JJavaError as error:
            raise self._failure(error) from error
        except (Py4JError, TypeError) as error:
            # A class that the JVM does not have is a JavaPackage, which cannot be called.
            raise ConnectorMissing(f"Spark lacks Kafka's client library: {error}") from error

    def _failure(self, error: Py4JJavaError) -> CannotRun:
        return CannotRun(f"The cluster at {self._where} does not answer: {_reason(error)}")


def _items(found: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the pairs of a Java map.

    Py4J ends the iteration of a map with a Java exception, for which PySpark looks up a dozen classes (measured: a
    twelfth of the processor time of a small audit).
    """
    for entry in found.entrySet().toArray():
        yield entry.getKey(), entry.getValue()


def _reason(error: Py4JJavaError) -> str:
    """Returns the innermost cause of a Java exception, in one line."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).splitlines()[0]
