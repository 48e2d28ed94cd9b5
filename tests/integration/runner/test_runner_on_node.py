"""The runner as a process against the claims of a node, over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import ManualClock
from tests.support.claims.node import ClaimsNode
from tests.support.claims.node_server import NodeServer
from tests.support.node.node_world import NOON
from tests.support.runner.claims_api import ClaimsApi
from tests.support.runner.runner_process import an_event, started_runner


class Scene:
    """A node and its server. The test's own thread serves, because it owns the database."""

    def __init__(self, folder: Path) -> None:
        self.node = ClaimsNode(folder, ManualClock(NOON))
        self.server = NodeServer(self.node)
        self._api = ClaimsApi()
        self._api.url = self.server.url

    def event(self, code: str, **job: Any) -> dict[str, Any]:
        """Return the event of a new run that an executor has claimed."""
        event = an_event(self._api, code, output=job.get("output", "keep"))
        return event | {"claim": self.node.start_run(**job)}

    def run(self, event: dict[str, Any], folder: Path, **variables: str) -> None:
        with started_runner(event, folder, **variables) as runner:
            self.server.serve_while(lambda: runner.process.poll() is None)

    def close(self) -> None:
        self.server.close()
        self.node.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "node")
    yield scene
    scene.close()


def test_runner_finishes_a_run_of_the_node(scene: Scene, tmp_path: Path) -> None:
    event = scene.event("echo out; echo err >&2; exit 7", max_retries=0)
    scene.run(event, tmp_path)
    view = scene.node.run(event["claim"])
    assert (view.run.status, view.detail.exit_code) == ("FAILED", 7)
    assert view.detail.error == "Exit code 7\nerr"
    assert scene.node.output(event["claim"]) == b"out\n"
    assert sorted(scene.node.log_text(event["claim"]).splitlines()) == [b"err", b"out"]


def test_large_output_and_log_arrive_whole(scene: Scene, tmp_path: Path) -> None:
    event = scene.event("head -c 3000000 /dev/zero | tr '\\0' x")
    scene.run(event, tmp_path)
    view = scene.node.run(event["claim"])
    assert (view.run.status, view.detail.output_size) == ("SUCCESS", 3_000_000)
    assert scene.node.output(event["claim"]) == b"x" * 3_000_000
    assert scene.node.log_text(event["claim"]) == b"x" * 3_000_000


def test_discarded_output_leaves_nothing(scene: Scene, tmp_path: Path) -> None:
    event = scene.event("head -c 3000000 /dev/zero", output="discard")
    scene.run(event, tmp_path)
    detail = scene.node.run(event["claim"]).detail
    assert (detail.discarded, detail.output_blob, detail.log_blob) == (True, "", "")


def test_run_that_is_cancelled_on_the_node_ends(scene: Scene, tmp_path: Path) -> None:
    event = scene.event("sleep 1000")
    identity = scene.node.claim_tokens.read(event["claim"])
    assert identity is not None
    world = scene.node.world
    world.do(lambda: world.node.jobs.cancel_run(*identity[:3]))
    scene.run(event, tmp_path)
    assert scene.node.run(event["claim"]).run.status == "CANCELLED"


def test_second_delivery_of_an_event_does_not_run(scene: Scene, tmp_path: Path) -> None:
    event = scene.event(f"echo begun >> {tmp_path}/begun")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        scene.run(event, tmp_path / name, PUNCTUAL_SANDBOX="none")
    assert (tmp_path / "begun").read_text() == "begun\n"
    assert scene.server.calls[-1] == "POST /v1/claims/renew"
