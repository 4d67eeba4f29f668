"""Goal: all headers of a schedule are read, and each defect is refused with the header and the remedy.

Method: tables of headers. No test here searches for times.
"""

from __future__ import annotations

import pytest

from postdate.wire.schedules.expressions import parse_expression
from postdate.wire.schedules.schedule import Fold, Gap, Missed, Schedule, read_schedule

ID = {"postdate-id": b"report"}
DAY_MS = 86_400_000


def read(**headers: bytes | None) -> Schedule:
    return read_schedule({**ID, **{f"postdate-{name.replace('_', '-')}": value for name, value in headers.items()}})


def test_absent_headers_have_the_documented_defaults() -> None:
    assert read(cron=b"30 9 * * *") == Schedule(
        cron="30 9 * * *",
        zone="UTC",
        gap=Gap.NEXT,
        fold=Fold.FIRST,
        missed=Missed.ALL,
        every_ms=-1,
        start_ms=-1,
        end_ms=-1,
        count=-1,
        window_ms=0,
        grace_ms=-1,
        catch_up_ms=-1,
    )


def test_every_header_is_read() -> None:
    schedule = read(
        topic=b"reports",
        cron=b"0 30 9 * * MON-FRI",
        zone=b"Europe/Berlin",
        start=b"2026-10-01T00:00:00+02:00",
        end=b"1798761600000",
        count=b"40",
        window=b"15m",
        grace=b"PT1H",
        gap=b"skip",
        fold=b"both",
        missed=b"last",
        catch_up=b"1d",
    )
    assert schedule == Schedule(
        cron="0 30 9 * * MON-FRI",
        zone="Europe/Berlin",
        start_ms=1_790_805_600_000,
        end_ms=1_798_761_600_000,
        count=40,
        window_ms=900_000,
        grace_ms=3_600_000,
        gap=Gap.SKIP,
        fold=Fold.BOTH,
        missed=Missed.LAST,
        catch_up_ms=DAY_MS,
    )


def test_an_interval_and_its_phase_are_read() -> None:
    assert read(every=b"15m") == Schedule(every_ms=900_000)
    assert read(every=b"15m/5m") == Schedule(every_ms=900_000, phase_ms=300_000)
    assert read(every=b"1d/6h30m", missed=b"none").phase_ms == 23_400_000


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"cron": b"@reboot"}, "give a cron expression or postdate-every"),
        ({"cron": b"@every 15m"}, "give postdate-every instead"),
        ({"cron": b"@fortnightly"}, "@hourly, @daily"),
        ({"cron": b"30 9 * *"}, "has 4 fields"),
        ({"cron": b"0 0 9 * * ? 2026"}, "has 7 fields"),
        ({"cron": b""}, "is empty"),
        ({"cron": None}, "is empty"),
        ({"cron": "30 9 * * µ".encode()}, "not ASCII"),
        ({"cron": b"30 9 ? * *"}, "write [*] instead"),
        ({"cron": b"30 9  * *"}, "as day of month"),
        ({"cron": b"60 9 * * *"}, "values of the field"),
        ({"cron": b"30 24 * * *"}, "values of the field"),
        ({"cron": b"30 9 0 * *"}, "values of the field"),
        ({"cron": b"30 9 * 13 *"}, "values of the field"),
        ({"cron": b"30 9 * * 8"}, "as day of week"),
        ({"cron": b"30 9 * * SAT-SUN"}, "ascending ranges"),
        ({"cron": b"*/90 * * * *"}, "for intervals use postdate-every"),
        ({"cron": b"*/0 * * * *"}, "for intervals use postdate-every"),
        ({"cron": b"30 9 * * FRIDAY"}, "as day of week"),
        ({"cron": b"30 9 * * 5#6"}, "as day of week"),
        ({"cron": b"30 9 L/2 * *"}, "as day of month"),
        ({"cron": b"30 9 * * L"}, "as day of week"),
        ({"cron": b"30 9 30 2 *"}, "days that exist"),
        ({"cron": b"30,, 9 * * *"}, "as minute"),
        ({"cron": b"1" * 513}, "longer than 512 bytes"),
        ({"cron": b"30 9 * * *", "every": b"1h"}, "only one of postdate-cron and postdate-every"),
        ({"cron": b"30 9 * * *", "zone": b"Europe/Berlim"}, "the nearest name is Europe/Berlin"),
        ({"cron": b"30 9 * * *", "zone": b"CEST"}, "in tzdata [0-9a-z]+, such as Europe/Berlin"),
        ({"cron": b"30 9 * * *", "zone": b"europe/berlin"}, "the nearest name is Europe/Berlin"),
        ({"cron": b"30 9 * * *", "zone": b"../../etc/passwd"}, "such as Europe/Berlin"),
        ({"cron": b"30 9 * * *", "zone": b"CEST"}, "is not the name of a zone in tzdata 20"),
        ({"cron": b"30 9 * * *", "gap": b"first"}, "is not one of next, skip"),
        ({"cron": b"30 9 * * *", "fold": b"FIRST"}, "is not one of first, last, both"),
        ({"cron": b"30 9 * * *", "missed": None}, "is not one of all, last, none"),
        ({"cron": b"30 9 * * *", "count": b"0"}, "at least one"),
        ({"cron": b"30 9 * * *", "count": b"-1"}, "is not a number"),
        ({"cron": b"30 9 * * *", "start": b"2026-10-25 02:30"}, "nor RFC 3339"),
        ({"cron": b"30 9 * * *", "start": b"2026-10-25T00:00:00Z", "end": b"2026-10-24T00:00:00Z"}, "lies before"),
        ({"cron": b"30 9 * * *", "start": b"9999-10-25T00:00:00Z"}, "after the year 9997"),
        ({"cron": b"30 9 * * *", "window": b"0"}, "is 0, or longer"),
        ({"cron": b"30 9 * * *", "grace": b"soon"}, "is not a duration"),
        ({"cron": b"30 9 * * *", "catch_up": b"always"}, "is not a duration"),
        ({"every": b"15m", "zone": b"Europe/Berlin"}, "for times of a zone use postdate-cron"),
        ({"every": b"15m", "gap": b"skip"}, "takes no postdate-gap"),
        ({"every": b"999ms"}, "is not from 1s to 36525d"),
        ({"every": b"40000d"}, "is not from 1s to 36525d"),
        ({"every": b"15m/15m"}, "not shorter than the interval"),
        ({"every": b"15m/"}, "is not a duration"),
        ({"every": b"/5m"}, "is not a duration"),
    ],
)
def test_a_defect_is_refused_with_its_remedy(headers: dict[str, bytes | None], text: str) -> None:
    with pytest.raises(ValueError, match=text) as refused:
        read(**headers)
    assert any(f"postdate-{name.replace('_', '-')}" in str(refused.value) for name in headers)


def test_a_schedule_without_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="needs postdate-id"):
        read_schedule({"postdate-cron": b"30 9 * * *"})


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("@hourly", "0 0 * * * *"),
        ("@Daily", "0 0 0 * * *"),
        ("@midnight", "0 0 0 * * *"),
        ("@weekly", "0 0 0 * * 0"),
        ("@monthly", "0 0 0 1 * *"),
        ("@yearly", "0 0 0 1 1 *"),
        ("@annually", "0 0 0 1 1 *"),
        ("30 9 * jan mon-fri", "0 30 9 * JAN MON-FRI"),
        ("*/10 30 9 * * *", "*/10 30 9 * * *"),
    ],
)
def test_an_expression_has_six_fields(text: str, fields: str) -> None:
    assert parse_expression(text).fields == tuple(fields.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("*/15 * * * *", "Every 15 minutes"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("*/15,40 * * * *", "At every 15th minute and minute 40 of every hour"),
    ],
)
def test_an_expression_is_explained_in_words(text: str, words: str) -> None:
    assert parse_expression(text).explain() == words


@pytest.mark.parametrize(
    ("text", "is_elapsed"),
    [
        ("*/15 2 * * *", True),
        ("30 * * * *", True),
        ("30 */2 * * *", True),
        ("@hourly", True),
        ("@daily", False),
        ("30 2 * * *", False),
        ("0-59 0-23 * * *", False),
        ("* 30 2 * * *", False),
        ("0 30 2 * * *", False),
        ("0 * 2 * * *", True),
    ],
)
def test_a_star_in_minute_or_hour_means_elapsed_time(text: str, is_elapsed: bool) -> None:
    assert parse_expression(text).is_elapsed is is_elapsed
