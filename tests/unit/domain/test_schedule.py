"""Schedules as values: windows, excluded dates, intervals, previews, validation."""

from datetime import UTC, date, datetime, timedelta, timezone

import msgspec
import pytest

from punctual.domain.schedules.cron.expression import Calendar
from punctual.domain.schedules.cron.instants import local_to_instant
from punctual.domain.schedules.schedule import (
    Cron,
    Every,
    Once,
    Schedule,
    after_completion,
    find_schedule_errors,
    first_time,
    is_excluded,
    is_occurrence,
    last_before,
    next_after,
    occurrences,
    preview,
)
from punctual.domain.schedules.timezones import zone as find_zone

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)  # a Friday
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def upcoming(schedule: Schedule, count: int, after: datetime = NOON) -> list[datetime]:
    return [at for at, _ in preview(schedule, after, count).times]


def test_once_fires_once() -> None:
    assert next_after(Once(NOON), NOON - TICK) == NOON
    assert next_after(Once(NOON), NOON) is None
    assert first_time(Once(NOON)) == NOON
    assert is_occurrence(Once(NOON), NOON)
    assert not is_excluded(Once(NOON), NOON)


def test_next_after_is_strictly_later_and_at_whole_seconds() -> None:
    hourly = Cron("0 * * * *")
    assert next_after(hourly, NOON) == NOON + HOUR
    assert next_after(hourly, NOON - TICK) == NOON
    assert next_after(hourly, NOON + TICK) == NOON + HOUR


def test_next_after_takes_any_zone_and_returns_utc() -> None:
    tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    next_at = next_after(Cron("0 * * * *"), tokyo)
    assert next_at == NOON + HOUR
    assert next_at.tzinfo is UTC


def test_cron_window_includes_its_start_and_excludes_its_end() -> None:
    schedule = Cron("0 * * * *", start_at=NOON, end_at=NOON + 2 * HOUR)
    assert upcoming(schedule, 9, NOON - DAY) == [NOON, NOON + HOUR]
    assert upcoming(schedule, 9, NOON) == [NOON + HOUR]


def test_window_without_an_occurrence_has_no_next_time() -> None:
    schedule = Cron("0 0 * * *", start_at=NOON, end_at=NOON + HOUR)
    assert next_after(schedule, NOON - DAY) is None
    assert preview(schedule, NOON - DAY, 5).times == ()


def test_excluded_dates_are_dates_of_the_zone() -> None:
    schedule = Cron("0 8,20 * * *", timezone="Asia/Tokyo", exclude=(date(2026, 3, 28),))
    times = [f"{at:%d %H}" for at in upcoming(schedule, 3, NOON - HOUR * 2)]
    assert times == ["27 11", "28 23", "29 11"]
    excluded_at = datetime(2026, 3, 27, 23, tzinfo=UTC)
    assert is_excluded(schedule, excluded_at)
    assert not is_occurrence(schedule, excluded_at)
    assert not is_excluded(schedule, excluded_at + HOUR)
    assert not is_excluded(schedule, excluded_at + 24 * HOUR)


def test_excluded_dates_are_skipped_without_a_step_for_each_second() -> None:
    dates = tuple(date(2026, 3, 28) + number * DAY for number in range(366))
    schedule = Cron("* * * * * *", timezone="Europe/Berlin", exclude=dates)
    last = datetime(2026, 3, 27, 22, 59, 59, tzinfo=UTC)
    assert next_after(schedule, last) == datetime(2027, 3, 28, 22, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_year_of_excluded_dates_is_skipped_in_few_steps(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = tuple(date(2026, 3, 28) + number * DAY for number in range(366))
    schedule = Cron("* * * * * *", timezone=zone, exclude=dates)
    last, first = last_before(schedule, NOON + 300 * DAY), next_after(schedule, NOON + 5 * DAY)
    assert last is not None
    assert first is not None
    assert is_excluded(schedule, last + timedelta(seconds=1))
    assert is_excluded(schedule, first - timedelta(seconds=1))
    local = {at.astimezone(find_zone(zone)).date() for at in (first, last)}
    assert local == {date(2027, 3, 29), date(2026, 3, 27)}
    calls = 0
    next_local = Calendar.next_local

    def count_call(calendar: Calendar, local: int) -> int:
        nonlocal calls
        calls += 1
        return next_local(calendar, local)

    monkeypatch.setattr(Calendar, "next_local", count_call)
    next_after(schedule, NOON + 5 * DAY)
    assert calls <= 6
    last_before(schedule, NOON + 300 * DAY)
    assert calls <= 160


def test_last_before_finds_times_far_in_the_past() -> None:
    leap_days = Cron("0 0 29 2 *")
    assert last_before(leap_days, datetime(2024, 2, 29, tzinfo=UTC)) == datetime(
        2020, 2, 29, tzinfo=UTC
    )
    leap_noons = Cron("0 12 29 2 *", start_at=datetime(2000, 1, 1, tzinfo=UTC), end_at=NOON)
    end_of_time = datetime.max.replace(tzinfo=UTC)
    assert last_before(leap_noons, end_of_time) == datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert last_before(Cron("0 0 1 1 *"), datetime(1970, 1, 1, tzinfo=UTC)) is None
    assert last_before(Cron("0 0 1 1 *"), datetime(1969, 6, 1, tzinfo=UTC)) is None
    assert last_before(Cron("0 0 1 1 *", start_at=NOON), NOON + DAY) is None
    assert last_before(Once(NOON), NOON) is None
    assert last_before(Once(NOON), NOON + TICK) == NOON


def test_time_moved_out_of_a_missing_date_belongs_to_its_new_date() -> None:
    start = datetime(2011, 12, 30, tzinfo=UTC)
    for day, first in ((30, "31 00:00"), (31, "01 00:00")):
        schedule = Cron("0 0 * * *", timezone="Pacific/Apia", exclude=(date(2011, 12, day),))
        times = preview(schedule, start, 1).times
        assert f"{times[0][1]:%d %H:%M}" == first


def test_interval_starts_one_step_after_its_anchor() -> None:
    schedule = Every(300, NOON)
    assert first_time(schedule) == NOON + timedelta(seconds=300)
    assert next_after(schedule, NOON - DAY) == NOON + timedelta(seconds=300)
    assert next_after(schedule, NOON + DAY) == NOON + DAY + timedelta(seconds=300)
    assert is_occurrence(schedule, NOON + timedelta(seconds=600))
    assert not is_occurrence(schedule, NOON)


def test_interval_with_a_start_begins_there() -> None:
    schedule = Every(3_600, NOON, start_at=NOON + 90 * TICK, end_at=NOON + 2 * HOUR + 90 * TICK)
    assert upcoming(schedule, 9, NOON - DAY) == [NOON + 90 * TICK, NOON + HOUR + 90 * TICK]


def test_interval_with_a_start_long_ago_keeps_its_phase() -> None:
    schedule = Every(7, NOON, start_at=datetime(1999, 1, 1, tzinfo=UTC))
    next_at = next_after(schedule, NOON)
    assert next_at is not None
    assert timedelta() < next_at - NOON <= timedelta(seconds=7)
    assert (next_at - datetime(1999, 1, 1, tzinfo=UTC)) % timedelta(seconds=7) == timedelta()


def test_interval_skips_excluded_dates_and_keeps_its_phase() -> None:
    schedule = Every(
        7_000, NOON, exclude=(date(2026, 3, 27), date(2026, 3, 28)), timezone="Europe/Berlin"
    )
    next_at = next_after(schedule, NOON)
    steps = [NOON + number * timedelta(seconds=7_000) for number in range(1, 40)]
    assert next_at == next(at for at in steps if at >= datetime(2026, 3, 28, 23, tzinfo=UTC))
    assert is_excluded(schedule, steps[0])


def test_interval_from_completion_counts_from_the_end_of_a_run() -> None:
    schedule = Every(60, NOON, from_completion=True, end_at=NOON + HOUR)
    assert first_time(schedule) == NOON + timedelta(seconds=60)
    assert next_after(schedule, NOON) == NOON + timedelta(seconds=60)
    ended = NOON + timedelta(seconds=75.5)
    assert after_completion(schedule, ended) == ended + timedelta(seconds=60)
    assert next_after(schedule, ended) == ended + timedelta(seconds=60)
    assert after_completion(schedule, NOON + HOUR - timedelta(seconds=60)) is None


def test_interval_from_completion_waits_for_its_start_and_excluded_dates() -> None:
    schedule = Every(60, NOON, from_completion=True, start_at=NOON + HOUR)
    assert first_time(schedule) == NOON + HOUR
    assert after_completion(schedule, NOON) == NOON + HOUR
    with_excluded_date = Every(3_600, NOON, from_completion=True, exclude=(date(2026, 3, 28),))
    assert after_completion(with_excluded_date, NOON + 11.5 * HOUR) == datetime(
        2026, 3, 29, 0, 30, tzinfo=UTC
    )


def test_rate_counts_from_its_anchor_in_days_of_24_hours() -> None:
    schedule = Cron("rate(1 day)", timezone="Europe/Berlin", anchor_at=NOON)
    assert first_time(schedule) == NOON + DAY
    assert upcoming(schedule, 3) == [NOON + DAY, NOON + 2 * DAY, NOON + 3 * DAY]
    started = msgspec.structs.replace(schedule, start_at=NOON + HOUR, end_at=NOON + 2 * DAY)
    assert upcoming(started, 9) == [NOON + HOUR, NOON + HOUR + DAY]
    assert upcoming(Cron("rate(1 hour)"), 1) == [NOON + HOUR]


def test_at_expression_fires_once_in_its_zone() -> None:
    schedule = Cron("at(2026-03-27T15:00:00)", timezone="Asia/Tokyo")
    at = datetime(2026, 3, 27, 6, tzinfo=UTC)
    assert upcoming(schedule, 9, NOON - DAY) == [at]
    assert next_after(schedule, at) is None
    assert is_occurrence(schedule, at)
    excluded = msgspec.structs.replace(schedule, exclude=(date(2026, 3, 27),))
    assert next_after(excluded, NOON - DAY) is None
    assert is_excluded(excluded, at)
    assert next_after(msgspec.structs.replace(schedule, end_at=at), NOON - DAY) is None
    assert next_after(msgspec.structs.replace(schedule, start_at=at), NOON - DAY) == at


@pytest.mark.parametrize(
    ("gap", "expected"),
    [("", None), ("SKIP", None), ("NEXT", "01:00:00"), ("SHIFT", "01:30:00")],
)
def test_at_expression_in_a_gap_follows_the_gap_policy(gap: str, expected: str | None) -> None:
    schedule = Cron("at(2026-03-29T02:30:00)", timezone="Europe/Berlin", dst_gap=gap)
    next_at = next_after(schedule, NOON)
    assert (next_at and f"{next_at:%H:%M:%S}") == expected
    assert [error.field for error in find_schedule_errors(schedule)] == (
        [] if expected else ["cron_expression"]
    )


@pytest.mark.parametrize(("fold", "hour"), [("", 0), ("FIRST", 0), ("SECOND", 1)])
def test_at_expression_in_a_fold_follows_the_fold_policy(fold: str, hour: int) -> None:
    schedule = Cron("at(2026-10-25T02:30:00)", timezone="Europe/Berlin", dst_fold=fold)
    assert upcoming(schedule, 9) == [datetime(2026, 10, 25, hour, 30, tzinfo=UTC)]


@pytest.mark.parametrize(
    "schedule",
    [
        Cron("* * * * * *"),
        Cron("0 0 29 2 *", timezone="America/New_York"),
        Every(31_622_400, NOON),
        Every(60, datetime.max.replace(tzinfo=UTC)),
        Every(60, NOON, start_at=datetime.max.replace(tzinfo=UTC)),
        Every(60, NOON, from_completion=True),
        Cron("rate(366 days)"),
        Cron("0 0 * * *", start_at=datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_schedules_end_in_2200(schedule: Schedule) -> None:
    for after in (datetime(2200, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        assert next_after(schedule, after) is None
    if isinstance(schedule, Every):
        assert after_completion(schedule, datetime.max.replace(tzinfo=UTC)) is None


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", "America/New_York", "Pacific/Kiritimati"])
def test_schedules_accept_the_earliest_datetime(zone: str) -> None:
    for schedule in (Cron("0 0 * * *", timezone=zone), Every(60, NOON, timezone=zone)):
        beginning = datetime.min.replace(tzinfo=UTC)
        assert next_after(schedule, beginning) is not None
        assert not is_occurrence(schedule, beginning)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 29 2 */7", datetime(2032, 2, 29, tzinfo=UTC)),
        ("0 0 */31 3-8 1", datetime(2026, 6, 1, tzinfo=UTC)),
        ("0 0 29 2 ?", datetime(2028, 2, 29, tzinfo=UTC)),
        ("cron(0 0 29 2 ? 2096-2104)", datetime(2096, 2, 29, tzinfo=UTC)),
        ("cron(59 23 31 12 ? 2199)", datetime(2199, 12, 31, 23, 59, tzinfo=UTC)),
        ("0 0 * 2 5#5", datetime(2036, 2, 29, tzinfo=UTC)),
    ],
)
def test_rare_times_are_found(expression: str, expected: datetime) -> None:
    assert next_after(Cron(expression), NOON) == expected


def test_occurrences_are_lazy_and_include_their_end() -> None:
    every_second = occurrences(Cron("* * * * * *"), NOON, datetime(2199, 1, 1, tzinfo=UTC))
    assert next(every_second) == NOON + timedelta(seconds=1)
    hours = list(occurrences(Cron("0 * * * *"), NOON, NOON + 2 * HOUR))
    assert hours == [NOON + HOUR, NOON + 2 * HOUR]


def test_preview_shows_utc_and_local_times_and_equals_next_after() -> None:
    schedule = Cron("30 9 * * 1-5", timezone="America/New_York")
    preview_result = preview(schedule, NOON, 3)
    at, expected = NOON, []
    for _ in range(3):
        at = next_after(schedule, at) or NOON
        expected.append(at)
    assert [utc for utc, _ in preview_result.times] == expected
    assert [f"{local:%a %H:%M %z}" for _, local in preview_result.times] == [
        "Fri 09:30 -0400",
        "Mon 09:30 -0400",
        "Tue 09:30 -0400",
    ]
    assert preview_result.description == "At 09:30, Monday to Friday, in America/New_York"
    assert preview_result.warnings == ()


@pytest.mark.parametrize(
    ("schedule", "after", "text"),
    [
        (Cron("30 2 * * *"), NOON, None),
        (Cron("30 4 * * *", timezone="Europe/Berlin"), NOON, None),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin"),
            NOON,
            "on 29 March 2026 clocks in Europe/Berlin go forward from 02:00 to 03:00; "
            "02:30 does not exist then and fires at 03:00, the first moment after",
        ),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin", dst_gap="SHIFT"),
            NOON,
            "02:30 does not exist then and fires at 03:30",
        ),
        (
            Cron("10,30 2 * * *", timezone="Europe/Berlin", dst_gap="SHIFT"),
            NOON,
            "a time from 02:00 to 03:00 does not exist then and fires at a time that much later",
        ),
        (
            Cron("cron(30 2 * * ? *)", timezone="Europe/Berlin"),
            NOON,
            "02:30 does not exist then and does not fire",
        ),
        (
            Cron("*/30 * * * *", timezone="Europe/Berlin"),
            NOON + 36 * HOUR,
            "a time from 02:00 to 03:00 does not exist then and is passed over",
        ),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin"),
            NOON + 210 * DAY,
            "on 25 October 2026 clocks in Europe/Berlin go back from 03:00 to 02:00; "
            "02:30 comes twice and fires the first time only",
        ),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin", dst_fold="SECOND"),
            NOON + 210 * DAY,
            "fires the second time only",
        ),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin", dst_fold="BOTH"),
            NOON + 210 * DAY,
            "fires both times",
        ),
        (
            Cron("rate(1 day)", timezone="Europe/Berlin", anchor_at=NOON),
            NOON,
            "a day here has 24 hours, so the local time of day is 1 hour later from then on",
        ),
        (
            Every(86_400, NOON, timezone="Australia/Lord_Howe"),
            NOON,
            "on 5 April 2026 clocks in Australia/Lord_Howe go back from 02:00 to 01:30; a day "
            "here has 24 hours, so the local time of day is 30 minutes earlier from then on",
        ),
        (Every(3_600, NOON, timezone="Europe/Berlin"), NOON + 36 * HOUR, None),
        (Cron("at(2026-03-29T03:30:00)", timezone="Europe/Berlin"), NOON, None),
        (Once(NOON + DAY), NOON, None),
    ],
)
def test_preview_warns_of_clock_changes_that_affect_it(
    schedule: Schedule, after: datetime, text: str | None
) -> None:
    warnings = preview(schedule, after, 15).warnings
    if text is None:
        assert warnings == ()
    else:
        assert len(warnings) == 1
        assert text in warnings[0]


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        (Once(NOON), []),
        (Every(300, NOON), []),
        (Every(0, NOON), ["interval_seconds"]),
        (Every(31_622_401, NOON, timezone="Nowhere"), ["timezone", "interval_seconds"]),
        (Every(60, NOON, start_at=NOON, end_at=NOON), ["end_time"]),
        (Every(60, NOON, start_at=NOON.replace(year=1969)), ["start_time"]),
        (Cron("0 0 * * *", timezone="Europe/Berlin", dst_gap="SKIP", dst_fold="BOTH"), []),
        (Cron("nonsense", timezone="Nowhere"), ["timezone", "cron_expression"]),
        (
            Cron("x", timezone="x", dst_gap="x", dst_fold="x", start_at=NOON, end_at=NOON - DAY),
            ["timezone", "dst_gap", "dst_fold", "cron_expression", "end_time"],
        ),
        (Cron("0 0 30 2 *"), ["cron_expression"]),
        (Cron("at(2026-10-25T02:30:00)", dst_fold="BOTH"), ["dst_fold"]),
        (Cron("at(2026-03-29T02:30:00)", timezone="Nowhere"), ["timezone"]),
    ],
)
def test_schedule_errors_name_all_wrong_fields(schedule: Schedule, fields: list[str]) -> None:
    assert [error.field for error in find_schedule_errors(schedule)] == fields


@pytest.mark.parametrize(
    ("schedule", "json"),
    [
        (Once(NOON), '{"is":"once","at":"2026-03-27T12:00:00Z"}'),
        (Every(60, NOON), '{"is":"every","seconds":60,"anchor":"2026-03-27T12:00:00Z"}'),
        (
            Cron("0 0 * * *", timezone="Asia/Tokyo", dst_gap="SKIP", exclude=(date(2026, 1, 1),)),
            '{"is":"cron","cron":"0 0 * * *","tz":"Asia/Tokyo","gap":"SKIP",'
            '"exclude":["2026-01-01"]}',
        ),
    ],
)
def test_schedule_is_stored_as_short_json(schedule: Schedule, json: str) -> None:
    assert msgspec.json.encode(schedule).decode() == json
    assert msgspec.json.decode(json, type=Schedule) == schedule


@pytest.mark.parametrize(
    ("schedule", "local", "utc"),
    [
        (Cron("30 2 * * *", timezone="Europe/Berlin"), (2026, 7, 1, 2, 30), (2026, 7, 1, 0, 30)),
        (Cron("30 2 * * *", timezone="Europe/Berlin"), (2026, 3, 29, 2, 30), (2026, 3, 29, 1, 0)),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin", dst_gap="SKIP"),
            (2026, 3, 29, 2, 30),
            (2026, 3, 29, 1, 0),
        ),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin", dst_gap="SHIFT"),
            (2026, 3, 29, 2, 30),
            (2026, 3, 29, 1, 30),
        ),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin"),
            (2026, 10, 25, 2, 30),
            (2026, 10, 25, 0, 30),
        ),
        (
            Cron("30 2 * * *", timezone="Europe/Berlin", dst_fold="SECOND"),
            (2026, 10, 25, 2, 30),
            (2026, 10, 25, 1, 30),
        ),
        (Every(60, NOON, timezone="Asia/Kolkata"), (2026, 7, 1, 5, 30), (2026, 7, 1, 0, 0)),
        (Once(NOON), (2026, 7, 1, 5, 30, 1, 250_000), (2026, 7, 1, 5, 30, 1, 250_000)),
        (None, (2026, 7, 1, 5, 30), (2026, 7, 1, 5, 30)),
    ],
)
def test_local_time_is_read_in_the_zone_of_the_schedule(
    schedule: Schedule | None, local: tuple[int, ...], utc: tuple[int, ...]
) -> None:
    local_time = datetime(*local)  # type: ignore[arg-type] # noqa: DTZ001
    assert local_to_instant(schedule, local_time) == datetime(*utc, tzinfo=UTC)  # type: ignore[arg-type,misc]
