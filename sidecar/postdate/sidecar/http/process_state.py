"""The data of the running process that the HTTP port shows, and the liveness and readiness of the process.

Thread rule: any thread may use this module, which only reads the data of other threads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Thread

from postdate.kafka.interface import Admin, Kafka, Partition
from postdate.sidecar.clock import Clock
from postdate.sidecar.cluster.producing import ReusedProducer
from postdate.sidecar.config.settings import Config
from postdate.sidecar.context.traced_messages import TraceQueue
from postdate.sidecar.counts import ShardCounts
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.http.action_log import ActionLog
from postdate.sidecar.http.limits import CLIENT_DEAD_S_MAX, POLL_SILENCE_S_MAX, TAKEOVER_MS_MAX
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import DELIVERING, State


@dataclass(frozen=True)
class ProcessState:
    """The parts of a process that its ports use. `poller`: the poll loop with its shards. `counts`: the counts of every
    shard that the process has ever held. `retentions`: the retention of each request topic, in ms; -1: unlimited.
    `traces`: None if the process makes no spans."""

    config: Config
    poller: Poller
    counts: Mapping[Partition, ShardCounts]
    retentions: Mapping[str, int]
    kafka: Kafka
    admin: Admin
    clock: Clock
    traces: TraceQueue | None = None
    actions: ActionLog = field(default_factory=lambda: ActionLog(None))
    http_threads: list[Thread] = field(default_factory=list)
    """The threads of the ports. Each runs until the process stops."""

    @cached_property
    def controls(self) -> ReusedProducer:
        """The producer of the controls that are requested over HTTP."""
        return ReusedProducer(self.kafka)

    def shards(self) -> list[tuple[Partition, ShardThread]]:
        """Returns the shards that this process holds now, in order of topic and partition."""
        return sorted(self.poller.shards.items())


def not_alive(process: ProcessState) -> str:
    """Returns the reason to restart the process; empty while the process is alive."""
    now = time.monotonic()
    silent_s = now - process.poller.turned_at
    if silent_s > POLL_SILENCE_S_MAX:
        return f"the poll loop has not run for {silent_s:.0f} s"
    failure = process.poller.failure
    if failure is not None and now - failure.at > CLIENT_DEAD_S_MAX:
        return f"the group consumer failed {now - failure.at:.0f} s ago, and there is no new one: {failure.why}"
    if not all(thread.is_alive() for thread in process.http_threads):
        return "the thread of an HTTP port has ended"
    return ""


def not_ready(process: ProcessState) -> list[str]:
    """Returns the reasons why the process is not ready, one line each; empty if it is ready.

    A process without shards is ready, since the group may have assigned all shards to other members. A process that
    waits until the members of another group protocol have stopped is ready too: a rolling restart stops the next
    process only when this one is ready. A HALTED shard does not make a process unready: the shard would halt in another
    process too, and needs an operator.
    """
    reasons = []
    if process.poller.is_stopping:
        reasons.append("the process is stopping")
    if process.poller.is_drained:
        reasons.append("the process was drained: the others have its shards, and it takes none until it is restarted")
        return reasons + [dead for dead in [not_alive(process)] if dead]
    dead, failure = not_alive(process), process.poller.failure
    if dead:
        reasons.append(dead)
    elif failure is not None and not process.poller.stands_by:
        reasons.append(f"the group consumer failed, a new one joins soon: {failure.why}")
    if process.poller.waits_for:
        reasons.append(f"waiting for Kafka: {process.poller.waits_for}")
    if not process.poller.is_member and not process.poller.stands_by:
        reasons.append(f"not a member of the group {process.config.group_id}")
    now_ms = process.clock.steady_ms()
    for part, thread in process.shards():
        state = thread.shard.state
        if state in DELIVERING or state is State.HALTED:
            continue
        silent_ms = process.counts[part].states.silent_ms(now_ms)
        if silent_ms > TAKEOVER_MS_MAX:
            why = f" ({thread.shard.why})" if thread.shard.why else ""
            reasons.append(
                f"{part.topic}/{part.index} has been in {state} or other states without delivery for "
                f"{silent_ms / 1000:.0f} s{why}"
            )
    return reasons


def remarks(process: ProcessState) -> list[str]:
    """Returns remarks for the operator, which do not affect readiness: why the process stands by, why shards do not
    deliver, and what is held."""
    lines = [f"this process stands by: {process.poller.stands_by}"] if process.poller.stands_by else []
    for part, thread in process.shards():
        shard = thread.shard
        if shard.state not in DELIVERING:
            lines.append(f"{part.topic}/{part.index} is {shard.state}" + (f": {shard.why}" if shard.why else ""))
        held = shard.ctx.held.current.words()
        if held:
            lines.append(f"{part.topic}/{part.index} is held by an operator: {', '.join(held)}")
    return lines
