"""The case `bulk`: one control in each partition cancels all messages for a target, while messages for another target
continue."""

from __future__ import annotations

import time
from contextlib import closing

from postdate.sidecar.errors import PostdateError
from postdate.tools.bench.environment import BenchEnvironment, Request, request
from postdate.tools.bench.figures import Figures, percentiles
from postdate.tools.bench.journal import Journal
from postdate.tools.bench.limits import FAR_MS, PARTITIONS, WARM_UP_S
from postdate.tools.bench.steady import DELAY_MS, LoadGenerator, checks
from postdate.wire import headers as names
from postdate.wire.dispatch_log import APPLIED, BulkProgress

#: The format version in which bulk controls are accepted.
_FORMAT_VERSION = 2


def bulk(environment: BenchEnvironment, messages: int, rate: int, seconds: float) -> Figures:
    """Cancels `messages` pending messages by one control for each partition.

    Messages for another target are sent at `rate`: for the warm-up, for about `seconds` before the controls, and for
    about `seconds` after them. Their lateness is measured at the commit.
    """
    requests, (target, other) = environment.new_topics(2)
    environment.report(f"sending {messages:,} requests to {requests}")
    due_ms = _now_ms() + FAR_MS
    environment.fill(requests, (request(number, target, due_ms) for number in range(messages)))
    sidecar = environment.sidecar(requests)
    sidecar.format_version = _FORMAT_VERSION
    sidecar.start_and_wait()
    sidecar.wait_for_pending(messages)
    count, warm_up_ms = int(rate * (2 * seconds + WARM_UP_S)), 1_000 * WARM_UP_S + DELAY_MS[1]
    environment.report(f"sending {rate:,} requests a second for {other} until {messages:,} are cancelled")
    began_ms = _now_ms()
    with (
        closing(Journal(environment.kafka, requests)) as delivered,
        closing(Journal(environment.kafka, requests, APPLIED)) as applied,
        LoadGenerator(environment, requests, [other], rate, count, PARTITIONS) as sender,
    ):
        check = checks(sidecar, sender)
        delivered.follow(int(rate * (seconds + WARM_UP_S)), check)
        control_ms = _now_ms()
        environment.fill(requests, [_control(target)] * PARTITIONS)
        applied.follow(PARTITIONS, check)
        delivered.follow(count, check)
    ended_ms = max(at_ms for at_ms, _ in applied.fates())
    cancelled = sum(fate.count for _, fate in applied.fates() if isinstance(fate, BulkProgress))
    if cancelled != messages:
        raise PostdateError(f"{cancelled:,} of {messages:,} messages were cancelled")
    undisturbed = delivered.lateness(lambda due_ms: began_ms + warm_up_ms < due_ms < control_ms)
    disturbed = delivered.lateness(lambda due_ms: control_ms <= due_ms <= ended_ms)
    sidecar.stop()
    late = percentiles("undisturbed", undisturbed) | percentiles("disturbed", disturbed)
    return {
        "cancelled_per_s": messages / ((ended_ms - control_ms) / 1_000),
        **late,
        "disturbed_of_undisturbed_p99_share": late["disturbed_p99_ms"] / late["undisturbed_p99_ms"],
    }


def _control(target: str) -> Request:
    return b"", [(names.ACTION, b"cancel"), (names.SELECT_TOPIC, target.encode())]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
