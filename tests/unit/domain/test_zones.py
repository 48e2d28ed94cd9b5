"""Zones come from the pinned package, and their transitions equal those of zoneinfo."""

import random
from datetime import UTC, datetime, timedelta
from importlib import metadata, resources
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from punctual.domain.schedules.timezones import (
    TZDATA_VERSION,
    end_of_days,
    local_day,
    transitions,
    zone,
)
from punctual.domain.utc import EPOCH
from tests.golden.oracle import pinned_zone

LATE_SECOND = (datetime(2190, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
ZONE_NAMES = (resources.files("tzdata") / "zones").read_text(encoding="ascii").split()


def test_tzdata_version_is_that_of_the_installed_package() -> None:
    year, part = metadata.version("tzdata").split(".")
    assert f"{year}{chr(ord('a') + int(part) - 1)}" == TZDATA_VERSION


def test_zone_is_read_from_the_package_without_zones_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path),))
    path = resources.files("tzdata.zoneinfo") / "Asia" / "Kathmandu"
    with path.open("rb") as file:
        expected = ZoneInfo.from_file(file)
    at = datetime(1985, 12, 31, 18, 30, tzinfo=UTC)
    for moment in (at - timedelta(seconds=1), at):
        assert moment.astimezone(zone("Asia/Kathmandu")).utcoffset() == (
            moment.astimezone(expected).utcoffset()
        )
    assert zone("Asia/Kathmandu") is zone("Asia/Kathmandu")
    assert str(zone("Asia/Kathmandu")) == "Asia/Kathmandu"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../../../etc/passwd",
        "/usr/share/zoneinfo/UTC",
        "Europe/../UTC",
        "Europe",
        "zone.tab",
        "__init__.py",
        "Europe/Berlin\x00",
        "Europe\\Berlin",
        "UTC+1",
        "a" * 10_000,
        "Zürich",
    ],
)
def test_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not an IANA time zone") as raised:
        zone(name)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("europe/berlin", "Europe/Berlin"), ("new york", "America/New_York"), ("utc", "UTC")],
)
def test_misspelled_zone_gets_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{suggestion}'"):
        zone(name)


def test_zone_transitions_give_the_offsets_of_zoneinfo() -> None:
    draw = random.Random(20260101)
    low, high = datetime(1850, 1, 1, tzinfo=UTC), datetime(2199, 12, 31, tzinfo=UTC)
    span = int((high - low).total_seconds())
    wrong = []
    for name in ZONE_NAMES:
        info, table = pinned_zone(name), transitions(name)
        at = table.changes
        checked = draw.sample(at, min(6, len(at))) + [
            change for change in at if change > LATE_SECOND
        ]
        near = [moment + side for moment in checked for side in (-1, 0)]
        far = [draw.randrange(span) + int((low - EPOCH).total_seconds()) for _ in range(6)]
        for second in near + far:
            moment = EPOCH + timedelta(seconds=second)
            index = sum(1 for change in at if change <= second)
            offset = moment.astimezone(info).utcoffset()
            if offset != timedelta(seconds=table.offsets[index]):
                wrong.append((name, moment, offset))
    assert wrong == []


def test_zone_transitions_are_complete_until_the_horizon() -> None:
    for name, year in (("Europe/Berlin", 2199), ("Australia/Lord_Howe", 2150)):
        changes = [EPOCH + timedelta(seconds=at) for at in transitions(name).changes]
        assert sum(1 for change in changes if change.year == year) == 2


def test_clock_changes_are_farther_apart_than_they_move_the_clock() -> None:
    """The walk over local times relies on this, because no local time then occurs three times."""
    close = []
    for name in ZONE_NAMES:
        at, offsets = transitions(name)
        for i in range(1, len(at)):
            moved = abs(offsets[i] - offsets[i - 1]) + abs(offsets[i + 1] - offsets[i])
            if at[i] - at[i - 1] <= moved:
                close.append((name, at[i]))
    assert close == []


def test_local_day_ends_at_midnight_or_at_a_clock_change() -> None:
    morning = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    change = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert local_day("Europe/Berlin", morning) == morning.date().toordinal()
    assert end_of_days("Europe/Berlin", morning, 1) == change
    assert end_of_days("Europe/Berlin", change, 1) == datetime(2026, 3, 29, 22, tzinfo=UTC)
    assert end_of_days("Europe/Berlin", change, 3) == datetime(2026, 3, 31, 22, tzinfo=UTC)
    assert end_of_days("Europe/Berlin", change, 366) == datetime(2026, 10, 25, 1, tzinfo=UTC)
