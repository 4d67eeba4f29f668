"""Waits until a broker is ready. A broker is ready once a transaction has succeeded, not once its port is open.

After a start, the port answers first. The coordinators of groups and transactions follow, and their topics are created
on first use. A client that connects earlier waits or fails. So the probe commits a whole transaction.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.kafka.errors import DevBrokerFailed

_POLL_INTERVAL_S = 0.05
#: Seconds: the limit of one request. A broker that was just paused may never answer some requests, so a new client
#: repeats a request that takes longer.
_ATTEMPT_S = 15.0


def wait_until_ready(host: str, port: int, timeout_s: float, check_alive: Callable[[], None]) -> None:
    """Returns when a transaction has been committed on the cluster to which the broker at host:port belongs.

    `check_alive` is called before each attempt, and raises if waiting is pointless. Raises DevBrokerFailed if an
    attempt fails once `timeout_s` has passed.
    """
    deadline = time.monotonic() + timeout_s
    _wait_for_port(host, port, deadline, check_alive)
    # log_level 0: otherwise the client prints connection failures, which are expected here.
    common: dict[str, str | int] = {"bootstrap.servers": f"{host}:{port}", "log_level": 0}
    while True:
        check_alive()
        try:
            topic = f"postdate-ready-{uuid4().hex[:12]}"
            _commit_one(common, topic, min(max(1.0, deadline - time.monotonic()), _ATTEMPT_S))
            return
        except (KafkaException, TimeoutError) as error:
            if time.monotonic() >= deadline:
                raise DevBrokerFailed(
                    f"The broker at {host}:{port} did not commit a transaction in time: {error}"
                ) from error
            time.sleep(_POLL_INTERVAL_S)


def _wait_for_port(host: str, port: int, deadline: float, check_alive: Callable[[], None]) -> None:
    while True:
        check_alive()
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise DevBrokerFailed(f"Nothing listens at {host}:{port}: {error}") from error
            time.sleep(_POLL_INTERVAL_S)


def _commit_one(common: dict[str, str | int], topic: str, timeout_s: float) -> None:
    """Commits one transaction on a new topic, with the broker's default replication, and deletes the topic. Also wakes
    the group coordinator."""
    admin = AdminClient(dict(common))
    for created in admin.create_topics([NewTopic(topic, 1)]).values():
        created.result(timeout_s)
    try:
        producer = Producer({**common, "transactional.id": topic, "transaction.timeout.ms": 10_000})
        producer.init_transactions(timeout_s)
        producer.begin_transaction()
        producer.produce(topic, b"ready")
        producer.commit_transaction(timeout_s)
        consumer = Consumer({**common, "group.id": topic})
        try:
            consumer.committed([TopicPartition(topic, 0)], timeout_s)
        finally:
            consumer.close()
    finally:
        for deleted in admin.delete_topics([topic]).values():
            deleted.result(timeout_s)
