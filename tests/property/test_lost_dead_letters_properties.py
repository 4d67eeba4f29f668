"""Goal: an audit of a correct schedule reports no violation, even if some fates and dead letters are lost or not yet
visible. It derives no wrong time for an occurrence after lost fates.

Method: random histories, each read by one to three audits (`support.audits.lost_dead_letter_histories`). The property
must not be vacuous: audits must judge some dead occurrences by their dead letters, and some audits must wait.
"""

from __future__ import annotations

from random import Random

import pytest

from postdate.spark.rules.schedules.numbered_deliveries import NumberedDeliveries
from postdate.spark.rules.schedules.schedule_events import Fate
from support.audits.lost_dead_letter_histories import LostDeadLetterHistory

HISTORIES = 1_500


def test_a_history_without_a_violation_has_none_whatever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[tuple[int, int]] = []
    judge_time = NumberedDeliveries._judge_time

    def noted(self: NumberedDeliveries, fate: Fate, nominal_ms: int) -> None:
        named.append((fate.number, nominal_ms))
        judge_time(self, fate, nominal_ms)

    monkeypatch.setattr(NumberedDeliveries, "_judge_time", noted)
    certain = unsure = waited = 0
    for seed in range(HISTORIES):
        history = LostDeadLetterHistory(Random(seed))
        for audited in history.audited(1 + seed % 3):
            assert audited.position.problems == (), f"seed {seed}"
            waited += any(fate.first_ms for fate in audited.position.waiting_fates)
        for number, nominal_ms in named:
            assert nominal_ms in (0, history.nominal_ms[number]), f"seed {seed}"
        certain += sum(nominal_ms > 0 for _, nominal_ms in named)
        unsure += sum(nominal_ms == 0 for _, nominal_ms in named)
        named.clear()
    assert min(certain, unsure, waited) > HISTORIES // 100
