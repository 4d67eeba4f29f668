"""Retry policies: the time for which a returned message waits, by the number of its attempt.

    base=1s, factor=2, max=1h, attempts=12, jitter=20%

`base` is required. The other parts default to the values above, except for `jitter`, which defaults to 0%. The order is
free, each part occurs at most once, and spaces may surround commas and equals signs. All arithmetic uses integers, so
every reader of a return computes the same time.

Pure functions. Source of the idea: Spring Kafka's retry topics and the backoff of gRPC (gRFC A6).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from postdate.wire.dispatch_log import PolicyRow
from postdate.wire.limits import (
    ATTEMPTS_MAX,
    FACTOR_MAX,
    POLICIES_REMEMBERED_MAX,
    POLICY_NAME_LENGTH_MAX,
    POLICY_TEXT_LENGTH_MAX,
)
from postdate.wire.values.durations import format_duration, parse_duration_ms

_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{POLICY_NAME_LENGTH_MAX}}}")
_FACTOR: Final = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))?")
_ATTEMPTS: Final = re.compile(r"[0-9]{1,4}")
_PERCENT: Final = re.compile(r"([0-9]{1,3})%")


class RetryPolicy(NamedTuple):
    """One policy. `factor_hundredths`: 100 to 10,000; `attempts`: 1 to 1,000; `jitter_percent`: 0 to 100."""

    base_ms: int
    factor_hundredths: int = 200
    max_ms: int = 3_600_000
    attempts: int = 12
    jitter_percent: int = 0

    def text(self) -> str:
        """Returns the policy in the form that `parse_policy` reads, with all parts, so that a later change of a default
        does not affect it."""
        whole, hundredths = divmod(self.factor_hundredths, 100)
        factor = f"{whole}.{hundredths:02}".rstrip("0") if hundredths else f"{whole}"
        return (
            f"base={format_duration(self.base_ms)}, factor={factor}, max={format_duration(self.max_ms)}, "
            f"attempts={self.attempts}, jitter={self.jitter_percent}%"
        )


@lru_cache(maxsize=POLICIES_REMEMBERED_MAX)
def parse_policy(text: str) -> RetryPolicy:
    """Returns the policy in a text. Raises ValueError if it is malformed. Cost: O(1) for a text seen lately."""
    if len(text) > POLICY_TEXT_LENGTH_MAX or not text.isascii():
        raise ValueError("is too long or not ASCII")
    values: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip(" ") for piece in part.partition("="))
        if name not in _PARTS or not equals:
            raise ValueError(f"has a part {part.strip(' ')[:40]!r}; known: {', '.join(_NAMES)}")
        field, read = _PARTS[name]
        if field in values:
            raise ValueError(f"gives {name} more than once")
        try:
            values[field] = read(value)
        except ValueError as error:
            raise ValueError(f"has a value of {name} that {error}") from None
    if "base_ms" not in values:
        raise ValueError("lacks base")
    policy = RetryPolicy(**values)
    if policy.base_ms > policy.max_ms:
        raise ValueError("has a base above its max, which is 1h if it is not given")
    return policy


def is_policy_name(text: str) -> bool:
    """Returns True if a policy may have this name: at most 64 letters, digits, `-`, `_` and `.`."""
    return _NAME.fullmatch(text) is not None


def parse_named(texts: Iterable[str]) -> dict[str, RetryPolicy]:
    """Returns the policies in texts of the form `NAME: POLICY`, by name. Raises ValueError if a text is malformed or a
    name is repeated."""
    policies: dict[str, RetryPolicy] = {}
    for text in texts:
        name, colon, policy = text.partition(":")
        name = name.strip(" ")
        if not colon or not is_policy_name(name):
            raise ValueError(f"{text[:80]!r} is not NAME: base=…, with a name of letters, digits, '-', '_' and '.'")
        if name in policies:
            raise ValueError(f"{name} is defined twice")
        try:
            policies[name] = parse_policy(policy.strip(" "))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    return policies


@lru_cache(maxsize=POLICIES_REMEMBERED_MAX)
def delay_ms(policy: RetryPolicy, attempt: int) -> int:
    """Returns the backoff before an attempt in ms, without jitter. `attempt`: 1 to `policy.attempts`. O(attempt), or
    O(1) for arguments seen lately."""
    delay, factor, longest = policy.base_ms, policy.factor_hundredths, policy.max_ms
    for _ in range(attempt - 1):
        raised = -(-delay * factor // 100)
        if raised >= longest:
            return longest
        if raised == delay:
            break
        delay = raised
    return delay


def jitter_ms(policy: RetryPolicy, delay: int, origin: bytes) -> int:
    """Returns the time in ms that a return waits in addition to `delay`: 0 to `jitter_percent` of `delay`, drawn from
    the return's origin."""
    return delay * policy.jitter_percent * (crc32(origin) >> 16) // 6_553_600


class NamedPolicies:
    """The named policies of a shard over time. A return at offset o uses the last row with the name of its policy whose
    first request is at or below o.

    Immutable. `rows` ascend by the first request to which they apply.
    """

    def __init__(self, rows: Iterable[PolicyRow] = ()) -> None:
        self.rows: tuple[PolicyRow, ...] = tuple(sorted(rows))
        self._by_name: dict[str, list[PolicyRow]] = {}
        for row in self.rows:
            self._by_name.setdefault(row[1], []).append(row)

    def find(self, name: str, offset: int) -> RetryPolicy | None:
        """Returns the policy `name` that applies to a return at `offset`, or None if there is no such policy. Raises
        ValueError if the row's text is not a policy."""
        text = ""
        for first, _, of_row in self._by_name.get(name, ()):
            if first > offset:
                break
            text = of_row
        return parse_policy(text) if text else None

    def changed(self, configured: Mapping[str, RetryPolicy], ingested_to: int, written_to: int) -> list[PolicyRow]:
        """Returns rows for the configured policies that differ from the last rows of their names.

        An earlier owner may have accepted returns below `written_to` with the policy in the log. So if a policy was
        changed or removed, the former policy applies to all offsets below `written_to`. A new name applies from
        `ingested_to` on.
        """
        wanted = {name: policy.text() for name, policy in configured.items()}
        last = {name: rows[-1] for name, rows in self._by_name.items()}
        rows: list[PolicyRow] = []
        for name in sorted(wanted.keys() | last.keys()):
            since, _, text = last.get(name, (0, name, ""))
            if wanted.get(name, "") != text:
                first = max(since, ingested_to, written_to if text else 0)
                rows.append((first, name, wanted.get(name, "")))
        return rows

    def with_rows(self, rows: Iterable[PolicyRow]) -> NamedPolicies:
        """Returns these policies with further rows. A row replaces a row of the same name and first request."""
        merged = {(first, name): text for first, name, text in (*self.rows, *rows)}
        return NamedPolicies((first, name, text) for (first, name), text in merged.items())

    def needed_from(self, low_water: int) -> NamedPolicies:
        """Returns these policies without the rows that no request at or above `low_water` needs, because later rows
        replace them."""
        kept = [row for row in self.rows if not self.replaces(row, low_water)]
        return self if len(kept) == len(self.rows) else NamedPolicies(kept)

    def replaces(self, row: PolicyRow, low_water: int) -> bool:
        """Returns True if a later row of the same name applies to every request at or above `low_water`."""
        return any(row[0] < first <= low_water for first, _, _ in self._by_name.get(row[1], ()))


def _base_ms(text: str) -> int:
    base_ms = parse_duration_ms(text)
    if base_ms < 1:
        raise ValueError("is below 1 ms")
    return base_ms


def _factor(text: str) -> int:
    match = _FACTOR.fullmatch(text)
    hundredths = int(match[1]) * 100 + int((match[2] or "").ljust(2, "0")) if match else 0
    if not 100 <= hundredths <= FACTOR_MAX * 100:
        raise ValueError(f"is not a number from 1 to {FACTOR_MAX} with at most two decimals")
    return hundredths


def _attempts(text: str) -> int:
    attempts = int(text) if _ATTEMPTS.fullmatch(text) else 0
    if not 1 <= attempts <= ATTEMPTS_MAX:
        raise ValueError(f"is not a number from 1 to {ATTEMPTS_MAX}")
    return attempts


def _percent(text: str) -> int:
    match = _PERCENT.fullmatch(text)
    if match is None or int(match[1]) > 100:
        raise ValueError("is not a whole percentage from 0% to 100%")
    return int(match[1])


_NAMES: Final = ("base", "factor", "max", "attempts", "jitter")
_PARTS: Final[Mapping[str, tuple[str, Callable[[str], int]]]] = {
    "base": ("base_ms", _base_ms),
    "factor": ("factor_hundredths", _factor),
    "max": ("max_ms", parse_duration_ms),
    "attempts": ("attempts", _attempts),
    "jitter": ("jitter_percent", _percent),
}
