"""The list over all jobs while runs end and the reader of the stream lags."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from bench.cost.sizes import WRITE_BYTES, item_bytes
from punctual.aws.dynamodb.keys import state_key
from punctual.engine.ports.rows import JobKey
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

MAX_LAG = timedelta(seconds=10)


@pytest.fixture
def each_second(world: World, api: Gateway) -> str:
    job = submit_job(api, schedule_type="INTERVAL", interval_seconds=1)
    world.run(MINUTE)
    return job


def over_all_jobs(api: Gateway, limit: int, after: str = "") -> list[str]:
    run_ids: list[str] = []
    path = f"/runs?limit={limit}" + (f"&next_token={after}" if after else "")
    for _ in range(1_000):
        answer = api.get(path).json
        run_ids += [run["run_id"] for run in answer["runs"]]
        if answer["next_token"] is None:
            return run_ids
        path = f"/runs?limit={limit}&next_token={answer['next_token']}"
    raise AssertionError("the list does not end")


def of_job(api: Gateway, job: str) -> Sequence[dict[str, Any]]:
    """The job's own list, which reads its history."""
    answer = api.get(f"/jobs/{job}/runs?limit=200").json
    assert answer["next_token"] is None
    runs: Sequence[dict[str, Any]] = answer["runs"]
    return runs


def is_due(run: dict[str, Any], now: datetime) -> bool:
    """Whether every list must have this run: it was due over ten seconds ago."""
    return datetime.fromisoformat(run["due_time"]) < now - MAX_LAG


def test_list_over_all_jobs_misses_nothing_older_than_ten_seconds(
    world: World, api: Gateway, each_second: str
) -> None:
    """The stream is read only every ninth second. Each second a run leaves the job state."""
    missed = 0
    for second in range(18):
        lags = second % 9 != 8
        world.throttled = {world.name("status")} if lags else set()
        world.run(SECOND)
        runs = of_job(api, each_second)
        due = {run["run_id"] for run in runs if is_due(run, world.clock.now)}
        for limit in (50,) if lags else (50, 7):
            listed = over_all_jobs(api, limit)
            assert listed == sorted(set(listed), reverse=True), "in order, each once"
            assert due <= set(listed) <= {run["run_id"] for run in runs}
        missed = max(missed, len(runs) - len(listed))
    assert missed > 3, "the reader never lagged"


def test_state_of_job_that_runs_each_second_costs_one_write_unit(
    world: World, each_second: str
) -> None:
    sizes = [
        item_bytes(write.after)
        for call in world.meter.calls
        for write in call.writes
        if write.after is not None and write.key == state_key("default", each_second)
    ]
    assert len(sizes) > 100
    assert max(sizes) <= WRITE_BYTES


def test_later_page_has_run_that_ended_after_first_page(world: World, api: Gateway) -> None:
    """The run is older than the first page, and its job state does not hold it any more."""
    old = submit_job(api, schedule_type="CRON", cron_expression="0 0 1 1 *")
    world.throttled.add(world.name("executor-quick"))
    run = api.post(f"/jobs/{old}/runNow").json["run_id"]
    world.run(SECOND)
    submit_job(api, schedule_type="INTERVAL", interval_seconds=1)
    world.run(12 * SECOND)
    first = api.get("/runs?limit=5").json
    met = [run["run_id"] for run in first["runs"]]
    assert len(met) == 5
    assert run not in met
    world.throttled.add(world.name("status"))
    assert api.post(f"/jobs/{old}/runs/{run}/cancel").status == 202
    assert api.post(f"/jobs/{old}/pause").status == 200
    search = world.runtime("job-search", world.deployed.functions[world.name("job-search")].env)
    (stored,) = search.ports.job_states.load([JobKey("default", old)]).values()
    assert stored.state.unrecorded == ()
    world.throttled.remove(world.name("status"))
    world.run(MAX_LAG)
    assert over_all_jobs(api, 5, after=first["next_token"]).count(run) == 1
