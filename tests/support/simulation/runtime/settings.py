"""The settings of one process that affect requests, drawn at random for each start, as in a rolling change.

The processes of a run may differ in each setting, for a while or permanently. `oracles/interpretations` computes the
interpretation of a request by each process. The process that commits the fate of a request first determines its
outcome.

Nothing here imports the product: `plan` turns these values into a configuration, and the judges use them directly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Literal

#: Milliseconds: a horizon beyond every due time of a run.
NO_HORIZON_MS = 3_600_000 * 24 * 365
LEVELS_MS = (1_000, 3_000, 7_000)

Gate = Literal["takeover", "always", "off"]

_ALLOWS = (("*",), ("*",), ("orders", "small", "secret", "later", "compacted", "nowhere"), ("mails", "l*"))
_LEVELS_MS = (LEVELS_MS, (1_500, 3_500, 7_500), (200,))
_HORIZONS_MS = (NO_HORIZON_MS, NO_HORIZON_MS, 3_000, 9_000)
_PER_SECOND_MAX = (0, 0, 1, 3)
_PENDING_MAX = (0, 0, 3, 12)
_PENDING_BYTES_MAX = (0, 0, 400, 2_000)
_DIALECTS = ((), ("rabbitmq",), ("rabbitmq", "chronos"))
_DEFAULT_TARGETS = ("", "orders", "mails")
_GATES: tuple[Gate, ...] = ("takeover", "takeover", "always", "off")
#: Milliseconds: the retry budgets. The longer faults exceed them, the shorter faults do not.
_BUDGETS_MS = (2_500, 2_500, 6_000)


@dataclass(frozen=True)
class Settings:
    """The settings of one process about requests. 0 stands for no limit, as in the configuration."""

    allow: tuple[str, ...] = ("*",)
    levels_ms: tuple[int, ...] = LEVELS_MS
    horizon_ms: int = NO_HORIZON_MS
    store_after_ms: int = 0
    requests_per_second_max: int = 0
    pending_max: int = 0
    pending_size_bytes_max: int = 0
    messages_per_second_max: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    default_target: str = ""
    cancel_gate: Gate = "takeover"
    retry_budget_ms: int = 2_500

    @property
    def has_quota(self) -> bool:
        """True if a request may be refused because of other requests."""
        return bool(self.requests_per_second_max or self.pending_max or self.pending_size_bytes_max)


def allows(patterns: tuple[str, ...], target: str) -> bool:
    """True if a target matches one of the patterns of an allow list."""
    return any(fnmatchcase(target, pattern) for pattern in patterns)


class Operators:
    """Configures the processes of one run: some settings differ between starts, all others are constant."""

    def __init__(
        self,
        random: Random,
        usual: Settings,
        stores_ms: tuple[int, ...],
        rates: tuple[tuple[str, ...], ...],
        only: tuple[str, ...] = (),
    ) -> None:
        """`only`: the settings that differ; empty: they are drawn."""
        self._random = random
        self._usual = usual
        choices: dict[str, tuple[object, ...]] = {
            "allow": _ALLOWS,
            "levels_ms": _LEVELS_MS,
            "horizon_ms": _HORIZONS_MS,
            "store_after_ms": stores_ms,
            "requests_per_second_max": _PER_SECOND_MAX,
            "pending_max": _PENDING_MAX,
            "pending_size_bytes_max": _PENDING_BYTES_MAX,
            "messages_per_second_max": rates,
            "dialects": _DIALECTS,
            "default_target": _DEFAULT_TARGETS,
            "cancel_gate": _GATES,
            "retry_budget_ms": _BUDGETS_MS,
        }
        varied = only or random.sample(sorted(choices), random.choice([1, 3, 6, len(choices)]))
        self._choices = {name: choices[name] for name in varied}

    def draw(self) -> Settings:
        """Returns the settings of the next start of a process."""
        drawn: dict[str, Any] = {name: self._random.choice(values) for name, values in self._choices.items()}
        settings = replace(self._usual, **drawn)
        return settings if allows(settings.allow, settings.default_target) else replace(settings, default_target="")
