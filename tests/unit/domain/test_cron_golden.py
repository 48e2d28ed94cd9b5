"""A year of occurrences of many expressions and zones, recorded once from the oracle."""

import json
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest

from punctual.domain.schedules.schedule import Cron, occurrences
from tests.golden.generate import EXPRESSIONS, FILE, YEARS, summary

LINES = [json.loads(line) for line in FILE.read_text(encoding="ascii").splitlines()]
BY_PLACE = {
    f"{zone}-{year}": list(lines)
    for (zone, year), lines in groupby(LINES, key=lambda line: (line["zone"], line["year"]))
}


def test_the_golden_file_holds_every_expression_in_every_zone() -> None:
    asked = [(z, y, *e) for z, y in YEARS for e in EXPRESSIONS]
    held = [tuple(line[key] for key in ("zone", "year", "cron", "gap", "fold")) for line in LINES]
    assert held == asked


@pytest.mark.parametrize("place", BY_PLACE)
def test_a_year_fires_as_the_oracle_counted(place: str) -> None:
    wrong = []
    for line in BY_PLACE[place]:
        schedule = Cron(
            line["cron"], timezone=line["zone"], dst_gap=line["gap"], dst_fold=line["fold"]
        )
        start = datetime(line["year"], 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
        end = datetime(line["year"] + 1, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
        found = summary(occurrences(schedule, start, end))
        if found != (line["count"], line["digest"]):
            wrong.append((line, found))
    assert wrong == []
