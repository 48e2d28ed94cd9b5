"""Times in the forms that people write and read."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from punctual_cli.input import moments

NOW = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)  # the day before clocks go forward in Berlin
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-03-28T12:00:00+00:00"),
        ("2026-12-01T10:00:00Z", "2026-12-01T10:00:00+00:00"),
        ("2026-12-01t10:00:00.5+02:00", "2026-12-01T08:00:00.500000+00:00"),
        ("2026-12-01 10:00", "2026-12-01T09:00:00+00:00"),
        ("2026-12-01", "2026-11-30T23:00:00+00:00"),
        ("today", "2026-03-27T23:00:00+00:00"),
        ("tomorrow", "2026-03-28T23:00:00+00:00"),
        ("yesterday", "2026-03-26T23:00:00+00:00"),
        ("09:30", "2026-03-28T08:30:00+00:00"),
        (" 9:30:15 ", "2026-03-28T08:30:15+00:00"),
        ("2026-03-30 09:30", "2026-03-30T07:30:00+00:00"),
        ("-2h", "2026-03-28T10:00:00+00:00"),
        ("+1d12h", "2026-03-30T00:00:00+00:00"),
        ("-90", "2026-03-28T11:58:30+00:00"),
    ],
)
def test_time_is_parsed_in_the_local_zone(text: str, expected: str) -> None:
    assert moments.parse_time(text, NOW, BERLIN).isoformat() == expected


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "2026-13-01", "+", "-x", "2026-02-30 10:00", "+999999999999d", "1h"],
)
def test_wrong_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="use 2026-12-01T10:00:00Z"):
        moments.parse_time(text, NOW, BERLIN)


@pytest.mark.parametrize("text", ["", "5 m", "m", "1.5h", "-5m", "h1"])
def test_wrong_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; use 90, 30s"):
        moments.parse_duration(text)


@pytest.mark.parametrize(
    ("distance", "hint"),
    [
        (timedelta(milliseconds=400), "now"),
        (timedelta(seconds=59), "in 59 s"),
        (timedelta(minutes=-59), "59 min ago"),
        (timedelta(hours=23), "in 23 h"),
        (timedelta(days=400), "in 400 d"),
    ],
)
def test_relative_time_is_rounded_to_one_unit(distance: timedelta, hint: str) -> None:
    assert moments.format_relative(NOW + distance, NOW) == hint


@pytest.mark.parametrize(
    ("distance", "shown"),
    [
        (timedelta(seconds=50), "13:00:50 (in 50 s)"),
        (timedelta(hours=-3), "10:00 (3 h ago)"),
        (timedelta(hours=12), "Mar 29 01:00 (in 12 h)"),
        (timedelta(hours=14), "Mar 29 04:00 (in 14 h)"),  # clocks went forward in between
        (timedelta(days=100), "2026-07-06 14:00"),
    ],
)
def test_table_shows_the_short_form_of_a_time(distance: timedelta, shown: str) -> None:
    assert moments.format_short(NOW + distance, NOW, BERLIN) == shown


def test_card_shows_the_full_time_with_its_zone() -> None:
    summer = NOW + timedelta(days=30)
    assert moments.format_long(summer, NOW, BERLIN) == "2026-04-27 14:00:00 CEST (in 30 d)"
    unnamed_zone = ZoneInfo("America/Sao_Paulo")
    assert moments.format_long(summer, NOW, unnamed_zone) == "2026-04-27 09:00:00 -0300 (in 30 d)"


@pytest.mark.parametrize(
    ("duration", "shown"),
    [
        (timedelta(), "0 s"),
        (timedelta(milliseconds=3.4), "3 ms"),
        (timedelta(seconds=2.345), "2.3 s"),
        (timedelta(seconds=12.9), "12 s"),
        (timedelta(minutes=9, seconds=5), "9 min 5 s"),
        (timedelta(hours=25), "1 d 1 h"),
    ],
)
def test_duration_is_shown_in_at_most_two_units(duration: timedelta, shown: str) -> None:
    assert moments.format_duration(duration) == shown
