"""Clock changes, case by case, in zones with unusual changes."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from punctual.domain.schedules.schedule import Cron, occurrences, preview


def local_times(expression: str, zone: str, day: str, gap: str = "", fold: str = "") -> list[str]:
    """Return the times within 36 hours from that UTC date, as local times with offsets."""
    start = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    schedule = Cron(expression, timezone=zone, dst_gap=gap, dst_fold=fold)
    times = preview(schedule, start, 300).times
    return [f"{local:%d %H:%M%z}" for at, local in times if at <= start + timedelta(hours=36)]


GAPS = [
    ("Europe/Berlin", "30 2 * * *", "2026-03-29", "NEXT", ["29 03:00+0200", "30 02:30+0200"]),
    ("Europe/Berlin", "30 2 * * *", "2026-03-29", "SKIP", ["30 02:30+0200"]),
    ("Europe/Berlin", "30 2 * * *", "2026-03-29", "SHIFT", ["29 03:30+0200", "30 02:30+0200"]),
    ("Europe/Berlin", "0 2 * * *", "2026-03-29", "SHIFT", ["29 03:00+0200", "30 02:00+0200"]),
    ("Europe/Berlin", "0 3 * * *", "2026-03-29", "SKIP", ["29 03:00+0200", "30 03:00+0200"]),
    ("America/New_York", "30 2 * * *", "2026-03-08", "NEXT", ["08 03:00-0400", "09 02:30-0400"]),
    # The clock skips half an hour: 02:00 becomes 02:30.
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03", "NEXT", ["04 02:30+1100"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03", "SHIFT", ["04 02:45+1100"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03", "SKIP", []),
    # Midnight does not exist.
    ("Africa/Cairo", "0 0 * * *", "2026-04-23", "NEXT", ["24 01:00+0300"]),
    ("America/Santiago", "0 0 * * *", "2026-09-06", "NEXT", ["06 01:00-0300", "07 00:00-0300"]),
    ("America/Santiago", "0 0 * * *", "2026-09-06", "SKIP", ["07 00:00-0300"]),
    ("America/Sao_Paulo", "0 0 * * *", "2018-11-04", "NEXT", ["04 01:00-0200", "05 00:00-0200"]),
    ("America/Sao_Paulo", "15 0 * * *", "2018-11-04", "SHIFT", ["04 01:15-0200", "05 00:15-0200"]),
    # The clock skips two hours.
    ("Antarctica/Troll", "30 1 * * *", "2026-03-29", "NEXT", ["29 03:00+0200", "30 01:30+0200"]),
    ("Antarctica/Troll", "30 1 * * *", "2026-03-29", "SHIFT", ["29 03:30+0200", "30 01:30+0200"]),
    # 30 December 2011 did not exist.
    ("Pacific/Apia", "0 12 * * *", "2011-12-30", "NEXT", ["31 00:00+1400", "31 12:00+1400"]),
    ("Pacific/Apia", "0 12 * * *", "2011-12-30", "SKIP", ["31 12:00+1400"]),
    ("Pacific/Apia", "0 12 * * *", "2011-12-30", "SHIFT", ["31 12:00+1400"]),
    ("Pacific/Apia", "0 12 30 12 *", "2011-12-30", "NEXT", ["31 00:00+1400"]),
    ("Pacific/Apia", "0 12 30 12 *", "2011-12-30", "SHIFT", ["31 12:00+1400"]),
    # The clock skips 15 minutes, once and for all.
    ("Asia/Kathmandu", "5 0 * * *", "1985-12-31", "NEXT", ["01 00:15+0545"]),
    # The clock skips half an hour, and the offset stays.
    ("America/Caracas", "45 2 * * *", "2016-05-01", "NEXT", ["01 03:00-0400", "02 02:45-0400"]),
    ("Asia/Pyongyang", "45 23 4 5 *", "2018-05-04", "NEXT", ["05 00:00+0900"]),
]


@pytest.mark.parametrize(("zone", "expression", "day", "gap", "expected"), GAPS)
def test_time_in_a_gap_fires_by_the_gap_policy(
    zone: str, expression: str, day: str, gap: str, expected: list[str]
) -> None:
    fired = local_times(expression, zone, day, gap)
    assert fired[: len(expected)] == expected
    if not expected:
        assert all(time.startswith("05") for time in fired)


FOLDS = [
    ("Europe/Berlin", "0 2 * * *", "2026-10-24", ["25 02:00+0200"], ["25 02:00+0100"]),
    ("Europe/Berlin", "59 2 * * *", "2026-10-24", ["25 02:59+0200"], ["25 02:59+0100"]),
    ("Europe/Berlin", "30 2 * * *", "2026-10-24", ["25 02:30+0200"], ["25 02:30+0100"]),
    ("America/New_York", "30 1 * * *", "2026-10-31", ["01 01:30-0400"], ["01 01:30-0500"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04", ["05 01:45+1100"], ["05 01:45+1030"]),
    ("America/Santiago", "30 23 * * *", "2026-04-04", ["04 23:30-0300"], ["04 23:30-0400"]),
    ("Europe/Dublin", "30 1 * * *", "2026-10-24", ["25 01:30+0100"], ["25 01:30+0000"]),
    ("Asia/Pyongyang", "45 23 14 8 *", "2015-08-14", ["14 23:45+0900"], ["14 23:45+0830"]),
]


@pytest.mark.parametrize(("zone", "expression", "day", "first", "second"), FOLDS)
def test_repeated_time_fires_by_the_fold_policy(
    zone: str, expression: str, day: str, first: list[str], second: list[str]
) -> None:
    date = first[0][:2]
    for fold, expected in (("FIRST", first), ("SECOND", second), ("BOTH", first + second)):
        fired = local_times(expression, zone, day, fold=fold)
        assert [time for time in fired if time.startswith(date)] == expected


def test_defaults_are_next_in_a_gap_and_first_in_a_fold() -> None:
    assert local_times("30 2 * * *", "Europe/Berlin", "2026-03-29")[0] == "29 03:00+0200"
    assert local_times("30 2 * * *", "Europe/Berlin", "2026-10-25")[0] == "25 02:30+0200"


def test_eventbridge_cron_skips_a_gap_unless_configured() -> None:
    expression, day = "cron(30 2 * * ? *)", "2026-03-29"
    assert local_times(expression, "Europe/Berlin", day)[0] == "30 02:30+0200"
    assert local_times(expression, "Europe/Berlin", day, "SHIFT")[0] == "29 03:30+0200"
    both = local_times(expression, "Europe/Berlin", "2026-10-25", fold="BOTH")
    assert both[:2] == ["25 02:30+0200", "25 02:30+0100"]
    assert local_times(expression, "Europe/Berlin", "2026-10-25")[:2] == [
        "25 02:30+0200",
        "26 02:30+0100",
    ]


def test_times_that_fall_on_one_instant_fire_once() -> None:
    fired = local_times("0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-29", "NEXT")
    assert fired[:3] == ["29 03:00+0200", "29 03:20+0200", "29 03:40+0200"]
    fired = local_times("30 2,3 * * *", "Europe/Berlin", "2026-03-29", "SHIFT")
    assert fired[:2] == ["29 03:30+0200", "30 02:30+0200"]


@pytest.mark.parametrize("gap", ["NEXT", "SKIP", "SHIFT"])
@pytest.mark.parametrize("fold", ["FIRST", "SECOND", "BOTH"])
def test_repeating_minutes_ignore_the_gap_and_fold_policies(gap: str, fold: str) -> None:
    schedule = Cron("*/20 * * * *", timezone="Europe/Berlin", dst_gap=gap, dst_fold=fold)
    for day in ("2026-03-29", "2026-10-25"):
        start = datetime.fromisoformat(f"{day}T00:00:00+00:00")
        fired = list(occurrences(schedule, start, start + timedelta(hours=4)))
        assert fired == [start + n * timedelta(minutes=20) for n in range(1, 13)]


def test_repeating_minutes_of_a_missing_hour_do_not_fire() -> None:
    assert local_times("*/30 2 * * *", "Europe/Berlin", "2026-03-29")[0] == "30 02:00+0200"
    twice = local_times("*/30 2 * * *", "Europe/Berlin", "2026-10-24")[1:5]
    assert twice == ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]


def test_hourly_cron_fires_once_each_elapsed_hour() -> None:
    schedule = Cron("0 * * * *", timezone="America/New_York")
    hours = list(
        occurrences(
            schedule, datetime(2025, 12, 31, 23, 30, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
        )
    )
    gaps = {next_hour - hour for hour, next_hour in pairwise(hours)}
    assert gaps == {timedelta(hours=1)}


@pytest.mark.parametrize(
    ("expression", "counts"),
    [("30 1 * * *", (365, 366)), ("30 2 * * *", (365, 365)), ("*/10 * * * *", (52_560, 52_560))],
)
def test_daily_cron_fires_once_a_day_for_a_year_in_new_york(
    expression: str, counts: tuple[int, int]
) -> None:
    start, end = datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2027, 1, 1, 5, tzinfo=UTC)
    tick = timedelta(microseconds=1)
    for fold, count in zip(("FIRST", "BOTH"), counts, strict=True):
        schedule = Cron(expression, timezone="America/New_York", dst_fold=fold)
        assert sum(1 for _ in occurrences(schedule, start - tick, end - tick)) == count


def test_repeating_seconds_of_a_fixed_time_follow_the_policies() -> None:
    fired = local_times("*/30 30 2 * * *", "Europe/Berlin", "2026-03-29")
    assert fired[:2] == ["29 03:00+0200", "30 02:30+0200"]
    fired = local_times("*/30 30 2 * * *", "Europe/Berlin", "2026-10-25")
    assert fired == ["25 02:30+0200"] * 2 + ["26 02:30+0100"] * 2


def test_zone_offset_with_seconds_is_exact() -> None:
    """Liberia was 44 minutes and 30 seconds behind UTC until 1972."""
    schedule = Cron("0 0 * * *", timezone="Africa/Monrovia")
    fired = occurrences(
        schedule, datetime(1972, 1, 5, tzinfo=UTC), datetime(1972, 1, 8, 12, tzinfo=UTC)
    )
    assert [at.isoformat() for at in fired] == [
        "1972-01-05T00:44:30+00:00",
        "1972-01-06T00:44:30+00:00",
        "1972-01-07T00:44:30+00:00",
        "1972-01-08T00:00:00+00:00",
    ]
