"""One node for all tests, and a program with its own home for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.running import run_node
from punctual.client import Punctual
from tests.e2e.cli.program import Program


@pytest.fixture(scope="session")
def node_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_node(tmp_path_factory.mktemp("cli") / "data") as node:
        yield f"http://127.0.0.1:{node.port}/v1"


@pytest.fixture(scope="session")
def client(node_url: str) -> Iterator[Punctual]:
    with Punctual(node_url) as new_client:
        yield new_client


@pytest.fixture
def program(node_url: str, client: Punctual, tmp_path: Path) -> Iterator[Program]:
    """Yield a program. All active jobs are cancelled after the test."""
    home = tmp_path / "home"
    home.mkdir()
    yield Program(home, PUNCTUAL_URL=node_url)
    for job in client.jobs.list(status=("SCHEDULED", "PAUSED")):
        client.jobs.cancel(job)
