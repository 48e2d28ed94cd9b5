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
TIMEOUTS = (25, 60)  # in seconds; on AWS a detached runner has the second script
LINES = 20
CODE = f"for number in $(seq {LINES}); do echo $EPOCHREALTIME; sleep 0.5; done"
"""Prints the time, twice in a second. A line takes about 0.5 s."""


@pytest.fixture(scope="module")
def delays(shared: Api, tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, list[float]]:
    """Return by timeout of the script how long it took to show each line."""
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

    with ThreadPoolExecutor() as pool:
        return dict(zip(TIMEOUTS, pool.map(followed, TIMEOUTS), strict=True))


@pytest.mark.parametrize("seconds", TIMEOUTS)
def test_new_text_is_shown_within_seconds(delays: Mapping[int, list[float]], seconds: int) -> None:
    print("seconds until each line was shown:", *(f"{delay:.2f}" for delay in delays[seconds]))
    assert len(delays[seconds]) == LINES
    assert max(delays[seconds]) <= MAX_DELAY_SECONDS
