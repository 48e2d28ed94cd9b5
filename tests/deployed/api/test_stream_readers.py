"""Counts are right with several stream readers, a shard split and crashes."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.builders import after
from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.interrupted_work import EVENT
from tests.support.deployed.observations import runs_of
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

AT_ONCE = {"schedule_type": "IMMEDIATE", "task": EVENT}
WRITES = ("PutItem", "UpdateItem", "BatchWriteItem", "TransactWriteItems")
LATER = {"schedule_type": "FUTURE", "schedule_time": after(80_000).isoformat(), "task": EVENT}


def changed(world: World, api: Gateway, chance: random.Random) -> Sequence[str]:
    """Submit jobs that run, and jobs that are paused or cancelled within seconds."""
    jobs = []
    for number in range(12):
        jobs.append(submit_job(api, **(AT_ONCE if number % 3 == 0 else LATER)))
        if number % 3:
            for step in ("pause", "resume")[: chance.randrange(3)]:
                assert api.post(f"/jobs/{jobs[-1]}/{step}").status == 200
        if number % 6 == 1:
            assert api.call("DELETE", f"/jobs/{jobs[-1]}").status == 200
        world.run(chance.choice((0, 0.1, 0.7)) * SECOND)
    return jobs


@pytest.mark.parametrize("seed", range(3))
def test_stats_count_each_job_and_run_once(world: World, api: Gateway, seed: int) -> None:
    chance = random.Random(seed)
    (stream,) = world.streams.values()
    deaths = [0]

    def plan(moment: Moment) -> BaseException | None:
        mine = moment.role == world.name("status") and moment.operation in WRITES
        if not mine or chance.random() > 0.15:
            return None
        deaths[0] += 1
        return Killed("out of memory")

    world.faults.plan = plan
    jobs: list[str] = []
    for readers in (4, 3):
        stream.split(readers)
        jobs += changed(world, api, chance)
    world.run(20 * SECOND)
    world.faults.plan = None
    world.run(MINUTE)
    assert (stream.records, deaths[0] > 0) == ([], True)
    stats = api.get("/stats").json
    assert stats["jobs"] == Counter(api.get(f"/jobs/{job}").json["status"] for job in jobs)
    runs = [run for job in jobs for run in runs_of(api, job)]
    assert stats["runs"] == Counter(run["status"] for run in runs)
    assert sum(minute["started"] for minute in stats["last_hour"]) == len(runs) == 8
