"""A year of occurrences of many expressions and zones, recorded once from the oracle."""

import json
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest

from punctual.domain.schedules.schedule import Cron, occurrences
from tests.golden.generate import EXPRESSIONS, FILE, YEARS, summary

LINES = [json.loads(line) for line in FILE.read_text(encoding="ascii").splitlines()]
BY_ZONE_AND_YEAR = {
    f"{zone}-{year}": list(lines)
    for (zone, year), lines in groupby(LINES, key=lambda line: (line["zone"], line["year"]))
}


def test_golden_file_has_every_expression_in_every_zone() -> None:
    wanted = [(zone, year, *expression) for zone, year in YEARS for expression in EXPRESSIONS]
    recorded = [
        tuple(line[key] for key in ("zone", "year", "cron", "gap", "fold")) for line in LINES
    ]
    assert recorded == wanted


@pytest.mark.parametrize("zone_and_year", BY_ZONE_AND_YEAR)
def test_cron_fires_as_the_oracle_recorded(zone_and_year: str) -> None:
    wrong = []
    for line in BY_ZONE_AND_YEAR[zone_and_year]:
        schedule = Cron(
            line["cron"], timezone=line["zone"], dst_gap=line["gap"], dst_fold=line["fold"]
        )
        start = datetime(line["year"], 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
        end = datetime(line["year"] + 1, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
        fired = summary(occurrences(schedule, start, end))
        if fired != (line["count"], line["digest"]):
            wrong.append((line, fired))
    assert wrong == []
