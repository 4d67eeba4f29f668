"""Rate limits of a request topic: how many messages per second one shard sends to a target.

A rule is `PATTERN=NUMBER`: a pattern of fnmatch as in the allow-list, and messages per second. The first rule whose
pattern matches a target applies, and each target has its own limit: `*=50` gives every target fifty. So a rule for all
remaining targets comes last.

Thread rule: immutable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate

from postdate.sidecar.config.limits import RATE_MAX, RATE_MIN, RATE_RULES_MAX

_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
# The characters of topic names, and the special characters of patterns.
_PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")
# One character or one set of a pattern.
_PART = re.compile(r"\[!?\]?[^\]]*\]|.")
# The text before the first special character of a pattern.
_LITERAL = re.compile(r"[^*?\[]*")


@dataclass(frozen=True, slots=True)
class RateRules:
    """The rules in their order."""

    rules: tuple[tuple[re.Pattern[str], float], ...]

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> RateRules:
        """Parses rules. Raises ValueError, naming the invalid text and the expected form."""
        if len(texts) > RATE_RULES_MAX:
            raise ValueError(f"{len(texts)} rules: must be at most {RATE_RULES_MAX}")
        return cls(tuple(_rule(text) for text in texts))

    def per_second(self, target: str) -> float | None:
        """Returns the messages per second for a target; None if no rule limits it. O(rules): cache it."""
        return next((rate for pattern, rate in self.rules if pattern.match(target)), None)


def _rule(text: str) -> tuple[re.Pattern[str], float]:
    pattern, equals, number = text.partition("=")
    pattern, number = pattern.strip(), number.strip()
    if not equals or not _PATTERN.fullmatch(pattern):
        raise ValueError(f"{text!r} is not a rule: write TARGET=NUMBER, such as mails=20, sms-*=0.5 or *=1000")
    if not _NUMBER.fullmatch(number) or not RATE_MIN <= float(number) <= RATE_MAX:
        raise ValueError(
            f"{text!r}: give a number of messages per second from {RATE_MIN:g} to {RATE_MAX:,};"
            " to send nothing at all, hold the target (postdate hold)"
        )
    return re.compile(translate(pattern)), float(number)


def shadowed(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Returns rules that never apply, each with the earlier rule whose pattern covers it.

    Every returned rule certainly never applies. Some such rules are not found: those that only several earlier rules
    cover together, and some patterns with sets. O(pairs of rules); a pair with different beginnings costs one
    comparison.
    """
    patterns = [text.partition("=")[0].strip() for text in texts]
    found: list[tuple[str, str]] = []
    for number, pattern in enumerate(patterns):
        before = zip(texts[:number], patterns[:number], strict=True)
        wider = next((text for text, wide in before if _takes_all(wide, pattern)), None)
        if wider is not None:
            found.append((texts[number], wider))
    return found


def _takes_all(wide: str, narrow: str) -> bool:
    """True only if `wide` matches all names that `narrow` matches."""
    literal = _LITERAL.match(wide)
    assert literal is not None, "it may be empty"
    if not narrow.startswith(literal[0]):
        return False
    wides, narrows = _PART.findall(wide), _PART.findall(narrow)
    # takes[j]: the rest of `wide` matches everything that narrows[j:] matches. Computed from the ends backwards.
    takes = [*[False] * len(narrows), True]
    for part in reversed(wides):
        left, takes = takes, [False] * len(takes)
        takes[-1] = part == "*" and left[-1]
        for at in range(len(narrows) - 1, -1, -1):
            if part == "*":
                takes[at] = left[at] or takes[at + 1]
            else:
                takes[at] = left[at + 1] and _takes_one(part, narrows[at])
    return takes[0]


def _takes_one(part: str, other: str) -> bool:
    """True only if `part`, which is not `*`, matches everything that `other` may match."""
    if other == "*" or part == "?" or part == other:
        return other != "*"
    return len(other) == 1 and other != "?" and re.match(translate(part), other) is not None
