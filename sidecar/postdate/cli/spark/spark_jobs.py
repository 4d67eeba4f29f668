"""Shared parts of the commands that run a Spark job: the options of Spark, and the start of the job.

Spark is imported only when a command starts a job.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

import click

from postdate.cli.commands import listed
from postdate.cli.limits import BRIEF_RECORDS_MAX, BRIEF_TIMEOUT_S
from postdate.cli.options import name_value
from postdate.kafka.errors import DevBrokerFailed, KafkaFault, SettingRefused
from postdate.kafka.interface import Admin, Isolation, Partition, TopicInfo
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.errors import ConfigError
from postdate.wire.topics import OwnTopics


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --master and --spark-conf to a command; `job_options` reads them."""
    conf = click.option(
        "--spark-conf", type=name_value, multiple=True, metavar="NAME=VALUE", help="Spark setting; repeatable."
    )
    return click.option("--master", metavar="URL", help="Spark master. [this machine]")(conf(command))


def job_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a job. Omits an option that is None, so that the default of the job applies."""
    values = options | {"spark_conf": dict(options["spark_conf"])}
    return {name: value for name, value in values.items() if value is not None}


def reached(config: Config, client: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a job for its connection to Kafka. `client`: the properties of one client of the
    configuration.

    Raises JobUsageError if a setting has no counterpart in Kafka's Java clients.
    """
    from postdate.spark.job.kafka_properties import java_properties

    properties = java_properties({**config.kafka.common, **client})
    return {"bootstrap_servers": config.kafka.bootstrap_servers, "properties": properties}


def only_topic(config: Config, error_text: str) -> RequestTopicConfig:
    """Returns the only request topic of a job. Raises ConfigError with `error_text` if there are several."""
    if len(config.request_topics) != 1:
        raise ConfigError(error_text)
    return config.request_topics[0]


def sent_to(topic: RequestTopicConfig) -> dict[str, Any]:
    """Returns the options of a job that restrict the requests that it may send to a request topic."""
    return {"horizon_ms": topic.horizon_ms, "allow": topic.allow, "forbidden": OwnTopics.of(topic.name).names()}


def require_spark(job: str) -> None:
    """Raises ConfigError if pyspark or Java is missing; the message begins with `job`."""
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(f"{job} needs pyspark: pip install 'postdate[spark]'")
    from postdate.tools.dev_broker.java import find_java

    try:
        find_java("Spark")
    except DevBrokerFailed as error:
        raise ConfigError(str(error)) from error


def run_planned(config: Config, planned: Callable[[bool], Callable[[], int]]) -> None:
    """Runs the job that `planned(is_brief)` returns, and ends the process with its exit code. Raises ConfigError if an
    option is invalid or a request topic is missing, and KafkaFault if the cluster does not answer."""
    from postdate.spark.errors import JobUsageError

    try:
        job = planned(False)
    except JobUsageError as error:
        raise ConfigError(str(error)) from error
    if _longest_topic(config) <= BRIEF_RECORDS_MAX:
        job = planned(True)
    sys.exit(job())


def _longest_topic(config: Config) -> float:
    """Returns the number of offsets in all request topics or in all dispatch logs, whichever is larger: a recurring
    schedule is one request with many fates. Returns `inf` if ACLs hide a topic, if the offsets cannot be read, or if
    the client properties are valid only for Spark's Java clients. Raises ConfigError if a request topic is missing, and
    KafkaFault if the topics cannot be described."""
    from postdate.sidecar.cluster.connection import admin_of, kafka_of

    names = config.request_topic_names
    logs = [OwnTopics.of(name).dispatch_log for name in names]
    try:
        with admin_of(kafka_of(config)) as admin:
            topics_found = admin.describe([*names, *logs])
            longest = max(_count_offsets(admin, topics_found, topics) for topics in (names, logs))
    except (SettingRefused, ConfigError):
        return inf
    missing = [name for name in names if name not in topics_found]
    if missing:
        raise ConfigError(
            f"request topic {listed(missing)} does not exist at {config.kafka.bootstrap_servers}; check --requests "
            "and -b, or create it with `postdate topics create`"
        )
    return longest


def _count_offsets(admin: Admin, topics_found: Mapping[str, TopicInfo], topics: Iterable[str]) -> float:
    live = [topics_found[name] for name in topics if name in topics_found]
    if not all(topic.partitions for topic in live):  # ACLs hide a topic
        return inf
    parts = [Partition(topic.name, index) for topic in live for index in topic.partitions]
    try:
        ends = admin.end_offsets(parts, Isolation.READ_UNCOMMITTED, BRIEF_TIMEOUT_S)
        starts = admin.start_offsets(parts)
    except KafkaFault:  # the job decides whether this is fatal
        return inf
    return sum(ends.values()) - sum(starts.values())
