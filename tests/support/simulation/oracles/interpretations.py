"""How each process of a run interprets a request, by its settings and docs/formats.md.

Processes may interpret a request differently: one refuses it; others give it different due times, targets or headers.
An outcome is right if the settings of any process lead to it; other oracles check that the request ends once. Nothing
here imports the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from support.oracles.expected_records import Headers, data_headers, origin_of
from support.simulation.requests.returns import longest_policy_ms
from support.simulation.requests.traffic import SimulatedRequest
from support.simulation.runtime.settings import Settings, allows

_BAD_RETRY = "bad-retry"
_FORBIDDEN, _TOO_FAR, _NO_TARGET, _TOO_MANY = (
    "forbidden-target",
    "beyond-horizon",
    "missing-target",
    "limit-exceeded",
)


@dataclass(frozen=True)
class RequestReading:
    """The interpretation of a request by one process. `refusals`: the possible reasons of a refusal; empty if the
    process accepts the request."""

    target: str
    due_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
    refusals: frozenset[str]
    tail: tuple[tuple[str, bytes | None], ...] = ()
    """The headers of a redelivery, after origin and due time."""

    @property
    def accepts(self) -> bool:
        return not self.refusals


def reading(request: SimulatedRequest, settings: Settings, horizon_ms_max: int) -> RequestReading:
    """Returns the interpretation by a process with these settings. `horizon_ms_max`: the maximum horizon of a process
    that stores nothing, which follows from retention."""
    target, headers = request.target, data_headers(request.headers)
    speaks = request.foreign and "rabbitmq" in settings.dialects
    if speaks:
        target, headers = settings.default_target, [pair for pair in headers if pair[0] != "x-delay"]
    due_ms = max(request.due_at(settings.levels_ms), 1)
    horizon_ms = settings.horizon_ms if settings.store_after_ms else min(settings.horizon_ms, horizon_ms_max)
    refusals: set[str] = set()
    if request.action == "schedule":
        if request.foreign and not (speaks and target):
            refusals.add(_NO_TARGET)
        elif not allows(settings.allow, target):
            refusals.add(_FORBIDDEN)
    if request.selected is not None and request.selected.by_ms > 0 and not settings.store_after_ms:
        refusals.add(_TOO_FAR)
    if request.selected is not None and abs(request.selected.by_ms) > horizon_ms:
        refusals.add(_TOO_FAR)
    if longest_policy_ms(request) > horizon_ms:
        refusals.add(_BAD_RETRY)
    latest_ms = max(request.requested_at(settings.levels_ms), 1) + request.window_ms
    if request.action in ("schedule", "reschedule") and latest_ms - request.appended_ms > horizon_ms:
        refusals.add(_TOO_FAR)
    tail = []
    if request.returned is not None:
        tail = request.returned.tail(origin_of(request.part.topic, request.part.index, request.offset), due_ms)
    return RequestReading(target, due_ms, tuple(headers), frozenset(refusals), tuple(tail))


class Readings:
    """The interpretations of all processes of a run."""

    def __init__(self, settings: Iterable[Settings], horizon_ms_max: int) -> None:
        self.settings = list(dict.fromkeys(settings))
        self.horizon_ms_max = horizon_ms_max
        self._known: dict[tuple[int, int], list[RequestReading]] = {}

    @property
    def retry_budget_ms(self) -> int:
        """The shortest retry budget of all processes."""
        return min(each.retry_budget_ms for each in self.settings)

    def of(self, request: SimulatedRequest) -> list[RequestReading]:
        """Returns the different interpretations of one request; at least one."""
        at = (request.part.index, request.offset)
        if at not in self._known or request.returned is not None or request.latest_ms:
            each = (reading(request, settings, self.horizon_ms_max) for settings in self.settings)
            self._known[at] = list(dict.fromkeys(each))
        return self._known[at]

    def refusals(self, request: SimulatedRequest) -> frozenset[str]:
        """Returns the reasons for which at least one process may refuse the request."""
        found = frozenset().union(*(each.refusals for each in self.of(request)))
        if request.action == "schedule" and any(each.has_quota for each in self.settings):
            found |= {_TOO_MANY}
        targets = {each.target for each in self.of(request) if each.accepts}
        if any(not allows(each.allow, target) for each in self.settings for target in targets):
            found |= {_FORBIDDEN}  # the allow list of the dispatching process also applies
        if request.action == "bad" and any("*" not in each.allow for each in self.settings):
            found |= {_FORBIDDEN}
        return found

    def dues_ms(self, request: SimulatedRequest) -> set[int]:
        """Returns the due times of a request in the processes that accept it."""
        return {each.due_ms for each in self.of(request) if each.accepts}

    def is_certain(self, request: SimulatedRequest) -> bool:
        """True if all processes interpret the request in the same way, independently of other requests."""
        return len(self.of(request)) == 1 and not any(each.has_quota for each in self.settings)


def accepted_headers(readings: Iterable[RequestReading], target: str) -> list[tuple[Headers, Headers]]:
    """Returns the headers of the message in the processes that deliver it to this target, and those of its
    redelivery."""
    return [(list(each.headers), list(each.tail)) for each in readings if each.accepts and each.target == target]
