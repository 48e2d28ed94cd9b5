"""The functions of the migration pages keep the times of the former scheduler."""

import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.schedules.cron.expression import Calendar, parse_cron

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
FIRST = date(2027, 1, 1)
YEAR = [FIRST + timedelta(days=number) for number in range(365)]
EPOCH = date(1970, 1, 1)


def functions_of(page: str) -> dict[str, Any]:
    """Return the functions that a page's Python block defines, without running the rest."""
    text = (HOW_TO / page).read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S)
    assert code is not None
    functions = re.split(r"^(?:manifest|BEAT) = ", code[1], flags=re.M)[0]
    namespace: dict[str, Any] = {}
    exec(functions, namespace)
    return namespace


def days_of(expression: str) -> set[date]:
    """Return the days of the year on which an expression at midnight fires."""
    calendar = parse_cron(expression)
    assert isinstance(calendar, Calendar)
    seconds = [(day - EPOCH).days * 86_400 for day in YEAR]
    return {
        day
        for day, second in zip(YEAR, seconds, strict=True)
        if calendar.next_local(second) == second
    }


def days_matching(rule: Callable[[date], bool]) -> set[date]:
    return {day for day in YEAR if rule(day)}


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        ("0 0 */2 * MON", lambda day: day.day % 2 == 1 or day.weekday() == 0),
        ("0 0 13 * */2", lambda day: day.day == 13 or day.isoweekday() % 7 % 2 == 0),
        ("0 0 */10 * *", lambda day: day.day % 10 == 1),
        ("0 0 * * */3", lambda day: day.isoweekday() % 7 % 3 == 0),
        ("0 0 */1 * MON", lambda day: day.weekday() == 0),
        ("0 0 1-7 * MON", lambda day: day.day <= 7 or day.weekday() == 0),
    ],
)
def test_kubernetes_page_keeps_the_days_of_an_expression(
    schedule: str, rule: Callable[[date], bool]
) -> None:
    converted = functions_of("move-from-kubernetes-cronjob.md")["schedule_of"](schedule, "UTC")
    assert days_of(converted["cron_expression"]) == days_matching(rule)
    assert (converted["dst_gap"], converted["dst_fold"]) == ("SKIP", "BOTH")


def test_kubernetes_page_converts_every_to_an_interval() -> None:
    schedule_of = functions_of("move-from-kubernetes-cronjob.md")["schedule_of"]
    assert schedule_of("@every 90m", "UTC") == {
        "schedule_type": "INTERVAL",
        "interval_seconds": 5400,
    }


@pytest.mark.parametrize(
    ("days", "weekdays", "rule"),
    [
        ("1-7", "mon", lambda day: day.day <= 7 and day.weekday() == 0),
        ("1,15", "1-5", lambda day: day.day in (1, 15) and day.weekday() < 5),
        ("8-14", "0,3", lambda day: 8 <= day.day <= 14 and day.weekday() in (2, 6)),
        ("*/2", "fri", lambda day: day.day % 2 == 1 and day.weekday() == 4),
        ("*", "sat", lambda day: day.weekday() == 5),
        ("13", "*", lambda day: day.day == 13),
    ],
)
def test_celery_page_keeps_the_days_of_a_crontab(
    days: str, weekdays: str, rule: Callable[[date], bool]
) -> None:
    crontab = functions_of("move-from-celery-beat.md")["crontab"]
    converted = crontab(minute=0, hour=0, day_of_month=days, day_of_week=weekdays)
    assert days_of(converted) == days_matching(rule)


def test_celery_page_refuses_a_crontab_without_an_equal_expression() -> None:
    crontab = functions_of("move-from-celery-beat.md")["crontab"]
    with pytest.raises(ValueError, match="no cron expression means day 8-14 and weekday mon"):
        crontab(day_of_month="8-14", day_of_week="mon")
