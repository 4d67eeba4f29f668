"""Hold, release and drain over HTTP. The poll thread of the process executes them.

Thread rule: a thread of the HTTP server.
"""

from __future__ import annotations

from typing import Any, Final

from postdate.kafka.interface import Partition
from postdate.sidecar.context.holds import DELIVERY, INTAKE, TARGET
from postdate.sidecar.http import limits
from postdate.sidecar.http.access.access import Refused
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries import queries
from postdate.sidecar.http.queries.pending import BadQuery
from postdate.wire.topics import is_topic_name

HOLD: Final = "hold"
RELEASE: Final = "release"
_FIELDS = frozenset({"what", "target", "topic", "partition"})
_WHAT = (DELIVERY, INTAKE, TARGET)


def hold(process: ProcessState, action: str, body: object) -> dict[str, Any]:
    """Adds or ends a hold on those shards of this process that the body names.

    Returns the holds of each changed shard, and the shards for which the change is not confirmed. Raises BadQuery if
    the body is invalid.
    """
    what, target, topic, index = _read(process, body)
    held = [part for part, _ in process.shards() if part.topic == (topic or part.topic)]
    parts = [part for part in held if index is None or part.index == index]
    failures = process.poller.holds.submit(
        parts, lambda holds: holds.changed(what, action == HOLD, target), limits.HOLD_TIMEOUT_S
    )
    shards = dict(process.shards())
    done = [part for part in parts if part not in failures and part in shards]
    left = [part for part in parts if part not in done]
    return {
        "shards": [_shard(part) | {"held": shards[part].shard.ctx.held.current.words()} for part in done],
        "not_asked": [_shard(part) | {"state": "UNKNOWN", "why": failures.get(part, "")} for part in left],
    }


def shards_query(body: object) -> list[tuple[str, str]]:
    """Returns the shards that a body names, as the parameters of a query. REQUIRES: `hold` has accepted the body."""
    assert isinstance(body, dict), "hold has accepted it"
    return [(name, str(body[name])) for name in ("topic", "partition") if name in body]


def drain(process: ProcessState) -> dict[str, Any]:
    """Makes the process hand over all shards; returns these shards immediately. Raises Refused if there is no other
    process, and KafkaFault."""
    members = process.admin.group_members(process.config.group_id)
    if len(members) < 2 and not process.poller.is_drained:
        raise Refused(409, "no other process is a member of the group: nobody would deliver. Stop this one instead")
    process.poller.drain()
    return {"draining": [_shard(part) for part, _ in process.shards()], "instance": process.config.instance_name}


def _read(process: ProcessState, body: object) -> tuple[str, str, str | None, int | None]:
    body = queries.body_of(body, *sorted(_FIELDS))
    what, target, topic, index = (body.get(name) for name in ("what", "target", "topic", "partition"))
    if what not in _WHAT:
        raise BadQuery(f"what takes one of {', '.join(_WHAT)}")
    if (what == TARGET) != (target is not None):
        raise BadQuery(f"target is required with what={TARGET}, and allowed only with it")
    if target is not None and not (isinstance(target, str) and is_topic_name(target)):
        raise BadQuery("target is not a topic name")
    if topic is not None:
        queries.served_topic(process, topic)
    if index is not None and (isinstance(index, bool) or not isinstance(index, int) or index < 0 or topic is None):
        raise BadQuery("partition takes a number, and needs a topic")
    return what, target or "", topic, index


def _shard(part: Partition) -> dict[str, Any]:
    return {"topic": part.topic, "partition": part.index}
