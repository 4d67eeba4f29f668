"""Goal: a repeated request to end a transaction always makes its producer unfit for the next one, even if the first
copy was lost.

The first copy may still arrive, and would then decide the next transaction (KAFKA-17754). Method: a broker behind a
proxy that breaks the connection during an EndTxn, several times within 30 s, during which the library reports a
repeated error only once. Only the real client is tested.
"""

from __future__ import annotations

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import Partition
from postdate.kafka.settings import KafkaSettings
from support.brokers.kafka_steps import commit_values, new_topic, open_producer, read_committed
from support.faults.proxied_broker import proxied_broker
from support.faults.proxy import END_TXN
from support.waiting.timeouts import WAIT_TIMEOUT_S

_TIMES = 4


def test_a_repeated_end_request_taints_the_producer() -> None:
    with proxied_broker(1) as broker:
        kafka = ConfluentKafka(KafkaSettings(broker.way(0)))
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        commit_values(producer, topic, [b"undisturbed"])
        for number in range(_TIMES):
            hold = broker.proxies[0].hold(END_TXN, lose_client=True)
            commit_values(producer, topic, [b"%d" % number])
            assert hold.caught.is_set()
            assert not producer.settle(), f"disturbed for the {number + 1}. time"
            broker.proxies[0].release(hold)  # without an open transaction, the late EndTxn decides nothing
            assert hold.answered.wait(WAIT_TIMEOUT_S)
        producer.destroy()
        values = [record.value for record in read_committed(kafka, Partition(topic, 0))]
        assert values == [b"undisturbed", *(b"%d" % number for number in range(_TIMES))]
