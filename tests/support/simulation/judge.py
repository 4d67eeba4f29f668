"""The oracles: what was asked, against what a read_committed reader finds when everything has come to rest.

O1 no origin twice. O2 one final fate for each request. O3 a fate and its record together. O4 bytes equal. O5 not before
its time, by the broker's clock. O6 `seq` without a gap. O7 the timer index holds what has not ended, and nothing else.
O8 nothing aborted shows. O9 all that is due has ended. O10 nothing halts. What was promised of controls and of STORE is
judged in `judge_controls` and `storing`, of holds in `holding`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postdate.connectors.kafka.seam import Isolation, Partition, Record
from postdate.connectors.wire.delivered import delivered_headers
from postdate.connectors.wire.dispatch_log import FINAL, MOVED, DispatchRecord, Fate, decode_record
from postdate.connectors.wire.errors import FormatError
from postdate.connectors.wire.headers import DEAD_REASON, DUE, ORIGIN
from postdate.connectors.wire.origins import format_origin, parse_origin
from postdate.connectors.wire.reasons import Reason
from postdate.sidecar.states import State
from support.simulation.traffic import REQUESTS, TARGETS, Asked, Traffic

if TYPE_CHECKING:
    from postdate.connectors.kafka.sim import SimBroker
    from support.simulation.world import World

#: ms. How late anything is where nothing is wrong: a poll, an ingest and a commit, on clocks that run a tenth slow.
LATE_MS_MAX = 2_000
#: Partition of the request topic, request offset.
Origin = tuple[int, int]


@dataclass
class Outcome:
    """Everything committed, by the request it belongs to."""

    delivered: dict[Origin, list[tuple[str, Record]]] = field(default_factory=lambda: defaultdict(list))
    dead: dict[Origin, list[Record]] = field(default_factory=lambda: defaultdict(list))
    fates: dict[Origin, list[tuple[Fate, int]]] = field(default_factory=lambda: defaultdict(list))
    moved: dict[Origin, list[Fate]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    reached: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    stored: set[Origin] = field(default_factory=set)
    ended_by: dict[Origin, DispatchRecord] = field(default_factory=dict)

    def final(self, origin: Origin) -> str:
        """The name of the final fate; empty where there is none yet."""
        return self.fates[origin][0][0][2] if self.fates.get(origin) else ""

    def due_ms(self, asked: Asked) -> int:
        """The due time as it is now: the first, or that of the last control that moved it."""
        moves = self.moved.get((asked.part.index, asked.offset), [])
        last = max(moves, key=lambda fate: fate[4] if len(fate) == 5 else -1, default=None)
        return last[3] if last is not None and len(last) == 5 else asked.due_ms


def committed(broker: SimBroker, topic: str, index: int) -> list[Record]:
    """What a read_committed reader finds in a log."""
    log = broker.topics[topic].logs[index]
    return log.read(log.start, Isolation.READ_COMMITTED, 1_000_000)[0]


def gather(broker: SimBroker, partitions: int, archive: dict[Partition, list[Record]]) -> Outcome:
    """Reads everything, with what retention has taken away in front of it."""
    outcome = Outcome()

    def all_of(topic: str, index: int) -> list[Record]:
        return [*archive.get(Partition(topic, index), []), *committed(broker, topic, index)]

    for target in TARGETS:
        for index in range(len(broker.topics[target].logs) if target in broker.topics else 0):
            for record in all_of(target, index):
                if record.value != b"a stranger's":
                    outcome.delivered[_origin(record)].append((target, record))
    for index in range(partitions):
        for record in all_of(f"{REQUESTS}.dead-letters", index):
            outcome.dead[_origin(record)].append(record)
        _read_log(outcome, index, all_of(f"{REQUESTS}.dispatch-log", index))
    return outcome


def _read_log(outcome: Outcome, index: int, records: list[Record]) -> None:
    seq = 0
    for record in records:
        try:
            said = decode_record(record.value)
        except FormatError:
            outcome.reached["foreign record"] += 1
            continue
        if said.seq != seq + 1:
            outcome.wrong.append(f"O6: partition {index} has seq {said.seq} after {seq} at offset {record.offset}")
        seq = said.seq
        outcome.reached[f"record {said.kind}"] += 1
        for fate in said.fates:
            origin = (index, fate[0])
            if fate[2] in FINAL:
                outcome.fates[origin].append((fate, record.timestamp_ms))
                outcome.ended_by[origin] = said
                outcome.reached[f"fate {fate[2]}"] += 1
            else:
                outcome.reached[f"fate {fate[2]}"] += 1
                if outcome.fates.get(origin):
                    outcome.wrong.append(f"O2: {origin} is {fate[2]} after it has ended")
                if fate[2] == MOVED:
                    outcome.moved[origin].append(fate)
                else:
                    outcome.stored.add(origin)


#: What may befall a target for longer than an entry is tried, and the reason for which it ends then.
_MISFORTUNES = {
    "cut": Reason.TARGET_UNAVAILABLE,
    "leader gone": Reason.TARGET_UNAVAILABLE,
    "target shrunk": Reason.TOO_LARGE,
    "target forbidden": Reason.UNAUTHORIZED,
}


def judge(outcome: Outcome, traffic: Traffic, reached: Mapping[str, int], halted: Set[int]) -> None:
    """Holds the outcome against what was asked; what is wrong is added to `outcome.wrong`. `reached`: what happened;
    `halted`: the partitions whose requests need not have ended."""
    excuses = frozenset(reason for event, reason in _MISFORTUNES.items() if reached.get(event))
    for origin in {*outcome.delivered, *outcome.dead, *outcome.fates} - traffic.asked.keys():
        outcome.wrong.append(f"O8: {origin} is no request, and has ended")
    for origin, asked in traffic.asked.items():
        if asked.action == "schedule":
            asked.dead |= excuses
        elif asked.action == "reschedule" and _may_be_too_far(traffic, asked):
            asked.dead |= {Reason.BEYOND_HORIZON}
        if origin[0] in halted and not outcome.final(origin) and origin not in {*outcome.delivered, *outcome.dead}:
            continue
        for complaint in _complaints(outcome, traffic, origin, asked):
            outcome.wrong.append(f"{complaint} ({origin}, {asked.action}, due {asked.due_ms}, id {asked.id!r})")


def _may_be_too_far(traffic: Traffic, asked: Asked) -> bool:
    """True where nothing is stored, and a request that it may name came longer ago than its horizon."""
    return traffic.horizon_ms >= 0 and any(
        other.part == asked.part
        and other.offset < asked.offset
        and asked.due_ms - other.appended_ms > traffic.horizon_ms
        for other in traffic.asked.values()
    )


def _complaints(outcome: Outcome, traffic: Traffic, origin: Origin, asked: Asked) -> list[str]:
    wrong: list[str] = []
    delivered, dead = outcome.delivered.get(origin, []), outcome.dead.get(origin, [])
    fates = outcome.fates.get(origin, [])
    if len(delivered) + len(dead) > 1:
        wrong.append(f"O1: {len(delivered)} times delivered, {len(dead)} dead letters")
    if len(fates) != 1:
        wrong.append(f"{'O2' if fates else 'O9'}: {len(fates)} final fates")
        return wrong
    (fate, ended_ms) = fates[0]
    if (fate[2] == "delivered") != bool(delivered) or (fate[2] == "dead") != bool(dead):
        wrong.append(f"O3: fate {fate[2]} with {len(delivered)} records and {len(dead)} dead letters")
    if fate[2] not in _allowed(traffic, origin, asked):
        wrong.append(f"O2: it ended as {fate[2]}")
    for target, record in delivered:
        wrong += _differences(outcome, asked, target, record, ended_ms)
    for record in dead:
        wrong += _dead_differences(asked, record)
    return wrong


def _allowed(traffic: Traffic, origin: Origin, asked: Asked) -> set[str]:
    """The final fates that a request may have."""
    if asked.action in ("cancel", "reschedule"):
        return {"applied", "dead"} if asked.dead else {"applied"}
    allowed = set() if asked.must_die else {"delivered"}
    if asked.dead:
        allowed.add("dead")
    if asked.action == "schedule":
        for (index, offset), other in traffic.asked.items():
            if index != origin[0] or offset <= origin[1]:
                continue
            same_id = bool(asked.id) and other.id == asked.id
            if other.action == "cancel" and (same_id or other.names == asked.offset):
                allowed.add("cancelled")
            if other.action == "schedule" and same_id:
                allowed.add("replaced")
    return allowed


def _differences(outcome: Outcome, asked: Asked, target: str, record: Record, ended_ms: int) -> list[str]:
    """O4 and O5 of a delivered record. Its due time is the first, or that of the last control that moved it."""
    wrong: list[str] = []
    due_ms = int(_last(record, DUE))
    expected_ms = outcome.due_ms(asked)
    if due_ms != expected_ms:
        moves = outcome.moved.get((asked.part.index, asked.offset), [])
        wrong.append(f"O4: delivered with due {due_ms}, expected {expected_ms} after {moves}")
    if ended_ms < due_ms:
        wrong.append(f"O5: due {due_ms}, delivered at {ended_ms}")
    origin = format_origin(REQUESTS, asked.part.index, asked.offset)
    headers = delivered_headers(asked.data_headers, origin, due_ms, asked.id)
    expected = (asked.target, asked.target_key, asked.value, headers)
    found = (target, record.key, record.value, record.headers)
    if found != expected:
        wrong.append(f"O4: asked {expected}, delivered {found}")
    return wrong


def _dead_differences(asked: Asked, record: Record) -> list[str]:
    reason = _last(record, DEAD_REASON).decode()
    wrong = [] if reason in asked.dead else [f"O2: dead letter for {reason}, not {sorted(asked.dead)}"]
    if (record.key, record.value) != (asked.key, asked.value):
        wrong.append("O4: the dead letter is not the request")
    if asked.headers is not None and (record.headers or [])[: len(asked.headers)] != asked.headers:
        wrong.append(f"O4: the dead letter has headers {record.headers}, the request {asked.headers}")
    return wrong


def judge_lateness(outcome: Outcome, traffic: Traffic, since_ms: int) -> None:
    """O9 where nothing has gone wrong for long: what was asked since then has ended soon after it was due."""
    for origin, asked in traffic.asked.items():
        if asked.appended_ms >= since_ms and outcome.final(origin):
            late_ms = outcome.fates[origin][0][1] - asked.due_ms
            if late_ms > LATE_MS_MAX:
                outcome.wrong.append(f"O9: {origin} ends {late_ms} ms after it was due, and nothing was wrong")


def judge_indexes(outcome: Outcome, world: World, traffic: Traffic, halted: Set[int]) -> None:
    """O7 and O10: the live shards hold exactly what has not ended, and none has halted but where it must."""
    for process in world.processes:
        for actor in process.shards():
            shard, part = actor.shard, actor.part.index
            if shard.state is State.HALTED:
                if part in halted:
                    outcome.reached[f"halt {shard.why.partition(':')[0]}"] += 1
                    continue
                outcome.wrong.append(f"O10: {actor.name} is halted: {shard.why}")
                continue
            if shard.state is not State.RUNNING:
                outcome.wrong.append(f"O9: {actor.name} is {shard.state}: {shard.why}")
                continue
            index = shard._index
            assert index is not None
            pending = {o for (p, o), _ in traffic.asked.items() if p == part and not outcome.fates.get((p, o))}
            if index.count != len(pending):
                outcome.wrong.append(f"O7: {actor.name} holds {index.count} entries, {len(pending)} have not ended")


def _origin(record: Record) -> Origin:
    topic, index, offset = parse_origin(_last(record, ORIGIN))
    assert topic == REQUESTS
    return index, offset


def _last(record: Record, name: str) -> bytes:
    return next(value or b"" for header, value in reversed(record.headers or []) if header == name)
