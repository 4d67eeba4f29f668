"""The cases of the audit's verdicts: one history in which every request is a separate case, with its judgement. Cases
that differ in one respect are neighbours, the correct one included, so a rule that always or never reports fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from postdate.spark.limits import COMMIT_MS_MAX
from support.audits.written_records import REQUESTS, Headers, RandomHistory

T = 1_795_258_284_000
DUE = T + 1_000
HOUR_MS = 3_600_000
SNAPSHOT = T + HOUR_MS
TO_ORDERS = ("postdate-topic", b"orders")


@dataclass(frozen=True)
class Expected:
    """The expected judgement of the case at an offset: its verdicts, and a word of the details."""

    offset: int
    verdicts: set[str]
    word: str = ""


class Cases(RandomHistory):
    """A history in which each case takes the next free offsets."""

    def __init__(self) -> None:
        super().__init__(T)
        self.expected: dict[str, Expected] = {}
        self.next = 0

    def case(self, name: str, verdicts: str, word: str = "", *, at: int = 0) -> int:
        """Returns the offset of a new case; the judged request is `at` offsets after it."""
        self.next += 10
        self.expected[name] = Expected(self.next + at, set(verdicts.split()), word)
        return self.next

    def schedule(self, offset: int, id: bytes, *more: tuple[str, bytes | None]) -> None:
        """Adds a request of that id, due a second later."""
        self.ask(offset, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", id), *more)

    def cancel(self, offset: int, id: bytes) -> None:
        self.ask(offset, ("postdate-action", b"cancel"), ("postdate-id", id))

    def give_back(
        self,
        offset: int,
        *more: tuple[str, bytes | None],
        policy: bytes = b"base=1s",
        headers: Headers | None = None,
    ) -> None:
        """Adds a return to `orders`; by default its first attempt is due a second later."""
        self.ask(offset, TO_ORDERS, ("postdate-retry", policy), *more, headers=headers)

    def reschedule(self, offset: int, id: bytes, delay: bytes, *more: tuple[str, bytes | None]) -> None:
        self.ask(offset, ("postdate-action", b"reschedule"), ("postdate-id", id), ("postdate-delay", delay), *more)


def redelivered(root: int, attempt: int = 1, *, first_due: int = DUE) -> Headers:
    """Returns the headers of a redelivery after its id."""
    origin = f"{REQUESTS}/0/{root}".encode()
    times = ("postdate-first-due", b"%d" % first_due)
    return [("postdate-attempt", b"%d" % attempt), ("postdate-first-origin", origin), times]


def _plain_cases(cases: Cases) -> None:
    o = cases.case("delivered", "delivered")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)

    o = cases.case("delivered whole", "delivered")
    odd: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None), ("traceparent", b"\xff\x00"), ("e", b"")]
    asked = [("postdate-at", b"2026-11-21T10:51:25Z"), ("postdate-id", b"x"), ("postdate-key", None)]
    cases.ask(o, TO_ORDERS, *asked, value=None, headers=odd)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, key=None, value=None, headers=odd, id=b"x", partition=3)

    o = cases.case("pending", "pending")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1h"))
    o = cases.case("pending within the slack", "pending")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"59m30s"))
    o = cases.case("missing", "missing", "no fate")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"58m59s"))
    o = cases.case("missing though malformed", "missing", "at once")
    cases.ask(o, ("postdate-topic", b"orders"))
    o = cases.case("moved far and pending", "pending")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"far"))
    cases.ask(o + 1, ("postdate-action", b"reschedule"), ("postdate-id", b"far"), ("postdate-delay", b"2h"))
    cases.commit([o, DUE, "moved", T + 2 * HOUR_MS, o + 1], [o + 1, 0, "applied"])
    o = cases.case("without its record", "missing contradiction", "no record on orders")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    o = cases.case("without its fate", "contradiction", "record without fate")
    cases.ask(o)
    cases.deliver(o)


def _repeated_cases(cases: Cases) -> None:
    o = cases.case("two records", "duplicate", "2 committed records")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    cases.deliver(o)
    o = cases.case("two fates", "duplicate", "2 final fates")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    o = cases.case("copied to another topic by a consumer", "delivered")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    cases.deliver(o, topic="retries")
    o = cases.case("two dead letters", "duplicate", "2 dead letters")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    cases.bury(o)
    cases.bury(o)
    o = cases.case("a fate of no request", "orphan", "fate delivered")
    cases.commit([o, DUE, "delivered"])
    o = cases.case("a record of no request", "orphan", "record orders/0/")
    cases.deliver(o)


def _timed_cases(cases: Cases) -> None:
    o = cases.case("on the millisecond", "delivered")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"], at_ms=DUE)
    cases.deliver(o)
    o = cases.case("early", "early", f"due {DUE}")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"], at_ms=DUE - 1)
    cases.deliver(o)
    o = cases.case("moved later, delivered at the first due", "early", "due")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"m"))
    cases.ask(o + 1, ("postdate-action", b"reschedule"), ("postdate-id", b"m"), ("postdate-delay", b"9s"))
    cases.commit([o, DUE, "moved", T + 9_000, o + 1], [o + 1, 0, "applied"])
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, due_ms=T + 9_000, id=b"m")
    o = cases.case("moved earlier", "delivered")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1h"))
    origin = f"{REQUESTS}/0/{o}".encode()
    cases.ask(o + 1, ("postdate-action", b"reschedule"), ("postdate-origin", origin), ("postdate-delay", b"1s"))
    cases.commit([o, T + HOUR_MS, "moved", DUE, o + 1], [o + 1, 0, "applied"], [o, T + HOUR_MS, "delivered"])
    cases.deliver(o, due_ms=DUE)
    o = cases.case("another first due", "mismatch", f"the request is {DUE}")
    cases.ask(o)
    cases.commit([o, DUE + 1, "delivered"])
    cases.deliver(o)
    o = cases.case("due in the past", "delivered")
    cases.ask(o, TO_ORDERS, ("postdate-at", b"5"))
    cases.commit([o, 5, "delivered"])
    cases.deliver(o, due_ms=5)
    o = cases.case("moved to what nobody asked", "contradiction", "does not ask for it")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"n"))
    cases.ask(o + 1, ("postdate-action", b"reschedule"), ("postdate-id", b"n"), ("postdate-delay", b"2s"))
    cases.commit([o, DUE, "moved", T + 1_500, o + 1], [o + 1, 0, "applied"], [o, DUE, "delivered"])
    cases.deliver(o, due_ms=T + 1_500, id=b"n")


def _changed_cases(cases: Cases) -> None:
    changes: dict[str, dict[str, Any]] = {
        "key": {"key": b"other"},
        "value": {"value": None},
        "headers": {"headers": [("a", None)]},
        "own headers": {"id": b"never given"},
        "own header due": {"due_ms": DUE + 1},
        "partition": {"partition": 1},
    }
    for what, change in changes.items():
        o = cases.case(f"another {what}", "mismatch", what.split()[0].replace("own", "own headers"))
        cases.ask(o, headers=[("a", b"")])
        cases.commit([o, DUE, "delivered"])
        cases.deliver(o, **({"headers": [("a", b"")]} | change))
    o = cases.case("headers in another order", "mismatch", "headers")
    cases.ask(o, headers=[("a", b"1"), ("b", b"2")])
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, headers=[("b", b"2"), ("a", b"1")])
    o = cases.case("the partition asked for", "delivered")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-partition", b"2"))
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, partition=2)
    o = cases.case("not the partition asked for", "mismatch", "partition")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-partition", b"2"))
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)


def _ended_cases(cases: Cases) -> None:
    o = cases.case("cancelled", "cancelled")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"c"))
    cases.ask(o + 1, ("postdate-action", b"cancel"), ("postdate-id", b"c"))
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    cases.expected["applied"] = Expected(o + 1, {"applied"})
    o = cases.case("cancelled by origin", "cancelled")
    cases.ask(o)
    cases.ask(o + 1, ("postdate-action", b"cancel"), ("postdate-origin", f"{REQUESTS}/0/{o}".encode()))
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    o = cases.case("cancelled by nobody", "contradiction", "no later request")
    cases.ask(o)
    cases.commit([o, DUE, "cancelled"])
    o = cases.case("cancelled by nobody whom we could have read", "cancelled")
    cases.ask(o)
    cases.commit([o, DUE, "cancelled"], next_request=10_001)
    o = cases.case("delivered although cancelled", "contradiction", "delivered although")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"d"))
    cases.ask(o + 1, ("postdate-action", b"cancel"), ("postdate-id", b"d"))
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    cases.deliver(o, id=b"d")
    o = cases.case("replaced", "replaced")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"r"))
    cases.ask(o + 1, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"r"))
    cases.commit([o, DUE, "replaced"], [o + 1, DUE, "delivered"])
    cases.deliver(o + 1, id=b"r")
    o = cases.case("replaced by nobody", "contradiction", "no later request")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", b"q"))
    cases.commit([o, DUE, "replaced"])
    o = cases.case("applied though it asks for a message", "mismatch", "fate applied")
    cases.ask(o)
    cases.commit([o, 0, "applied"])


def _dead_cases(cases: Cases) -> None:
    o = cases.case("refused", "dead")
    cases.ask(o, ("postdate-delay", b"soon"))
    cases.commit([o, 0, "dead"])
    cases.bury(o, ("postdate-delay", b"soon"), reason=b"bad-time")
    o = cases.case("undeliverable", "dead")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    cases.bury(o)
    o = cases.case("dead with another due", "mismatch", "first due")
    cases.ask(o)
    cases.commit([o, 7, "dead"])
    cases.bury(o)
    o = cases.case("too large for its value", "dead")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    cases.bury(o, value=None, reason=b"too-large")
    o = cases.case("unreadable headers", "dead")
    cases.ask(o)
    cases.commit([o, 0, "dead"])
    cases.bury(o, reason=b"bad-headers")
    dead_letter = list(cases.dead_letters[-1])
    dead_letter[7] = dead_letter[7][2:]  # type: ignore[index]
    cases.dead_letters[-1] = tuple(dead_letter)  # type: ignore[assignment]
    o = cases.case("another message in the dead letter", "mismatch", "dead letter differs")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    cases.bury(o, value=b"w")
    o = cases.case("an unknown reason", "mismatch", "no known reason")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    cases.bury(o, reason=b"because")
    o = cases.case("dead without a dead letter", "contradiction", "without a dead letter")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    o = cases.case("a dead letter of what was delivered", "contradiction", "dead letter although")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    cases.bury(o)
    o = cases.case("a dead letter without fate", "contradiction", "dead letter without fate")
    cases.ask(o)
    cases.bury(o)
    o = cases.case("delivered although dead", "contradiction", "delivered although dead")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    cases.bury(o)
    cases.deliver(o)


def _control_cases(cases: Cases) -> None:
    o = cases.case("cancelled by what was refused", "contradiction", "applied with it")
    cases.schedule(o, b"c1")
    cases.ask(o + 1, ("postdate-action", b"cancel"), ("postdate-id", b"c1"), ("postdate-topic", b"x"))
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "dead"])
    cases.bury(o + 1, ("postdate-action", b"cancel"), ("postdate-id", b"c1"), ("postdate-topic", b"x"))
    o = cases.case("cancelled apart from its cancel", "contradiction", "applied with it")
    cases.schedule(o, b"c2")
    cases.cancel(o + 1, b"c2")
    cases.commit([o, DUE, "cancelled"])
    cases.commit([o + 1, 0, "applied"])
    o = cases.case("cancelled by the cancel of another", "contradiction", "applied with it")
    cases.schedule(o, b"c3")
    cases.cancel(o + 1, b"other")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    o = cases.case("replaced by what was refused", "contradiction", "no later request")
    cases.schedule(o, b"r1")
    cases.ask(o + 1, TO_ORDERS, ("postdate-delay", b"soon"), ("postdate-id", b"r1"))
    cases.commit([o, DUE, "replaced"], [o + 1, 0, "dead"])
    cases.bury(o + 1, TO_ORDERS, ("postdate-delay", b"soon"), ("postdate-id", b"r1"))
    o = cases.case("replaced from another partition", "contradiction", "no later request")
    cases.schedule(o, b"r2")
    cases.ask(o + 1, TO_ORDERS, ("postdate-delay", b"9h"), ("postdate-id", b"r2"), partition=1)
    cases.commit([o, DUE, "replaced"])
    o = cases.case("moved by a cancel", "contradiction", "does not ask for it")
    cases.schedule(o, b"m1")
    cases.cancel(o + 1, b"m1")
    cases.commit([o, DUE, "moved", T + 1_500, o + 1], [o + 1, 0, "applied"], [o, DUE, "delivered"])
    cases.deliver(o, due_ms=T + 1_500, id=b"m1")
    o = cases.case("moved by the reschedule of another", "contradiction", "does not ask for it")
    cases.schedule(o, b"m2")
    cases.reschedule(o + 1, b"other", b"1500ms")
    cases.commit([o, DUE, "moved", T + 1_500, o + 1], [o + 1, 0, "applied"], [o, DUE, "delivered"])
    cases.deliver(o, due_ms=T + 1_500, id=b"m2")
    o = cases.case("moved apart from its reschedule", "contradiction", "does not ask for it")
    cases.schedule(o, b"m3")
    cases.reschedule(o + 1, b"m3", b"1500ms")
    cases.commit([o, DUE, "moved", T + 1_500, o + 1], [o, DUE, "delivered"])
    cases.commit([o + 1, 0, "applied"])
    cases.deliver(o, due_ms=T + 1_500, id=b"m3")
    o = cases.case("a control with two fates", "duplicate", "2 final fates: applied (postdate.requests.dispatch-log/0/")
    cases.cancel(o, b"nobody")
    cases.commit([o, 0, "applied"])
    cases.commit([o, 0, "applied"])
    o = cases.case("a reschedule without fate, far as its new time is", "missing", "no fate")
    cases.reschedule(o, b"nobody", b"9h")
    o = cases.case("a control that was held", "mismatch", "fate delivered of a request to cancel")
    cases.cancel(o, b"nobody")
    cases.commit([o, 0, "delivered"])
    cases.expected["a control that was held"] = Expected(o, {"mismatch", "not-selected"}, "request to cancel")


def _grace_cases(cases: Cases) -> None:
    half, whole = ("postdate-grace", b"500ms"), ("postdate-grace", b"1s")
    for name, grace, verdict in (("after", half, "dead"), ("at the end of", whole, "contradiction")):
        o = cases.case(f"expired {name} its grace", verdict, "" if verdict == "dead" else "its grace ends at")
        asked = TO_ORDERS, ("postdate-delay", b"1s"), grace
        cases.ask(o, *asked)
        cases.commit([o, DUE, "dead"])
        cases.bury(o, *asked, reason=b"expired")
    o = cases.case("expired without a grace", "contradiction", "it has no grace")
    cases.ask(o)
    cases.commit([o, DUE, "dead"])
    cases.bury(o, reason=b"expired")
    o = cases.case("expired at ingest", "contradiction", "expired at")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), half)
    cases.commit([o, 0, "dead"])
    cases.bury(o, TO_ORDERS, ("postdate-delay", b"1s"), half, reason=b"expired")
    for name, given, verdict in (("sooner", half, "dead"), ("later", ("postdate-grace", b"1h"), "contradiction")):
        o = cases.case(f"expired by the grace of a reschedule, {name}", verdict)
        id = f"g-{name}".encode()
        first = (TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", id), whole)
        cases.ask(o, *first)
        cases.reschedule(o + 1, id, b"1s", given)
        cases.commit([o, DUE, "moved", DUE, o + 1], [o + 1, 0, "applied"], [o, DUE, "dead"])
        cases.bury(o, *first, reason=b"expired")


def _late_cases(cases: Cases) -> None:
    grace = (TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-grace", b"500ms"))
    for name, late_ms, verdict in (("within", COMMIT_MS_MAX, "delivered"), ("past", COMMIT_MS_MAX + 1, "past-grace")):
        o = cases.case(f"delivered {name} its grace", verdict, "" if verdict == "delivered" else "grace of 500 ms")
        cases.ask(o, *grace)
        cases.commit([o, DUE, "delivered"], at_ms=DUE + 500 + late_ms)
        cases.deliver(o)
    for name, given, verdict in (("longer", b"1m", "delivered"), ("shorter", b"1ms", "past-grace")):
        o = cases.case(f"delivered by a {name} grace of a reschedule", verdict)
        id = f"late-{name}".encode()
        cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", id), ("postdate-grace", b"500ms"))
        cases.reschedule(o + 1, id, b"1s", ("postdate-grace", given))
        fates = [[o, DUE, "moved", DUE, o + 1], [o + 1, 0, "applied"], [o, DUE, "delivered"]]
        cases.commit(*fates, at_ms=DUE + 11_000)
        cases.deliver(o, id=id)


def _refusal_cases(cases: Cases) -> None:
    delay, sound = ("postdate-delay", b"1s"), (TO_ORDERS, ("postdate-delay", b"1s"))
    elsewhere = ("postdate-origin", f"{REQUESTS}/1/5".encode())
    refused: dict[str, list[tuple[tuple[str, bytes | None], ...]]] = {
        "missing-target": [(delay,)],
        "missing-time": [(TO_ORDERS,)],
        "conflicting-time": [
            *(
                (*sound, one)
                for one in (("postdate-at", b"5"), ("postdate-cron", b"0 9 * * *"), ("postdate-zone", b"UTC"))
            ),
        ],
        "bad-time": [(TO_ORDERS, ("postdate-delay", b"soon")), (*sound, ("postdate-grace", b"soon"))],
        "bad-id": [
            *((*sound, ("postdate-id", bad)) for bad in (b"", None, b"x" * 257, b"\xff")),
            (("postdate-action", b"cancel"), elsewhere),
        ],
        "unknown-header": [(*sound, ("Postdate-Delay", b"1s"))],
        "duplicate-header": [(TO_ORDERS, *sound)],
    }
    good = (*sound, ("postdate-id", "\u00e9".encode()), ("postdate-grace", b"1s"), ("postdate-due", b"copied"))
    for reason, requests in refused.items():
        for number, asked in enumerate((*requests, good)):
            is_good = number == len(requests)
            o = cases.case(f"{reason} {number}", "false-refusal" if is_good else "dead", reason if is_good else "")
            cases.ask(o, *asked)
            cases.commit([o, 0, "dead"])
            cases.bury(o, *asked, reason=reason.encode())


def _return_cases(cases: Cases) -> None:
    for error in ([], [b"boom"], [b"first", b"last"], [None]):
        o = cases.case(f"returned with {error}", "delivered")
        errors = [("postdate-error", one) for one in error]
        cases.give_back(o, *errors)
        cases.commit([o, DUE, "delivered"])
        cases.deliver(o, behind=[*redelivered(o), *errors[-1:]])
    o = cases.case("returned with its id", "delivered")
    cases.give_back(o, ("postdate-id", b"ret"), headers=[("a", b"1")])
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, id=b"ret", behind=redelivered(o), headers=[("a", b"1")])
    forged: dict[str, tuple[str, Headers]] = {
        "attempt": ("the retry headers", redelivered(10, attempt=2)),
        "root": ("the retry headers", redelivered(11)),
        "first due time": ("the retry headers", redelivered(10, first_due=DUE + 1)),
        "error": ("the retry headers", [*redelivered(10), ("postdate-error", b"other")]),
        "error twice": ("own headers", [*redelivered(10), *[("postdate-error", b"boom")] * 2]),
        "policy": ("own headers", [*redelivered(10), ("postdate-error", b"boom"), ("postdate-retry", b"base=1s")]),
        "nothing": ("own headers", []),
    }
    for what, (word, behind) in forged.items():
        o = cases.case(f"returned, redelivered with a forged {what}", "mismatch", word)
        own = [
            (name, b"%s/0/%d" % (REQUESTS.encode(), o + 10 * (what == "root")) if "origin" in name else value)
            for name, value in behind
        ]
        cases.give_back(o, ("postdate-error", b"boom"))
        cases.commit([o, DUE, "delivered"])
        cases.deliver(o, behind=own + [("postdate-error", b"boom")] * (len(own) == 3))
    o = cases.case("a return redelivered early", "early", f"due {DUE}")
    cases.give_back(o)
    cases.commit([o, DUE, "delivered"], at_ms=DUE - 1)
    cases.deliver(o, behind=redelivered(o))
    o = cases.case("a return redelivered twice", "duplicate", "2 committed records")
    cases.give_back(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, behind=redelivered(o))
    cases.deliver(o, behind=redelivered(o))
    o = cases.case("a return without its redelivery", "missing contradiction", "no record on orders")
    cases.give_back(o)
    cases.commit([o, DUE, "delivered"])
    o = cases.case("a return without a fate", "missing", "no fate")
    cases.give_back(o)
    o = cases.case("a return that waits", "pending")
    cases.give_back(o, policy=b"base=2h,max=2h")
    o = cases.case("retry headers without a policy", "delivered")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-attempt", b"?"), ("postdate-error", b"old"))
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    o = cases.case("cancelled by the id of a return", "contradiction", "no later request")
    cases.give_back(o, ("postdate-id", b"ret-2"))
    cases.cancel(o + 1, b"ret-2")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    o = cases.case("replaced by a return", "contradiction", "no later request")
    cases.schedule(o, b"ret-3")
    cases.give_back(o + 1, ("postdate-id", b"ret-3"))
    cases.commit([o, DUE, "replaced"], [o + 1, DUE, "delivered"])
    cases.deliver(o + 1, id=b"ret-3", behind=redelivered(o + 1))


def _chain_cases(cases: Cases) -> None:
    """Adds cases with a parent at their offset and a return at the next offset."""
    parent_attempts = {"a message": 0, "a return": 1}
    for what, attempt in parent_attempts.items():
        for said, verdict in ((attempt, "delivered"), (attempt + 1, "contradiction"), (None, "delivered")):
            word = f"which was delivered as attempt {attempt}" if verdict == "contradiction" else ""
            o = cases.case(f"a return of {what} that says {said}", verdict, word, at=1)
            _parent(cases, o, attempt)
            headers = [("postdate-attempt", b"%d" % said)] if said else []
            if said == 0:
                headers = [("postdate-attempt", b"0")]
            cases.give_back(o + 1, *_left(o, o), *headers, policy=b"base=1s,factor=1")
            cases.commit([o + 1, DUE, "delivered"])
            cases.deliver(o + 1, behind=redelivered(o, (said or 0) + 1))
    o = cases.case("a message returned twice", "delivered", at=2)
    _parent(cases, o, 0)
    for offset in (o + 1, o + 2):
        cases.give_back(offset, *_left(o, o))
        cases.commit([offset, DUE, "delivered"])
        cases.deliver(offset, behind=redelivered(o))
    o = cases.case("a return of what nobody read", "delivered")
    cases.give_back(o, *_left(9_999_999, o), ("postdate-attempt", b"7"), policy=b"base=1s,factor=1")
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, behind=redelivered(o, 8))
    o = cases.case("the third attempt before its backoff", "early", f"due {T + 4_000}")
    cases.give_back(o, *_left(o + 100_000, o), ("postdate-attempt", b"2"))
    cases.commit([o, T + 4_000, "delivered"], at_ms=T + 3_999)
    cases.deliver(o, due_ms=T + 4_000, behind=redelivered(o, 3))


def _left(parent: int, root: int) -> Headers:
    """Returns the headers that the delivery of `parent` leaves on a return."""
    named = b"%s/0/%d" % (REQUESTS.encode(), parent)
    first = ("postdate-first-origin", b"%s/0/%d" % (REQUESTS.encode(), root))
    return [("postdate-origin", named), ("postdate-due", b"5"), first, ("postdate-first-due", b"%d" % DUE)]


def _parent(cases: Cases, offset: int, attempt: int) -> None:
    if attempt:
        cases.give_back(offset)
        cases.deliver(offset, behind=redelivered(offset))
    else:
        cases.ask(offset)
        cases.deliver(offset)
    cases.commit([offset, DUE, "delivered"])


def _refused_return_cases(cases: Cases) -> None:
    retry = ("postdate-retry", b"base=1s")
    sound = (TO_ORDERS, retry)
    policies = (
        b"",
        b"factor=2",
        b"base=0s",
        b"base=1s,factor=0.5",
        b"base=2h",
        b"base=1s,attempts=0",
        b"base=1s,base=1s",
    )
    refused: dict[str, list[tuple[tuple[str, bytes | None], ...]]] = {
        "bad-retry": [
            *((TO_ORDERS, ("postdate-retry", policy)) for policy in (*policies, None, b"base=1s,jitter=20", b"a b")),
            (*sound, ("postdate-attempt", b"one")),
            (*sound, ("postdate-first-origin", b"R/0")),
            (*sound, ("postdate-first-due", b"soon")),
            (*sound, ("postdate-origin", b"R")),
        ],
        "attempts-exhausted": [
            (*sound, ("postdate-attempt", b"12")),
            (TO_ORDERS, ("postdate-retry", b"base=1s,attempts=1"), ("postdate-attempt", b"9223372036854775807")),
        ],
        "conflicting-time": [(*sound, ("postdate-delay", b"1s")), (*sound, ("postdate-every", b"1h"))],
        "duplicate-header": [
            (*sound, retry),
            *((*sound, one, one) for one in (("postdate-attempt", b"1"), ("postdate-origin", b"R/0/1"))),
        ],
        "unknown-header": [sound],
    }
    good = (*sound, ("postdate-attempt", b"11"), ("postdate-error", b"a"), ("postdate-error", b"b"))
    for reason, requests in refused.items():
        for number, asked in enumerate((*requests, good)):
            is_good = number == len(requests) and reason != "unknown-header"
            o = cases.case(f"return {reason} {number}", "false-refusal" if is_good else "dead", reason * is_good)
            cases.ask(o, *asked)
            cases.commit([o, 0, "dead"])
            cases.bury(o, *asked, reason=reason.encode())
    o = cases.case("a max above the horizon", "dead")
    cases.ask(o, *sound)
    cases.commit([o, 0, "dead"])
    cases.bury(o, *sound, reason=b"bad-retry", detail=b"has a max of 1h, above the horizon of 30m")
    o = cases.case("delivered though exhausted", "mismatch", "without a due time")
    asked = (*sound, ("postdate-attempt", b"12"))
    cases.ask(o, *asked)
    cases.commit([o, T + HOUR_MS, "delivered"], at_ms=T + HOUR_MS)
    cases.deliver(o, due_ms=T + HOUR_MS, behind=redelivered(o, 13, first_due=T + HOUR_MS))


def _policy_cases(cases: Cases) -> None:
    """Adds cases of named policies. At the offset `o` of the first case, `slow` changes and `gone` is removed."""
    o = cases.case("a named policy", "delivered")
    rows = [[0, "slow", "base=9s"], [o, "slow", "base=1s"], [0, "gone", "base=1s"], [o, "gone", ""]]
    named = {"slow": (DUE, b" slow "), "gone": (DUE, b"gone"), "never": (T + 7_000, b"never")}
    cases.give_back(o, policy=b" slow ")
    cases.commit([o, DUE, "delivered"], v=2, policies=rows)
    cases.deliver(o, behind=redelivered(o))
    o = cases.case("a named policy of an earlier request", "mismatch", f"the request is {DUE}")
    cases.give_back(o, policy=b"slow")
    cases.commit([o, T + 9_000, "delivered"], at_ms=T + 9_000)
    cases.deliver(o, due_ms=T + 9_000, behind=redelivered(o, first_due=T + 9_000))
    for name, verdict in (("slow", "false-refusal"), ("gone", "dead"), ("never", "dead")):
        o = cases.case(f"refused with the policy {name}", verdict)
        asked = (TO_ORDERS, ("postdate-retry", name.encode()))
        cases.ask(o, *asked)
        cases.commit([o, 0, "dead"])
        cases.bury(o, *asked, reason=b"bad-retry")
    for name, verdict in (("gone", "mismatch"), ("never", "policy-unknown")):
        o = cases.case(f"delivered with the policy {name}", verdict, name if name == "never" else "without a due time")
        due_ms, policy = named[name]
        cases.give_back(o, policy=policy)
        cases.commit([o, due_ms, "delivered"], at_ms=due_ms)
        cases.deliver(o, due_ms=due_ms, behind=redelivered(o, first_due=due_ms))
    o = cases.case("early with an unknown policy", "policy-unknown early", f"due {T + 7_000}")
    cases.give_back(o, policy=b"never")
    cases.commit([o, T + 7_000, "delivered"], at_ms=T + 6_999)
    cases.deliver(o, due_ms=T + 7_000, behind=redelivered(o, first_due=T + 7_000))
    o = cases.case("no fate with an unknown policy", "policy-unknown")
    cases.give_back(o, policy=b"never")


def all_cases() -> Cases:
    cases = Cases()
    parts = (_plain_cases, _repeated_cases, _timed_cases, _changed_cases, _ended_cases, _dead_cases)
    returns = (_return_cases, _chain_cases, _refused_return_cases, _policy_cases)
    for part in (*parts, _control_cases, _grace_cases, _late_cases, _refusal_cases, *returns):
        part(cases)
    return cases
