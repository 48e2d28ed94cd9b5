"""The part of the acceptance suite that needs no runs, against the deployed API."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.aws.gateway_server import TOKEN, served

ROOT = Path(__file__).parents[3]
CALLS = ("access/test_raw_requests.py", "jobs/test_job_errors.py", "jobs/test_names.py")


@pytest.mark.slow
def test_acceptance_suite_passes_behind_api_gateway() -> None:
    files = [f"tests/e2e/acceptance/{name}" for name in CALLS]
    with served() as address:
        environment = {**os.environ, "PUNCTUAL_URL": address, "PUNCTUAL_TOKEN": TOKEN}
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout[-4_000:]
    assert "passed" in ran.stdout
