"""`punctual runs logs --follow` shows what a script prints while the script runs."""

import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.cli.program import PROGRAM, program_for
from tests.support.acceptance.contract import Api, script

pytestmark = pytest.mark.needs("script")

MAX_DELAY_SECONDS = 5.0
MAX_SERIES = 3
TIMEOUTS = (25, 60)  # in seconds; on AWS a detached runner has the second script
LINES = 20
CODE = f"for number in $(seq {LINES}); do echo $EPOCHREALTIME; sleep 0.5; done"
"""Prints the time, twice in a second. A line takes about 0.5 s."""


@pytest.fixture(scope="module")
def delays(shared: Api, tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, list[float]]:
    """Return by timeout of the script how long it took to show each line.

    A machine that does too much else delays each call. So a series that is too slow is repeated.
    """
    program = program_for(shared.http, tmp_path_factory.mktemp("home"))

    def followed(seconds: int) -> list[float]:
        fields = {"task": script(CODE), "timeout_seconds": seconds, "max_retries": 0}
        job = shared.create(schedule_type="IMMEDIATE", **fields)
        run = shared.first_run(job["job_id"])
        with subprocess.Popen(
            [PROGRAM, "runs", "logs", run["job_id"], run["run_id"], "--follow"],
            env=program.env,
            stdout=subprocess.PIPE,
            text=True,
        ) as following:
            assert following.stdout is not None
            return [time.time() - float(line) for line in following.stdout]

    for _ in range(MAX_SERIES):
        with ThreadPoolExecutor() as pool:
            delays = dict(zip(TIMEOUTS, pool.map(followed, TIMEOUTS), strict=True))
        for seconds, values in delays.items():
            print(f"timeout of {seconds} s:", *(f"{value:.2f}" for value in values))
        if max(max(values) for values in delays.values()) <= MAX_DELAY_SECONDS:
            break
    return delays


@pytest.mark.parametrize("seconds", TIMEOUTS)
def test_new_text_is_shown_within_seconds(delays: Mapping[int, list[float]], seconds: int) -> None:
    assert len(delays[seconds]) == LINES
    assert max(delays[seconds]) <= MAX_DELAY_SECONDS
