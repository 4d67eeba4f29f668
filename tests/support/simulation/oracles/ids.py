"""The oracles of policies for ids: the surviving request, and the due time of a series of debounced requests.

The fates `kept` and `replaced` name the survivor, a request of the same id. A kept request ends no later than its
survivor. A request with `keep` is kept as long as an earlier request of its id is pending. The chain of `replaced`
leads to the first request of a series, whose timestamp is the start of the series. A request that only some processes
accept is part of the series if the log shows this. A request with `drop` is dropped if and only if another request with
`drop` and the same id was delivered within the window before its timestamp.
"""

from __future__ import annotations

from postdate.wire.dispatch_log import Fate, SeriesFate, SurvivorFate
from support.simulation.oracles.interpretations import Readings
from support.simulation.oracles.outcomes import JudgedOutcome, Origin
from support.simulation.requests.traffic import SimulatedRequest, SimulatedTraffic


def settle_series(outcome: JudgedOutcome, traffic: SimulatedTraffic) -> None:
    """Reads from the dispatch logs the due times of the requests of series."""
    for (index, _), fates in outcome.fates.items():
        for fate, _ in fates:
            if isinstance(fate, SeriesFate):
                traffic.requests[index, fate.survivor].series_ms = fate.start_ms


def judge_ids(outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings) -> None:
    """Adds violations to `outcome.wrong`. REQUIRES: `settle_series`."""
    for origin, fates in outcome.fates.items():
        request = traffic.requests.get(origin)
        if request is None:
            continue
        for fate, _ in fates:
            if isinstance(fate, SurvivorFate | SeriesFate):
                if wrong := _survivor_complaint(outcome, traffic, origin, request, fate):
                    outcome.wrong.append(f"ids: {origin} is {fate}, {wrong}")
            elif fate.name == "replaced":
                outcome.wrong.append(f"ids: {origin} is {fate.name}, and no survivor is named")
        _count(outcome, request, fates[0][0])
    for origin, request in traffic.requests.items():
        if (
            request.keeps
            and request.action == "schedule"
            and outcome.final(origin) not in ("", "kept", "dropped", "dead")
        ):
            _judge_accepted(outcome, traffic, readings, origin, request)
        if request.drops and request.action == "schedule" and outcome.final(origin) == "delivered":
            _judge_repeated(outcome, traffic, readings, origin, request)


def _survivor_complaint(
    outcome: JudgedOutcome,
    traffic: SimulatedTraffic,
    origin: Origin,
    request: SimulatedRequest,
    fate: SurvivorFate | SeriesFate,
) -> str:
    survivor = traffic.requests.get((origin[0], fate.survivor))
    if survivor is None or survivor.action != "schedule" or not request.id or survivor.id != request.id:
        return "and that is no message of its id"
    if outcome.final((origin[0], fate.survivor)) in ("kept", "dropped"):
        return "and that one did not survive"
    if fate.name == "dropped":
        return _drop_complaint(outcome, traffic, origin, request, survivor)
    if fate.name == "kept":
        end = outcome.ended_by.get((origin[0], fate.survivor))
        if not request.keeps or fate.survivor > request.offset:
            return "and it does not keep that one"
        if end is not None and end.seq < outcome.ended_by[origin].seq:
            return f"and that one had ended before, as {outcome.final((origin[0], fate.survivor))}"
        return ""
    if survivor.keeps or fate.survivor < request.offset:
        return "and that one does not replace it"
    if bool(request.latest_ms and survivor.latest_ms) != isinstance(fate, SeriesFate):
        return "and that is wrong about the series"
    start_ms = min(request.start_ms, survivor.appended_ms)
    if isinstance(fate, SeriesFate) and fate.start_ms != start_ms:
        return f"and its series began at {start_ms}"
    return ""


def _drop_complaint(
    outcome: JudgedOutcome,
    traffic: SimulatedTraffic,
    origin: Origin,
    request: SimulatedRequest,
    survivor: SimulatedRequest,
) -> str:
    if not request.drops or not survivor.drops or survivor.offset > request.offset:
        return "and it is not dropped for that one"
    at = (origin[0], survivor.offset)
    if outcome.final(at) != "delivered" or outcome.ended_by[at].seq >= outcome.ended_by[origin].seq:
        return "and that one was not delivered before"
    ended_ms = outcome.fates[at][0][1]
    if request.appended_ms > ended_ms + traffic.ended_window_ms:
        return f"and that one was delivered at {ended_ms}"
    return ""


def _judge_repeated(
    outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, origin: Origin, request: SimulatedRequest
) -> None:
    """Adds a violation if a request with `drop` was delivered although another request with `drop` and its id had been
    delivered within the window."""
    for other in traffic.of_id(request):
        at = (origin[0], other.offset)
        is_before = other.offset < request.offset and other.drops and outcome.final(at) == "delivered"
        if not is_before or not readings.is_certain(request) or not readings.is_certain(other):
            continue
        ended_ms = outcome.fates[at][0][1]
        if (
            outcome.ended_by[at].seq < outcome.ended_by[origin].seq
            and request.appended_ms <= ended_ms + traffic.ended_window_ms
        ):
            outcome.wrong.append(f"ids: {origin} was delivered, though {at} of its id was delivered at {ended_ms}")


def _judge_accepted(
    outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, origin: Origin, request: SimulatedRequest
) -> None:
    """Adds a violation if a request with `keep` was not kept although a process that had read it delivered an earlier
    request of its id."""
    group = [each for each in traffic.of_id(request) if each.action == "schedule" and each.offset < request.offset]
    if not all(readings.is_certain(each) for each in (request, *group)):
        return
    for other in group:
        at = (origin[0], other.offset)
        writer = outcome.ended_by.get(at)
        if outcome.final(at) == "delivered" and writer is not None and writer.next_request > request.offset:
            outcome.wrong.append(
                f"ids: {origin} keeps, and is {outcome.final(origin)}, though {at} was pending when it was read"
            )


def _count(outcome: JudgedOutcome, request: SimulatedRequest, fate: Fate) -> None:
    outcome.reached["fate replaced in a series"] += isinstance(fate, SeriesFate)
    is_limited = (
        request.latest_ms > 0 and request.series_ms >= 0 and request.due_ms == request.series_ms + request.latest_ms
    )
    outcome.reached["a series is due at its limit"] += is_limited and fate.name == "delivered"
