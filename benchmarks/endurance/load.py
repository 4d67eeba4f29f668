"""`python -m benchmarks.endurance.load BOOTSTRAP REQUESTS TARGET PARTITIONS RATE COUNT DELAY_MS_MAX SEED DIRECTORY`.

Sends the requests of the plan, RATE a second, and writes the due time of each to `Outcomes` in DIRECTORY. Prints the
longest delay of the program against its rate, ms. The exit code is 1 if a request was not acknowledged.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.endurance.plan import CANCEL, GROUP, MESSAGE, Outcomes, Planned, plan

#: Seconds: requests that are planned within this time are sent together.
_STEP_S = 0.005
#: Bytes of a value after its number and its due time. They are random, so that compression does not shrink them.
_FILLER_SIZE_BYTES = 240
_FILLERS = random.Random(20).randbytes(16_384 * _FILLER_SIZE_BYTES)  # noqa: S311  # not a secret
_FLUSH_S = 120.0


Headers = list[tuple[str, str | bytes | None]]


class Sender:
    """Sends planned requests, and writes their expected outcomes."""

    def __init__(self, bootstrap: str, topics: tuple[str, str], partitions: int, outcomes: Outcomes) -> None:
        self._requests, self._target = topics[0], topics[1].encode()
        self._partitions, self._due_ms = partitions, outcomes.due_ms
        self.refused = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": round(_FLUSH_S * 1_000),
                "queue.buffering.max.messages": 1_000_000,
                "delivery.report.only.error": True,
                "on_delivery": self._failed,
            }
        )

    def send(self, number: int, planned: Planned, now_ms: int) -> None:
        """Sends request `number` at the present time; waits if the client's queue is full."""
        due_ms = now_ms + planned.delay_ms
        if planned.kind == MESSAGE:
            headers: Headers = [("postdate-topic", self._target), ("postdate-at", b"%d" % due_ms)]
            if planned.has_id:
                headers.append(("postdate-id", b"id-%d" % number))
            value = struct.pack("<qq", number, due_ms) + filler_of(number)
            self._produce(value, b"key-%d" % (number % 1009), headers, number)
            self._due_ms[number] = due_ms
            return
        headers = [("postdate-id", b"id-%d" % planned.acts_on)]
        if planned.kind == CANCEL:
            headers.append(("postdate-action", b"cancel"))
        else:
            headers += [("postdate-action", b"reschedule"), ("postdate-at", b"%d" % due_ms)]
        self._produce(None, b"id", headers, planned.acts_on)
        self._due_ms[number] = -1
        self._due_ms[planned.acts_on] = -1 if planned.kind == CANCEL else due_ms

    def serve(self) -> None:
        """Serves the library's events."""
        self._producer.poll(0)

    def end(self) -> int:
        """Waits for all acknowledgements; returns the number of requests without one."""
        return self._producer.flush(_FLUSH_S) + self.refused

    def _produce(self, value: bytes | None, key: bytes, headers: Headers, placed: int) -> None:
        while True:
            try:
                self._producer.produce(self._requests, value, key, self._partition_of(placed), headers=headers)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _partition_of(self, number: int) -> int:
        """Returns the partition of a request, and of its control. Each partition gets some of the requests with ids."""
        return (number + number // GROUP) % self._partitions

    def _failed(self, error: object, _message: object) -> None:
        self.refused += 1
        sys.stderr.write(f"a request was not acknowledged: {error}\n")


def filler_of(number: int) -> bytes:
    """Returns the random bytes of a value. They repeat after 16,384 requests."""
    first = number * _FILLER_SIZE_BYTES % len(_FILLERS)
    return _FILLERS[first : first + _FILLER_SIZE_BYTES]


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    bootstrap, requests, target, partitions, rate_, count_, delay_ms_max, seed, directory = arguments
    rate, count = int(rate_), int(count_)
    sender = Sender(bootstrap, (requests, target), int(partitions), Outcomes(Path(directory), count))
    planned = plan(rate, count, int(delay_ms_max), int(seed))
    sent, behind_s, began = 0, 0.0, time.monotonic()
    while sent < count:
        wanted = min(count, int((time.monotonic() - began) * rate) + 1)
        now_ms = time.time_ns() // 1_000_000
        for number in range(sent, wanted):
            sender.send(number, next(planned), now_ms)
        sent = wanted
        sender.serve()
        behind_s = max(behind_s, time.monotonic() - began - sent / rate)
        time.sleep(_STEP_S)
    lost = sender.end()
    sys.stdout.write(f"{behind_s * 1_000:.0f}\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
