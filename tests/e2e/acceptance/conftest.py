"""The installation under test: the one of PUNCTUAL_URL, or a local node."""

import os
from collections.abc import Iterator

import httpx
import pytest

from bench.running import run_node
from tests.support.acceptance.contract import Api, a_client
from tests.support.acceptance.target import Target, a_target


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    configured = os.environ.get("PUNCTUAL_URL")
    if configured:
        yield configured
        return
    with run_node(tmp_path_factory.mktemp("acceptance") / "data") as node:
        yield f"http://127.0.0.1:{node.port}/v1"


@pytest.fixture(scope="session")
def http(url: str) -> Iterator[httpx.Client]:
    with a_client(url, os.environ.get("PUNCTUAL_TOKEN")) as client:
        yield client


@pytest.fixture(scope="module")
def shared(http: httpx.Client) -> Iterator[Api]:
    """Yield a client for the shared fixtures of a module."""
    api = Api(http)
    yield api
    api.clear()


@pytest.fixture
def api(http: httpx.Client) -> Iterator[Api]:
    api = Api(http)
    yield api
    api.clear()


@pytest.fixture(scope="session")
def task_types(http: httpx.Client) -> frozenset[str]:
    return frozenset(http.get("/health").json()["task_types"])


@pytest.fixture(autouse=True)
def skip_without_task_types(request: pytest.FixtureRequest, task_types: frozenset[str]) -> None:
    """Skip a test if a task type of its mark `needs` is missing, for example `needs("script")`."""
    needed = {kind for mark in request.node.iter_markers("needs") for kind in mark.args}
    missing = sorted(needed - task_types)
    if missing:
        pytest.skip(f"this installation runs no {', '.join(missing)} tasks")


@pytest.fixture(scope="session")
def target(http: httpx.Client) -> Iterator[Target]:
    if http.base_url.host not in ("127.0.0.1", "localhost"):
        pytest.skip("this installation cannot call a server beside the tests")
    with a_target() as target:
        yield target
