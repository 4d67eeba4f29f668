"""The state of the shards of this process: states, holds, the upcoming load from the mapped wheels, and the lateness of
deliveries.

The module queries no shard, so it answers even if the shards are busy.

Thread rule: a thread of the HTTP server.
"""

from __future__ import annotations

from typing import Any

from postdate.kafka.interface import Partition
from postdate.sidecar.http import limits
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.wheel.timing_wheel.forecast import ENDING, OVERDUE, PARKED
from postdate.wheel.timing_wheel.wheel_view import WheelSnapshot, present_snapshot


def overview(process: ProcessState, name: str) -> dict[str, Any]:
    """Returns the state of every shard of the process, in order of topic and partition. `name`: the name of the process
    in answers. O(shards), some ms each."""
    shards = [_shard(process, name, part, thread) for part, thread in process.shards()]
    return {"at_ms": process.clock.wall_ms(), "shards": shards, "not_asked": []}


def _shard(process: ProcessState, name: str, part: Partition, thread: ShardThread) -> dict[str, Any]:
    shard, counts = thread.shard, process.counts[part]
    figures = shard.ctx.index_queries.figures
    fields: dict[str, Any] = {
        "topic": part.topic,
        "partition": part.index,
        "process": name,
        "state": shard.state,
        "why": shard.why,
        "held": shard.ctx.held.current.words(),
        "rates": list(process.config.request_topic(part.topic).messages_per_second_max),
        "fates": dict(counts.fates),
        "lateness": {"bounds_ms": list(counts.lateness.bounds), "counts": list(counts.lateness.buckets)},
    }
    if figures is None:
        return fields
    status, snapshot = read_status(figures.directory), present_snapshot(figures.directory)
    fields |= {"pending": figures.pending, "lag": None if status is None else status.lag}
    if snapshot is not None:
        now_ms = int(process.clock.wall_ms() - (counts.skew_ms or 0.0))
        horizons = snapshot.pending_by_horizon(now_ms)
        next_due = snapshot.next_due_ms()
        fields |= {
            "overdue": horizons[OVERDUE],
            "parked": horizons[PARKED],
            "ending": horizons[ENDING],
            "horizons": horizons,
            "next_due_ms": next_due,
            "load": [_load(snapshot, now_ms, step_ms, steps) for step_ms, steps in limits.LOADS],
        }
    return fields


def _load(snapshot: WheelSnapshot, now_ms: int, step_ms: int, steps: int) -> dict[str, Any]:
    """Returns the number of entries due in each coming minute or hour, the present one first. Minutes and hours begin
    at the same times for every shard."""
    from_ms = now_ms // step_ms * step_ms
    return {"from_ms": from_ms, "step_ms": step_ms, "counts": snapshot.load_ahead(from_ms, step_ms, steps)}
