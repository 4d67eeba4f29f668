"""Goal: what the tests read from a topic is complete.

Method: the reader of the tests beside a transaction that a real broker still holds open.
"""

from __future__ import annotations

import threading

from confluent_kafka import Producer

from support.deployments.sidecar_deployment import SidecarDeployment
from support.waiting.timeouts import WAIT_TIMEOUT_S


def test_a_reader_waits_for_a_transaction_that_is_about_to_end(env: SidecarDeployment) -> None:
    """The broker writes the markers of a transaction to one partition after another."""
    topic = env.new_target()
    producer = Producer({"bootstrap.servers": env.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.flush(WAIT_TIMEOUT_S)
    committing = threading.Timer(1.0, producer.commit_transaction)
    committing.start()
    reader = env.reader(topic)
    try:
        assert [seen.value for seen in reader.to_end()] == [b"value"]
    finally:
        committing.join()
        reader.close()
