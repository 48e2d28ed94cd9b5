"""Back over a layout: what is written for a version before, and the setting turned while jobs run.

The former version itself is not here. What it has left is, in the account of its layout: a row or
message that looks as one of these did is one that it reads.
"""

import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from tests.golden import account as golden
from tests.golden.shapes import shape
from tests.life.gateway import Gateway
from tests.life.scenes import SMALL, submitted
from tests.life.seen import each_once, runs_of, statuses, told
from tests.life.world import MINUTE, SECOND, World, a_world
from tests.life.writing import FORMER, NEWEST, deploy_writing, shared

EVENT = {"type": "event", "detail_type": "Paid"}
MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
# What this version adds whatever it writes, and why the former one passes over it.
ADDED = (
    # It reads from a message what it knows by name.
    "message quick.fifo.h[]",
    # It counts in the same rows, and does not ask for those that name what was counted.
    "control default#counted",
    # What is queued in one batch, and begun in a later one, is a count as any other.
    "control default#minutes | moment: queued N",
)


def former() -> dict[str, Any]:
    return account(FORMER)


def account(layout: int) -> dict[str, Any]:
    file = golden.FOLDER / golden.NAMES.replace("*", str(layout))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def unknown(found: Mapping[str, Any]) -> set[str]:
    """What the former version has never written, nor passes over."""
    return {line for line in shape(found) - shape(former()) if not line.startswith(ADDED)}


def test_what_is_written_in_the_former_layout_looks_as_it_did_then() -> None:
    with a_world() as world:
        deploy_writing(world, FORMER)
        found = json.loads(json.dumps(golden.left(world)))
    assert unknown(found) == set()
    rows = [row for table in found["tables"].values() for row in table]
    assert {int(row[keys.FORMAT]["N"]) for row in rows if keys.FORMAT in row} == {FORMER}


def test_what_is_written_in_the_newest_layout_does_not() -> None:
    kinds = {line.partition(":")[0] for line in unknown(account(NEWEST))}
    assert kinds == {
        "timers moment#digits | moment#default#id#number#mark",
        "runs default#pack#number | digest",
        "control default#totals | -",
        "control default#minutes | moment",
    }


def table(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A copy of the former account, and a row of it."""
    found = deepcopy(former())
    return found, found["tables"][name][0]


def test_the_comparison_finds_what_is_new_in_a_row_a_key_or_a_message() -> None:
    found, row = table("jobs")
    row["colour"] = {"S": "red"}
    assert len(unknown(found)) == 1
    found, row = table("jobs")
    row[keys.VERSION] = {"S": "3"}
    assert len(unknown(found)) == 1
    found, row = table("timers")
    row[keys.SK]["S"] += "#5e"
    assert len(unknown(found)) == 1
    found, row = table("timers")
    row["timers"] = {"SS": ["default#j#3"]}
    assert len(unknown(found)) == 1
    found, row = table("runs")
    row[keys.ROW]["S"] = json.dumps({**json.loads(row[keys.ROW]["S"]), "colour": "red"})
    assert len(unknown(found)) == 1
    found = former()
    body = json.loads(found["queues"]["quick.fifo"][0])
    found["queues"]["quick.fifo"][0] = json.dumps({**body, "due": 1772453140})
    assert len(unknown(found)) == 1


def deploy_at_work(world: World, layout: int) -> None:
    """While the next task is at work: its executor ends what it began as it was deployed."""

    def work(payload: Any) -> Any:
        world.work = done
        deploy_writing(world, layout)
        return done(payload)

    world.work = work
    world.run(MINUTE)
    assert world.work is done


def done(payload: Any) -> Any:
    return {"did": payload["order"]}


def packs(world: World) -> int:
    return sum("#pack#" in row[keys.PK]["S"] for row in world.rows(keys.HISTORY))


def test_there_and_back_while_jobs_run_no_time_is_lost_and_none_has_two_runs(
    world: World, api: Gateway
) -> None:
    events = [submitted(api, **MINUTELY, task=EVENT) for _ in range(3)]
    tasks = [submitted(api, **MINUTELY) for _ in range(2)]
    began = world.clock()
    once = [
        submitted(
            api,
            schedule_type="FUTURE",
            schedule_time=(began + timedelta(seconds=45 * n)).isoformat(),
            task=EVENT,
        )
        for n in range(1, 24)
        for _ in range(2)
    ]
    world.run(3 * MINUTE + 30 * SECOND)
    assert shared(world) > 0

    deploy_at_work(world, FORMER)
    left = [shared(world)]
    while left[-1]:
        world.run(MINUTE)
        left.append(shared(world))
    assert left == sorted(left, reverse=True), "they only become fewer"
    world.run(5 * MINUTE)
    kept = packs(world)
    world.run(3 * MINUTE)
    assert (shared(world), packs(world)) == (0, kept)

    deploy_at_work(world, NEWEST)
    world.run(4 * MINUTE)
    assert shared(world) > 0
    assert packs(world) > kept

    paid = Counter((one["job_id"], one["scheduled_time"]) for one in told(world, "Paid"))
    assert set(paid.values()) == {1}
    for job in (*events, *tasks):
        times = [datetime.fromisoformat(one) for one in each_once(api, job)]
        assert {later - one for one, later in pairwise(times)} == {MINUTE}
        assert times[0] <= began + MINUTE
        assert times[-1] > world.clock() - MINUTE - 5 * SECOND
        assert statuses(api, job).keys() == {"SUCCESS"}
        assert max(run["lateness_ms"] for run in runs_of(api, job)) < 2_000
    assert all(statuses(api, job) == {"SUCCESS": 1} for job in once)
    for job in tasks:
        for run in runs_of(api, job):
            output = api.get(f"/jobs/{job}/runs/{run['run_id']}/output")
            assert output.json == {"did": SMALL["order"]}
    assert world.failures == []
    assert not [line for line in world.told() if line.get("level") == "ERROR"]


@pytest.mark.parametrize("layout", [FORMER, NEWEST])
def test_what_an_executor_left_that_died_after_its_swap_is_found_in_either_layout(
    world: World, api: Gateway, layout: int
) -> None:
    """Written in one, looked for by a deployment that writes the other."""
    deploy_writing(world, layout)
    world.work = done
    job = submitted(api, schedule_type="FUTURE", schedule_time=(world.clock() + MINUTE).isoformat())
    world.faults.plan = golden.dies_ending(world, {job})
    world.run(MINUTE + 30 * SECOND)
    world.faults.plan = None
    assert [name for name, _ in world.failures] == [world.name("executor-quick")]
    assert (packs(world) == 1) is (layout == NEWEST)
    deploy_writing(world, FORMER if layout == NEWEST else NEWEST)
    world.run(10 * MINUTE)
    (run,) = runs_of(api, job)
    assert run["status"] == "SUCCESS"
    assert api.get(f"/jobs/{job}/runs/{run['run_id']}/output").json == {"did": SMALL["order"]}
