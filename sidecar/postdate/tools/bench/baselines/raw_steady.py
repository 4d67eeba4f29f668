"""The raw counterpart of the benchmark's steady cases: transactional producers that neither delay nor store messages.

    python -m postdate.tools.bench.baselines.raw_steady BOOTSTRAP TARGET LOG PRODUCERS RATE SECONDS PAUSE_MS

RATE messages a second are due at regular times, in turn for each producer. A producer waits for its next due message.
In one transaction it produces all of its due messages to TARGET and one record to its partition of LOG, as a shard does
with its dispatch log. Then it pauses. The messages carry their due time in the header `postdate-due`. The program
prints {"transactions_per_s": …, "cpu_s": …}. It is written as a user without Postdate would write it, so it does not
use `postdate.kafka.interface`. Thread rule: one thread for each producer.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import uuid

from confluent_kafka import KafkaException, Producer

_TIMEOUT_S = 30.0
_VALUE_SIZE_BYTES = 256


class RawProducer(threading.Thread):
    """Sends the messages `number`, `number + producers`, … of a load."""

    def __init__(self, bootstrap: str, topics: tuple[str, str], load: SteadyLoad, number: int) -> None:
        super().__init__(name=f"raw-{number}", daemon=True)
        self._target, self._log = topics
        self._load, self._number = load, number
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"raw-{uuid.uuid4()}",
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self.transactions = 0
        self.error: KafkaException | None = None

    def begin(self) -> None:
        """Registers the transactional id with its coordinator. Blocks until the coordinator answers."""
        self._producer.init_transactions(_TIMEOUT_S)

    def run(self) -> None:
        """Sends until the load ends. If a transaction fails, sets `error` and returns."""
        try:
            self._send()
        except KafkaException as error:
            self.error = error

    def _send(self) -> None:
        load, sent = self._load, self._number
        values = random.Random(self._number).randbytes(_VALUE_SIZE_BYTES)  # noqa: S311  # not a secret
        while sent < load.count:
            time.sleep(max(0.0, load.due_s(sent) - time.time()))
            self._producer.begin_transaction()
            while sent < load.count and load.due_s(sent) <= time.time():
                due = b"%d" % int(load.due_s(sent) * 1_000)
                self._producer.produce(self._target, values, b"key-%d" % (sent % 1009), headers=[("postdate-due", due)])
                sent += load.producers
            self._producer.produce(self._log, b"x" * 100, partition=self._number)
            self._producer.commit_transaction(_TIMEOUT_S)
            self.transactions += 1
            time.sleep(load.pause_s)


class SteadyLoad:
    """`count` messages at `rate` a second, from `producers` producers that pause for `pause_s` between transactions."""

    def __init__(self, producers: int, rate: float, seconds: float, pause_s: float) -> None:
        self.producers, self.rate, self.count, self.pause_s = producers, rate, int(rate * seconds), pause_s
        self.began_s = 0.0

    def due_s(self, number: int) -> float:
        """Returns the due time of a message, s since the epoch, a whole millisecond."""
        return int((self.began_s + number / self.rate) * 1_000) / 1_000


def main(arguments: list[str]) -> None:
    """Runs the load and prints the figures. Raises KafkaException if a transaction fails."""
    bootstrap, target, log, producers, rate, seconds, pause_ms = arguments
    load = SteadyLoad(int(producers), float(rate), float(seconds), float(pause_ms) / 1_000)
    senders = [RawProducer(bootstrap, (target, log), load, number) for number in range(load.producers)]
    for sender in senders:
        sender.begin()
    load.began_s = time.time() + 0.1
    cpu_s = time.process_time()
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
        if sender.error is not None:
            raise sender.error
    figures = {
        "transactions_per_s": sum(sender.transactions for sender in senders) / float(seconds),
        "cpu_s": time.process_time() - cpu_s,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
