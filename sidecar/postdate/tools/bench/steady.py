"""The steady cases: a constant rate of requests with delays from one to five seconds, and the lateness of each message.

The caller's thread reads the target, and another thread of the same process sends, so both use the same clock.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import PlainProducer
from postdate.sidecar.errors import PostdateError, TransientError
from postdate.tools.bench.environment import BenchEnvironment, BenchSidecar, request, result_of, value_of
from postdate.tools.bench.figures import Figures, Lateness, percentiles
from postdate.tools.bench.journal import Arrivals, Journal
from postdate.tools.bench.limits import (
    CASE_TIMEOUT_S,
    IDLE_S,
    MANY_PARTITIONS,
    PARTITIONS,
    RAW_MANY_PAUSES_MS,
    RAW_PAUSES_MS,
    READ_PAUSE_S,
    TARGET_PARTITIONS,
    WARM_UP_S,
)
from postdate.wire.topics import OwnTopics

DELAY_MS = (1_000, 5_000)
"""The shortest and the longest delay of the requests."""
#: Seconds: the interval at which the requests of that time are passed to the client library.
_STEP_S = 0.005
_SEED = 20


def steady(environment: BenchEnvironment, rate: int, seconds: float) -> Figures:
    """Returns lateness at the commit, from the dispatch log, and at a read_committed consumer."""
    requests, (target,) = environment.new_topics()
    sidecar = environment.sidecar(requests)
    sidecar.start_and_wait()
    count, warm_up = int(rate * (seconds + WARM_UP_S)), int(rate * WARM_UP_S)
    environment.report(f"sending {rate:,} requests a second {_times(seconds)}")
    cpu_s, began = sidecar.cpu_s(), time.monotonic()
    with (
        closing(Arrivals(environment.kafka, target, TARGET_PARTITIONS)) as arrivals,
        LoadGenerator(environment, requests, [target], rate, count, PARTITIONS) as sender,
    ):
        _read(arrivals, count, checks(sidecar, sender))
        used = (sidecar.cpu_s() - cpu_s) / (time.monotonic() - began)
        arrived = arrivals.lateness(warm_up)
    with closing(Journal(environment.kafka, requests)) as journal:
        journal.follow(count, sidecar.check)
        committed = journal.lateness()
    long_share = sidecar.long_transactions_share()
    sidecar.stop()
    late = percentiles("arrival", arrived)
    return {
        **late,
        **percentiles("commit", committed),
        "early": float((committed < 0).sum()),
        "core_share": used,
        "long_transactions_share": long_share,
        **beside_raw(environment, RawLoad(PARTITIONS, rate, seconds, RAW_PAUSES_MS), late),
    }


@dataclass(frozen=True, slots=True)
class RawLoad:
    """The load of the raw counterpart: as many producers as the case has shards, measured with each of `pauses_ms`."""

    producers: int
    rate: int
    seconds: float
    pauses_ms: Sequence[int]


def beside_raw(environment: BenchEnvironment, load: RawLoad, late: Figures) -> Figures:
    """Returns the lateness of the raw counterpart with its best pause, by p99, and the ratios of `late` to it. The same
    requests are sent meanwhile, and nobody reads them.

    Omits a pause with which the broker did not acknowledge a request of the load. If this is true of all pauses, raises
    the last error.
    """
    best: Figures = {}
    failed: TransientError | None = None
    for pause_ms in load.pauses_ms:
        try:
            figures = {**_raw(environment, load, pause_ms), "raw_pause_ms": float(pause_ms)}
        except TransientError as error:
            environment.report(f"the pause of {pause_ms} ms is left out: {error}")
            failed = error
            continue
        if not best or figures["raw_arrival_p99_ms"] < best["raw_arrival_p99_ms"]:
            best = figures
    if not best and failed is not None:
        raise failed
    for name in ("p50", "p99"):
        best = {**best, f"arrival_{name}_of_raw_share": late[f"arrival_{name}_ms"] / best[f"raw_arrival_{name}_ms"]}
    return best


def _raw(environment: BenchEnvironment, load: RawLoad, pause_ms: int) -> Figures:
    requests, (target,) = environment.new_topics(partitions=load.producers)
    log = OwnTopics.of(requests).dispatch_log
    seconds = load.seconds + WARM_UP_S
    count, warm_up = int(load.rate * seconds), int(load.rate * WARM_UP_S)
    environment.report(f"the same with {load.producers} raw producers, which pause for {pause_ms} ms")
    arguments = [target, log, str(load.producers), str(load.rate), str(seconds), str(pause_ms)]
    with (
        closing(Arrivals(environment.kafka, target, TARGET_PARTITIONS)) as arrivals,
        environment.raw_program("raw_steady", *arguments) as program,
        LoadGenerator(environment, requests, [target], load.rate, count, load.producers) as sender,
    ):

        def check() -> None:
            sender.check()
            if program.poll():
                result_of(program)

        _read(arrivals, count, check)
        done = result_of(program)
        late = percentiles("raw_arrival", arrivals.lateness(warm_up))
    return {**late, "raw_transactions_per_s": done["transactions_per_s"], "raw_core_share": done["cpu_s"] / seconds}


def _times(seconds: float) -> str:
    return f"for {seconds:g} s, after {WARM_UP_S:g} s of warm-up"


def _read(arrivals: Arrivals, count: int, check: Callable[[], None]) -> None:
    """Reads until `count` messages have arrived; `check` raises if they can no longer arrive."""
    deadline = time.monotonic() + CASE_TIMEOUT_S
    while arrivals.count < count:
        if not arrivals.read_new():
            time.sleep(READ_PAUSE_S)
            check()
            if time.monotonic() > deadline:
                raise PostdateError(f"{arrivals.count} of {count} messages arrived in {CASE_TIMEOUT_S:.0f} s")


def many(environment: BenchEnvironment, rate: int, seconds: float) -> Figures:
    """Measures one process with 64 shards: the lateness that a read_committed consumer sees, beside the raw
    counterpart; the duration of the start; and the cost of these shards while no message is due."""
    requests, (target,) = environment.new_topics(partitions=MANY_PARTITIONS)
    sidecar = environment.sidecar(requests, MANY_PARTITIONS)
    started_s = sidecar.start_and_wait()
    time.sleep(WARM_UP_S)
    cpu_s, began = sidecar.cpu_s(), time.monotonic()
    time.sleep(IDLE_S)
    idle = (sidecar.cpu_s() - cpu_s) / (time.monotonic() - began)
    count, warm_up = int(rate * (seconds + WARM_UP_S)), int(rate * WARM_UP_S)
    environment.report(f"sending {rate:,} requests a second {_times(seconds)}, to {MANY_PARTITIONS} partitions")
    with (
        closing(Arrivals(environment.kafka, target, TARGET_PARTITIONS)) as arrivals,
        LoadGenerator(environment, requests, [target], rate, count, MANY_PARTITIONS) as sender,
    ):
        _read(arrivals, count, checks(sidecar, sender))
        arrived = arrivals.lateness(warm_up)
    sidecar.stop()
    late = percentiles("arrival", arrived)
    raw = beside_raw(environment, RawLoad(MANY_PARTITIONS, rate, seconds, RAW_MANY_PAUSES_MS), late)
    return {"start_s": started_s, "idle_core_share": idle, **late, **raw}


def checks(sidecar: BenchSidecar, sender: LoadGenerator) -> Callable[[], None]:
    """Returns a function that raises if the sidecar has ended or sending failed."""

    def check() -> None:
        sidecar.check()
        sender.check()

    return check


def bad_target(environment: BenchEnvironment, rate: int, seconds: float) -> Figures:
    """Measures the lateness of ten healthy targets, and then that of nine targets while the tenth is missing."""
    undisturbed, disturbed = (_others_late(environment, rate, seconds, missing) for missing in (False, True))
    named = percentiles("undisturbed", undisturbed) | percentiles("disturbed", disturbed)
    return named | {"disturbed_of_undisturbed_p99_share": named["disturbed_p99_ms"] / named["undisturbed_p99_ms"]}


def _others_late(environment: BenchEnvironment, rate: int, seconds: float, missing: bool) -> Lateness:
    """Returns the lateness at the commit of the delivered messages. If the tenth target is missing, these are the
    messages for the other nine."""
    requests, targets = environment.new_topics(10, target_partitions=1)
    tenth = f"{targets[-1]}-missing" if missing else targets[-1]
    sidecar = environment.sidecar(requests)
    sidecar.start_and_wait()
    count, warm_up = int(rate * (seconds + WARM_UP_S)) // 10 * 10, rate * WARM_UP_S
    state = "is missing" if missing else "exists"
    environment.report(f"sending {rate:,} requests a second {_times(seconds)}; the tenth target {state}")
    began_ms = time.time_ns() // 1_000_000
    with (
        closing(Journal(environment.kafka, requests)) as journal,
        LoadGenerator(environment, requests, [*targets[:-1], tenth], rate, count, PARTITIONS) as sender,
    ):
        journal.follow(count - count // 10 if missing else count, checks(sidecar, sender))
        late = journal.lateness(lambda due_ms: due_ms > began_ms + 1_000 * warm_up / rate + DELAY_MS[1])
    sidecar.stop()
    return late


class LoadGenerator:
    """A thread that sends `count` requests, `rate` a second, for each target in turn, while the context is open."""

    def __init__(
        self, environment: BenchEnvironment, requests: str, targets: list[str], rate: int, count: int, partitions: int
    ) -> None:
        self._producer: PlainProducer = environment.kafka.plain_producer()
        self._requests, self._targets, self._rate, self._count = requests, targets, rate, count
        self._partitions = partitions
        self._ending = threading.Event()
        self._fault: KafkaFault | TransientError | None = None
        self._thread = threading.Thread(target=self._send, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._producer.destroy()

    def check(self) -> None:
        """Raises KafkaFault if sending failed, or TransientError if a request was not acknowledged."""
        if self._fault is not None:
            raise self._fault

    def _delivered(self, fault: KafkaFault | None, _offset: int, _timestamp_ms: int) -> None:
        if fault is not None and self._fault is None:
            self._fault = TransientError(f"{self._rate:,} requests a second are too many here, one was lost: {fault}")

    def _send(self) -> None:
        chance = random.Random(_SEED)  # noqa: S311  # not a secret: the same load every time
        began, sent = time.monotonic(), 0
        try:
            while sent < self._count and not self._ending.is_set():
                wanted = min(self._count, int((time.monotonic() - began) * self._rate) + 1)
                now_ms = time.time_ns() // 1_000_000
                for number in range(sent, wanted):
                    target = self._targets[number % len(self._targets)]
                    key, headers = request(number, target, now_ms + chance.randint(*DELAY_MS))
                    self._producer.produce(
                        self._requests, value_of(number), key, headers, number % self._partitions, self._delivered
                    )
                sent = wanted
                self._producer.flush(0)
                self._ending.wait(_STEP_S)
            self._producer.flush(CASE_TIMEOUT_S)
        except KafkaFault as fault:
            self._fault = fault
