"""Periods of a job's definitions, the latest first."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from punctual.domain.job_state import JobState
from punctual.domain.schedules.schedule import Cron, Every, Once
from punctual.engine.ports.rows import DefinitionRow
from punctual.engine.queries.definitions_over_time import Period, periods
from tests.support.builders import a_definition_row, a_job_state

CREATED = datetime(2026, 11, 1, 12, 0, 0, 123_000, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTELY = {"schedule_type": "INTERVAL", "interval_seconds": 60}
DAILY = {"schedule_type": "CRON", "cron_expression": "0 6 * * *"}
AT_ONCE = {"schedule_type": "IMMEDIATE"}


def definition_rows(*documents: dict[str, Any]) -> list[DefinitionRow]:
    """Return definition rows of one job, an hour apart, the latest first as they are read."""
    rows = [
        a_definition_row(
            ref=str(number),
            edition=number,
            created_at=CREATED + number * HOUR,
            document={"name": str(number), **document},
            previous_ref=str(number - 1) if number else "",
        )
        for number, document in enumerate(documents)
    ]
    return rows[::-1]


def known_periods(state: JobState, rows: list[DefinitionRow]) -> list[Period]:
    return [period for period in periods(state, rows) if period is not None]


def test_definition_is_in_force_until_the_next_one() -> None:
    present = Cron("0 7 * * *")
    first = {**DAILY, "max_runs": 2, "exclude": ["2026-11-02"]}
    changed = {**DAILY, "cron_expression": "0 7 * * *"}
    latest, previous = periods(a_job_state(schedule=present), definition_rows(first, changed))
    assert latest == (present, None, CREATED + HOUR, None)
    assert previous == (Cron("0 6 * * *", exclude=(date(2026, 11, 2),)), 2, None, CREATED + HOUR)


def test_change_without_a_new_schedule_keeps_the_phase() -> None:
    rows = definition_rows(
        MINUTELY, {**MINUTELY, "max_runs": 5}, {**MINUTELY, "priority": "LOW"}, DAILY
    )
    in_force = known_periods(a_job_state(schedule=Cron("0 6 * * *")), rows)
    assert [period.schedule for period in in_force[1:]] == [Every(60, CREATED)] * 3
    assert [period.max_runs for period in in_force] == [None, None, 5, None]
    assert [period.until for period in in_force] == [
        None,
        *(CREATED + number * HOUR for number in (3, 2, 1)),
    ]


def test_present_phase_is_that_of_the_job_state() -> None:
    present = Every(60, CREATED)
    in_force = known_periods(a_job_state(schedule=present), definition_rows(MINUTELY, MINUTELY))
    assert [period.schedule for period in in_force] == [present, present]


def test_immediate_job_keeps_its_time_after_a_change() -> None:
    rows = definition_rows(AT_ONCE, {**AT_ONCE, "priority": "LOW"}, DAILY)
    in_force = known_periods(a_job_state(schedule=Cron("0 6 * * *")), rows)
    assert [period.schedule for period in in_force[1:]] == [Once(CREATED)] * 2


def test_periods_read_only_the_definitions_they_need() -> None:
    rows = definition_rows(DAILY, {**DAILY, "timezone": "Europe/Berlin"}, DAILY)
    read = iter(rows)
    steps = periods(a_job_state(schedule=Cron("0 6 * * *")), read)
    next(steps)
    next(steps)
    assert list(read) == rows[2:]


def test_each_period_reads_one_definition() -> None:
    rows = definition_rows(*[MINUTELY] * 5)
    read = iter(rows)
    steps = periods(a_job_state(schedule=None), read)
    assert [next(steps) for _ in range(3)] == [None] * 3
    assert list(read) == rows[3:]
