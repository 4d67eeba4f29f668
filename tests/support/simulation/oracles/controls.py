"""The oracles of controls: verdicts are true, and a cancel or a replacement that came in time has taken effect.

A control came in time if it was written before the message was due, and if the process that delivered the message knew
it: the process had read the control, or took over after it was written, with a gate that waits for it. The check is
skipped if the broker's clock was stepped, or if the processes interpret the requests of the id differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import TYPE_CHECKING

from postdate.wire.dispatch_log import BulkCancelled, Moved, SeriesFate, SurvivorFate
from postdate.wire.verdicts import Verdict, decode_verdict
from support.simulation.oracles.interpretations import Readings
from support.simulation.oracles.outcomes import JudgedOutcome, Origin, committed, named_origin
from support.simulation.requests.bulk import BULK
from support.simulation.requests.traffic import REQUESTS, SimulatedRequest, SimulatedTraffic

if TYPE_CHECKING:
    from support.kafka_simulator import SimBroker
    from support.simulation.runtime.simulated_run import SimulatedRun


def judge_in_time(outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, run: SimulatedRun) -> None:
    """Checks that no message is delivered although a control that ends it came in time."""
    if run.reached["broker's clock stepped"] or run.reached["broker's clock stepped far"]:
        return
    for origin, request in traffic.requests.items():
        fate = outcome.final(origin)
        if request.action != "schedule" or fate not in ("delivered", "cancelled", "replaced"):
            continue
        if not _is_plain(traffic, readings, request):
            continue
        due_ms = outcome.leaves_ms(request)
        if fate != "delivered":
            outcome.reached["control won"] += 1
            outcome.reached["control won though overdue"] += outcome.fates[origin][0][1] >= due_ms
            continue
        writer = outcome.ended_by[origin]
        known = writer.next_request
        if run.gates[writer.instance] != "off":
            known = max(known, run.known.get((origin[0], writer.takeover), 0))
        for other in _enders(outcome, traffic, readings, request):
            if other.appended_ms < due_ms and other.offset < known:
                outcome.wrong.append(
                    f"O2: {origin}, due {due_ms}, is delivered by takeover {writer.takeover}, which knew of requests "
                    f"below {known}; {other.action} {other.offset} came at {other.appended_ms}"
                )


def _is_plain(traffic: SimulatedTraffic, readings: Readings, request: SimulatedRequest) -> bool:
    """True if all processes interpret each request with the id of this one in the same way."""
    return readings.is_certain(request) and all(
        readings.is_certain(other) for other in traffic.of_id(request) if other.action == "schedule"
    )


def _enders(
    outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, request: SimulatedRequest
) -> list[SimulatedRequest]:
    """Returns the later requests that end this one if it is still pending when they are read. A request that is refused
    or dropped replaces no message."""
    found: list[SimulatedRequest] = []
    latest = True  # no later request has scheduled its id
    for other in traffic.followers(request):
        if other.action == "schedule" and (other.keeps or outcome.final((other.part.index, other.offset)) == "dropped"):
            continue
        if other.action == "schedule" and not any(each.accepts for each in readings.of(other)):
            continue
        same_id = bool(request.id) and other.id == request.id and latest
        if (other.action == "cancel" and (same_id or other.names == request.offset)) or (
            other.action == "schedule" and same_id
        ):
            found.append(other)
        if other.action == "schedule" and same_id:
            latest = False
    return found


def judge_verdicts(outcome: JudgedOutcome, traffic: SimulatedTraffic, broker: SimBroker, partitions: int) -> None:
    """Checks that verdicts are true and that none is missing or repeated.

    Each ended control has exactly one answer. Each delivered, cancelled, replaced, kept or dropped request has exactly
    one verdict with this fate and without `of`.
    """
    movers = {
        (origin, fate.control) for origin, moves in outcome.moved.items() for fate in moves if isinstance(fate, Moved)
    }
    to_controls: Counter[Origin] = Counter()
    of_controls: Counter[tuple[str, Origin]] = Counter()
    of_itself: Counter[tuple[str, Origin]] = Counter()
    for index in range(partitions):
        for record in committed(broker, f"{REQUESTS}.verdicts", index):
            answer = decode_verdict(record.value)
            outcome.reached[f"verdict {answer.verdict}"] += 1
            by = named_origin(answer.origin.encode())
            if by in traffic.recurrences.requests:
                continue
            if traffic.requests[by].action in ("cancel", "reschedule", BULK):
                to_controls[by] += 1
            if answer.of is None:
                of_itself[answer.verdict, by] += 1
                if answer.verdict in ("replaced", "kept", "dropped") and answer.by != _survivor(outcome, by):
                    outcome.wrong.append(f"verdict {answer.verdict} of {by}, by {answer.by}: {outcome.fates.get(by)}")
            else:
                of = named_origin(answer.of.encode())
                of_controls[answer.verdict, of] += 1
                if not _is_true(outcome, movers, answer.verdict, of, by[1]):
                    fate = outcome.final(of)
                    outcome.wrong.append(f"verdict {answer.verdict} of {answer.of} by {by}, which ended as {fate!r}")
    for origin, request in traffic.requests.items():
        fate = outcome.final(origin)
        if request.action in ("cancel", "reschedule", BULK) and fate and to_controls[origin] != 1:
            outcome.wrong.append(f"verdict: {to_controls[origin]} answers to the {request.action} {origin}")
        if of_itself["accepted", origin] != (origin in outcome.stored):
            outcome.wrong.append(f"verdict: {of_itself['accepted', origin]} times accepted: {origin}, {fate}")
        if fate in ("delivered", "cancelled", "replaced", "kept", "dropped") and of_itself[fate, origin] != 1:
            outcome.wrong.append(f"verdict: {of_itself[fate, origin]} times {fate} about {origin}")
        by_one = 0 if isinstance(outcome.fates.get(origin, [(None, 0)])[0][0], BulkCancelled) else 1
        if fate in ("cancelled", "replaced") and of_controls[fate, origin] != by_one:
            outcome.wrong.append(f"verdict: {of_controls[fate, origin]} controls have {fate} {origin}")


def _survivor(outcome: JudgedOutcome, origin: Origin) -> str | None:
    """Returns the origin of the request that survived this one, by its final fate."""
    fates = [fate for fate, _ in outcome.fates.get(origin, []) if isinstance(fate, SurvivorFate | SeriesFate)]
    return f"{REQUESTS}/{origin[0]}/{fates[0].survivor}" if fates else None


def _is_true(outcome: JudgedOutcome, movers: Set[tuple[Origin, int]], verdict: Verdict, of: Origin, by: int) -> bool:
    """True if the verdict of a control about another request is true. `movers`: (request, control that moved it)."""
    fate = outcome.final(of)
    if verdict is Verdict.RESCHEDULED:
        return (of, by) in movers
    return fate in {
        Verdict.CANCELLED: ("cancelled",),
        Verdict.REPLACED: ("replaced",),
        Verdict.TOO_LATE: ("delivered", "dead", "completed"),
    }.get(verdict, ())
