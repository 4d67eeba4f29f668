"""`python -m benchmarks.endurance.arrivals BOOTSTRAP TARGET PARTITIONS COUNT DIRECTORY`: reads the target.

The program is a `read_committed` consumer that assigns itself all partitions from the beginning, and commits no
offsets. It writes the number of arrivals, the due time, and the lateness by this machine's clock of each message to
`Outcomes` in DIRECTORY. It runs until SIGTERM.
"""

from __future__ import annotations

import signal
import struct
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks.endurance.plan import Outcomes

#: Seconds: the pause between two reads. Lateness is less precise if a read returns many messages.
_PAUSE_S = 0.001
_RECORDS_MAX = 5_000
#: The largest number of arrivals that an element of `Outcomes.arrived` can count.
_ARRIVED_MAX = 255
_ENDING: list[bool] = []


def main(arguments: list[str]) -> None:
    """Reads until SIGTERM. Raises KafkaException if the consumer fails for good."""
    bootstrap, target, partitions, count, directory = arguments
    outcomes = Outcomes(Path(directory), int(count))
    signal.signal(signal.SIGTERM, lambda *_: _ENDING.append(True))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "endurance",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(target, index, 0) for index in range(int(partitions))])
    while not _ENDING:
        messages = consumer.consume(_RECORDS_MAX, 0)
        if messages:
            note(outcomes, [message for message in messages if message.error() is None], time.time_ns() / 1_000_000)
        time.sleep(_PAUSE_S)
    consumer.close()


def note(outcomes: Outcomes, messages: list, now_ms: float) -> None:  # type: ignore[type-arg]  # the library's
    """Writes the count, the due time and the lateness of each message."""
    for message in messages:
        number = struct.unpack_from("<q", message.value())[0]
        due_ms = int(dict(message.headers())["postdate-due"])
        if not outcomes.arrived[number]:
            outcomes.due_said_ms[number] = due_ms
            outcomes.late_ms[number] = now_ms - due_ms
        if outcomes.arrived[number] < _ARRIVED_MAX:
            outcomes.arrived[number] += 1


if __name__ == "__main__":
    main(sys.argv[1:])
