"""Measures the cost of windows and returns at ingest: processor time of the shard's thread for each request.

    python -m benchmarks.request_cost [--rounds 15] [--requests 20000]

Each kind is compared with a plain request. The second return has the headers of a redelivery, so the plain request for
it has these headers too. Each round ingests the same number of requests of each kind into new timer indexes, in batches
of 2,000, in a changing order. So both requests of a comparison are measured in the same seconds, and other programs on
the machine matter little. The result is the median of the rounds' differences, and their quartiles. The values of each
round and the conditions go to benchmarks/request_cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import conditions
from postdate.kafka.interface import Record
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.wheel.index import TimerIndex
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.headers import Headers
from postdate.wire.requests.rules import RequestRules

_REPORT = conditions.ROOT / "benchmarks/request_cost.json"
_NOW_MS = 1_800_000_000_000
_BATCH = 2_000
_RULES = RequestRules(topic="requests", format_version=2)
_TARGET, _AT = ("postdate-topic", b"orders"), ("postdate-at", b"%d" % (_NOW_MS + 60_000))
_WINDOW, _EVEN = ("postdate-window", b"1m"), ("postdate-spread", b"even")
_RETRY = ("postdate-retry", b"base=1s, factor=2, max=1h, attempts=12, jitter=20%")


def _redelivered(offset: int) -> Headers:
    """Returns the headers that the consumer of a first redelivery sees."""
    return [
        ("postdate-origin", b"requests/0/%d" % offset),
        ("postdate-due", b"%d" % (_NOW_MS - 5)),
        ("postdate-attempt", b"1"),
        ("postdate-first-origin", b"requests/0/7"),
        ("postdate-first-due", b"%d" % (_NOW_MS - 9)),
    ]


_KINDS: dict[str, Callable[[int], Headers]] = {
    "plain": lambda _: [_TARGET, _AT],
    "window": lambda _: [_TARGET, _AT, _WINDOW],
    "window, even": lambda _: [_TARGET, _AT, _WINDOW, _EVEN],
    "window, even, different due times": lambda offset: [
        _TARGET,
        ("postdate-at", b"%d" % (_NOW_MS + 60_000 + offset * 7 % 600_000)),
        _WINDOW,
        _EVEN,
    ],
    "first return": lambda _: [_TARGET, _RETRY],
    "plain, with the headers of a redelivery": lambda offset: [*_redelivered(offset), _TARGET, _AT],
    "second return": lambda offset: [*_redelivered(offset), _TARGET, _RETRY],
}


_BASES = {"second return": "plain, with the headers of a redelivery"}


def _cost_us(headers: Callable[[int], Headers], count: int) -> float:
    """Returns the processor time of the thread for each request, µs."""
    records = [
        Record(offset, _NOW_MS, True, b"key-%d" % offset, b"v" * 100, headers(offset)) for offset in range(count)
    ]
    with tempfile.TemporaryDirectory() as directory:
        identity = Identity("cluster", "requests", "log", 0)
        index = TimerIndex.open(Path(directory) / "index", identity, IndexOptions(), _NOW_MS)
        start = IndexOverlay(index)
        start.advance(next_request=0, next_dispatch=0, seq=0)
        start.write()
        while index.load_step(_NOW_MS):
            pass
        intake = Intake(_RULES, 0)
        began_s = time.thread_time()
        for first in range(0, count, _BATCH):
            ingest(index, intake, records[first : first + _BATCH], _NOW_MS, now_ms=_NOW_MS)
        taken_s = time.thread_time() - began_s
        index.close()
    return taken_s / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=20_000)
    asked = parser.parse_args()
    head = {"command": f"python -m benchmarks.request_cost --rounds {asked.rounds} --requests {asked.requests}"}
    head |= {"commit": conditions.commit(), "began": conditions.now(), "machine": conditions.machine()}
    load = os.getloadavg()[0]
    costs: dict[str, list[float]] = {name: [] for name in _KINDS}
    for number in range(asked.rounds + 1):
        for name in random.sample(list(_KINDS), len(_KINDS)):
            cost_us = _cost_us(_KINDS[name], asked.requests)
            if number:  # the first round warms up
                costs[name].append(cost_us)
    head["load_average"] = f"{load:.1f} to {os.getloadavg()[0]:.1f}"
    rounds = {name: [round(value, 3) for value in values] for name, values in costs.items()}
    _REPORT.write_text(json.dumps(head | {"microseconds_per_request": rounds}, indent=1) + "\n", encoding="utf-8")
    print(f"plain request: median {statistics.median(costs['plain']):.2f} us")
    for name, values in costs.items():
        if name != "plain":
            base = _BASES.get(name, "plain")
            more = [value - other for value, other in zip(values, costs[base], strict=True)]
            low, middle, high = statistics.quantiles(more, n=4)
            print(f"{name}: {middle:+.2f} us beside {base} (quartiles {low:+.2f} to {high:+.2f})")


if __name__ == "__main__":
    main()
