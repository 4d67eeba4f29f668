"""Returns: requests with a retry policy, and the outcome that docs/client.md requires.

If the header contains the policy itself, the outcome is known when the return is sent. Named policies are rows of the
dispatch log, which this module decodes by their documented format. A return uses the last row of its policy's name
whose offset is at or below its own; of two rows with the same offset, the row that was written later. Nothing here
imports the code that reads requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from postdate.kafka.interface import Headers, Record

if TYPE_CHECKING:
    from support.simulation.requests.traffic import SimulatedRequest

#: The policies in the configurations of the processes; each start draws one of these sets.
CONFIGURED: tuple[tuple[str, ...], ...] = (
    ("a: base=300ms, factor=2, max=3s, attempts=5",),
    ("a: base=1s, factor=1.5, max=4s, attempts=3, jitter=50%", "b: base=700ms, max=2s"),
    ("b: base=100ms, factor=3, max=5s, attempts=5, jitter=100%", "a: base=300ms, factor=2, max=3s, attempts=5"),
)
#: Milliseconds: no named policy has a longer backoff.
_NAMED_MS_MAX = 10_000
_TIMES = frozenset({"postdate-delay", "postdate-at", "postdate-level"})
_UNIT_MS = {"ms": 1, "s": 1_000, "h": 3_600_000}


@dataclass
class Returned:
    """The content of a return: its `policy` or the `name` of a policy, and the state of its attempts."""

    policy: str = ""
    name: str = ""
    attempt: int = 1
    root: bytes = b""
    first_due: bytes = b""
    id: bytes = b""
    error: list[bytes | None] = field(default_factory=list)

    def tail(self, origin: bytes, due_ms: int) -> Headers:
        """Returns the headers of the redelivery after its origin and due time."""
        found: Headers = [("postdate-id", self.id)] if self.id else []
        found.append(("postdate-attempt", str(self.attempt).encode()))
        found.append(("postdate-first-origin", self.root or origin))
        found.append(("postdate-first-due", self.first_due or str(due_ms).encode()))
        return found + [("postdate-error", error) for error in self.error[-1:]]


def make_return(request: SimulatedRequest, choose: Random, named: bool) -> None:
    """Turns a plain request into a return. `named`: it may name its policy."""
    assert request.headers is not None
    request.headers = [header for header in request.headers if header[0] not in _TIMES]
    request.level, request.returned = 0, (returned := Returned())
    if named and choose.random() < 0.5:
        returned.name, request.delay_ms = choose.choice(["a", "a", "b", "nobody"]), _NAMED_MS_MAX
    else:
        base, factor = choose.choice(["1ms", "250ms", "1s"]), choose.choice(["1", "2", "1.37", "3"])
        jitter = choose.choice(["0%", "20%", "100%"])
        returned.policy = (
            f"base={base}, factor={factor}, max={choose.choice(['1s', '4s'])}, attempts=4, jitter={jitter}"
        )
    added: Headers = [("postdate-retry", (returned.policy or returned.name).encode())]
    if choose.random() < 0.6:
        returned.attempt = choose.randrange(1, 5) + 1
        added.append(("postdate-attempt", b"%d" % (returned.attempt - 1)))
    if choose.random() < 0.6:
        returned.root, returned.first_due = b"elsewhere/0/5", b"77"
        added += [("postdate-origin", returned.root), ("postdate-due", returned.first_due)]
    if choose.random() < 0.4:
        returned.root, returned.first_due = b"elsewhere/3/7", b"99"
        added += [("postdate-first-origin", returned.root), ("postdate-first-due", returned.first_due)]
    added += [("postdate-error", choose.choice([None, b"boom"])) for _ in range(choose.choice([0, 1, 2]))]
    if choose.random() < 0.3:  # no control of this id may find it
        returned.id = b"id-%d" % choose.randrange(4)
        added.append(("postdate-id", returned.id))
    if choose.random() < 0.1:
        request.must_die, request.dead = True, frozenset({"bad-retry"})
        added[0] = ("postdate-retry", choose.choice([b"base=0", b"factor=2", b"a b", b"base=1s, base=1s"]))
        returned.policy = returned.name = ""
    choose.shuffle(added)
    returned.error = [value for name, value in added if name == "postdate-error"]  # the last one counts
    request.headers += added


def settle(request: SimulatedRequest, rows: Iterable[tuple[int, str, str]]) -> None:
    """Computes the due time of a return, or that it becomes a dead letter, once its offset and its policy are known.
    `rows`: the rows of its partition in the order of the log."""
    returned = request.returned
    assert returned is not None
    text = returned.policy
    if returned.name:
        valid = {first: policy for first, name, policy in rows if name == returned.name and first <= request.offset}
        text = valid[max(valid)] if valid else ""
        request.must_die, request.dead = not text, frozenset() if text else frozenset({"bad-retry"})
    if not text:
        return
    parts = dict(part.strip().split("=") for part in text.split(","))
    if returned.attempt > int(parts.get("attempts", 12)):
        request.must_die, request.dead = True, frozenset({"attempts-exhausted"})
        return
    hundredths = round(float(parts.get("factor", 2)) * 100)
    longest_ms, wait_ms = _length_ms(parts.get("max", "1h")), _length_ms(parts["base"])
    for _ in range(returned.attempt - 1):
        wait_ms = min(-((-wait_ms * hundredths) // 100), longest_ms)
    percent = int(parts.get("jitter", "0%")[:-1])
    origin = f"{request.part.topic}/{request.part.index}/{request.offset}".encode()
    request.delay_ms = wait_ms + wait_ms * percent * (crc32(origin) >> 16) // (100 * 65_536)


def policy_rows(records: Iterable[Record]) -> list[tuple[int, str, str]]:
    """Returns the rows of policies in a dispatch log, in the order of its records."""
    rows: list[tuple[int, str, str]] = []
    for record in records:
        try:
            returned = json.loads(record.value or b"")
        except ValueError:
            continue  # a foreign record
        if isinstance(returned, dict):
            is_newer = "policies" in returned or any(len(fate) == 4 for fate in returned["fates"])  # with a chosen time
            recurs = any(len(fate) > 5 or fate[2] in ("paused", "resumed", "triggered") for fate in returned["fates"])
            expected = 3 if recurs else 2 if is_newer else 1
            assert returned.get("v") == expected, (
                "only schedules need version 3, only policies and chosen times version 2"
            )
            rows += [(first, name, text) for first, name, text in returned.get("policies", [])]
    return rows


def longest_policy_ms(request: SimulatedRequest) -> int:
    """Returns the `max` of the policy in the header; 0 if the return names its policy."""
    returned = request.returned
    if returned is None or not returned.policy:
        return 0
    return _length_ms(dict(part.strip().split("=") for part in returned.policy.split(","))["max"])


def _length_ms(text: str) -> int:
    unit = text.lstrip("0123456789.")
    return round(float(text.removesuffix(unit)) * _UNIT_MS[unit])
