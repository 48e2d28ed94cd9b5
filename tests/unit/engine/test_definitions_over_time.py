"""Which definition was in force when, by its bodies; latest first."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from punctual.domain.job_state import JobState
from punctual.domain.schedules.schedule import Cron, Every, Once
from punctual.engine.ports.rows import DefinitionRow
from punctual.engine.queries.definitions_over_time import Period, periods
from tests.support.builders import a_body, a_head

CREATED = datetime(2026, 11, 1, 12, 0, 0, 123_000, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTELY = {"schedule_type": "INTERVAL", "interval_seconds": 60}
DAILY = {"schedule_type": "CRON", "cron_expression": "0 6 * * *"}
AT_ONCE = {"schedule_type": "IMMEDIATE"}


def bodies(*documents: dict[str, Any]) -> list[DefinitionRow]:
    """Of one job, an hour from one to the next; latest first as they are read."""
    made = [
        a_body(
            ref=str(number),
            edition=number,
            created_at=CREATED + number * HOUR,
            document={"name": str(number), **document},
            previous_ref=str(number - 1) if number else "",
        )
        for number, document in enumerate(documents)
    ]
    return made[::-1]


def known(head: JobState, made: list[DefinitionRow]) -> list[Period]:
    return [period for period in periods(head, made) if period is not None]


def test_each_definition_holds_until_the_next_and_the_first_since_ever() -> None:
    now = Cron("0 7 * * *")
    first = {**DAILY, "max_runs": 2, "exclude": ["2026-11-02"]}
    later = {**DAILY, "cron_expression": "0 7 * * *"}
    latest, former = periods(a_head(schedule=now), bodies(first, later))
    assert latest == (now, None, CREATED + HOUR, None)
    assert former == (Cron("0 6 * * *", exclude=(date(2026, 11, 2),)), 2, None, CREATED + HOUR)


def test_what_leaves_the_schedule_alone_keeps_its_phase() -> None:
    made = bodies(MINUTELY, {**MINUTELY, "max_runs": 5}, {**MINUTELY, "priority": "LOW"}, DAILY)
    found = known(a_head(schedule=Cron("0 6 * * *")), made)
    assert [one.schedule for one in found[1:]] == [Every(60, CREATED)] * 3
    assert [one.max_runs for one in found] == [None, None, 5, None]
    assert [one.until for one in found] == [None, *(CREATED + n * HOUR for n in (3, 2, 1))]


def test_the_phase_in_force_is_the_head_s_own() -> None:
    ours = Every(60, CREATED)
    found = known(a_head(schedule=ours), bodies(MINUTELY, MINUTELY))
    assert [one.schedule for one in found] == [ours, ours]


def test_a_job_that_ran_at_once_is_not_moved_by_a_change() -> None:
    made = bodies(AT_ONCE, {**AT_ONCE, "priority": "LOW"}, DAILY)
    found = known(a_head(schedule=Cron("0 6 * * *")), made)
    assert [one.schedule for one in found[1:]] == [Once(CREATED)] * 2


def test_no_more_is_read_than_is_asked_for() -> None:
    made = bodies(DAILY, {**DAILY, "timezone": "Europe/Berlin"}, DAILY)
    read = iter(made)
    found = periods(a_head(schedule=Cron("0 6 * * *")), read)
    next(found)
    next(found)
    assert list(read) == made[2:]


def test_each_step_reads_one_definition_though_none_is_known_yet() -> None:
    made = bodies(*[MINUTELY] * 5)
    read = iter(made)
    found = periods(a_head(schedule=None), read)
    assert [next(found) for _ in range(3)] == [None] * 3
    assert list(read) == made[3:]
