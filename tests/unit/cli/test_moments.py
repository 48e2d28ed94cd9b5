"""Times as people write them, and as they read them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from punctual_cli.input import moments

NOW = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)  # the day before clocks go forward in Berlin
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "meant"),
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
def test_a_time_means_what_a_person_in_berlin_means(text: str, meant: str) -> None:
    assert moments.parse_time(text, NOW, BERLIN).isoformat() == meant


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "2026-13-01", "+", "-x", "2026-02-30 10:00", "+999999999999d", "1h"],
)
def test_what_is_no_time_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="write 2026-12-01T10:00:00Z"):
        moments.parse_time(text, NOW, BERLIN)


@pytest.mark.parametrize("text", ["", "5 m", "m", "1.5h", "-5m", "h1"])
def test_what_is_no_duration_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: write 90, 30s"):
        moments.parse_duration(text)


@pytest.mark.parametrize(
    ("away", "hint"),
    [
        (timedelta(milliseconds=400), "now"),
        (timedelta(seconds=59), "in 59 s"),
        (timedelta(minutes=-59), "59 min ago"),
        (timedelta(hours=23), "in 23 h"),
        (timedelta(days=400), "in 400 d"),
    ],
)
def test_how_far_off(away: timedelta, hint: str) -> None:
    assert moments.format_relative(NOW + away, NOW) == hint


@pytest.mark.parametrize(
    ("away", "shown"),
    [
        (timedelta(seconds=50), "13:00:50 (in 50 s)"),
        (timedelta(hours=-3), "10:00 (3 h ago)"),
        (timedelta(hours=12), "Mar 29 01:00 (in 12 h)"),
        (timedelta(hours=14), "Mar 29 04:00 (in 14 h)"),  # clocks went forward in between
        (timedelta(days=100), "2026-07-06 14:00"),
    ],
)
def test_a_table_shows_a_time_as_short_as_it_can(away: timedelta, shown: str) -> None:
    assert moments.format_short(NOW + away, NOW, BERLIN) == shown


def test_a_card_shows_a_time_in_full_with_its_zone() -> None:
    summer = NOW + timedelta(days=30)
    assert moments.format_long(summer, NOW, BERLIN) == "2026-04-27 14:00:00 CEST (in 30 d)"
    nameless = ZoneInfo("America/Sao_Paulo")
    assert moments.format_long(summer, NOW, nameless) == "2026-04-27 09:00:00 -0300 (in 30 d)"


@pytest.mark.parametrize(
    ("long", "shown"),
    [
        (timedelta(), "0 s"),
        (timedelta(milliseconds=3.4), "3 ms"),
        (timedelta(seconds=2.345), "2.3 s"),
        (timedelta(seconds=12.9), "12 s"),
        (timedelta(minutes=9, seconds=5), "9 min 5 s"),
        (timedelta(hours=25), "1 d 1 h"),
    ],
)
def test_how_long_it_took(long: timedelta, shown: str) -> None:
    assert moments.format_duration(long) == shown
