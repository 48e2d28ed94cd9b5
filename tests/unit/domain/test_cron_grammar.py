"""The grammar of cron expressions, and the meaning of each form."""

from datetime import UTC, datetime

import pytest

from punctual.domain.schedules.cron.expression import At, Calendar, Rate, parse_cron
from punctual.domain.schedules.schedule import Cron, next_after

START = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday


def days(expression: str, count: int) -> list[str]:
    return [f"{at:%m-%d}" for at in times(expression, count)]


def times(expression: str, count: int) -> list[datetime]:
    schedule, at, fired = Cron(expression), START, []
    for _ in range(count):
        at = next_after(schedule, at) or START
        fired.append(at)
    return fired


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 * * * *", ["00:20:00", "00:40:00", "01:00:00"]),
        ("5/20 * * * *", ["00:05:00", "00:25:00", "00:45:00"]),
        ("10-30/10 * * * *", ["00:10:00", "00:20:00", "00:30:00"]),
        ("55-5/5 * * * *", ["00:05:00", "00:55:00", "01:00:00"]),
        ("0 22-2 * * *", ["01:00:00", "02:00:00", "22:00:00"]),
        ("0 22-2/2 * * *", ["02:00:00", "22:00:00", "00:00:00"]),
        ("  0   1,3 * * *  ", ["01:00:00", "03:00:00", "01:00:00"]),
        ("*/30 * * * * *", ["00:00:30", "00:01:00", "00:01:30"]),
        ("15 0 0 * * *", ["00:00:15", "00:00:15", "00:00:15"]),
        ("@hourly", ["01:00:00", "02:00:00", "03:00:00"]),
        ("*/60 * * * *", ["01:00:00", "02:00:00", "03:00:00"]),
    ],
)
def test_cron_fires_at_these_times_of_day(expression: str, expected: list[str]) -> None:
    assert [f"{at:%H:%M:%S}" for at in times(expression, 3)] == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@yearly", ["01-01", "01-01"]),
        ("@ANNUALLY", ["01-01", "01-01"]),
        ("@monthly", ["02-01", "03-01", "04-01"]),
        ("@weekly", ["01-04", "01-11"]),
        ("@daily", ["01-02", "01-03"]),
        ("@midnight", ["01-02", "01-03"]),
        ("0 0 * * 0", ["01-04", "01-11"]),
        ("0 0 * * 7", ["01-04", "01-11"]),
        ("0 0 * * sUn", ["01-04", "01-11"]),
        ("0 0 * * 5-7", ["01-02", "01-03", "01-04", "01-09"]),
        ("0 0 * * FRI-MON", ["01-02", "01-03", "01-04", "01-05", "01-09"]),
        ("0 0 * * 7-2", ["01-04", "01-05", "01-06", "01-11"]),
        ("0 0 * * 6-1/2", ["01-03", "01-05", "01-10", "01-12"]),
        ("0 0 28-3 feb-mar *", ["02-01", "02-02", "02-03", "02-28", "03-01"]),
        ("0 0 1 NOV-feb *", ["02-01", "11-01", "12-01", "01-01"]),
        ("0 0 L * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("0 0 L-3 * *", ["01-28", "02-25", "03-28", "04-27"]),
        ("0 0 L-30 * *", ["03-01", "05-01", "07-01"]),
        ("0 0 LW * *", ["01-30", "02-27", "03-31", "04-30", "05-29"]),
        ("0 0 15W * *", ["01-15", "02-16", "03-16", "04-15", "05-15"]),
        ("0 0 1W * *", ["02-02", "03-02", "04-01", "05-01"]),
        ("0 0 1W 8 *", ["08-03"]),
        ("0 0 31W * *", ["01-30", "03-31", "05-29", "07-31"]),
        ("0 0 1,l,10w * *", ["01-09", "01-31", "02-01", "02-10"]),
        ("0 0 * * 5L", ["01-30", "02-27", "03-27"]),
        ("0 0 * * 7L", ["01-25", "02-22"]),
        ("0 0 * * friL", ["01-30", "02-27"]),
        ("0 0 * * 5#2", ["01-09", "02-13", "03-13"]),
        ("0 0 * * mon#5", ["03-30", "06-29", "08-31"]),
        ("0 0 * * 1#1,5#3", ["01-05", "01-16", "02-02"]),
        ("0 0 29 2 *", ["02-29", "02-29"]),
    ],
)
def test_cron_fires_on_these_days(expression: str, expected: list[str]) -> None:
    assert days(expression, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 13 * 5", ["01-02", "01-09", "01-13", "01-16"]),
        ("0 0 */2 * 1", ["01-05", "01-19", "02-09"]),
        ("0 0 13 * */2", ["01-13", "06-13", "08-13"]),
        ("0 0 ? * 5", ["01-02", "01-09"]),
        ("0 0 13 * ?", ["01-13", "02-13"]),
        ("0 0 1-31 * 5", ["01-02", "01-03", "01-04"]),
        ("0 0 L * 5", ["01-02", "01-09", "01-16", "01-23", "01-30", "01-31"]),
        ("0 0 *,1 * 5", ["01-02", "01-09"]),
        ("0 0 L-30 4 5", ["04-03", "04-10", "04-17", "04-24", "04-02"]),
    ],
)
def test_two_day_fields_match_either_unless_one_begins_with_a_star(
    expression: str, expected: list[str]
) -> None:
    assert days(expression, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("cron(0 0 ? * 1 *)", ["01-04", "01-11"]),
        ("cron(0 0 ? * 2-6 *)", ["01-02", "01-05", "01-06"]),
        ("cron(0 0 ? * 6-2 *)", ["01-02", "01-03", "01-04", "01-05", "01-09"]),
        ("cron(0 0 ? * SAT-MON *)", ["01-03", "01-04", "01-05", "01-10"]),
        ("cron(0 0 ? * L *)", ["01-03", "01-10"]),
        ("cron(0 0 ? * 6L *)", ["01-30", "02-27"]),
        ("cron(0 0 ? * 3#2 *)", ["01-13", "02-10"]),
        ("cron(0 0 ? * MON#1 *)", ["01-05", "02-02"]),
        ("cron(0 0 L * ? *)", ["01-31", "02-28"]),
        ("cron(0 0 3W * ? *)", ["01-02", "02-03", "03-03", "04-03", "05-04"]),
        ("cron(0 0 1/10 * ? *)", ["01-11", "01-21", "01-31", "02-01"]),
        ("cron(0 0 1 1 ? 2030)", ["01-01"]),
        ("CRON( 0 0 * * ? * )", ["01-02", "01-03"]),
    ],
)
def test_eventbridge_cron_fires_on_these_days(expression: str, expected: list[str]) -> None:
    assert days(expression, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("*/100 * * * * *", "0 * * * * *"),
        ("*/61 * * * *", "0 * * * *"),
        ("5-50/90 * * * *", "5 * * * *"),
        ("50-5/90 * * * *", "50 * * * *"),
        ("0 */48 * * *", "0 0 * * *"),
        ("0 7/99 * * *", "0 7 * * *"),
        ("0 0 */32 * *", "0 0 1 * *"),
        ("0 0 1 */13 *", "0 0 1 1 *"),
        ("0 0 1 NOV-FEB/13 *", "0 0 1 11 *"),
        ("0 0 * * */8", "0 0 * * 0"),
        ("0 0 * * FRI/8", "0 0 * * 5"),
        (f"0 */1{200 * '0'} * * *", "0 0 * * *"),
        ("cron(0/90 * * * ? *)", "cron(0 * * * ? *)"),
        ("cron(0 0 ? * */8 *)", "cron(0 0 ? * SUN *)"),
        ("cron(0 0 1 1 ? 2027/500)", "cron(0 0 1 1 ? 2027)"),
    ],
)
def test_step_longer_than_its_field_leaves_the_first_value(expression: str, same: str) -> None:
    starts = [START, datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)]
    for at in starts:
        assert next_after(Cron(expression), at) == next_after(Cron(same), at)


def test_step_longer_than_its_field_selects_the_first_monday() -> None:
    expression = "0 0 */100,1-7 * MON"
    assert days(expression, 4) == ["01-05", "02-02", "03-02", "04-06"]
    assert times(expression, 30) == times("0 0 * * MON#1", 30)


def test_eventbridge_cron_ends_with_its_last_year() -> None:
    assert times("cron(0 0 1 1 ? 2030,2032)", 2) == [
        datetime(2030, 1, 1, tzinfo=UTC),
        datetime(2032, 1, 1, tzinfo=UTC),
    ]
    assert next_after(Cron("cron(0 0 1 1 ? 2030,2032)"), datetime(2032, 1, 1, tzinfo=UTC)) is None
    assert next_after(Cron("cron(* * * * ? 2020)"), START) is None


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [("rate(1 minute)", 60), ("rate(5 minutes)", 300), ("rate(2 hours)", 7200)],
)
def test_rate_is_parsed_in_seconds(expression: str, seconds: int) -> None:
    assert parse_cron(expression) == Rate(seconds)


def test_at_expression_is_parsed_as_local_time() -> None:
    assert parse_cron("at(1970-01-02T00:00:05)") == At(86_405)


@pytest.mark.parametrize(
    ("expression", "is_fixed"),
    [
        ("30 2 * * *", True),
        ("0-59 0-23 * * *", True),
        ("0/10 2 * * *", True),
        ("@daily", True),
        ("@hourly", False),
        ("0 * * * *", False),
        ("*/10 2 * * *", False),
        ("*,5 2 * * *", False),
        ("*/10 30 2 * * *", True),
        ("0 * 2 * * *", False),
        ("cron(0 0/1 * * ? *)", True),
    ],
)
def test_fixed_time_has_no_star_in_minute_and_hour(expression: str, is_fixed: bool) -> None:
    meaning = parse_cron(expression)
    assert isinstance(meaning, Calendar)
    assert meaning.is_fixed is is_fixed


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "five fields"),
        ("* * * *", "not 4"),
        ("0 0 12 * * ? 2030", "seven fields"),
        ("60 * * * *", "60 is out of range in the minute field: it takes 0 to 59"),
        ("* 24 * * *", "out of range in the hour field"),
        ("* * 0 * *", "out of range in the day-of-month field"),
        ("* * 32 * *", "out of range in the day-of-month field"),
        ("* * * 13 *", "out of range in the month field"),
        ("* * * * 8", "out of range in the day-of-week field"),
        ("60 * * * * *", "out of range in the second field"),
        ("-1 * * * *", "not understood|negative|empty"),
        ("1- * * * *", "empty item in the minute field"),
        ("1-2-3 * * * *", "not understood"),
        (", * * * *", "empty item"),
        ("1,,2 * * * *", "empty item"),
        ("*/0 * * * *", "a step of 0"),
        ("0/0 * * * *", "a step of 0"),
        ("*/x * * * *", "not a whole number"),
        ("*/ * * * *", "not a whole number"),
        ("*/-5 * * * *", "not a whole number"),
        ("*5 * * * *", "not understood"),
        ("1.5 * * * *", "not understood"),
        ("\u0663 * * * *", "not ASCII"),
        ("* * * * MONDAY", "SUN to SAT"),
        ("* * * FOO *", "JAN to DEC"),
        ("R * * * *", "random"),
        ("R(0-30) * * * *", "random"),
        ("H H * * *", "random"),
        ("H/15 * * * *", "random"),
        ("0~30 * * * *", "random"),
        ("0 0 h * *", "random"),
        ("0 0 * * R", "random"),
        ("? * * * *", r"\? is only for the day fields"),
        ("* * * ? *", r"\? is only for the day fields"),
        ("0 0 W * *", "15W"),
        ("0 0 1-5W * *", "15W|not understood|out of range"),
        ("0 0 L-31 * *", "L-0 to L-30"),
        ("0 0 L-3W * *", "LW for the last weekday"),
        ("0 0 32W * *", "out of range"),
        ("0 0 * * L", "5L"),
        ("0 0 * * L5", "5L"),
        ("0 0 * * 8L", "out of range"),
        ("0 0 * * 5#6", "1 to 5"),
        ("0 0 * * 5#0", "1 to 5"),
        ("0 0 * * 5#", "1 to 5"),
        ("0 0 * * #2", "empty item"),
        ("0 0 30 2 *", "can never fire"),
        ("0 0 31 2,4,6,9,11 *", "can never fire"),
        ("0 0 L-30 2,4 *", "can never fire"),
        ("@reboot", "no time"),
        ("@every 5m", "INTERVAL"),
        ("@fortnightly", "is not known: there are @yearly"),
        ("@daily 5", "nothing may follow it"),
        ("TZ=Europe/Berlin 0 0 * * *", "field timezone"),
        ("* * * * *" + " " * 250, "256"),
        ("cron(0 0 * * *)", "six fields"),
        ("cron(0 0 * * * *)", r"must be \?"),
        ("cron(0 0 ? * ? *)", r"must be \?"),
        ("cron(0 0 ? * 0 *)", "it takes 1 to 7"),
        ("cron(0 0 ? * 2#1,3#2 *)", "holds nothing else"),
        ("cron(0 0 * * ? 1969)", "1970 to 2199"),
        ("cron(0 0 * * ? 2030-2020)", "run backwards"),
        ("cron(0 0 29 2 ? 2027)", "can never fire"),
        ("cron(0 0 * * ? *", "not understood"),
        ("rate(1 minutes)", "EventBridge wants rate.1 minute."),
        ("rate(5 minute)", "EventBridge wants rate.5 minutes."),
        ("rate(0 minutes)", "never move on"),
        ("rate(5 weeks)", "minutes, hours and days"),
        ("rate(5)", "such as rate"),
        ("rate(-5 minutes)", "such as rate"),
        ("rate(400 days)", "at most 366 days"),
        ("at(2026-11-20)", "at.2026-11-20T13:00:00."),
        ("at(2026-02-30T00:00:00)", "not a date and time"),
        ("at(2026-11-20T25:00:00)", "not a date and time"),
        ("at(2026-11-20T13:00:00Z)", "as in at"),
        ("at(2300-01-01T00:00:00)", "1970 to 2199"),
        ("at(0001-01-01T00:00:00)", "1970 to 2199"),
    ],
)
def test_invalid_cron_expression_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        parse_cron(expression)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
