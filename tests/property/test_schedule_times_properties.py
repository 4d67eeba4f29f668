"""Goal: the sidecar's search and the audit's computation agree on every nominal time, in every zone.

Method: they share no code. Each zone gets a random expression, often at the hours at which clocks change. Within ten
years, both compute the times of a week around each clock change, and of a week around a random time, at most 200 for
each week. The zones are drawn from all names, including several names of the same zone. A separate test compares the
clock changes of every fourth zone, or of all zones if N is large enough.

`POSTDATE_TEST_ZONES=N` makes N comparisons instead of 400. If N exceeds the number of zones, each zone gets several
expressions. `POSTDATE_TEST_ZONES_SEED=SEED` draws other expressions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import cycle, islice, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postdate.spark.rules.times.cron_fields import read_cron
from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes, nominal_times
from postdate.spark.rules.times.zone_files import read_zone, tz_version
from postdate.wire.schedules.expressions import parse_expression
from postdate.wire.schedules.occurrences import count_nominal, next_after
from postdate.wire.schedules.schedule import Fold, Gap, Schedule
from postdate.wire.schedules.zones import TZ_VERSION, load_zone, zone_names

COUNT = int(os.environ.get("POSTDATE_TEST_ZONES", "400"))
SEED = int(os.environ.get("POSTDATE_TEST_ZONES_SEED", "1"))

DAY_MS = 86_400_000
YEAR_S = 31_556_952
TIMES_MAX = 200
FROM_YEAR, UNTIL_YEAR = 2020, 2040


def random_value(random: Random, low: int, high: int) -> int:
    return random.randint(low, high)


def random_field(random: Random, low: int, high: int) -> str:
    """Returns a list of one or two terms. No term is a star, since with a star a schedule follows elapsed time."""
    terms = []
    for _ in range(random.choice((1, 1, 1, 2))):
        first, last = sorted((random_value(random, low, high), random_value(random, low, high)))
        step = random.randint(1, high - low)
        terms.append(
            random.choice((f"{first}", f"{first}", f"{first}-{last}", f"{first}-{last}/{step}", f"{first}/{step}"))
        )
    return ",".join(terms)


def random_days(random: Random) -> tuple[str, str]:
    """Returns a day of the month and a day of the week. Most expressions match every day, so that they meet clock
    changes."""
    if random.random() < 0.6:
        return "*", "*"
    months = random.choice(("*", random_field(random, 1, 31), "L", "LW", "1,L", "*/2", "*/9"))
    names = ("*", "SUN", "MON-FRI", "0", "7", "5-7", "6L", "0L", "SUN#2", "1#5", "WED,6#1", "*/2", "*/3")
    return months, random.choice(names)


def random_expression(random: Random) -> str:
    minute = random.choice(("0", "30", "15,45", "*", "*/20", "59", random_field(random, 0, 59)))
    hour = random.choice(("0", "1", "2", "2,3", "1-3", "3", "23", "*", "*/2", "0-23", random_field(random, 0, 23)))
    month = random.choice(("*", "*", "*", "MAR,OCT", "MAR-APR", random_field(random, 1, 12)))
    day, weekday = random_days(random)
    second = random.choice(("", "", "", "0 ", "59 ", "*/30 ", f"{random_field(random, 0, 59)} "))
    return f"{second}{minute} {hour} {day} {month} {weekday}"


def searched(schedule: Schedule, after_ms: int, until_ms: int) -> list[tuple[int, bool]]:
    """Returns the times that the sidecar finds in (`after_ms`, `until_ms`], at most TIMES_MAX."""
    found: list[tuple[int, bool]] = []
    while len(found) < TIMES_MAX:
        following = next_after(schedule, after_ms)
        if following is None or following[0] > until_ms:
            break
        found.append(following)
        after_ms = following[0]
    return found


def computed(schedule: Schedule, after_ms: int, until_ms: int) -> list[tuple[int, bool]]:
    """Returns the times that the audit computes in the same range, at most TIMES_MAX."""
    cron_times = CronTimes(schedule.cron, schedule.zone, schedule.gap.value, schedule.fold.value)
    found: list[tuple[int, bool]] = []
    for block in nominal_times(cron_times, after_ms, until_ms):
        found += zip(block.times_ms.tolist(), block.in_gap.tolist(), strict=True)
        if len(found) >= TIMES_MAX:
            break
    return found[:TIMES_MAX]


def test_both_agree_in_every_zone() -> None:
    random = Random(SEED)
    names = sorted(zone_names())
    random.shuffle(names)
    compared = gaps = 0
    for name in islice(cycle(names), COUNT):
        schedule = Schedule(
            cron=random_expression(random), zone=name, gap=random.choice([*Gap]), fold=random.choice([*Fold])
        )
        start_s = (random.randint(FROM_YEAR, UNTIL_YEAR - 10) - 1970) * YEAR_S
        moments = [random.randint(start_s, start_s + 10 * YEAR_S)]
        moments += read_zone(name).changes(start_s, start_s + 10 * YEAR_S).at_s.tolist()
        for moment_s in moments:
            after_ms = moment_s * 1000 - random.choice((3 * DAY_MS, 3_600_000, 1_800_001, 1))
            expected = computed(schedule, after_ms, after_ms + 7 * DAY_MS)
            assert searched(schedule, after_ms, after_ms + 7 * DAY_MS) == expected, (schedule, after_ms)
            last_ms = expected[-1][0] if len(expected) == TIMES_MAX else after_ms + 7 * DAY_MS
            filled = sum(not is_skipped for _, is_skipped in expected)
            assert count_nominal(schedule, after_ms + 1, last_ms, TIMES_MAX) == filled, (schedule, after_ms)
            compared += len(expected)
            gaps += sum(is_in_gap for _, is_in_gap in expected)
    print(f"seed {SEED}: {COUNT} zones, {compared} nominal times agree, {gaps} of them in gaps that are skipped")
    assert compared > 10 * COUNT


def test_both_read_the_same_clock_changes_of_all_zones() -> None:
    assert tz_version() == TZ_VERSION
    # A century from 1970 on; its later years follow the zones' present rules.
    until_s = (2070 - 1970) * YEAR_S
    names = sorted(zone_names())
    assert len(names) >= 400
    for name in names[:: 1 if len(names) <= COUNT else 4]:
        changes = read_zone(name).changes(1, until_s)
        zone, after_s, found = load_zone(name), 0, []
        while (change := zone.next_change(after_s, until_s)) is not None:
            found.append((change.at_s, change.before_s, change.after_s))
            after_s = change.at_s
        is_change = changes.offsets_s[1:] != changes.offsets_s[:-1]
        rows = np.stack([changes.at_s, changes.offsets_s[:-1], changes.offsets_s[1:]], axis=1)[is_change]
        assert found == [tuple(row) for row in rows.tolist()], name


MACROS = ("@hourly", "@DAILY", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@reboot", "@every 5m")


def is_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def test_both_accept_the_same_texts() -> None:
    random = Random(SEED)
    accepted = refused = 0
    for number in range(40 * COUNT):
        text = random.choice(MACROS) if number % 100 == 0 else random_expression(random)
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            at = random.randint(0, len(text))
            text = text[:at] + random.choice("0123456789*/,-#LW?@ SUNMOFIJA") + text[at + random.randint(0, 1) :]
        is_accepted = is_read(parse_expression, text)
        assert is_accepted is is_read(read_cron, text), text
        accepted += is_accepted
        refused += not is_accepted
    print(f"{accepted} expressions accepted by both, {refused} refused")
    assert min(accepted, refused) > 5 * COUNT


@pytest.mark.parametrize("text", ["", "@", "² 9 * * *", "٣ 9 * * *", "0 9 * * *\n", "0 9 * * " + "1," * 300 + "1"])
def test_both_refuse_other_characters(text: str) -> None:
    assert not is_read(parse_expression, text)
    assert not is_read(read_cron, text)


@settings(max_examples=60, deadline=None)
@given(st.integers(1_000, 10**9), st.integers(0, 10**9), st.integers(0, 2 * 10**12), st.integers(1, 300))
def test_both_agree_on_intervals(every_ms: int, phase_ms: int, after_ms: int, count: int) -> None:
    phase_ms %= every_ms
    schedule, until_ms = Schedule(every_ms=every_ms, phase_ms=phase_ms), after_ms + count * every_ms
    times: list[int] = []
    position_ms = after_ms
    while (following := next_after(schedule, position_ms)) is not None and following[0] <= until_ms:
        position_ms = following[0]
        times.append(position_ms)
    blocks = [block.times_ms for block in nominal_times(IntervalTimes(every_ms, phase_ms), after_ms, until_ms)]
    assert times == np.concatenate(blocks).tolist()
    assert len(times) == count


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3 * 10**12), st.lists(st.integers(1, 40 * DAY_MS), min_size=2, max_size=4))
def test_cutting_a_range_changes_no_time(seed: int, after_ms: int, lengths: list[int]) -> None:
    random = Random(seed)
    name = random.choice(("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"))
    cron_times = CronTimes(random_expression(random), name, random.choice([*Gap]).value, random.choice([*Fold]).value)
    parts: list[int] = []
    low_ms = after_ms
    for length_ms in lengths:
        parts += [
            time for block in nominal_times(cron_times, low_ms, low_ms + length_ms) for time in block.times_ms.tolist()
        ]
        low_ms += length_ms
    whole = [time for block in nominal_times(cron_times, after_ms, low_ms) for time in block.times_ms.tolist()]
    assert parts == whole
    assert all(low < high for low, high in pairwise(whole))


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 * 2 MON#5", "30 2 LW */3 *", "0 0 13 * 5"])
def test_both_find_rare_days(text: str) -> None:
    schedule = Schedule(cron=text, zone="Europe/Berlin")
    until_ms = 4 * 10**12
    assert searched(schedule, 0, until_ms) == computed(schedule, 0, until_ms) != []


@pytest.mark.parametrize("name", ["No/Such", "Europe", "UTC/Below", "A" * 300, "", "../UTC"])
def test_the_audit_knows_what_is_not_a_zone(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a zone"):
        read_zone(name)
