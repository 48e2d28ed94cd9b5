"""A cancel ends the whole process group of a script, also where a detached runner has it."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import httpx
import pytest

from tests.support.acceptance.contract import Api, Json, eventually, runs_on_node, script
from tests.support.acceptance.groups import (
    GROUP,
    STUBBORN_GROUP,
    Groups,
    group_server,
    percentile,
)

pytestmark = pytest.mark.needs("script")

MAX_CANCEL_SECONDS = 5.0
MAX_SERIES = 3
SPREAD_SECONDS = 4.0  # a runner renews its claim this often
KILL_GRACE_SECONDS = 2.0
WAITED, HANDED_OVER = 25, 300  # seconds of timeout: on AWS a longer script has a detached runner
RUNS, RUNS_OF_NODE = 20, 4  # a node has eight long runs at a time
CASES = {
    "handed over": (GROUP, HANDED_OVER),
    "stubborn": (STUBBORN_GROUP, HANDED_OVER),
    "waited": (GROUP, WAITED),
    "stubborn, waited": (STUBBORN_GROUP, WAITED),
}


@pytest.fixture(scope="module")
def groups(http: httpx.Client) -> Iterator[Groups]:
    if http.base_url.host not in ("127.0.0.1", "localhost"):
        pytest.skip("scripts of this installation cannot call a server beside the tests")
    with group_server() as groups:
        yield groups


@pytest.fixture(scope="module")
def seconds(shared: Api, groups: Groups) -> Mapping[str, list[float]]:
    """Return by case the seconds from a cancel request to the end of each group's last process.

    A machine that does too much else delays each call. So a series that is too slow is repeated.
    """
    for _ in range(MAX_SERIES):
        seconds = measured(shared, groups)
        for case, values in seconds.items():
            print(f"{case}:", *(f"{value:.2f}" for value in sorted(values)))
        slowest = max(percentile(seconds["handed over"], 95), *seconds["waited"])
        if slowest <= MAX_CANCEL_SECONDS:
            break
    return seconds


def measured(api: Api, groups: Groups) -> Mapping[str, list[float]]:
    """Measure one series. The requests are spread over a period of renewals.

    Scripts with a short timeout start last.
    """
    count = RUNS_OF_NODE if runs_on_node(api) else RUNS
    handed_over = [*["handed over"] * count, "stubborn"]
    waited = ["waited", "waited", "stubborn, waited"]
    runs = started(api, groups, handed_over) + started(api, groups, waited)
    cancelled_at: list[float] = []
    pause = threading.Event()
    for run in reversed(runs):
        cancelled_at.insert(0, time.monotonic())
        eventually(partial(cancel, api, run))
        pause.wait(SPREAD_SECONDS / len(runs))
    eventually(lambda: {run["run_id"] for run in runs} <= groups.ended.keys())
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    for case, run, at in zip(handed_over + waited, runs, cancelled_at, strict=True):
        ended = api.ended(run)
        assert (ended["status"], ended["error_message"]) == ("CANCELLED", "Cancelled")
        assert api.output(ended) == b"begun\n"
        seconds[case].append(groups.ended[run["run_id"]] - at)
    return seconds


def cancel(api: Api, run: Json) -> bool:
    """Request the end of a run. Return False if a busy installation answers 503."""
    path = f"/jobs/{run['job_id']}/runs/{run['run_id']}/cancel"
    answer = api.http.post(path, json={})
    assert answer.status_code in ((202,) if api.is_local else (202, 503)), answer.text
    return answer.status_code == 202


def started(api: Api, groups: Groups, cases: Sequence[str]) -> list[Json]:
    """Return the new runs of these cases, once their processes are there."""
    runs = []
    for code, timeout_seconds in (CASES[case] for case in cases):
        task = script(code, args=[str(groups.port)])
        fields = {"task": task, "timeout_seconds": timeout_seconds, "max_retries": 0}
        job = api.create(schedule_type="IMMEDIATE", **fields)
        runs.append(api.first_run(job["job_id"]))
    eventually(lambda: {run["run_id"] for run in runs} <= groups.begun)
    return runs


def test_cancel_ends_the_group_of_a_script(seconds: Mapping[str, list[float]]) -> None:
    assert percentile(seconds["handed over"], 95) <= MAX_CANCEL_SECONDS
    assert max(seconds["waited"]) <= MAX_CANCEL_SECONDS


@pytest.mark.parametrize("case", ["stubborn", "stubborn, waited"])
def test_cancel_kills_a_group_that_ignores_it(
    seconds: Mapping[str, list[float]], case: str
) -> None:
    (value,) = seconds[case]
    assert KILL_GRACE_SECONDS <= value <= MAX_CANCEL_SECONDS + KILL_GRACE_SECONDS
