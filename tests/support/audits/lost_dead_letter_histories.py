"""Random histories of one schedule without violations, read by several audits that see only parts of them.

Owners with and without the zone rules of the audit publish the times of the schedule. The target is sometimes away,
triggers and backfills add deliveries, and messages become dead letters. An audit may miss the first fates of the log
and the first dead letters. Each run reads the log up to some offset. Fates between it and a second offset are late. An
open transaction hides the last dead letters.

The generator computes times by arithmetic, and shares no code with the audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from postdate.spark.rules.schedules.schedule_events import (
    DeadOccurrence,
    DeliveredOccurrence,
    Fate,
    Judgement,
    Position,
    Trigger,
    ZoneVersions,
)
from support.audits.schedule_judgements import BERLIN, DIGESTS, NEVER_MS, NIGHT, OWN, Case

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
_VERSIONS = {True: "2026f", False: "2025a"}


def after(ms: int, *, has_winter: bool) -> int:
    """Returns the next time of BERLIN, by rules with or without winter time. Winter time begins after day 1, and
    day 0 begins at NIGHT."""
    days = range((ms - NIGHT) // DAY_MS - 1, (ms - NIGHT) // DAY_MS + 3)
    return min(found for day in days if (found := NIGHT + day * DAY_MS + HOUR_MS * (has_winter and day > 1)) > ms)


@dataclass
class LostDeadLetterHistory:
    """A random history. `nominal_ms` has the nominal time of each occurrence, by its number.

    Each entry of `log` has one fate, and its offset is its index + 1.
    """

    chance: Random
    request_ms: int = 0
    nominal_ms: dict[int, int] = field(default_factory=dict)
    log: list[tuple[int, Fate | Trigger | None]] = field(default_factory=list)
    """The time of each record, and its fate; None: `stored`."""
    zones: list[tuple[int, str]] = field(default_factory=list)
    dead_letters: list[DeadOccurrence] = field(default_factory=list)
    """The offset of each dead letter is that of its fate."""

    def __post_init__(self) -> None:
        """Fills the history."""
        chance = self.chance
        self.request_ms = NIGHT + chance.randint(-1, 2) * DAY_MS - chance.choice([1, 5 * HOUR_MS])
        has_winter, self._dying = chance.random() < 0.5, chance.choice([0.3, 0.6, 0.9])
        self.zones = [(0, _VERSIONS[has_winter])]
        self._pending: list[Trigger] = []
        due_ms = after(self.request_ms, has_winter=has_winter)
        self._commit(self.request_ms + 1, None)
        for number in range(1, chance.randint(2, 7)):
            self.nominal_ms[number] = due_ms
            at_ms = max(due_ms + chance.choice([5, 5, 2 * HOUR_MS, 30 * HOUR_MS]), self.log[-1][0])
            if self._pending and chance.random() < 0.5:
                self._deliver_extras(has_winter)
            if chance.random() < 0.3:
                has_winter = not has_winter
                self.zones.append((len(self.log) + 1, _VERSIONS[has_winter]))
            next_ms = after(due_ms, has_winter=has_winter)
            self._end(Fate(number, number, None, due_ms, next_ms, 0, 0, at_ms, False))
            due_ms = next_ms
            if chance.random() < 0.4:
                self._ask_for_extras(number, has_winter)
        self._deliver_extras(has_winter)

    def _commit(self, at_ms: int, fate: Fate | Trigger | None) -> None:
        at_ms = max(at_ms, self.log[-1][0] + 1 if self.log else 0)
        if fate is not None:
            fate = fate._replace(log_offset=len(self.log) + 1)
        self.log.append((at_ms, fate._replace(at_ms=at_ms) if isinstance(fate, Fate) else fate))

    def _end(self, fate: Fate) -> None:
        """Commits the fate of a message that is delivered or becomes a dead letter. The log does not name the time of a
        dead occurrence."""
        is_dead = self.chance.random() < self._dying
        named = fate._replace(reason="dead", nominal_ms=0 if fate.control < 0 else fate.nominal_ms) if is_dead else fate
        self._commit(fate.at_ms, named)
        if is_dead:
            self.dead_letters.append(DeadOccurrence(fate.nominal_ms, True, offset=len(self.log)))

    def _ask_for_extras(self, number: int, has_winter: bool) -> None:
        """Commits a trigger, or a backfill of the last times."""
        at_ms, times_ms = self.log[-1][0] + self.chance.choice([7, HOUR_MS // 2]), None
        if self.chance.random() < 0.6:
            last_ms = self.nominal_ms[number]
            times_ms = after(last_ms - self.chance.randint(0, 2) * DAY_MS - 1, has_winter=has_winter), last_ms
        if times_ms is None or times_ms[0] <= times_ms[1]:
            self._commit(at_ms + 1, Trigger(30 + len(self.log), at_ms, 0, 0, *(times_ms or ())))
            trigger = self.log[-1][1]
            assert isinstance(trigger, Trigger)
            self._pending.append(trigger)

    def _deliver_extras(self, has_winter: bool) -> None:
        for trigger in self._pending:
            number, due_ms, until_ms = 1, trigger.first_ms, trigger.until_ms or 0
            while due_ms:
                following_ms = after(due_ms, has_winter=has_winter)
                next_ms = following_ms if following_ms <= until_ms else 0
                self._end(Fate(number, number, None, due_ms, next_ms, 0, 0, self.log[-1][0], False, trigger.control))
                number, due_ms = number + 1, next_ms
        self._pending = []

    def record(self, fate: Fate) -> DeliveredOccurrence:
        """Returns the record of a delivery."""
        own = OWN.replace("occurrence", "extra") if fate.control >= 0 else f"{OWN},postdate-next"
        place = "orders", 3, fate.log_offset, fate.nominal_ms, None if fate.control >= 0 else fate.next_ms
        return DeliveredOccurrence(fate.number, *place, b"id", own, DIGESTS, fate.control)

    def audited(self, runs: int) -> Iterator[Judgement]:
        """Yields the judgements of these runs. The last run reads the rest."""
        chance, size, run = self.chance, len(self.log), _AuditView(self)
        for left in reversed(range(runs)):
            if chance.random() < 0.6:
                run.lost = chance.randint(run.lost, size)
            if chance.random() < 0.35:
                run.dead_letters_lost = chance.randint(run.dead_letters_lost, size)
            run.read(
                cut := chance.randint(max(run.cut, run.lost), size) if left else size,
                late := chance.randint(max(cut, run.late), size),
                chance.choice([max(late, run.buried), chance.randint(run.buried, size)]) if left else size,
            )
            yield run.judgement


class _AuditView:
    """The part of a history that the last run has read.

    The run has read fates up to `cut`, late fates from there up to `late`, and dead letters up to `buried`. The log has
    lost its fates up to `lost`, the topic its dead letters up to `dead_letters_lost`. All of these are offsets.
    """

    def __init__(self, history: LostDeadLetterHistory) -> None:
        self._history = history
        self.cut = self.late = self.buried = self.lost = self.dead_letters_lost = 0
        self.judgement = Judgement(Position(), Position().figures, [], 0, [])
        self._case = Case(request={"times": BERLIN, "request_ms": history.request_ms}, stored=None)
        self._first_zone: list[tuple[int, str]] = []

    def _at_ms(self, offset: int, otherwise: int = NEVER_MS) -> int:
        log = self._history.log
        return log[offset - 1][0] if 0 < offset <= len(log) else otherwise

    def read(self, cut: int, late: int, buried: int) -> None:
        history, first, kept = self._history, max(self.cut, self.lost), max(self.buried, self.dead_letters_lost)
        fates = [fate for _, fate in history.log if isinstance(fate, Fate)]
        read = [fate._replace(late=fate.log_offset > cut) for fate in fates if first < fate.log_offset <= late]
        records = [history.record(f) for f in fates if f.reason is None and self.late < f.log_offset <= late]
        extending = [fate for _, fate in history.log if isinstance(fate, Trigger)]
        triggers = [*self._case.triggers, *(fate for fate in extending if first < fate.log_offset <= cut)]
        hidden = [dead_letter.offset for dead_letter in history.dead_letters if dead_letter.offset > buried]
        seen = [dead_letter for dead_letter in history.dead_letters if kept < dead_letter.offset <= buried]
        left = [
            dead_letter.offset for dead_letter in history.dead_letters if dead_letter.offset > self.dead_letters_lost
        ]
        lost_ms = self._at_ms(self.lost + 1) if self.lost else -1
        is_stored = self._case.stored is not None or first == 0 < cut
        zones = [(offset, zone) for offset, zone in history.zones if first < offset <= late or first == offset == 0]
        before = [(0, zone) for offset, zone in history.zones if offset <= first][-1:] if self._first_zone else []
        case = self._case = Case(
            read, records, [*(self.judgement.dead_letters or ()), *seen], triggers=triggers,
            lost_controls=[fate.control for fate in extending if fate not in triggers and fate.at_ms < lost_ms],
            stored=(history.nominal_ms[1], 1) if is_stored else None,
            request=self._case.request, known=self.judgement.position,
            zones=ZoneVersions("2026f", *zip(*(before + zones), strict=True)),
            bounds={
                "overdue_before_ms": 0, "fates_lost_before_ms": lost_ms, "log_capped": buried > late,
                "letters_lost_before_ms": self._at_ms((left or [0])[0]) if self.dead_letters_lost else -1,
                "letters_capped_from_ms": self._at_ms(hidden[0]) if hidden and hidden[0] <= late else NEVER_MS,
            },
        )  # fmt: skip
        self.judgement, self._first_zone = case.judged(), [*before, *zones]
        self.cut, self.late, self.buried = cut, late, buried
