"""The rules of one request topic: allowed targets, the horizon, the levels.

Rules are values: equal fields always give the same results. For speed, rules remember texts that they have parsed or
checked, in tables of bounded size. The tables never change a result, and dict operations are atomic, so the threads of
all shards of a process may share one object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final, TypeVar

from postdate.wire.dialects.translation import Vocabulary
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import DROPPED, DROPPED_2, DROPPED_3, REQUEST, REQUEST_2, SCHEDULE
from postdate.wire.limits import (
    HORIZON_MS_DEFAULT,
    REMEMBERED_TEXTS_MAX,
    RETURNS_VERSION,
    SCHEDULES_VERSION,
    TOPIC_NAME_LENGTH_MAX,
)
from postdate.wire.reasons import Reason
from postdate.wire.topics import OwnTopics, is_forbidden, is_topic_name
from postdate.wire.values.durations import parse_duration_ms
from postdate.wire.values.texts import parse_natural, plain_ms, quote, time_text

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000

# The eighteen levels of RocketMQ 4: 1s 5s 10s 30s 1m ... 10m 20m 30m 1h 2h.
DEFAULT_LEVELS_MS: Final = (
    *(_SECOND_MS * n for n in (1, 5, 10, 30)),
    *(_MINUTE_MS * n for n in (*range(1, 11), 20, 30)),
    *(_HOUR_MS * n for n in (1, 2)),
)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class RequestRules:
    """The rules for requests on `topic`.

    `levels_ms`: the delay of each level from level 1 on, not empty. `horizon_ms`: the longest delay, counted from
    the record's own timestamp. `forbidden`: exact names of Postdate's topics of the whole deployment; those of `topic`
    are added. `allow`: patterns of fnmatch (`*`, `?`, `[...]`; case matters); a target must match at least one.
    `dialects`: the names of the dialects that are accepted in addition to Postdate's headers. `default_target`: the
    target of a request in a dialect that names no target; if it is "", such a request is refused. `format_version`: the
    newest format whose headers are accepted. Raises ValueError if the rules are invalid: fix the configuration.
    """

    topic: str
    levels_ms: tuple[int, ...] = DEFAULT_LEVELS_MS
    horizon_ms: int = HORIZON_MS_DEFAULT
    forbidden: frozenset[str] = frozenset()
    allow: tuple[str, ...] = ("*",)
    dialects: tuple[str, ...] = ()
    default_target: str = ""
    format_version: int = 1

    # The names of the headers that have a meaning in a request.
    names: frozenset[str] = field(init=False, repr=False, compare=False, default=REQUEST)

    # Headers of a delivered record that are ignored in a request. `is_dropped` also covers those of a dead letter.
    dropped: frozenset[str] = field(init=False, repr=False, compare=False, default=DROPPED)

    # The headers of the dialects; None without a dialect.
    vocabulary: Vocabulary | None = field(init=False, repr=False, compare=False, default=None)

    # Remembered texts: accepted targets and relative delays as in the headers, and whether targets are permitted.
    targets: dict[bytes | None, str] = field(init=False, repr=False, compare=False, default_factory=dict)
    delays_ms: dict[bytes | None, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    _permitted: dict[str, bool] = field(init=False, repr=False, compare=False, default_factory=dict)
    _own: frozenset[str] = field(init=False, repr=False, compare=False)
    _allowed: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.levels_ms or min(self.levels_ms) < 0:
            raise ValueError("levels must be one or more delays that are not negative")
        if self.horizon_ms < 0:
            raise ValueError("the horizon must not be negative")
        patterns = "|".join(translate(pattern) for pattern in self.allow)
        object.__setattr__(self, "_own", self.forbidden | OwnTopics.of(self.topic).names())
        object.__setattr__(self, "_allowed", re.compile(patterns) if self.allow else None)
        if self.format_version >= RETURNS_VERSION:
            object.__setattr__(self, "names", REQUEST_2)
            object.__setattr__(self, "dropped", DROPPED | DROPPED_2)
        if self.format_version >= SCHEDULES_VERSION:
            object.__setattr__(self, "names", self.names | SCHEDULE)
            object.__setattr__(self, "dropped", self.dropped | DROPPED_3)
        if self.dialects:
            object.__setattr__(self, "vocabulary", Vocabulary.of(self.dialects, self.default_target))

    def permits(self, target: str) -> bool:
        """Returns True if `target` is not forbidden and matches the allow-list. O(1) for a target seen lately."""
        verdict = self._permitted.get(target)
        if verdict is None:
            matches = self._allowed is not None and self._allowed.match(target) is not None
            verdict = _remember(self._permitted, target, matches and not is_forbidden(target, self._own))
        return verdict

    def parse_target(self, text: bytes | None) -> str:
        """Returns the target topic that the value of `postdate-topic` names.

        Raises RequestRefused (bad-target, forbidden-target). Cost: O(1) for a text seen lately.
        """
        target = self.targets.get(text)
        if target is not None:
            return target
        # Any byte that is not ASCII becomes a character that no topic name has.
        target = "" if text is None else text[: TOPIC_NAME_LENGTH_MAX + 1].decode("ascii", "replace")
        if text is None or not is_topic_name(target):
            raise RequestRefused(Reason.BAD_TARGET, f"postdate-topic {quote(text)} is not a topic name")
        if not self.permits(target):
            raise RequestRefused(
                Reason.FORBIDDEN_TARGET, f"the rules of {self.topic} do not allow {target} as a target"
            )
        return _remember(self.targets, text, target)

    def parse_delay_ms(self, text: bytes | None) -> int:
        """Returns the duration in a header's value in milliseconds. Raises ValueError if the value is not a duration.
        Cost: O(1) for a text seen lately."""
        delay_ms = plain_ms(text)
        if delay_ms < 0:
            delay_ms = self.delays_ms.get(text, -1)
        if delay_ms >= 0:
            return delay_ms
        return _remember(self.delays_ms, text, parse_duration_ms(time_text(text)))

    def level_ms(self, text: bytes | None) -> int:
        """Returns the delay of the level in the value of `postdate-level`. Level 0 is no delay; a level above the last
        counts as the last. Raises RequestRefused (bad-level) if the value is not a level."""
        try:
            level = parse_natural(time_text(text))
        except ValueError as error:
            raise RequestRefused(Reason.BAD_LEVEL, f"postdate-level {quote(text)} {error}") from None
        return 0 if level == 0 else self.levels_ms[min(level, len(self.levels_ms)) - 1]


def _remember(table: dict[_Key, _Value], text: _Key, value: _Value) -> _Value:
    if len(table) >= REMEMBERED_TEXTS_MAX:
        table.clear()
    table[text] = value
    return value
