"""One job file is applied to a node and to this installation, with the same results."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bench.running import run_node
from tests.e2e.cli.program import program_for
from tests.support.acceptance.contract import Api, Json, a_client, unique
from tests.support.acceptance.every_task import comparable, write_file
from tests.support.acceptance.target import Target, a_target

pytestmark = pytest.mark.needs("script")

SECRET_VALUE = "correct horse battery"
Results = Mapping[str, Json]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Yield a node of its own to compare with."""
    with run_node(tmp_path_factory.mktemp("compared") / "data") as node:
        url = f"http://127.0.0.1:{node.port}/v1"
        with a_client(url, None) as http:
            yield Api(http)


def results_of(api: Api, folder: Path, secret: str, set_name: str) -> Results:
    """Apply the file, run each of its jobs once, and return the ended runs by name."""
    program = program_for(api.http, folder)
    program("secrets", "set", secret, stdin=SECRET_VALUE)
    try:
        program("apply", "-f", "jobs.yaml", "--yes")
        jobs = list(api.pages("/jobs", "jobs", tag=f"punctual-set:{set_name}"))
        api.made.extend(job["job_id"] for job in jobs)
        runs = {job["name"]: api.run_now(job["job_id"]) for job in jobs}
        return {name: comparable(api, api.ended(run, 60)) for name, run in runs.items()}
    finally:
        api.clear()
        assert api("DELETE", f"/secrets/{secret}").status_code == 204


@pytest.fixture(scope="module")
def both(
    shared: Api, node: Api, target: Target, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Results, Results]:
    """Return the results of the node and of this installation."""
    secret, set_name = unique("SECRET"), unique("set")

    def results(api: Api, target: Target) -> Results:
        folder = tmp_path_factory.mktemp("jobs")
        write_file(folder, target_url=target.url(""), set_name=set_name, secret=secret)
        return results_of(api, folder, secret, set_name)

    with a_target() as target_of_node:
        return results(node, target_of_node), results(shared, target)


def test_one_job_file_has_the_same_results_everywhere(both: tuple[Results, Results]) -> None:
    expected, results = both
    assert results.keys() == expected.keys()
    different = [name for name in expected if results[name] != expected[name]]
    for name in different:
        print(name, *_differences(expected[name], results[name]), sep="\n    ")
    assert different == []


def test_job_file_has_each_outcome(both: tuple[Results, Results]) -> None:
    expected, _ = both
    statuses = {run["status"] for run in expected.values()}
    assert statuses == {"SUCCESS", "FAILED", "TIMED_OUT"}
    assert {name for name, run in expected.items() if run["status"] == "SUCCESS"} >= {
        *("event", "http", "python", "bash", "folder", "second-attempt"),
    }
    assert expected["secret"]["output"] == "21 [secret]\n"


def _differences(expected: Json, result: Json) -> Iterator[str]:
    for field, value in expected.items():
        if result[field] != value:
            yield f"{field}: {str(value)[:300]!r} on the node, and {str(result[field])[:300]!r}"
