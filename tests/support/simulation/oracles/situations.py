"""The situations that the runs of a test must reach together: the situations that the protocol's models reach, and
their causes.

Each has a counter. If a counter is zero, the runs prove nothing about its situation, and the test fails.
"""

from __future__ import annotations

from typing import Final

from postdate.sidecar.failpoints import NAMES
from support.simulation.requests.volume import VOLUME
from support.simulation.runtime.patches import STORE_APPLIED
from support.simulation.themes import ADMIN, BAD_TARGET, BROKERS, DISKS, ENDS, STALLS, STAMPS

#: The situations that the models of the protocol reach -> their counters.
SITUATIONS: Final[dict[str, str]] = {
    "a process is killed": "kill",
    "power is lost, and with it what was not synced": "batches lost",
    "a disk is lost": "disk lost",
    "an old disk comes back": "old disk",
    "a process sleeps and wakes": "pause",
    "an owner is fenced": "fenced",
    "a successor's fence ends an open transaction": "transactions fenced",
    "the coordinator's time-out ends one": "transactions timeout",
    "a commit without an answer was carried out": "unknown outcome: committed",
    "a commit without an answer was not": "unknown outcome: not committed",
    "a delayed end decides a later transaction, or comes too late": "transactions late",
    "a producer is not used again": "recycled",
    "a stranger's open transaction hides fates from the last stable offset": "fates behind the last stable offset",
    "a fate ends an entry that is still held": "recovery: ends an entry",
    "a fate finds an entry that was moved meanwhile": "recovery: finds an entry that was moved",
    "a fate of a request that is not read yet is final": "mark final",
    "such a fate is `moved`": "mark moved",
    "such a fate is `stored`": "mark stored",
    "such fates add up": "mark stored and moved",
    "`moved` by a control that was read already": "recovery: moved by a control that was read",
    "`moved` by a control that was not read yet": "recovery: moved by a control that was not read",
    "`moved`, and moved again since": "recovery: moved again since",
    "`stored` by another owner": "recovery: stored by another",
    "a rebuild from the low-water mark": "started empty",
    "a rebuild takes entries from STORE": "entry read from STORE",
    "a rebuild is interrupted": STORE_APPLIED,
    "an entry lives in STORE alone": "in STORE alone",
    "a stored entry ends with its tombstone": "tombstone written",
    "STORE is compacted": "store compacted",
    "requests below the low-water mark are deleted": "requests deleted",
    "retention deletes requests or fates": "retention",
    "the gate holds a message that is due": "gate holds a due message",
    "a control wins although the message is overdue": "control won though overdue",
    "a message wins against its cancel": "verdict too-late",
    "a control finds nothing pending": "verdict not-found",
    "a control finds its message gone when it is carried out": "control: its message is gone",
    "a control is overtaken by another": "control: overtaken by another",
    "a cancel wins": "verdict cancelled",
    "a replacement wins": "verdict replaced",
    "a message is moved": "verdict rescheduled",
    "a backlog is passed by messages for other targets": "the second cursor takes a message",
    "a message that waited for the rate of its target leaves": "rate: leaves when its turn comes",
    "one waits for its rate where another owner left it": "rate: waits where another owner left it",
    "a request is kept, since its id is pending": "fate kept",
    "a request is dropped, since one of its id was delivered": "fate dropped",
    "a request continues a series": "fate replaced in a series",
    "a fate gives the start of a series before its request": "recovery: the start of a series before its survivor",
    "a return with a policy is redelivered": "return of the policy in its request delivered",
    "a return that names a policy is redelivered": "return of a named policy delivered",
    "a return comes after its last attempt": "return after its last attempt",
    "owners change a named policy while returns of it are pending": "policy changed while it is needed",
}

#: The situations that the runs of each theme must reach -> their counters.
THEME_SITUATIONS: Final[dict[str, dict[str, str]]] = {
    BROKERS: {
        "a broker freezes": "broker frozen",
        "a broker is killed": "broker killed",
        "a log is handed over to a broker with another clock": "leader moved",
        "a deposed leader answers with an end that is too low": "a deposed leader answers",
        "such an end opens the gate": "the gate opens by the answer of a deposed leader",
    },
    ADMIN: {"requests of admin clients fail, and nothing else": "admin path silent"},
    STALLS: {
        "a log has no leader for minutes": "leader gone for long",
        "a machine is suspended for minutes": "machine suspended",
    },
    STAMPS: {"a machine whose clock is hours ahead delivers": "fate delivered"},
    BAD_TARGET: {
        "a target refuses every record": "target refuses all",
        "a target refuses some records": "target refuses some",
        "a target takes few records a second": "target slow",
        "a target acknowledges nothing": "target takes nothing",
        "a target is deleted": "target deleted",
    },
    DISKS: {"the disk of a machine is full": "disk filled", "a write finds no space": "write found no space"},
    ENDS: {
        "an end that was copied is refused when it is sent again": "fault end-refused",
        "the copy decides a transaction": "transactions late",
    },
    VOLUME: {
        "a transaction ends 1,000 entries or more": "a record of 1,000 fates or more",
        "a transaction ends 5,000 entries or more": "a record of 5,000 fates or more",
        "a dispatch-log record is full": "a record of 9,990 fates or more",
        "key 0 holds 4,999 entries": "key 0 holds as many entries as it may",
        "key 0 holds 16 MiB": "key 0 holds as many bytes as it may",
        "a recovery reads more than 10,000 fates at once": "a recovery applies its fates in several pieces",
        "a rebuild reads more than 1,000 entries from STORE": "a rebuild reads STORE in several batches",
    },
}

#: Further situations.
EVENTS: Final = frozenset(
    {
        "requests",
        "I3 looked at",
        "order judged",
        "transactions commit",
        "transactions abort",
        "record owner",
        "record beat",
        *(f"fate {name}" for name in ("delivered", "dead", "cancelled", "replaced", "applied", "moved", "stored")),
        "verdict accepted",
        "stop",
        "cut",
        "power lost",
        "stranger",
        "id taken",
        "leader gone",
        "coordinator away",
        "outage",
        "time passed",
        "clock stepped",
        "clock drifts",
        "broker's clock stepped",
        "broker's clock stepped far",
        "wheel rebuilt",
        "fault end-copied",
        "fault answer-lost",
        "fault request-lost",
        "fault markers-late",
        "fault slow",
        "held over a takeover",
    }
)

#: Situations that operators cause.
HOLDS: Final = frozenset(f"{done} {what}" for done in ("held", "released") for what in ("delivery", "intake", "target"))

MUST_BE_REACHED: Final = frozenset(SITUATIONS.values()) | EVENTS | HOLDS | (NAMES - {"takeover.opened"})
