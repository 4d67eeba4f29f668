"""The cases of the benchmark. Each takes an environment and a size, creates new topics, and returns the figures of one
run. `CASES` lists them.

Many rates are compared with a raw copy of the same records in the same run. Thread rule: main thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from postdate.sidecar.cluster.connection import admin_of
from postdate.sidecar.errors import TransientError
from postdate.tools.bench.bulk import bulk
from postdate.tools.bench.environment import BenchEnvironment, BenchSidecar, cancel_of, request, with_id
from postdate.tools.bench.figures import Figures, percentiles
from postdate.tools.bench.hand_over import hand_over
from postdate.tools.bench.journal import Arrivals, Journal
from postdate.tools.bench.limits import (
    FAR_MS,
    FILL_PER_S_MIN,
    IDLE_S,
    LONG_MS,
    PARTITIONS,
    TARGET_PARTITIONS,
    VALUE_SIZE_BYTES,
)
from postdate.tools.bench.scale import scale
from postdate.tools.bench.schedules import schedules_once, steady_schedules
from postdate.tools.bench.steady import bad_target, many, steady
from postdate.wire.dispatch_log import CANCELLED, DELIVERED, STORED

#: Milliseconds from the start of sending to the due time, in which all entries must be accepted: per record, and the
#: minimum in total.
_ACCEPT_MS_PER_RECORD = 0.05
_ACCEPT_MS_MIN = 8_000
#: Messages for the other target in the case `burst`, due from half a second before the burst to 1.5 s after it.
_OTHERS = 1_000
#: Messages that fall due around the loss of a disk, and the interval of their due times, ms.
_MEANWHILE = 1_500
_APART_MS = 20


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a case: `messages` if the case has a fixed number of them, `seconds` if it has a fixed rate."""

    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BenchCase:
    """A case: what it measures, for `postdate bench --help`, and the function of one run."""

    description: str
    run: Callable[[BenchEnvironment, Size], Figures]


def held(environment: BenchEnvironment, size: Size) -> Figures:
    """Accepts messages that do not become due. Measures the idle process, and its restarts after a stop and after a
    kill."""
    requests, (target,) = environment.new_topics()
    _fill_due(environment, requests, target, size.messages, _now_ms() + FAR_MS)
    sidecar = environment.sidecar(requests)
    sidecar.start_and_wait()
    sidecar.wait_for_pending(size.messages)
    before_s, began = sidecar.cpu_s(), time.monotonic()
    time.sleep(IDLE_S)
    idle = (sidecar.cpu_s() - before_s) / (time.monotonic() - began)
    memory_mb = sidecar.memory_mb()
    sidecar.stop()
    disk_bytes = sidecar.disk_bytes() / size.messages
    after_stop_s = sidecar.start_and_wait()
    sidecar.kill()
    after_kill_s = sidecar.start_and_wait()
    sidecar.stop()
    return {
        "memory_mb": memory_mb,
        "disk_per_entry_bytes": disk_bytes,
        "disk_beyond_payload_bytes": disk_bytes - VALUE_SIZE_BYTES,
        "idle_core_share": idle,
        "restart_after_stop_s": after_stop_s,
        "restart_after_kill_s": after_kill_s,
    }


def intake(environment: BenchEnvironment, size: Size) -> Figures:
    """Accepts requests that are due in half an hour."""
    requests, (target,) = environment.new_topics()
    _fill_due(environment, requests, target, size.messages, _now_ms() + FAR_MS)
    consumed = environment.raw_copy(requests, "", size.messages)
    sidecar = environment.sidecar(requests)
    sidecar.start()
    sidecar.wait_for_takeover()
    cost = Cost(environment, sidecar)
    rate = size.messages / max(sidecar.wait_for_pending(size.messages), 0.001)
    costs, memory_mb = cost.per_message(size.messages), sidecar.memory_mb()
    sidecar.stop()
    return {
        "records_per_s": rate,
        "consumption_per_s": consumed,
        "of_consumption_share": rate / consumed,
        "memory_mb": memory_mb,
        **costs,
    }


def long(environment: BenchEnvironment, size: Size) -> Figures:
    """Accepts requests that are due in thirty days: each is written to STORE."""
    requests, (target, copied) = environment.new_topics(2)
    _fill_due(environment, requests, target, size.messages, _now_ms() + LONG_MS)
    sidecar = environment.sidecar(requests)
    sidecar.start()
    return _rates(environment, requests, copied, sidecar, size.messages, STORED)


def cancel(environment: BenchEnvironment, size: Size) -> Figures:
    """Cancels half of the messages, and delivers the other half.

    Requests and cancels are written before the due time, so each cancel is in time. The sidecar reads them after the
    due time. The raw copy reads the same number of requests, and no cancels, since a cancel is a small record.
    """
    requests, (target, copied) = environment.new_topics(2)
    # Each partition gets the same number of requests and of cancels. A cancel goes to the partition of its request.
    scheduled = size.messages * 2 // 3 // (2 * PARTITIONS) * 2 * PARTITIONS
    due_ms = _now_ms() + 1_000 + size.messages * 1_000 // FILL_PER_S_MIN
    environment.report(f"sending {scheduled:,} requests and {scheduled // 2:,} cancels to {requests}")
    environment.fill(requests, (with_id(request(number, target, due_ms), number) for number in range(scheduled)))
    environment.fill(requests, (cancel_of(number) for number in range(scheduled // 2)))
    if _now_ms() >= due_ms:
        raise TransientError(f"the broker takes fewer than {FILL_PER_S_MIN:,} requests a second: cancels were too late")
    time.sleep((due_ms - _now_ms()) / 1_000)
    sidecar = environment.sidecar(requests)
    sidecar.start()
    figures = _rates(environment, requests, "", sidecar, scheduled // 2)
    with closing(Journal(environment.kafka, requests, CANCELLED)) as cancelled:
        cancelled.follow(scheduled // 2, lambda: None)
    rate = figures["records_per_s"] * 3  # records of the request topic: every third one leads to a delivery
    plain, _ = environment.new_topics()
    environment.fill(plain, (request(number, target, due_ms) for number in range(scheduled)))
    copy = environment.raw_copy(plain, copied, scheduled)
    costs = {name: figures[name] / 3 for name in figures if name.endswith("_us")}
    return {**figures, **costs, "records_per_s": rate, "copy_per_s": copy, "of_copy_share": rate / copy}


def rebuild(environment: BenchEnvironment, size: Size) -> Figures:
    """Loses the disk while all entries are pending. Measures the time until deliveries resume, and until all entries
    are back.

    Other messages become due before, during and after the rebuild; each must arrive once.
    """
    requests, (target, other) = environment.new_topics(2)
    _fill_due(environment, requests, target, size.messages, _now_ms() + FAR_MS)
    sidecar = environment.sidecar(requests)
    sidecar.start()
    sidecar.wait_for_pending(size.messages)
    due_ms = _now_ms()
    environment.fill(requests, (request(number, other, due_ms + _APART_MS * number) for number in range(_MEANWHILE)))
    sidecar.kill()
    sidecar.lose_disk()
    began = time.monotonic()
    delivering_s = sidecar.start_and_wait()
    sidecar.wait_for_pending(size.messages)
    whole_s = time.monotonic() - began
    with (
        closing(Journal(environment.kafka, requests)) as journal,
        closing(Arrivals(environment.kafka, other, TARGET_PARTITIONS)) as arrivals,
    ):
        journal.follow(_MEANWHILE, sidecar.check)
        late = journal.lateness()
        sidecar.stop()
        with admin_of(environment.kafka) as admin:
            arrived = arrivals.take_all(admin)
    return {
        "delivering_s": delivering_s,
        "whole_s": whole_s,
        "entries_per_s": size.messages / whole_s,
        "due_meanwhile": float(_MEANWHILE),
        "repeated": float(arrived - _MEANWHILE),
        "early": float((late < 0).sum()),
        "late_most_ms": float(late.max()),
    }


def through(environment: BenchEnvironment, size: Size) -> Figures:
    """Accepts and delivers at the same time, from a full request topic whose requests have just become due."""
    requests, (target, copied) = environment.new_topics(2)
    _fill_due(environment, requests, target, size.messages, _now_ms() + 1_000)
    sidecar = environment.sidecar(requests)
    sidecar.start()
    return _rates(environment, requests, copied, sidecar, size.messages)


def drain(environment: BenchEnvironment, size: Size) -> Figures:
    """Delivers messages that were accepted before an outage and became due during it."""
    requests, (target, copied) = environment.new_topics(2)
    lead_ms = _ACCEPT_MS_MIN + round(size.messages * _ACCEPT_MS_PER_RECORD)
    due_ms = _now_ms() + lead_ms
    _fill_due(environment, requests, target, size.messages, due_ms)
    sidecar = environment.sidecar(requests)
    sidecar.start()
    sidecar.wait_for_pending(size.messages)
    sidecar.stop()
    time.sleep(max(0.0, (due_ms - _now_ms()) / 1000 + 0.5))
    sidecar.start()
    return _rates(environment, requests, copied, sidecar, size.messages)


def burst(environment: BenchEnvironment, size: Size) -> Figures:
    """Delivers half of `size.messages`, due in one millisecond, while messages for another target continue."""
    requests, (target, other, copied) = environment.new_topics(3)
    count = size.messages // 2
    lead_ms = _ACCEPT_MS_MIN + round(count * _ACCEPT_MS_PER_RECORD)
    due_ms = _now_ms() + lead_ms
    _fill_due(environment, requests, target, count, due_ms)
    environment.fill(requests, (request(number, other, due_ms - 500 + 2 * number + 1) for number in range(_OTHERS)))
    sidecar = environment.sidecar(requests)
    sidecar.start()
    with closing(Journal(environment.kafka, requests)) as journal:
        journal.follow(count + _OTHERS, sidecar.check)
        late, others = journal.lateness(lambda due: due == due_ms), journal.lateness(lambda due: due != due_ms)
    long_share = sidecar.long_transactions_share()
    sidecar.stop()
    copy = environment.raw_copy(requests, copied, count)
    rate = count / (float(late.max()) / 1000)
    return {
        "records_per_s": rate,
        "copy_per_s": copy,
        "of_copy_share": rate / copy,
        "drained_after_ms": float(late.max()),
        "others_late_p99_ms": percentiles("x", others)["x_p99_ms"],
        "others_late_most_ms": float(others.max()),
        "long_transactions_share": long_share,
    }


def _rates(
    environment: BenchEnvironment, requests: str, copied: str, sidecar: BenchSidecar, count: int, fate: str = DELIVERED
) -> dict[str, float]:
    """Follows a sidecar that has just started until `count` requests have the fate, and stops it. Returns its rate,
    memory, costs and share of long transactions. Unless `copied` is empty, also returns the rate of a raw copy to the
    topic `copied`, and the sidecar's rate divided by that rate."""
    sidecar.wait_for_takeover()
    cost = Cost(environment, sidecar)
    with closing(Journal(environment.kafka, requests, fate)) as journal:
        journal.follow(count, sidecar.check)
        seconds = journal.seconds()
    costs = cost.per_message(count)
    memory_mb, long_share = sidecar.memory_mb(), sidecar.long_transactions_share()
    sidecar.stop()
    rate = count / seconds
    figures = {"records_per_s": rate, "memory_mb": memory_mb, "long_transactions_share": long_share, **costs}
    if copied:
        copy = environment.raw_copy(requests, copied, count)
        figures |= {"copy_per_s": copy, "of_copy_share": rate / copy}
    return figures


class Cost:
    """Measures the processor time of the sidecar and of the broker since the creation of this object. The broker's time
    includes the fetches of the journal."""

    def __init__(self, environment: BenchEnvironment, sidecar: BenchSidecar) -> None:
        self._environment, self._sidecar = environment, sidecar
        self._before = sidecar.cpu_s(), environment.broker_cpu_s()

    def per_message(self, count: int) -> dict[str, float]:
        """Returns microseconds per message, without the broker if its process is unknown."""
        sidecar_s, broker_s = self._before
        costs = {"sidecar_cpu_us": (self._sidecar.cpu_s() - sidecar_s) * 1e6 / count}
        now_s = self._environment.broker_cpu_s()
        if broker_s is not None and now_s is not None:
            costs["broker_cpu_us"] = (now_s - broker_s) * 1e6 / count
        return costs


def _fill_due(environment: BenchEnvironment, requests: str, target: str, count: int, due_ms: int) -> None:
    environment.report(f"sending {count:,} requests to {requests}")
    environment.fill(requests, (request(number, target, due_ms) for number in range(count)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _steady_case(rate: int) -> BenchCase:
    return BenchCase(
        f"lateness at {rate:,} messages/s, beside raw producers",
        lambda environment, size: steady(environment, rate, size.seconds),
    )


def _schedules_case(rate: int) -> BenchCase:
    return BenchCase(
        f"lateness of {rate:,} occurrences/s beside as many messages",
        lambda environment, size: steady_schedules(environment, rate, size.seconds),
    )


CASES: Mapping[str, BenchCase] = {
    "intake": BenchCase("accept requests that are due in half an hour", intake),
    "long": BenchCase("accept and store requests that are due in thirty days", long),
    "through": BenchCase("accept and deliver requests that are already due", through),
    "cancel": BenchCase("cancel half of the messages, deliver the other half", cancel),
    "drain": BenchCase("deliver messages that fell due during an outage", drain),
    "burst": BenchCase("deliver messages that are due in one millisecond", burst),
    "scale": BenchCase(
        "deliver such a burst with 1, 2 and 4 processes", lambda environment, size: scale(environment, size.messages)
    ),
    "held": BenchCase("memory, disk and restart while messages are pending", held),
    "rebuild": BenchCase("rebuild the index after a lost disk", rebuild),
    "hand-over": BenchCase(
        "longest gap at a planned stop, a restart, a crash", lambda environment, size: hand_over(environment)
    ),
    "steady 100/s": _steady_case(100),
    "steady 1000/s": _steady_case(1_000),
    "steady 3000/s": _steady_case(3_000),
    "steady 10000/s": _steady_case(10_000),
    "many": BenchCase(
        "lateness at 5,000 messages/s with 64 shards",
        lambda environment, size: many(environment, 5_000, size.seconds),
    ),
    "bulk": BenchCase(
        "cancel all messages for one target by one control",
        lambda environment, size: bulk(environment, size.messages, 1_000, size.seconds),
    ),
    "schedules once": BenchCase(
        "hold recurring schedules, each of which fires once",
        lambda environment, size: schedules_once(environment, size.messages),
    ),
    "schedules 100/s": _schedules_case(100),
    "schedules 1000/s": _schedules_case(1_000),
    "bad target": BenchCase(
        "lateness of nine targets while the tenth is missing",
        lambda environment, size: bad_target(environment, 1_000, size.seconds),
    ),
}
"""Name → case, in the order in which they run."""
