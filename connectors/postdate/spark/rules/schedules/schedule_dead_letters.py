"""Judges the dead letters of a schedule: each occurrence or extra delivery that was skipped as dead must have one, and
there must be no others.

A dead letter names a time and not its fate, and several fates may have the same time. So dead letters are matched with
fates last, once all fates are known. Behind lost fates, the time of a dead occurrence may be unknown: only its dead
letter names the time, which may be any time in a range. The fate of such an occurrence is *untimed*.

- A dead letter is *gone* if retention may have deleted it, and *hidden* if an open transaction may hide it.
- Dead letters are read further than the dispatch log, so a dead letter may be ahead of its fate. The next run reads
  such a dead letter again.
- A dead letter that no fate has used is *surplus*. Its fate may be lost.

A time is *open* if dead letters or fates of that time may still come. Dead letters of open times wait, and so do fates
whose apparent dead letter may belong to another fate. The content of dead letters is judged at once.

Pure Python without Spark.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from postdate.spark.limits import COMMIT_MS_MAX
from postdate.spark.rules.schedules.schedule_events import Bounds, DeadOccurrence, Fate, RowFacts, in_log
from postdate.spark.rules.schedules.schedule_findings import Findings
from postdate.spark.rules.schedules.schedule_holes import Holes

_NEVER_MS: Final = 2**63 - 1


class _Claim(NamedTuple):
    """A fate `dead`, the findings to which it belongs, the list `waiting` to which it is added if its dead letter may
    still come, and the judge of an untimed fate. `is_gone` is True if the dead letter may be gone."""

    fate: Fate
    findings: Findings
    waiting: list[Fate]
    judge_time: Callable[[Fate, int], None] | None
    is_gone: bool

    @property
    def times_ms(self) -> tuple[int, int]:
        """The first and the last possible time of its dead letter."""
        fate = self.fate
        return (fate.first_ms, fate.last_ms) if fate.first_ms else (fate.nominal_ms, fate.nominal_ms)


class DeadOccurrences:
    """The dead letters that no fate has used yet, by their nominal times.

    Call `expect` and `claim` for all fates, then `settle`, then `judge_rest`. Cost: a sort of the dead letters and
    fates.
    """

    def __init__(self, facts: RowFacts, bounds: Bounds, holes: Holes) -> None:
        self._facts, self._bounds, self._holes = facts, bounds, holes
        self._unused: dict[int, list[DeadOccurrence]] = {}
        for dead_letter in reversed(facts.dead_letters):
            self._unused.setdefault(dead_letter.due_ms, []).append(dead_letter)
        self._hidden: list[_Claim] = []
        self._timed: list[_Claim] = []
        self._untimed: list[_Claim] = []
        self._open: list[tuple[int, int]] = []
        self._later: list[tuple[int, int]] = []
        self._can_be_later: Callable[[int], bool] = lambda _: False
        self._guesses: list[tuple[int, int]] = []  # first possible time of a fate, time of its dead letter

    def expect(self, first_ms: int, last_ms: int) -> None:
        """Makes the dead letters of these times wait, since a later run may read their fates."""
        self._open.append((first_ms, last_ms))

    def expect_later(self, first_ms: int, can_be: Callable[[int], bool]) -> None:
        """Makes the dead letters from `first_ms` on wait for later occurrences, whose times `can_be` accepts.

        Dead letters whose times `can_be` does not accept may belong to a later trigger, so they also wait. But no fate
        waits because of them.
        """
        self._later, self._can_be_later = [(first_ms, _NEVER_MS)], lambda ms: ms >= first_ms and can_be(ms)

    def claim(
        self,
        fate: Fate,
        findings: Findings,
        waiting: list[Fate],
        judge_time: Callable[[Fate, int], None] | None = None,
    ) -> None:
        """Records a fate `dead`, which `settle` adds to `findings`, or to `waiting` if its dead letter may still come.

        `judge_time` is the judge of an untimed fate. Its arguments are the fate and the time that its dead letter
        names, or 0 if the time is not certain.
        """
        is_gone = fate.at_ms - COMMIT_MS_MAX <= self._bounds.letters_lost_before_ms
        is_hidden = fate.at_ms >= self._bounds.letters_capped_from_ms
        kind = self._hidden if is_hidden else self._untimed if judge_time else self._timed
        kind.append(_Claim(fate, findings, waiting, judge_time, is_gone))

    def settle(self, findings: Findings) -> None:
        """Judges the content of all dead letters, and all recorded fates that do not wait.

        The order is: fates with a known time whose dead letter is neither gone nor hidden, untimed fates, fates with a
        known time whose dead letter may be gone, fates whose dead letter may be hidden.
        """
        for due_ms, left in self._unused.items():
            if wrong := sum(not dead_letter.is_same for dead_letter in left):
                text = f"the dead letter of the occurrence due {due_ms} differs from the request"
                findings.find("mismatched", "mismatch", text, wrong)
        hidden = [claim.times_ms for claim in self._hidden]
        gone = [claim for claim in self._timed if claim.is_gone]
        for claim in self._timed:
            if not claim.is_gone:
                self._settle(claim, claim.fate.nominal_ms)
        self._settle_untimed(Counter(claim.fate.nominal_ms for claim in gone), hidden)
        is_open = _Ranges([*self._open, *hidden])
        for claim in gone:
            due_ms = claim.fate.nominal_ms
            if self._unused.get(due_ms) and (due_ms in is_open or self._can_be_later(due_ms)):
                self._wait(claim)
            else:
                self._settle(claim, due_ms)
        untimed = [claim for claim in (*self._hidden, *self._untimed) if claim.judge_time]
        gone += [claim for claim in self._hidden if claim.is_gone]
        is_contested = _Ranges(claim.times_ms for claim in (*gone, *untimed))
        for claim in self._hidden:
            due_ms = claim.times_ms[0]
            if claim.judge_time is None and self._unused.get(due_ms) and due_ms not in is_contested:
                self._settle(claim, due_ms)
            else:
                self._wait(claim)

    def _settle_untimed(self, gone: Counter[int], hidden: list[tuple[int, int]]) -> None:
        """Judges the untimed fates.

        `gone` counts for each time the fates with this time whose dead letter may be gone. `hidden` are the times of
        the fates whose dead letter may be hidden.
        """
        is_open, times = _Ranges([*self._open, *self._later, *hidden]), sorted(self._unused)
        has_extras = bool(self._facts.triggers or self._facts.lost_controls)
        for claim in self._untimed:
            first_ms, last_ms = claim.times_ms
            possible = times[bisect_left(times, first_ms) : bisect_right(times, last_ms)]
            possible = [due_ms for due_ms in possible if self._unused[due_ms]]
            is_only = len(possible) == 1 and not claim.is_gone
            if not is_only and any(due_ms in is_open for due_ms in possible):
                self._wait(claim)
                continue
            # Take the last possible time, since lost occurrences come earlier. Leave enough dead letters for those
            # fates of a time whose dead letter may be gone, unless this fate must have one.
            free = [due_ms for due_ms in possible if len(self._unused[due_ms]) > gone[due_ms]]
            due_ms = max(free or ([] if claim.is_gone else possible), default=0)
            if due_ms and not is_only:
                self._guesses.append((first_ms, due_ms))
            self._settle(claim, due_ms, is_certain=is_only or not (claim.is_gone or has_extras))

    def _wait(self, claim: _Claim) -> None:
        self._open.append(claim.times_ms)
        claim.waiting.append(claim.fate)

    def _settle(self, claim: _Claim, due_ms: int, *, is_certain: bool = True) -> None:
        """Judges a fate together with an unused dead letter of this time, if there is one."""
        fate, findings, left = claim.fate, claim.findings, self._unused.get(due_ms)
        findings.is_sound = fate.is_sound
        if left:
            findings.is_sound &= left.pop().is_same
        elif not claim.is_gone:
            text = f"occurrence {fate.number} is dead {in_log(fate)}, without a dead letter"
            findings.find("missing", "missing", text)
        elif claim.judge_time is None:
            findings.leave("target-expired", 1)
        if claim.judge_time is not None:
            claim.judge_time(fate, due_ms if is_certain else 0)
        if findings.is_sound:
            findings.count("verified", fate.size)

    def judge_rest(self, findings: Findings, lost_from_ms: int) -> list[DeadOccurrence]:
        """Judges the dead letters that no fate has used, and returns those whose fates may still come.

        A surplus dead letter is `unsettled` if its fate may be lost. Its fate is not lost if the first known trigger or
        backfill of its time was requested after the losses, and the schedule has lost no other fate. `lost_from_ms` is
        the first possible time of a fate that may be lost and is in no hole.
        """
        waiting: list[DeadOccurrence] = []
        lost_ms, is_open = self._holes.lost_before_ms, _Ranges([*self._open, *self._later])
        has_lost = self._holes.are_lost or bool(self._facts.lost_controls)
        for due_ms, left in sorted(self._unused.items()):
            if due_ms in is_open:
                waiting += reversed(left)
                continue
            may_be_lost = has_lost or due_ms >= lost_from_ms or self._facts.extended_ms(due_ms) < lost_ms
            if left and due_ms < lost_ms and may_be_lost:
                findings.leave("unsettled", max(len(left) - self._holes.counted(due_ms), 0))
            elif left:
                possible = " or ".join(map(str, [due_ms, *self._guessed(due_ms)]))
                text = f"a dead letter of the occurrence due {possible} belongs to no skip"
                findings.find(None, "contradiction", text)
        return waiting

    def _guessed(self, due_ms: int) -> list[int]:
        """Returns a list with the time of the later dead letter that an untimed fate has used, although a dead letter
        of `due_ms` may be the right one; empty if there is no such fate."""
        index = bisect_right(self._guesses, (due_ms, _NEVER_MS)) - 1
        return [used for _, used in self._guesses[index : index + 1] if index >= 0 and due_ms < used]


class _Ranges:
    """A set of times, given as ranges that include both ends. Cost: a sort, and a binary search for each query."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(ranges):
            if self._lasts and first <= self._lasts[-1]:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __contains__(self, ms: int) -> bool:
        index = bisect_right(self._firsts, ms) - 1
        return index >= 0 and ms <= self._lasts[index]
