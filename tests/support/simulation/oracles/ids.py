"""The oracles of policies for ids: which request survives, and when a series of debounced requests is due.

A `kept` or `replaced` names the survivor, a request of the same id. A kept request ends no later than its survivor. A
request with `keep` is kept as long as an earlier one is pending. The start of a series is the timestamp of its first
request, by the chain of `replaced`. A request that only some processes accept is part of the series if the log shows
this. A request with `drop` is dropped if and only if another one with `drop` and the same id was delivered before,
within the window before its timestamp.
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
                traffic.asked[index, fate.survivor].series_ms = fate.start_ms


def judge_ids(outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings) -> None:
    """Adds violations to `outcome.wrong`. REQUIRES: `settle_series`."""
    for origin, fates in outcome.fates.items():
        asked = traffic.asked.get(origin)
        if asked is None:
            continue
        for fate, _ in fates:
            if isinstance(fate, SurvivorFate | SeriesFate):
                if wrong := _survivor_complaint(outcome, traffic, origin, asked, fate):
                    outcome.wrong.append(f"ids: {origin} is {fate}, {wrong}")
            elif fate.name == "replaced":
                outcome.wrong.append(f"ids: {origin} is {fate.name}, and no survivor is named")
        _count(outcome, asked, fates[0][0])
    for origin, asked in traffic.asked.items():
        if asked.keeps and asked.action == "schedule" and outcome.final(origin) not in ("", "kept", "dropped", "dead"):
            _judge_accepted(outcome, traffic, readings, origin, asked)
        if asked.drops and asked.action == "schedule" and outcome.final(origin) == "delivered":
            _judge_repeated(outcome, traffic, readings, origin, asked)


def _survivor_complaint(
    outcome: JudgedOutcome,
    traffic: SimulatedTraffic,
    origin: Origin,
    asked: SimulatedRequest,
    fate: SurvivorFate | SeriesFate,
) -> str:
    survivor = traffic.asked.get((origin[0], fate.survivor))
    if survivor is None or survivor.action != "schedule" or not asked.id or survivor.id != asked.id:
        return "and that is no message of its id"
    if outcome.final((origin[0], fate.survivor)) in ("kept", "dropped"):
        return "and that one did not survive"
    if fate.name == "dropped":
        return _drop_complaint(outcome, traffic, origin, asked, survivor)
    if fate.name == "kept":
        end = outcome.ended_by.get((origin[0], fate.survivor))
        if not asked.keeps or fate.survivor > asked.offset:
            return "and it does not keep that one"
        if end is not None and end.seq < outcome.ended_by[origin].seq:
            return f"and that one had ended before, as {outcome.final((origin[0], fate.survivor))}"
        return ""
    if survivor.keeps or fate.survivor < asked.offset:
        return "and that one does not replace it"
    if bool(asked.latest_ms and survivor.latest_ms) != isinstance(fate, SeriesFate):
        return "and that is wrong about the series"
    start_ms = min(asked.start_ms, survivor.appended_ms)
    if isinstance(fate, SeriesFate) and fate.start_ms != start_ms:
        return f"and its series began at {start_ms}"
    return ""


def _drop_complaint(
    outcome: JudgedOutcome,
    traffic: SimulatedTraffic,
    origin: Origin,
    asked: SimulatedRequest,
    survivor: SimulatedRequest,
) -> str:
    if not asked.drops or not survivor.drops or survivor.offset > asked.offset:
        return "and it is not dropped for that one"
    at = (origin[0], survivor.offset)
    if outcome.final(at) != "delivered" or outcome.ended_by[at].seq >= outcome.ended_by[origin].seq:
        return "and that one was not delivered before"
    ended_ms = outcome.fates[at][0][1]
    if asked.appended_ms > ended_ms + traffic.ended_window_ms:
        return f"and that one was delivered at {ended_ms}"
    return ""


def _judge_repeated(
    outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, origin: Origin, asked: SimulatedRequest
) -> None:
    """Adds a violation if a request with `drop` was delivered although another one with its id had been delivered
    within the window."""
    for other in traffic.of_id(asked):
        at = (origin[0], other.offset)
        is_before = other.offset < asked.offset and other.drops and outcome.final(at) == "delivered"
        if not is_before or not readings.is_certain(asked) or not readings.is_certain(other):
            continue
        ended_ms = outcome.fates[at][0][1]
        if (
            outcome.ended_by[at].seq < outcome.ended_by[origin].seq
            and asked.appended_ms <= ended_ms + traffic.ended_window_ms
        ):
            outcome.wrong.append(f"ids: {origin} was delivered, though {at} of its id was delivered at {ended_ms}")


def _judge_accepted(
    outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, origin: Origin, asked: SimulatedRequest
) -> None:
    """Adds a violation if a request with `keep` was not kept although an earlier one was delivered by a process that
    had read both."""
    group = [each for each in traffic.of_id(asked) if each.action == "schedule" and each.offset < asked.offset]
    if not all(readings.is_certain(each) for each in (asked, *group)):
        return
    for other in group:
        at = (origin[0], other.offset)
        writer = outcome.ended_by.get(at)
        if outcome.final(at) == "delivered" and writer is not None and writer.next_request > asked.offset:
            outcome.wrong.append(
                f"ids: {origin} keeps, and is {outcome.final(origin)}, though {at} was pending when it was read"
            )


def _count(outcome: JudgedOutcome, asked: SimulatedRequest, fate: Fate) -> None:
    outcome.reached["fate replaced in a series"] += isinstance(fate, SeriesFate)
    is_limited = asked.latest_ms > 0 and asked.series_ms >= 0 and asked.due_ms == asked.series_ms + asked.latest_ms
    outcome.reached["a series is due at its limit"] += is_limited and fate.name == "delivered"
