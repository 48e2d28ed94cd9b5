"""Descriptions of schedules in English."""

from datetime import UTC, datetime

import pytest

from punctual.domain.schedules.describe import describe
from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("30 2 * * 1-5", "At 02:30, Monday to Friday"),
        ("0 0 * * *", "At 00:00"),
        ("@hourly", "Every hour"),
        ("* * * * *", "Every minute"),
        ("* * * * * *", "Every second"),
        ("*/10 * * * *", "Every 10 minutes"),
        ("5/10 * * * *", "Every 10 minutes from minute 5"),
        ("*/30 * * * * *", "Every 30 seconds"),
        ("7 * * * *", "7 minutes past the hour"),
        ("1 * * * *", "1 minute past the hour"),
        ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30"),
        ("15 30 2 * * *", "At 02:30:15"),
        ("0 9-17 * * *", "On the hour, from 09:00 to 17:00"),
        ("*/15 9-17 * * *", "Every 15 minutes, from 09:00 to 17:45"),
        ("0 */2 * * *", "On the hour, every 2 hours"),
        ("5,10 */2 * * *", "At minutes 5 and 10 past the hour, every 2 hours"),
        ("0 1-20/3 * * *", "On the hour, in the hours 01, 04, 07, 10, 13, 16 and 19"),
        ("*/45 * * * *", "At minutes 0 and 45 past the hour"),
        ("5/45 * * * *", "At minutes 5 and 50 past the hour"),
        ("*/45 * * * * *", "At seconds 0 and 45 of the minute"),
        ("*/10 */7 * * *", "Every 10 minutes, in the hours 00, 07, 14 and 21"),
        ("*/10 */6 * * *", "Every 10 minutes, in the hours 00, 06, 12 and 18"),
        ("*/5 9 * * *", "Every 5 minutes, from 09:00 to 09:55"),
        (
            "*/10 */5 * * * *",
            "Every 10 seconds, in minutes 0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50 and 55 "
            "of the hour",
        ),
        ("5 */20 * * * *", "At second 5 of the minute, every 20 minutes"),
        ("* 7 * * * *", "Every second, in minute 7 of the hour"),
        ("0 22-2 * * *", "On the hour, from 22:00 to 02:00"),
        ("*/15 22-2 * * *", "Every 15 minutes, from 22:00 to 02:45"),
        (
            "*/15 22-2 * * MON",
            "Every 15 minutes, from 00:00 to 02:45 and from 22:00 to 23:45, Monday",
        ),
        ("0 0,3-9 * * *", "On the hour, in the hours 00 and 03 to 09"),
        ("0 0 1 11-2 *", "At 00:00, on day 1 of the month, in November to February"),
        (
            "cron(0 0 1 11-2 ? 2027)",
            "At 00:00, on day 1 of the month, in January, February, November and December, in 2027",
        ),
        ("0 0 1-31 * 5", "At 00:00"),
        ("0 0 13 * 0-6", "At 00:00"),
        ("0 0 *,1 * 5", "At 00:00, Friday"),
        ("0 0 1,15 * *", "At 00:00, on days 1 and 15 of the month"),
        ("0 0 13 * 5", "At 00:00, on day 13 of the month or Friday"),
        (
            "0 0 13 * */2",
            "At 00:00, on day 13 of the month if it is Tuesday, Thursday, Saturday or Sunday",
        ),
        ("0 0 L * *", "At 00:00, on the last day of the month"),
        ("0 0 L-1 * *", "At 00:00, on the last day of the month minus 1 day"),
        ("0 0 LW 1-3 *", "At 00:00, on the last weekday of the month, in January to March"),
        ("0 0 15W * *", "At 00:00, on the weekday nearest day 15 of the month"),
        ("0 0 * * 5L", "At 00:00, on the last Friday of the month"),
        ("0 0 * * MON#1", "At 00:00, on the first Monday of the month"),
        ("0 0 * 2,12 6-1", "At 00:00, Saturday to Monday, in February and December"),
        (
            "cron(0 10 ? * 6L 2022-2030)",
            "At 10:00, on the last Friday of the month, in 2022 to 2030",
        ),
    ],
)
def test_cron_description_is_plain_english(expression: str, text: str) -> None:
    assert describe(Cron(expression, timezone="Europe/Berlin")) == f"{text}, in Europe/Berlin"


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Once(NOON), "Once, at 2026-03-27 12:00:00 UTC"),
        (Every(1, NOON), "Every second"),
        (Every(300, NOON), "Every 5 minutes"),
        (Every(3_660, NOON), "Every 1 hour and 1 minute"),
        (Every(86_400, NOON, from_completion=True), "Every 24 hours after the last run has ended"),
        (Every(604_800, NOON), "Every 168 hours"),
        (Every(93_784, NOON), "Every 26 hours, 3 minutes and 4 seconds"),
        (Cron("rate(1 day)"), "Every 24 hours"),
        (Cron("rate(90 minutes)"), "Every 1 hour and 30 minutes"),
        (
            Cron("at(2026-11-20T13:00:00)", timezone="Asia/Tokyo"),
            "Once, at 2026-11-20 13:00:00, in Asia/Tokyo",
        ),
    ],
)
def test_description_of_other_schedules_is_plain_english(schedule: Schedule, text: str) -> None:
    assert describe(schedule) == text
