"""The dead letters of a schedule: one for each occurrence, or extra delivery, that was skipped as dead, and no other.

Letters are read further than the dispatch log, so one may be ahead of its fate; the next run reads it again. The fate
of a surplus letter may be lost.

Pure Python. Nothing of Spark is imported.
"""

from __future__ import annotations

from collections.abc import Sequence

from postdate.spark.limits import COMMIT_MS_MAX
from postdate.spark.rules.schedules.schedule_events import Bounds, Fate, Letter, RowFacts, in_log
from postdate.spark.rules.schedules.schedule_findings import Findings
from postdate.spark.rules.schedules.schedule_holes import Holes


class DeadLetters:
    """Those that no fate has used yet, by their nominal times."""

    def __init__(self, facts: RowFacts, bounds: Bounds, holes: Holes) -> None:
        self._facts, self._bounds, self._holes = facts, bounds, holes
        self._letters: dict[int, list[Letter]] = {}
        self._guessed_ms: list[int] = []
        for letter in facts.letters:
            self._letters.setdefault(letter.due_ms, []).append(letter)

    def may_have(self, due_ms: int, at_ms: int) -> bool:
        """Return True if an unused letter for `due_ms` exists, or if that of an end at `at_ms` may still come."""
        return bool(self._letters.get(due_ms)) or at_ms >= self._bounds.letters_capped_from_ms

    def guessed_before(self, before_ms: int) -> int:
        """Return the latest time before `before_ms` that has an unused letter; 0: no such time.

        It is a guess: the letter may be that of an earlier occurrence, whose fate is lost.
        """
        found = max((due_ms for due_ms, left in self._letters.items() if left and due_ms < before_ms), default=0)
        self._guessed_ms += [found] if found else []
        return found

    def use(self, fate: Fate, findings: Findings) -> bool:
        """Judge the dead letter of an occurrence that was skipped as dead. False: the letter may still come."""
        bounds, at_ms = self._bounds, fate.at_ms
        found = self._letters.get(fate.nominal_ms, [])[:1]
        self._letters[fate.nominal_ms] = self._letters.get(fate.nominal_ms, [])[1:]
        if any(not letter.is_same for letter in found):
            said = f"the dead letter of the occurrence due {fate.nominal_ms} differs from the request"
            findings.find("mismatched", "mismatch", said)
        elif not found and at_ms - COMMIT_MS_MAX <= bounds.letters_lost_before_ms:
            findings.leave("target-expired", 1)
        elif not found and at_ms >= bounds.letters_capped_from_ms:
            return False
        elif not found:
            said = f"occurrence {fate.number} is dead {in_log(fate)}, without a dead letter"
            findings.find("missing", "missing", said)
        return True

    def judge_rest(self, next_ms: int, pending_ms: Sequence[tuple[int, int]], findings: Findings) -> list[Letter]:
        """Judge the unused letters of decided occurrences. Return the others, whose fates may still come.

        `next_ms`: the time of the next occurrence, 0: there is none. `pending_ms`: the first and the last time of each
        pending backfill or trigger. A surplus letter is `unsettled` if its fate may be lost: not if the
        first known backfill of its time was requested behind the losses and nothing of the schedule is `unsettled`.
        """
        waiting: list[Letter] = []
        lost_ms, has_lost = self._holes.lost_before_ms, "unsettled" in findings.reasons
        for due_ms, left in sorted(self._letters.items()):
            if 0 < next_ms <= due_ms or any(first <= due_ms <= last for first, last in pending_ms):
                waiting += left
            elif left and due_ms < lost_ms and (has_lost or self._facts.backfilled_ms(due_ms) < lost_ms):
                findings.leave("unsettled", max(len(left) - self._holes.counted(due_ms), 0))
            elif left:
                possible = " or ".join(map(str, sorted({due_ms, *(ms for ms in self._guessed_ms if ms > due_ms)})))
                said = f"a dead letter of the occurrence due {possible} belongs to no skip"
                findings.find(None, "contradiction", said)
        return waiting
