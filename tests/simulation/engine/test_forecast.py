"""A forecast of a week equals the starts of that week, played on the engine in memory."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus, Trigger
from punctual.engine.queries.schedules.forecast import Forecast, forecast_starts
from punctual.engine.queries.slices import finish
from tests.support.simulation.manual_engine import NOON, TENANT, ManualEngine, a_finish

HOUR, WEEK = timedelta(hours=1), timedelta(days=7)
MAX_PLAYED_TIMERS = 20_000
MONDAY_BEFORE_CLOCK_CHANGE = datetime(2026, 3, 23, 11, 59, 41, tzinfo=UTC)
CRONS = ["0 */3 * * *", "30 2 * * *", "*/45 9-17 * * MON-FRI", "15 30 7 * * *", "59 59 23 29 3 *"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York"]
POLICIES = ["RUN_ONCE", "RUN_ALL", "SKIP"]


def text(at: datetime) -> str:
    return at.isoformat()


def a_job(chance: random.Random, start: datetime) -> dict[str, Any]:
    """Return a job on a cron expression, at a fixed rate, or for one time."""
    if chance.random() < 0.1:
        at = start + timedelta(seconds=chance.randrange(1, 8 * 86_400))
        return {"schedule_type": "FUTURE", "schedule_time": text(at)}
    if chance.random() < 0.5:
        fields: dict[str, Any] = {
            "schedule_type": "CRON",
            "cron_expression": chance.choice(CRONS),
        }
    else:
        seconds = chance.choice([3_600, 5_400, 7_777, 86_400])
        fields = {"schedule_type": "INTERVAL", "interval_seconds": seconds}
    fields["timezone"] = chance.choice(ZONES)
    fields["misfire_policy"] = chance.choice(POLICIES)
    if chance.random() < 0.3:
        fields["jitter_seconds"] = chance.choice([1, 90, 3_600])
    if chance.random() < 0.3:
        fields["max_runs"] = chance.randrange(1, 40)
    if chance.random() < 0.3:
        fields["end_time"] = text(start + timedelta(hours=chance.randrange(1, 200)))
    if chance.random() < 0.3:
        fields["exclude"] = [
            f"{(start + timedelta(days=chance.randrange(8))).date()}" for _ in range(2)
        ]
    return fields


def submit_jobs(engine: ManualEngine, chance: random.Random, number: int) -> None:
    for index in range(number):
        key = engine.submit(name=f"job {index}", **a_job(chance, engine.now))
        if engine.state(key).status is not JobStatus.SCHEDULED:
            continue  # no time is left before its end
        if chance.random() < 0.3:
            until = engine.now + timedelta(minutes=chance.randrange(1, 9 * 24 * 60))
            ends = chance.random() < 0.8
            engine.jobs.pause(TENANT, key.job_id, until=until if ends else None)
        if chance.random() < 0.1:
            engine.jobs.cancel(TENANT, key.job_id)


def play(engine: ManualEngine, end: datetime) -> Counter[datetime]:
    """Play all timers before `end`. Return the number of scheduled starts in each minute."""
    starts: Counter[datetime] = Counter()
    for _ in range(MAX_PLAYED_TIMERS):
        timers = engine.timers()
        if not timers or timers[0].at >= end:
            return starts
        engine.now = max(engine.now, timers[0].at)
        engine.evaluate(*[timer for timer in timers if timer.at <= engine.now])
        starts.update(run_all(engine))
    raise AssertionError("the week does not end")


def run_all(engine: ManualEngine) -> list[datetime]:
    """Carry out all queued runs at once. Return the minute of each scheduled start."""
    minutes: list[datetime] = []
    queue = engine.memory.run_queue
    while deliveries := queue.receive(100):
        executor = engine.executor()
        claimed = executor.claim([delivery.message for delivery in deliveries]).claimed
        executor.finish([a_finish(assignment, RunStatus.SUCCESS) for assignment in claimed])
        for delivery in deliveries:
            queue.acknowledge(delivery)
        minutes += [
            engine.now.replace(second=0, microsecond=0)
            for assignment in claimed
            if assignment.run.trigger is Trigger.SCHEDULE
        ]
    return minutes


def forecast(engine: ManualEngine, hours: int) -> Forecast:
    return finish(forecast_starts(engine.memory.job_states, TENANT, hours, engine.now))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("start", [NOON, MONDAY_BEFORE_CLOCK_CHANGE])
def test_forecast_of_a_week_equals_the_played_week(seed: int, start: datetime) -> None:
    engine = ManualEngine()
    engine.now = start
    chance = random.Random(seed)
    submit_jobs(engine, chance, 60)
    by_hour, by_minute = forecast(engine, 7 * 24), forecast(engine, 24)
    assert by_hour.from_completion_jobs == 0
    played = play(engine, by_hour.end)
    played_hours: Counter[datetime] = Counter()
    for minute, number in played.items():
        played_hours[minute.replace(minute=0)] += number
    assert sum(played.values()) > 300
    assert {count.at: count.number for count in by_hour.starts if count.number} == played_hours
    first_day = {at: number for at, number in played.items() if at < by_minute.end}
    assert {count.at: count.number for count in by_minute.starts if count.number} == first_day
    busiest = by_hour.busiest
    assert busiest is not None
    assert busiest.number == max(played.values()) == played[busiest.at]
