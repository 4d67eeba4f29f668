"""The oracles: they compare the requests with the records that a read_committed reader finds after the run.

O1 no origin twice. O2 one final fate for each request. O3 a fate and its record together. O4 bytes equal. O5 never
early, by the broker's clock. O6 `seq` without a gap. O7 the timer index contains exactly the requests that have not
ended. O8 no aborted record is visible. O9 every due request has ended. O10 no shard halts. `controls` checks controls,
`stored_entries` checks STORE, and `faults/holds` checks holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from postdate.kafka.interface import Isolation, Partition, Record
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import ChosenFate, DispatchRecord, Fate, Moved, decode_record
from postdate.wire.errors import FormatError
from support.oracles.expected_records import (
    FINAL_FATES,
    dead_letter_complaints,
    delivery_headers,
    origin_of,
    partition_of,
)
from support.simulation.faults.target_faults import UNAUTHORIZED, UNAVAILABLE, UNKNOWN
from support.simulation.oracles.interpretations import Readings, accepted_headers
from support.simulation.requests.bulk import BULK
from support.simulation.requests.recurring import FATES_OF_SCHEDULES, Occurrences
from support.simulation.requests.returns import policy_rows, settle
from support.simulation.requests.traffic import REQUESTS, TARGETS, SimulatedRequest, SimulatedTraffic

if TYPE_CHECKING:
    from support.kafka_simulator import SimBroker
    from support.simulation.faults.target_faults import Troubles
    from support.simulation.runtime.simulated_run import SimulatedRun

#: Milliseconds: the maximum lateness without faults. It covers a poll, an ingest and a commit, on clocks that run 10
#: per cent slow.
LATE_MS_MAX = 2_000
#: Milliseconds: how long after the end of its grace a message may be delivered (docs/guarantees.md).
PAST_GRACE_MS_MAX = 10_000
#: For each of these numbers, a counter counts the records with at least as many fates.
FATES = (1_000, 5_000, 9_990)
#: Partition of the request topic, request offset.
Origin = tuple[int, int]


class JudgedArrival(NamedTuple):
    """A record on a target."""

    target: str
    partition: int
    record: Record


@dataclass
class JudgedOutcome:
    """All committed records, by request."""

    delivered: dict[Origin, list[JudgedArrival]] = field(default_factory=lambda: defaultdict(list))
    dead: dict[Origin, list[Record]] = field(default_factory=lambda: defaultdict(list))
    fates: dict[Origin, list[tuple[Fate, int]]] = field(default_factory=lambda: defaultdict(list))
    moved: dict[Origin, list[Moved]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    reached: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    occurrences: dict[Origin, Occurrences] = field(default_factory=lambda: defaultdict(Occurrences))

    stored: set[Origin] = field(default_factory=set)
    ended_by: dict[Origin, DispatchRecord] = field(default_factory=dict)

    def final(self, origin: Origin) -> str:
        """Returns the name of the final fate; empty if there is none yet."""
        return self.fates[origin][0][0].name if self.fates.get(origin) else ""

    def leaves_ms(self, request: SimulatedRequest) -> int:
        """Returns the time at which a message leaves: the chosen time if it has a window and has ended, otherwise its
        due time."""
        chosen_ms = chosen_of(self.fates.get((request.part.index, request.offset), []))
        return self.due_ms(request) if chosen_ms is None else chosen_ms

    def due_ms(self, request: SimulatedRequest) -> int:
        """Returns the present due time of a request: the time that the last control has set, or the first due time. If
        the processes have different levels, the first due time follows the levels of the process that delivered the
        message."""
        origin = (request.part.index, request.offset)
        last = max(self.moved.get(origin, []), key=lambda fate: fate.control, default=None)
        if last is not None:
            return last.due_ms
        if request.level and self.delivered.get(origin):
            return int(last_header(self.delivered[origin][0].record, "postdate-due"))
        return request.due_ms


def chosen_of(fates: list[tuple[Fate, int]]) -> int | None:
    """Returns the chosen time that a final fate records; None if it records none."""
    return next((fate.chosen_ms for fate, _ in fates if isinstance(fate, ChosenFate)), None)


def committed(broker: SimBroker, topic: str, index: int) -> list[Record]:
    """Returns the records of a log that a read_committed reader finds."""
    log = broker.topics[topic].logs[index]
    return log.read(log.start, Isolation.READ_COMMITTED, 1_000_000)[0]


def gather(broker: SimBroker, partitions: int, archive: dict[Partition, list[Record]]) -> JudgedOutcome:
    """Reads all logs, including the records that retention has deleted."""
    outcome = gather_fates(broker, partitions, archive)

    def all_of(topic: str, index: int) -> list[Record]:
        return [*archive.get(Partition(topic, index), []), *committed(broker, topic, index)]

    for target in TARGETS:
        for index in range(len(broker.topics[target].logs) if target in broker.topics else 0):
            for record in all_of(target, index):
                if record.value == b"a stranger's":
                    continue
                if any(name in ("postdate-occurrence", "postdate-extra") for name, _ in record.headers or []):
                    outcome.occurrences[_origin(record)].records.append((target, record))
                else:
                    outcome.delivered[_origin(record)].append(JudgedArrival(target, index, record))
    for index in range(partitions):
        for record in all_of(f"{REQUESTS}.dead-letters", index):
            outcome.dead[_origin(record)].append(record)
    return outcome


def gather_fates(broker: SimBroker, partitions: int, archive: dict[Partition, list[Record]]) -> JudgedOutcome:
    """Reads the dispatch logs alone."""
    outcome = JudgedOutcome()
    for index in range(partitions):
        log = Partition(f"{REQUESTS}.dispatch-log", index)
        _read_log(outcome, index, [*archive.get(log, []), *committed(broker, log.topic, index)])
    return outcome


def _read_log(outcome: JudgedOutcome, index: int, records: list[Record]) -> None:
    seq = 0
    for record in records:
        try:
            decoded = decode_record(record.value)
        except FormatError:
            outcome.reached["foreign record"] += 1
            continue
        if decoded.seq != seq + 1:
            outcome.wrong.append(f"O6: partition {index} has seq {decoded.seq} after {seq} at offset {record.offset}")
        seq = decoded.seq
        outcome.reached[f"record {decoded.kind}"] += 1
        names = [name for _, name, _ in decoded.policies or []]
        outcome.reached["policy changed while it is needed"] += len(names) > len(set(names))
        for most in FATES:
            outcome.reached[f"a record of {most:,} fates or more"] += len(decoded.fates) >= most
        for fate in decoded.fates:
            origin = (index, fate.offset)
            if fate.name in FINAL_FATES:
                outcome.fates[origin].append((fate, record.timestamp_ms))
                outcome.ended_by[origin] = decoded
                outcome.reached[f"fate {fate.name}"] += 1
            else:
                outcome.reached[f"fate {fate.name}"] += 1
                if outcome.fates.get(origin):
                    outcome.wrong.append(f"O2: {origin} is {fate.name} after it has ended")
                if fate.name == "moved":
                    outcome.moved[origin].append(fate)
                elif fate.name in FATES_OF_SCHEDULES:
                    as_json = json.loads(msgspec.json.encode(fate))
                    outcome.occurrences[origin].fates.append((as_json, record.timestamp_ms, decoded.next_request))
                elif fate.name == "stored":
                    outcome.stored.add(origin)


def settle_returns(broker: SimBroker, traffic: SimulatedTraffic, archive: dict[Partition, list[Record]]) -> None:
    """Reads from the dispatch logs the due times of returns that name a policy."""
    rows: dict[int, list[tuple[int, str, str]]] = {}
    for (index, _), request in traffic.requests.items():
        if request.returned is not None and request.returned.name:
            if index not in rows:
                log = Partition(f"{REQUESTS}.dispatch-log", index)
                rows[index] = policy_rows([*archive.get(log, []), *committed(broker, log.topic, index)])
            settle(request, rows[index])


def judge(
    outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, troubles: Troubles, halted: Set[int]
) -> None:
    """Compares the outcome with the requests; adds violations to `outcome.wrong`. `halted`: the partitions whose
    requests need not have ended."""
    for origin in {*outcome.delivered, *outcome.dead, *outcome.fates} - traffic.origins():
        outcome.wrong.append(f"O8: {origin} is no request, and has ended")
    for origin, request in traffic.requests.items():
        if origin[0] in halted and not outcome.final(origin) and origin not in {*outcome.delivered, *outcome.dead}:
            continue
        if request.returned is not None:
            kind = "of a named policy" if request.returned.name else "of the policy in its request"
            outcome.reached[f"return {kind} {outcome.final(origin)}"] += 1
            outcome.reached["return after its last attempt"] += "attempts-exhausted" in request.dead
        allowed = Allowed(outcome, traffic, readings, troubles, request)
        for complaint in _complaints(outcome, allowed, origin, request):
            outcome.wrong.append(f"{complaint} ({origin}, {request.action}, due {request.due_ms}, id {request.id!r})")


class Allowed:
    """The permitted outcomes of one request."""

    def __init__(
        self,
        outcome: JudgedOutcome,
        traffic: SimulatedTraffic,
        readings: Readings,
        troubles: Troubles,
        request: SimulatedRequest,
    ) -> None:
        self._outcome = outcome
        self._traffic = traffic
        self._troubles = troubles
        self._request = request
        self.readings = readings.of(request)
        self.refusals = request.dead | readings.refusals(request)
        if request.action == "reschedule" and _may_be_too_far(traffic, readings, request):
            self.refusals |= {"beyond-horizon"}
        if request.action == "reschedule" and (request.part.index, request.names) in traffic.recurrences.requests:
            self.refusals |= {"bad-action"}
        self._budget_ms = readings.retry_budget_ms
        self.must_die = request.must_die or not any(each.accepts for each in self.readings)

    def reason(self, dead_letter: Record) -> bool:
        """True if the request may end as this dead letter."""
        reason = last_header(dead_letter, "postdate-dead-reason").decode()
        if reason in self.refusals:
            return True
        targets = {each.target for each in self.readings}
        here = self._request.part.index, dead_letter.offset
        return self._request.action == "schedule" and any(
            self._troubles.explain(reason, target, *here) for target in targets
        )

    def has_waited(self, dead_letter: Record, ended_ms: int) -> bool:
        """True if the message waited for its failing target from the due time on, for as long as the retry budget of
        some process."""
        reason = last_header(dead_letter, "postdate-dead-reason").decode()
        by_target = self._request.action == "schedule" and reason in (UNAVAILABLE, UNKNOWN, UNAUTHORIZED)
        if not by_target or not self._troubles.clocks_are_true:
            return True
        return ended_ms >= min(self.dues_ms(), default=0) + self._budget_ms

    def expires_early(self, dead_letter: Record, ended_ms: int) -> bool:
        """True if it expired within its grace, by the broker's timestamp of its fate (I6)."""
        if last_header(dead_letter, "postdate-dead-reason") != b"expired":
            return False
        return ended_ms <= self.chosen_ms(min(self.dues_ms(), default=0)) + self.grace_ms()

    def chosen_ms(self, due_ms: int) -> int:
        """Returns the time from which its grace counts: the chosen time, or `due_ms` if none is recorded."""
        chosen_ms = chosen_of(self._outcome.fates.get((self._request.part.index, self._request.offset), []))
        return due_ms if chosen_ms is None else chosen_ms

    def window_complaints(self, fate: Fate, ended_ms: int) -> list[str]:
        """Returns violations of the rules for the chosen time in the final fate. A message has a chosen time if and
        only if it has a window. The time lies within the window after one of the due times, and the message was not
        delivered earlier."""
        chosen_ms, window_ms = chosen_of([(fate, ended_ms)]), self._request.window_ms
        if chosen_ms is None:
            was_pending = fate.name == "delivered" or (fate.name == "dead" and fate.first_due_ms > 0)
            return ["O4: its fate has no chosen time"] if window_ms and was_pending else []
        if not any(due_ms <= chosen_ms <= due_ms + window_ms for due_ms in self.dues_ms()):
            return [f"O5: chosen {chosen_ms}, due {sorted(self.dues_ms())} with a window of {window_ms} ms"]
        reached = self._outcome.reached
        reached["chosen after the due time"] += chosen_ms > min(self.dues_ms())
        reached["chosen after a move"] += bool(
            self._outcome.moved.get((self._request.part.index, self._request.offset))
        )
        is_early = fate.name == "delivered" and ended_ms < chosen_ms
        return [f"O5: chosen {chosen_ms}, delivered at {ended_ms}"] if is_early else []

    def is_past_grace(self, ended_ms: int) -> bool:
        """True if the message was delivered more than PAST_GRACE_MS_MAX after its grace, by the broker's timestamp of
        its fate (I6)."""
        over_ms = self.chosen_ms(max(self.dues_ms(), default=0)) + max(self._graces_ms())
        return self._request.grace_ms >= 0 and ended_ms > over_ms + PAST_GRACE_MS_MAX

    def grace_ms(self) -> int:
        """Returns the shortest grace that the message may have: its own, or the grace of a control that moved it."""
        return min(self._graces_ms())

    def _graces_ms(self) -> list[int]:
        moved_by = {
            fate.control
            for fate in self._outcome.moved.get((self._request.part.index, self._request.offset), [])
            if isinstance(fate, Moved)
        }
        others = (self._traffic.requests.get((self._request.part.index, offset)) for offset in moved_by)
        graces = [other.grace_ms for other in others if other is not None and other.grace_ms >= 0]
        return [self._request.grace_ms, *graces]

    def fates(self) -> set[str]:
        """Returns the final fates that the request may have, except `dead`, which depends on the dead letter."""
        request = self._request
        if request.action == BULK:
            return {"applied", "dead"} if self.refusals else {"applied"}
        if request.action in ("cancel", "reschedule"):
            return {"dead"} if not any(each.accepts for each in self.readings) else {"applied", "dead"}
        found = {"dead"} if self.must_die else {"delivered", "dead"}
        if request.action == "schedule":
            followers = {other.action for other in self._traffic.followers(request)}
            may_be_cancelled = "cancel" in followers or self._traffic.has_bulk_after(request)
            found |= {"cancelled"} if may_be_cancelled else set()
            found |= {"replaced"} if "schedule" in followers else set()
            found |= {"kept"} if request.keeps else set()
            found |= {"dropped"} if request.drops else set()
        return found

    def dues_ms(self) -> set[int]:
        """Returns the possible due times: the first due times, or the due time that the last control has set."""
        moves = self._outcome.moved.get((self._request.part.index, self._request.offset), [])
        return (
            {self._outcome.due_ms(self._request)} if moves else {each.due_ms for each in self.readings if each.accepts}
        )


def _may_be_too_far(traffic: SimulatedTraffic, readings: Readings, request: SimulatedRequest) -> bool:
    """True if some process stores nothing, and the new due time may lie beyond its horizon, counted from the named
    request."""
    horizons_ms = [
        min(each.horizon_ms, readings.horizon_ms_max) for each in readings.settings if not each.store_after_ms
    ]
    latest_ms = max(each.due_ms for each in readings.of(request))
    return bool(horizons_ms) and any(
        latest_ms + other.window_ms - other.appended_ms > min(horizons_ms)
        for other in traffic.requests.values()
        if other.part == request.part and other.offset < request.offset
    )


def _complaints(outcome: JudgedOutcome, allowed: Allowed, origin: Origin, request: SimulatedRequest) -> list[str]:
    wrong: list[str] = []
    delivered, dead = outcome.delivered.get(origin, []), outcome.dead.get(origin, [])
    fates = outcome.fates.get(origin, [])
    if len(delivered) + len(dead) > 1:
        wrong.append(f"O1: {len(delivered)} times delivered, {len(dead)} dead letters")
    if len(fates) != 1:
        wrong.append(f"{'O2' if fates else 'O9'}: {len(fates)} final fates")
        return wrong
    (fate, ended_ms) = fates[0]
    if (fate.name == "delivered") != bool(delivered) or (fate.name == "dead") != bool(dead):
        wrong.append(f"O3: fate {fate.name} with {len(delivered)} records and {len(dead)} dead letters")
    if fate.name not in allowed.fates():
        wrong.append(f"O2: it ended as {fate.name}")
    wrong += allowed.window_complaints(fate, ended_ms)
    if fate.name == "delivered" and allowed.is_past_grace(ended_ms):
        wrong.append(f"O2: delivered at {ended_ms}, after its grace")
    for arrival in delivered:
        wrong += _differences(outcome, allowed, request, arrival, ended_ms)
    for record in dead:
        wrong += _dead_differences(allowed, request, record)
        if allowed.expires_early(record, ended_ms):
            wrong.append(f"O2: expired at {ended_ms}, within its grace of {allowed.grace_ms()} ms")
        if not allowed.has_waited(record, ended_ms):
            wrong.append(f"O2: given up at {ended_ms}, within the retry budget")
    return wrong


def _differences(
    outcome: JudgedOutcome, allowed: Allowed, request: SimulatedRequest, arrival: JudgedArrival, ended_ms: int
) -> list[str]:
    """Checks O4 and O5 of a delivered record: key, value, headers, due time, partition, and time of delivery."""
    wrong: list[str] = []
    record = arrival.record
    due_ms = int(last_header(record, "postdate-due"))
    if due_ms not in allowed.dues_ms():
        moves = outcome.moved.get((request.part.index, request.offset), [])
        wrong.append(f"O4: delivered with due {due_ms}, expected one of {sorted(allowed.dues_ms())} after {moves}")
    if ended_ms < due_ms:
        wrong.append(f"O5: due {due_ms}, delivered at {ended_ms}")
    origin = origin_of(REQUESTS, request.part.index, request.offset)
    headers = [
        delivery_headers(data, origin, due_ms, request.id) + tail
        for data, tail in accepted_headers(allowed.readings, arrival.target)
    ]
    if record.headers not in headers or (record.key, record.value) != (request.target_key, request.value):
        expected = (request.target_key, request.value, headers)
        found = (arrival.target, record.key, record.value, record.headers)
        wrong.append(f"O4: asked {request.target} {expected}, delivered {found}")
    partitions = TARGETS.get(arrival.target, 1)
    partition = request.target_partition
    if partition < 0 and request.target_key is not None:
        partition = partition_of(request.target_key, partitions)
    if partition >= 0 and arrival.partition != partition:
        wrong.append(f"O4: delivered to partition {arrival.partition} of {arrival.target}, not {partition}")
    return wrong


def _dead_differences(allowed: Allowed, request: SimulatedRequest, record: Record) -> list[str]:
    reason = last_header(record, "postdate-dead-reason").decode()
    wrong = [] if allowed.reason(record) else [f"O2: dead letter for {reason}, not {sorted(allowed.refusals)}"]
    if (record.key, record.value) != (request.key, request.value):
        wrong.append("O4: the dead letter is not the request")
    origin = origin_of(REQUESTS, request.part.index, request.offset)
    return wrong + [
        f"O4: {each}" for each in dead_letter_complaints(request.headers or [], record.headers or [], origin)
    ]


def judge_lateness(outcome: JudgedOutcome, traffic: SimulatedTraffic, run: SimulatedRun) -> None:
    """Checks O9: the requests that were sent after the last fault ended soon after their due times.

    Different brokers may stamp a request and its fate.
    """
    late_ms_max = LATE_MS_MAX + run.broker.brokers.apart_ms()
    for origin in sorted(run.encore):
        if outcome.final(origin):
            late_ms = outcome.fates[origin][0][1] - outcome.due_ms(traffic.requests[origin])
            if late_ms > late_ms_max:
                outcome.wrong.append(f"O9: {origin} ends {late_ms} ms after it was due, and nothing was wrong")


def judge_halts(outcome: JudgedOutcome, run: SimulatedRun, may_halt: Set[int]) -> None:
    """Checks O10: no shard halted, not even temporarily, except those in `may_halt`: all other faults pass with
    time."""
    for part, why in run.halts:
        if part not in may_halt:
            outcome.wrong.append(f"O10: partition {part} halted: {why}")


def judge_indexes(outcome: JudgedOutcome, run: SimulatedRun, traffic: SimulatedTraffic, halted: Set[int]) -> None:
    """Checks O7 and O10: the running shards contain exactly the requests that have not ended, and none has halted
    without need."""
    for process in run.processes:
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
            pending = {o for p, o in traffic.origins() if p == part and not outcome.fates.get((p, o))}
            if index.count != len(pending):
                outcome.wrong.append(f"O7: {actor.name} holds {index.count} entries, {len(pending)} have not ended")


def _origin(record: Record) -> Origin:
    return named_origin(last_header(record, "postdate-origin"))


def named_origin(text: bytes) -> Origin:
    """Returns partition and offset of the request that an origin names."""
    topic, index, offset = text.decode().rsplit("/", 2)
    assert topic == REQUESTS
    return int(index), int(offset)


def last_header(record: Record, name: str) -> bytes:
    """Returns the value of the last header of this name, which counts in dead letters."""
    return next(value or b"" for header, value in reversed(record.headers or []) if header == name)
