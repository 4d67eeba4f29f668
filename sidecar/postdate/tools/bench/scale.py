"""The case that measures scaling: the same burst for one, two and four processes, if there are enough cores.

The processes are the workers of one `postdate run --workers N`, and members of one consumer group. The group has
assigned the shards before a request is sent. Thread rule: main thread.
"""

from __future__ import annotations

import os
import time
from contextlib import closing

from postdate.sidecar.cluster.connection import admin_of
from postdate.sidecar.errors import TransientError
from postdate.tools.bench.environment import BenchEnvironment, BenchSidecar, request
from postdate.tools.bench.figures import Figures
from postdate.tools.bench.journal import Journal
from postdate.tools.bench.limits import PARTITIONS, POLL_INTERVAL_S, START_TIMEOUT_S

#: Numbers of processes; each has at least one shard.
_PROCESSES = (1, 2, 4)
#: Milliseconds from the start of sending until the burst is due; in this time it is sent and accepted.
_LEAD_MS = 4_000
_LEAD_MS_PER_RECORD = 0.06
#: Each lead is twice the previous one, so a busy machine gets up to 64 times the first lead.
_BURSTS_MAX = 7


def scale(environment: BenchEnvironment, messages: int) -> Figures:
    """Returns messages a second with each number of processes, and the ratio to one process.

    The raw copy comes first. Otherwise the broker would still be slow after its start while one process is measured.
    """
    figures = {"copy_per_s": _copy(environment, messages)}
    for processes in _PROCESSES:
        if processes > (os.cpu_count() or 1) and processes > 1:
            environment.report(f"not enough cores for {processes} processes: skipped")
            continue
        figures[f"with_{processes}_per_s"] = rate = _burst(environment, messages, processes)
        if processes > 1:
            figures[f"with_{processes}_of_one_share"] = rate / figures["with_1_per_s"]
    return figures


def _copy(environment: BenchEnvironment, messages: int) -> float:
    requests, (target, copied) = environment.new_topics(2)
    environment.fill(requests, (request(number, target, 0) for number in range(messages)))
    return environment.raw_copy(requests, copied, messages)


def _burst(environment: BenchEnvironment, messages: int, processes: int) -> float:
    """Returns messages a second of a burst that was completely accepted before it was due. If a burst was not, sends
    another one with a longer lead to another topic. Raises TransientError if no burst was accepted in time."""
    lead_ms = _LEAD_MS + round(messages * _LEAD_MS_PER_RECORD)
    for _ in range(_BURSTS_MAX):
        rate = _burst_after(environment, messages, processes, lead_ms)
        if rate is not None:
            return rate
        environment.report(
            f"the burst fell due before it was completely accepted, after {lead_ms / 1000:.0f} s: sending another one"
        )
        lead_ms *= 2
    raise TransientError(f"{messages:,} requests were not accepted before they were due: try fewer (--messages)")


def _burst_after(environment: BenchEnvironment, messages: int, processes: int, lead_ms: int) -> float | None:
    """Returns messages a second; None if some messages were accepted only after the due time."""
    requests, (target,) = environment.new_topics()
    sidecar = environment.sidecar(requests, PARTITIONS, processes)
    sidecar.start()
    _wait_until_shared(environment, requests, sidecar, processes)
    due_ms = time.time_ns() // 1_000_000 + lead_ms
    environment.report(f"sending {messages:,} requests to {requests}, for {processes} processes")
    environment.fill(requests, (request(number, target, due_ms) for number in range(messages)))
    if not sidecar.holds_before(messages, due_ms):
        sidecar.kill()
        return None
    with closing(Journal(environment.kafka, requests)) as journal:
        journal.follow(messages, sidecar.check)
        late, senders = journal.lateness(), journal.senders()
    sidecar.stop()
    if senders != processes:
        raise TransientError(f"{senders} of {processes} processes delivered: the group had not assigned shards to all")
    return messages / (float(late.max()) / 1000)


def _wait_until_shared(environment: BenchEnvironment, requests: str, sidecar: BenchSidecar, processes: int) -> None:
    """Waits until the group has assigned shards to each process, and all of them deliver.

    Raises TransientError after a time-out.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    with admin_of(environment.kafka) as admin:
        while sum(bool(member.partitions) for member in admin.group_members(requests)) < processes:
            sidecar.check()
            if time.monotonic() > deadline:
                raise TransientError(f"the group does not assign shards to all {processes} processes")
            time.sleep(POLL_INTERVAL_S)
    sidecar.wait_for_shards()
