"""The figures of lateness, and bounds on them: `--fail-on-lateness p99=250ms`. Pure; imports nothing of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from postdate.wire.values.durations import format_duration, parse_duration_ms, require_unit

PERCENTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999))
"""The name of each percentile in the output, and the share of values that do not exceed it."""
FIGURES: Final = (*(name for name, _ in PERCENTILES), "max")
"""The names of all figures of lateness in the output."""


@dataclass(frozen=True)
class LatenessBound:
    """The largest value that a figure of lateness may have; `figure` is one of FIGURES."""

    figure: str
    bound_ms: int


@dataclass(frozen=True)
class Exceeded:
    """A figure of lateness above its bound. `str()` returns a sentence for the user."""

    figure: str
    bound_ms: int
    value_ms: int

    def __str__(self) -> str:
        return (
            f"TOO LATE: {spelled_figure(self.figure)} of the lateness is "
            f"{format_duration(self.value_ms)}, and --fail-on-lateness allows {format_duration(self.bound_ms)}"
        )


def spelled_figure(name: str) -> str:
    """Returns the usual spelling of a figure: p99.9 for p99_9."""
    return name.replace("_", ".")


def parse_bound(text: str) -> LatenessBound:
    """Parses the bound `FIGURE=DURATION`. Raises ValueError with a sentence that shows the right form."""
    figure, _, duration = (part.strip() for part in text.partition("="))
    try:
        if figure not in map(spelled_figure, FIGURES):
            raise ValueError("names no figure of lateness")
        return LatenessBound(figure.replace(".", "_"), parse_duration_ms(require_unit(duration)))
    except ValueError as error:
        figures = ", ".join(map(spelled_figure, FIGURES))
        raise ValueError(
            f"{text!r} {error}: write FIGURE=DURATION with one of the figures {figures}, and a duration, for "
            "example p99=250ms or max=1m30s"
        ) from None


def exceeded(bounds: Sequence[LatenessBound], lateness_ms: Mapping[str, int]) -> tuple[Exceeded, ...]:
    """Returns the figures in `lateness_ms` that exceed their bounds, in the order of `bounds`. A figure that is absent
    exceeds no bound."""
    return tuple(
        Exceeded(bound.figure, bound.bound_ms, lateness_ms[bound.figure])
        for bound in bounds
        if lateness_ms.get(bound.figure, 0) > bound.bound_ms
    )
