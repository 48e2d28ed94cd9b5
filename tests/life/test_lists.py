"""The list over all jobs while runs end, and what reads the stream is behind."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from bench.sizes import WRITE_BYTES, item_bytes
from punctual.aws.dynamodb.keys import head as head_key
from punctual.domain.durations import LISTED
from punctual.engine.ports.rows import Key
from tests.life.gateway import Gateway
from tests.life.scenes import submitted
from tests.life.world import MINUTE, SECOND, World

HALF = timedelta(milliseconds=500)


@pytest.fixture
def each_second(world: World, api: Gateway) -> str:
    job = submitted(api, schedule_type="INTERVAL", interval_seconds=1)
    world.run(MINUTE)
    return job


def over_all_jobs(api: Gateway, limit: int, after: str = "") -> list[str]:
    found: list[str] = []
    path = f"/runs?limit={limit}" + (f"&next_token={after}" if after else "")
    for _ in range(1_000):
        answer = api.get(path).json
        found += [run["run_id"] for run in answer["runs"]]
        if answer["next_token"] is None:
            return found
        path = f"/runs?limit={limit}&next_token={answer['next_token']}"
    raise AssertionError("the list does not end")


def of_job(api: Gateway, job: str) -> Sequence[str]:
    """Its own list asks the history."""
    answer = api.get(f"/jobs/{job}/runs?limit=200").json
    assert answer["next_token"] is None
    return [run["run_id"] for run in answer["runs"]]


def test_what_ended_is_listed_though_its_job_goes_on_and_nobody_has_read_the_stream(
    world: World, api: Gateway, each_second: str
) -> None:
    world.throttled.add(world.name("status"))
    counts = []
    began = world.clock.now
    while world.clock.now < began + LISTED - SECOND:
        world.run(HALF)
        expected = sorted(of_job(api, each_second), reverse=True)
        assert over_all_jobs(api, 50) == expected
        assert over_all_jobs(api, 3) == expected
        counts.append(len(expected))
    assert counts[-1] - counts[0] >= 3
    world.throttled.clear()
    world.run(10 * SECOND)
    assert over_all_jobs(api, 7) == sorted(of_job(api, each_second), reverse=True)


def test_the_head_of_a_job_of_each_second_costs_one_unit_a_write(
    world: World, each_second: str
) -> None:
    sizes = [
        item_bytes(one.after)
        for call in world.meter.calls
        for one in call.writes
        if one.after is not None and one.key == head_key("default", each_second)
    ]
    assert len(sizes) > 100
    assert max(sizes) <= WRITE_BYTES


def test_a_walk_meets_a_run_that_ended_and_left_its_head_while_it_was_on_its_way(
    world: World, api: Gateway
) -> None:
    """Older than what the first page has, and ended before the page that it belongs to is read."""
    old = submitted(api, schedule_type="CRON", cron_expression="0 0 1 1 *")
    world.throttled |= {world.name("status"), world.name("executor-quick")}
    run = api.post(f"/jobs/{old}/runNow").json["run_id"]
    world.run(SECOND)
    submitted(api, schedule_type="INTERVAL", interval_seconds=1)
    world.run(12 * SECOND)
    first = api.get("/runs?limit=5").json
    met = [one["run_id"] for one in first["runs"]]
    assert len(met) == 5
    assert run not in met
    assert api.post(f"/jobs/{old}/runs/{run}/cancel").status == 202
    assert api.post(f"/jobs/{old}/pause").status == 200
    search = world.runtime("job-search", world.deployed.functions[world.name("job-search")].env)
    (stored,) = search.ports.heads.load([Key("default", old)]).values()
    assert (stored.head.ended, list(stored.head.lately)) == ((), [run])
    assert over_all_jobs(api, 5, after=first["next_token"]).count(run) == 1
