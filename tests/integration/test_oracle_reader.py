"""Goal: the reader of the tests returns all committed records of a topic.

Method: the reader reads a topic of a real broker while a transaction is still open.
"""

from __future__ import annotations

import threading

from confluent_kafka import Producer

from support.deployments.sidecar_deployment import SidecarDeployment
from support.waiting.timeouts import WAIT_TIMEOUT_S


def test_a_reader_waits_for_a_transaction_that_is_about_to_end(deployment: SidecarDeployment) -> None:
    """A transaction may be open briefly after its end, since the broker writes its markers partition by partition."""
    topic = deployment.new_target()
    producer = Producer({"bootstrap.servers": deployment.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.flush(WAIT_TIMEOUT_S)
    committing = threading.Timer(1.0, producer.commit_transaction)
    committing.start()
    reader = deployment.reader(topic)
    try:
        assert [seen.value for seen in reader.to_end()] == [b"value"]
    finally:
        committing.join()
        reader.close()
