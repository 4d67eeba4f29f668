"""`postdate run`: one process, one member of the consumer group, any number of shards.

Thread rule: `run` is the main thread and becomes the poll thread; it installs handlers for SIGTERM and SIGINT.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from postdate.kafka.errors import KafkaFault, Unreachable
from postdate.kafka.interface import Admin, GroupConsumer, Kafka, Partition
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.cluster.connection import kafka_of
from postdate.sidecar.cluster.rights import violations
from postdate.sidecar.cluster.topics import explained
from postdate.sidecar.config.rate_rules import shadowed
from postdate.sidecar.config.settings import Config
from postdate.sidecar.context.limits import BEAT_INTERVAL_MS_MAX
from postdate.sidecar.context.pacing import LargeTransactionSemaphore, TransactionBudget, TransactionThrottle
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.context.traced_messages import TraceQueue
from postdate.sidecar.counts import ShardCounts
from postdate.sidecar.errors import ConfigError, Exit
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.group.unassigned import UnassignedPartitions
from postdate.sidecar.http.action_log import ActionLog
from postdate.sidecar.http.port import advertised_address, claim
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.server import serving
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.sidecar.logs import configure_logging
from postdate.sidecar.privacy import forbid_core_dumps, prepare_data_directory
from postdate.sidecar.process.limits import OPEN_FILES_PER_SHARD, TOPIC_CHECK_INTERVAL_MS, WATCH_END_S
from postdate.sidecar.process.span_exporter import tracing
from postdate.sidecar.process.starting import wait_for_kafka
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.wire.topics import OwnTopics

log = logging.getLogger(__name__)


def run(config: Config) -> int:
    """Serves until SIGTERM or SIGINT, or until another deployment fences all shards of this process; returns the exit
    code. Waits for unavailable brokers.

    Raises ConfigError or KafkaFault if the process cannot start, SettingRefused if no group client can be created, and
    ClientFailed.
    """
    forbid_core_dumps()
    prepare_data_directory(config.data_path)
    kafka = kafka_of(config)
    admin = kafka.admin()
    configure_logging(config.log_level)
    serving.check(config.http)
    bound = claim(config.http)
    with tracing(config) as traces:
        return _serve(config, kafka, admin, bound, traces)


def _serve(config: Config, kafka: Kafka, admin: Admin, bound: socket.socket | None, traces: TraceQueue | None) -> int:
    """Serves as `run`; returns the exit code."""
    factory = ShardFactory(config, kafka, admin, traces)
    poller = Poller(None, factory.start, announce, _in_background)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        poller.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    clock = SystemClock()
    actions = ActionLog(config.data_path)
    process = ProcessState(config, poller, factory.counts, factory.retentions, kafka, admin, clock, traces, actions)
    with serving.serving(process, bound):
        answer = wait_for_kafka(kafka, lambda admin: (check_topics(config, admin), admin.cluster_id()), poller)
        if answer is None:
            return Exit.OK
        checked, factory.cluster_id = answer
        for text in checked.warnings:
            log.warning("%s", text)
        factory.retentions.update(checked.retentions)
        gc.freeze()
        ended = threading.Event()
        watches = [threading.Thread(target=watch_topics, args=(config, admin, ended), name="topic rules", daemon=True)]
        if config.group_protocol == "classic":
            unassigned = UnassignedPartitions(
                admin, config.group_id, config.request_topic_names, lambda: poller.member_id
            )
            watches.append(threading.Thread(target=unassigned.watch, args=(ended,), name="assignments", daemon=True))
        for watch in watches:
            watch.start()
        try:
            served = poller.run(
                config.request_topic_names, lambda: _member(config, kafka, is_reachable=bound is not None)
            )
        finally:
            end_watches(ended, watches)
    return Exit.OK if served else Exit.FENCED


def end_watches(ended: threading.Event, watches: Iterable[threading.Thread]) -> None:
    """Sets `ended`, and waits for these daemon threads for a short time. A thread that waits for a broker ends with the
    process."""
    ended.set()
    for watch in watches:
        watch.join(WATCH_END_S)


def _member(config: Config, kafka: Kafka, *, is_reachable: bool) -> GroupConsumer:
    """Returns a client for the group. If `is_reachable`, the client advertises the address of this process."""
    address = advertised_address(config) if is_reachable else ""
    return kafka.group_consumer(config.group_id, config.group_instance_id or None, address)


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="coordinator", daemon=True).start()


def announce(shards: int) -> None:
    """Prints on stdout, for scripts, the number of shards for which this process, or its workers together, now
    deliver."""
    sys.stdout.write(f"running: {shards} {'shard' if shards == 1 else 'shards'}\n")
    sys.stdout.flush()


class Checked(NamedTuple):
    """The result of the check of request topics: the retention of each in ms (-1: unlimited), and warnings."""

    retentions: dict[str, int]
    warnings: list[str]


def check_topics(config: Config, admin: Admin) -> Checked:
    """Checks the live topics and the limit of open files. Raises ConfigError if the limit is too low, or if a request
    topic cannot be served, with the broken rules of the first such topic. Raises KafkaFault."""
    retentions: dict[str, int] = {}
    warnings: list[str] = []
    needed = 0
    for topic in config.request_topics:
        answer = violations(config, topic, admin)
        fatal = [violation for violation in answer if violation.refuses]
        if fatal:
            raise ConfigError("\n".join(explained(fatal)))
        warnings += map(str, answer)
        warnings += [
            f"request topic {topic.name}: the rate {rule!r} applies to no target, since {wider!r} precedes it and "
            "matches all of its targets: put the narrower rule first, or remove it"
            for rule, wider in shadowed(topic.messages_per_second_max)
        ]
        requests = admin.describe([topic.name], ("retention.ms",)).get(topic.name)
        if requests is None:
            raise Unreachable(f"not every broker knows the topic {topic.name} yet")
        retentions[topic.name] = int(requests.config.get("retention.ms", "-1"))
        needed += len(requests.partitions) * OPEN_FILES_PER_SHARD
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise ConfigError(f"{needed} open files may be needed and {limit} are allowed: raise ulimit -n")
    return Checked(retentions, warnings)


def watch_topics(config: Config, admin: Admin, ended: threading.Event) -> None:
    """Checks the live topics every ten minutes until `ended`: their settings can change at any time."""
    while not ended.wait(TOPIC_CHECK_INTERVAL_MS / 1000):
        for topic in config.request_topics:
            try:
                for violation in violations(config, topic, admin):
                    log.error("%s", violation)
            except KafkaFault as fault:
                log.warning("the topics of %s could not be checked: %s", topic.name, fault)


def _beat_interval_ms(retention_ms: int) -> int:
    """Returns the interval of the records that an idle shard writes.

    Dispatch-log records are kept longer than requests, and the log must never become empty. Before retention deletes
    stored requests, the log must also show that they are no longer needed.
    """
    return BEAT_INTERVAL_MS_MAX if retention_ms < 0 else min(BEAT_INTERVAL_MS_MAX, max(retention_ms // 8, 1))


class ShardFactory:
    """Creates the shard of an assigned partition. Only the poll thread calls `start`."""

    def __init__(self, config: Config, kafka: Kafka, admin: Admin, traces: TraceQueue | None) -> None:
        self._config = config
        self._kafka = kafka
        self._admin = admin
        self._traces = traces
        self.retentions: dict[str, int] = {}
        """The retention of each request topic, in ms; -1: unlimited. Empty until Kafka has answered."""
        self.cluster_id = ""
        """Empty until Kafka has answered."""
        self._clock = SystemClock()
        self._budget = TransactionBudget(config.dispatch.transactions_per_second)
        self._large_transactions = LargeTransactionSemaphore()
        self.counts: dict[Partition, ShardCounts] = {}
        """The counts of every shard that this process has ever held."""

    def start(self, part: Partition) -> ShardThread:
        """Starts a shard for `part` and returns its thread. REQUIRES: Kafka has answered."""
        released = threading.Event()
        ctx = ShardContext(
            config=self._config,
            topic=self._config.request_topic(part.topic),
            own=OwnTopics.of(part.topic),
            rules=rules_of(self._config, part.topic, self.retentions[part.topic]),
            partition=part.index,
            cluster_id=self.cluster_id,
            directory=self._directory(part),
            kafka=self._kafka,
            admin=self._admin,
            clock=self._clock,
            instance=self._config.instance_name,
            stopping=released.is_set,
            beat_interval_ms=_beat_interval_ms(self.retentions[part.topic]),
            retention_ms=self.retentions[part.topic],
            counts=self.counts.setdefault(part, ShardCounts()),
            large_transactions=self._large_transactions,
            traces=self._traces,
        )
        return ShardThread(ctx, TransactionThrottle(self._budget, self._config.dispatch.pace_ms), released)

    def _directory(self, part: Partition) -> Path:
        directory = self._config.data_path / self.cluster_id / part.topic / str(part.index)
        os.makedirs(directory.parent, mode=0o700, exist_ok=True)
        return directory
