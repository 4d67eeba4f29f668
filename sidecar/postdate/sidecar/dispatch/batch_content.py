"""The content of one transaction while `batch` builds it: plain lists, without rules.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from postdate.sidecar.dispatch.decisions import Decision
from postdate.sidecar.dispatch.due.own_topics_filter import due_order_of, note_first
from postdate.sidecar.dispatch.targets.targets import Target
from postdate.sidecar.transaction.transaction import OutgoingRecord
from postdate.wheel.entry import Entry
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES
from postdate.wire.dispatch_log import BulkProgress, Fate, IdRow
from postdate.wire.limits import INTEGER_END


@dataclass(slots=True)
class Batch:
    """A transaction under construction. `runs`: the keys of the unparked entries that end, or are parked because of a
    rate, in key order; a new run begins after each entry that stays. `sizes`: the sizes of their values. `unparked`:
    the keys of the parked entries that end, with the sizes of their values."""

    now_ms: int = 0
    until_ms: int = 0  # entries that are due later are held back
    surplus_max: int = 0  # the most missed occurrences, without the first of each schedule
    surplus_bytes_left: int = 0  # how many bytes further missed occurrences may add
    surplus: int = 0  # fates beyond the first of each schedule
    messages: list[OutgoingRecord] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    runs: list[list[bytes]] = field(default_factory=lambda: [[]])
    sizes: list[list[int]] = field(default_factory=lambda: [[]])
    linked: list[tuple[bytes, Entry, str]] = field(
        default_factory=list
    )  # ended entries with an id, a place or a STORE record: key, entry, fate
    stored: list[tuple[bytes, int, Entry]] = field(default_factory=list)
    """Entries that this transaction writes to STORE and that stay pending: key, size of the value, the entry before."""
    stored_late: dict[str, bytes] = field(default_factory=dict)
    """For each target, the place (due time and offset) of the first entry in `stored` that is already due."""
    unstored: set[int] = field(default_factory=set)  # requests too large for STORE, now dead letters
    unparked: list[tuple[bytes, int]] = field(default_factory=list)
    recurred: list[tuple[bytes, int, Entry, Entry]] = field(default_factory=list)
    """Continued schedules: key, size of the value, the entry before and after."""
    kept: set[bytes] = field(default_factory=set)  # keys in `runs` and `unparked` whose entries are stored
    rewritten: set[int] = field(default_factory=set)  # requests changed by a control, with a rewritten STORE record
    park: list[tuple[bytes, Entry]] = field(default_factory=list)  # entries to park before the transaction
    over: list[tuple[bytes, bytes, Entry]] = field(default_factory=list)  # key, value, entry: over the target's rate
    rated: dict[str, int] = field(default_factory=dict)  # messages for each target that has a rate
    unknown: dict[str, list[tuple[bytes, Entry]]] = field(default_factory=dict)
    """Topics that must be looked up, for the first time or again, with the unparked entries that wait for them."""
    ids: list[IdRow] = field(default_factory=list)  # ids of delivered messages that are remembered
    due_max_ms: int = 0
    grace_end_ms: int = INTEGER_END  # the earliest end of grace of a delivered message
    dues_ms: list[int] = field(default_factory=list)  # the time from which each delivered message could have left
    dead: list[str] = field(default_factory=list)  # the reason of each dead letter
    moved: list[tuple[bytes, Entry, Entry]] = field(default_factory=list)  # by a bulk control: key, before, after
    swept: int = 0  # entries on which the bulk control in force acts in this transaction
    bulk: BulkProgress | None = None  # the fate of that control in this transaction
    stayed: int = 0
    skipped_own: bool = False  # a message stayed because it writes to an isolated topic of Postdate
    targets: dict[str, int] = field(default_factory=dict)  # partitions of each target in this transaction
    ready: dict[str, Target] = field(default_factory=dict)  # targets that accept every message that is not special
    filled: dict[str, int] = field(default_factory=dict)  # bytes for each target that accepts only small batches

    def gone(self) -> set[bytes]:
        """Returns the keys of unparked entries that end, are parked because of a rate, or move to their next
        occurrence. Parked schedules that continue are included. O(entries)."""
        return {key for run in self.runs for key in run}.union(row[0] for row in self.recurred)

    def store(self, key: bytes, size_bytes: int, entry: Entry) -> None:
        """Notes that the transaction writes an entry of this encoded size to STORE. The entry stays pending."""
        self.stored.append((key, size_bytes, entry))
        if entry.due <= self.until_ms:
            note_first(self.stored_late, entry.target, due_order_of(key, entry))
        self.cut()

    def skip(self) -> None:
        """Leaves an entry where it is, and ends the current run."""
        self.stayed += 1
        self.cut()

    def postpone(self, key: bytes, raw: bytes, entry: Entry, decision: Decision) -> None:
        """Carries out the decision about an entry that does not end now. A parked entry stays parked."""
        is_parked = len(key) > ENTRY_KEY_SIZE_BYTES
        if decision is Decision.DEFER:
            rows = self.unknown.setdefault(entry.target, [])
            if not is_parked:
                rows.append((key, entry))
        elif decision is Decision.PARK and not is_parked:
            self.park.append((key, entry))
        if decision is not Decision.PARK_FOR_RATE or is_parked:
            self.skip()
            return
        self.over.append((key, raw, entry))
        self.runs[-1].append(key)
        self.sizes[-1].append(len(raw))
        if entry.stored:
            self.kept.add(key)

    def cut(self) -> None:
        """Ends the current run, because an entry that stays follows it."""
        if self.runs[-1]:
            self.runs.append([])
            self.sizes.append([])
