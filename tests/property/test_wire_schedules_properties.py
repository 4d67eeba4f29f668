"""Goal: any headers give a schedule or a ValueError, occurrences ascend without a gap in their numbers, and the
decision on due occurrences does not depend on how calls divide it.

Method: hypothesis draws headers, schedules and the times at which a sidecar decides.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from postdate.wire.schedules.due import chosen_ms, decide
from postdate.wire.schedules.occurrences import Occurrence, SkipReason, first_occurrence, following
from postdate.wire.schedules.schedule import Fold, Gap, Missed, Schedule, read_schedule

ORIGIN = b"requests/3/17"
NOW_MS = 1_792_800_000_000  # 2026-10-24, the day before clocks are set back in Berlin
HOUR_MS = 3_600_000

texts = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.text(st.sampled_from("0123456789*/,-#LW?@ SUNMOFIJAhms"), max_size=14).map(str.encode),
    st.sampled_from([b"30 2 * * *", b"@daily", b"15m/5m", b"1s", b"Europe/Berlin", b"skip", b"both", b"none", b"3"]),
    st.integers(0, 2**64).map(lambda number: b"%d" % number),
)
parts = "cron every zone start end count gap fold missed catch-up id window grace"
found = st.dictionaries(st.sampled_from([f"postdate-{part}" for part in parts.split()]), texts)

schedules = st.builds(
    Schedule,
    cron=st.sampled_from(["30 2 * * *", "0,30 1-3 * * *", "*/20 * * * *", "15 * * * * *", "0 0 1 * *"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    count=st.sampled_from([-1, -1, 1, 7]),
    window_ms=st.sampled_from([0, 1_000, 2 * HOUR_MS]),
    grace_ms=st.sampled_from([-1, 0, HOUR_MS]),
    gap=st.sampled_from(Gap),
    fold=st.sampled_from(Fold),
    missed=st.sampled_from(Missed),
    catch_up_ms=st.sampled_from([-1, 0, 6 * HOUR_MS]),
) | st.builds(Schedule, every_ms=st.integers(600_000, HOUR_MS), missed=st.sampled_from(Missed))


@settings(deadline=None)
@given(found, st.integers(0, 2**48))
def test_any_headers_are_a_schedule_or_none(given_headers: dict[str, bytes | None], timestamp_ms: int) -> None:
    if "postdate-cron" not in given_headers:
        given_headers.setdefault("postdate-every", b"15m")
    with suppress(ValueError):
        schedule = read_schedule(given_headers)
        first = following(schedule, first_occurrence(schedule, timestamp_ms), 3)
        assert [each.number for each in first] == list(range(1, len(first) + 1))


@settings(deadline=None)
@given(schedules, st.integers(NOW_MS - 300 * 24 * HOUR_MS, NOW_MS))
def test_occurrences_ascend(schedule: Schedule, timestamp_ms: int) -> None:
    listed = following(schedule, first_occurrence(schedule, timestamp_ms), 40)
    assert [occurrence.number for occurrence in listed] == list(range(1, len(listed) + 1))
    assert all(low.nominal_ms < high.nominal_ms for low, high in pairwise(listed))
    times = [chosen_ms(schedule, ORIGIN, occurrence) for occurrence in listed]
    assert all(
        occurrence.nominal_ms <= at_ms <= occurrence.nominal_ms + schedule.window_ms
        for occurrence, at_ms in zip(listed, times, strict=True)
    )
    assert times == sorted(times)


@settings(deadline=None)
@given(schedules, st.integers(NOW_MS - 48 * HOUR_MS, NOW_MS), st.integers(0, 60 * HOUR_MS))
def test_each_due_occurrence_is_delivered_or_skipped(schedule: Schedule, timestamp_ms: int, later_ms: int) -> None:
    position = first_occurrence(schedule, timestamp_ms)
    now_ms = timestamp_ms + later_ms
    delivered: list[Occurrence] = []
    skipped: dict[int, SkipReason] = {}
    while position is not None and chosen_ms(schedule, ORIGIN, position) <= now_ms:
        decision = decide(schedule, ORIGIN, position, now_ms)
        delivered += decision.delivered
        skipped |= {number: skip.reason for skip in decision.skips for number in range(skip.first, skip.last + 1)}
        position = decision.position
    numbers = sorted([*(occurrence.number for occurrence in delivered), *skipped])
    assert numbers == list(range(1, len(numbers) + 1))
    if position is not None:
        assert position.number == len(numbers) + 1
    late = [now_ms - chosen_ms(schedule, ORIGIN, occurrence) for occurrence in delivered]
    if schedule.missed is Missed.LAST:
        assert len(delivered) <= 1
    if schedule.missed is Missed.NONE:
        assert all(late_ms <= 60_000 for late_ms in late)
    if schedule.catch_up_ms >= 0:
        assert all(late_ms <= schedule.catch_up_ms for late_ms in late)
    if schedule.grace_ms >= 0:
        assert all(late_ms <= schedule.grace_ms for late_ms in late)
    unlimited = schedule.catch_up_ms < 0 and schedule.grace_ms < 0 and schedule.missed is Missed.ALL
    assert not unlimited or set(skipped.values()) <= {SkipReason.GAP}
