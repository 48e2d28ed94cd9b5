"""What a former version has in store, in the middle of its work, goes on under this one.

Each account was written by the version of its layout: rows of every kind, a line that is packed, a
payload beside its body, messages and wake-ups under way, changes that nobody had followed yet. A
version before that one meets rows of a later layout instead: tests/life/test_hard.py.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from punctual.aws.dynamodb import keys
from punctual.settings import LAYOUTS
from tests.golden import account as golden
from tests.life.gateway import Gateway
from tests.life.scenes import SMALL, opened
from tests.life.seen import each_once, runs_of, statuses, told
from tests.life.world import MINUTE, World, a_world

ACCOUNTS = sorted(golden.FOLDER.glob(golden.NAMES))
DEPLOYED_AFTER = timedelta(seconds=20)
LASTS = 20 * MINUTE
COMING = ("minutely", "interval", "in line", "paused")
NEW_IN: Mapping[int, set[str]] = {1: set(), 2: {"timers", "runs"}}
ONCE = ("soon", "queued", "claimed", "long", "large", "retried", "done")


class Going(NamedTuple):
    world: World
    api: Gateway
    jobs: Mapping[str, str]
    since: datetime


@pytest.fixture(scope="module", params=ACCOUNTS, ids=lambda file: file.stem)
def going(request: pytest.FixtureRequest) -> Iterator[Going]:
    file: Path = request.param
    account = json.loads(file.read_text())
    since = datetime.fromisoformat(account["at"])
    with a_world(now=since + DEPLOYED_AFTER) as world:
        golden.restored(world, account)
        world.work = lambda payload: {"did": payload["order"]}
        api = opened(world)
        world.run(LASTS)
        yield Going(world, api, account["jobs"], since)


def test_there_is_an_account_of_each_layout_that_anything_has() -> None:
    wanted = {golden.NAMES.replace("*", str(layout)) for layout in golden.LAYOUTS.values()}
    assert {file.name for file in ACCOUNTS} == wanted
    assert tuple(sorted(set(golden.LAYOUTS.values()))) == LAYOUTS, "and a stage may ask for each"


@pytest.mark.parametrize("file", ACCOUNTS, ids=lambda file: file.stem)
def test_an_account_holds_something_of_everything(file: Path) -> None:
    account = json.loads(file.read_text())
    assert all(account["tables"][table.name] for table in keys.TABLES)
    assert all(account[what] for what in ("blobs", "stream"))
    assert account["queues"]["quick.fifo"]
    assert account["queues"]["wake"]
    heads = [row for row in account["tables"]["jobs"] if keys.STATE in row]
    assert any("B" in row.get("line", {}) for row in heads), "a line that is packed"
    assert any(keys.BY in row for row in heads), "a note of who changed it"
    live = Counter(run["M"]["st"]["S"] for row in heads for run in row.get("runs", {}).get("L", []))
    assert {"QUEUED", "RUNNING", "WAITING"} <= live.keys(), live


@pytest.mark.parametrize("file", ACCOUNTS, ids=lambda file: file.stem)
def test_an_account_holds_what_was_laid_out_anew_and_nothing_later(file: Path) -> None:
    account = json.loads(file.read_text())
    layout = int(file.stem.rpartition("_")[2])
    found: Counter[str] = Counter()
    for table, rows in account["tables"].items():
        for row in rows:
            number = int(row[keys.FORMAT]["N"]) if keys.FORMAT in row else 1
            if number > 1:
                found[table] += 1
            assert number <= layout, row
    assert found.keys() == NEW_IN[layout]


def test_the_account_of_shared_rows_was_left_in_the_middle_of_ending() -> None:
    account = json.loads((golden.FOLDER / golden.NAMES.replace("*", "2")).read_text())
    ended, ending = (account["jobs"][name] for name in golden.ENDED)
    heads = {row[keys.SK]["S"]: row for row in account["tables"]["jobs"] if keys.STATE in row}
    assert [run["M"]["st"]["S"] for run in heads[ended]["ended"]["L"]] == ["SUCCESS"]
    assert [run["M"]["st"]["S"] for run in heads[ending]["runs"]["L"]] == ["RUNNING"]
    places = {row[keys.PK]["S"] for row in account["tables"]["runs"]}
    assert not places & {f"default#{job}" for job in (ended, ending)}


@pytest.mark.parametrize("name", ONCE)
def test_what_was_to_run_once_has_run_once(going: Going, name: str) -> None:
    assert statuses(going.api, going.jobs[name]) == {"SUCCESS": 1}
    paid = Counter(one["job_id"] for one in told(going.world, "Paid"))
    assert paid[going.jobs[name]] <= 1


def test_a_line_is_worked_off_to_its_end(going: Going) -> None:
    assert statuses(going.api, going.jobs["in line"]) == {"SUCCESS": golden.LINE}


def test_what_an_executor_left_that_died_while_it_ended_runs_is_kept(going: Going) -> None:
    for name in going.jobs.keys() & set(golden.ENDED):
        (run,) = runs_of(going.api, going.jobs[name])
        assert run["status"] == "SUCCESS"
        path = f"/jobs/{going.jobs[name]}/runs/{run['run_id']}/output"
        assert going.api.get(path).json == {"did": SMALL["order"]}


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("minutely", 60), ("interval", 150), *((f"together {n}", 60) for n in range(golden.TOGETHER))],
)
def test_what_recurs_misses_no_time_and_doubles_none(going: Going, name: str, seconds: int) -> None:
    if name not in going.jobs:
        return  # the first account has none that share a row
    assert statuses(going.api, going.jobs[name]).keys() == {"SUCCESS"}
    times = [datetime.fromisoformat(one) for one in each_once(going.api, going.jobs[name])]
    gaps = {(later - one).total_seconds() for one, later in pairwise(times)}
    assert gaps == {seconds}
    assert times[0] < going.since
    assert times[-1] > going.world.clock() - timedelta(seconds=seconds + 5)


@pytest.mark.parametrize(("name", "state"), [("paused", "PAUSED"), ("cancelled", "CANCELLED")])
def test_what_stood_still_stands_still(going: Going, name: str, state: str) -> None:
    assert going.api.get(f"/jobs/{going.jobs[name]}").json["status"] == state
    assert runs_of(going.api, going.jobs[name]) == []


def test_lists_counts_and_the_audit_go_on_from_what_stood(going: Going) -> None:
    jobs = {job: runs_of(going.api, job) for job in going.jobs.values()}
    mine = Counter(run["status"] for runs in jobs.values() for run in runs)
    listed: list[Any] = []
    token = ""
    while not listed or token:
        page = going.api.get(f"/runs?limit=100&next_token={token}").json
        listed += page["runs"]
        token = page["next_token"]
    assert Counter(run["status"] for run in listed) == mine
    assert {run["run_id"] for run in listed} == {
        run["run_id"] for runs in jobs.values() for run in runs
    }
    assert going.api.get("/stats").json["runs"] == mine
    lines = going.api.get("/audit?limit=100").json["entries"]
    done = Counter(one["action"] for one in lines)
    assert done == {
        "job.create": len(jobs),
        "job.pause": 1,
        "job.cancel": 1,
        "run.order": golden.LINE,
    }


def test_nothing_failed_and_nothing_waits_but_what_is_to_come(going: Going) -> None:
    world = going.world
    assert world.failures == []
    assert not [line for line in world.told() if line.get("level") == "ERROR"]
    for queue in world.deployed.queues:
        assert queue.letters == [] or queue.name.endswith("-wake"), queue.name
    waiting = {row[keys.SK]["S"].split("#")[2] for row in world.rows(keys.TIMERS)}
    coming = {job for name, job in going.jobs.items() if name in COMING or "together" in name}
    assert waiting - {going.jobs["cancelled"]} <= coming
