"""The dead letters of a schedule: one for each occurrence, or extra delivery, that was skipped as dead, and no other.

A skip names no time. If its time is unknown, since fates before it are lost, only its letter names it. So the letters
of such occurrences are found last, once all others have used theirs (`use_any`).

Letters are read further than the dispatch log, so one may be ahead of its fate; the next run reads it again. The fate
of a surplus letter may be lost.

Pure Python. Nothing of Spark is imported.
"""

from __future__ import annotations

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
        self._expected_ms: list[tuple[int, int]] = []
        for letter in facts.letters:
            self._letters.setdefault(letter.due_ms, []).append(letter)

    def expect(self, first_ms: int, last_ms: int) -> None:
        """Let the letters of these times wait: a later run may read their fates."""
        self._expected_ms.append((first_ms, last_ms))

    def _is_expected(self, due_ms: int) -> bool:
        return any(first <= due_ms <= last for first, last in self._expected_ms)

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

    def use_any(self, fate: Fate, computed_ms: int, findings: Findings) -> int | None:
        """Judge the dead letter of an occurrence at an unknown time. Return the time if it is certain, otherwise 0;
        None: the letter, or the fate of another possible one, may still come.

        `computed_ms`: the time that the audit computes; 0: none. The last possible letter is used. Unless it is the
        only one, it may be that of an extra delivery, or of an earlier occurrence, whose fate is lost. A schedule
        without triggers and backfills has no later letter than that of this occurrence.
        """
        possible = [ms for ms, left in sorted(self._letters.items()) for _ in left if ms <= fate.nominal_ms_max]
        is_gone = fate.at_ms - COMMIT_MS_MAX <= self._bounds.letters_lost_before_ms
        is_hidden = fate.at_ms >= self._bounds.letters_capped_from_ms
        if is_hidden or (len(possible) > 1 and any(map(self._is_expected, possible))):
            self.expect(0, fate.nominal_ms_max)
            return None
        last_ms = possible[-1] if possible else 0
        if possible or not is_gone:
            self.use(fate._replace(nominal_ms=last_ms), findings)
        has_extras = bool(self._facts.triggers or self._facts.lost_controls)
        if not is_gone and (len(possible) == 1 or (last_ms == computed_ms and not has_extras)):
            return last_ms
        self._guessed_ms.append(last_ms)
        return 0

    def judge_rest(self, findings: Findings) -> list[Letter]:
        """Judge the unused letters of decided occurrences. Return the others, whose fates may still come.

        A surplus letter is `unsettled` if its fate may be lost: not if the first known backfill of its time was
        requested behind the losses and nothing of the schedule is `unsettled`.
        """
        waiting: list[Letter] = []
        lost_ms, has_lost = self._holes.lost_before_ms, "unsettled" in findings.reasons
        for due_ms, left in sorted(self._letters.items()):
            if self._is_expected(due_ms):
                waiting += left
            elif left and due_ms < lost_ms and (has_lost or self._facts.backfilled_ms(due_ms) < lost_ms):
                findings.leave("unsettled", max(len(left) - self._holes.counted(due_ms), 0))
            elif left:
                possible = " or ".join(map(str, sorted({due_ms, *(ms for ms in self._guessed_ms if ms > due_ms)})))
                said = f"a dead letter of the occurrence due {possible} belongs to no skip"
                findings.find(None, "contradiction", said)
        return waiting
