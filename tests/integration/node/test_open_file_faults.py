"""Each opening of a file in a run fails once. The run waits or goes on, and runs once."""

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.run import ENDED_RUN_STATUSES, RunStatus
from punctual.engine.changes.run_results import log_key, output_key
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import RunView
from punctual.node.files.process_groups import GroupFiles
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.http.addresses import LOOPBACK_NETWORKS
from punctual.tasks.http.task import HttpTask
from punctual.tasks.script import open_files
from punctual.tasks.script.cgroup import Cgroups
from punctual.tasks.script.sandbox import OpenPath, choose_sandbox
from punctual.tasks.script.task import ScriptTask
from tests.integration.tasks.test_http import answer, serving
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world
from tests.support.scripts.descriptor_faults import LauncherFaults, Openings, openings_failing
from tests.support.scripts.script_runs import default_sandbox

# The number of openings that fail: one, or enough to return the run.
CASES = [("AT_MOST_ONCE", 1), ("AT_MOST_ONCE", 12), ("AT_LEAST_ONCE", 12)]
MAX_OPENINGS = 200  # more than a run has
MAX_STEPS = 60


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (0.0, 0.0))


@contextmanager
def a_node(folder: Path, writable: Path) -> Iterator[World]:
    """A node with its real tasks, which allows its scripts to write to one more folder."""
    clock = ManualClock(NOON)
    with a_world(folder, clock) as world:
        name = default_sandbox(folder).name
        sandbox = choose_sandbox(
            name, folder, is_shared=False, open_paths=(OpenPath(writable, True),)
        )
        groups, cgroups = GroupFiles(folder / "groups"), Cgroups(folder / "cgroups")
        (folder / "cgroups").mkdir()
        script = ScriptTask(
            folder / "work", sandbox, monotonic=time.monotonic, groups=groups, cgroups=cgroups
        )
        http = HttpTask(monotonic=time.monotonic, open_networks=LOOPBACK_NETWORKS)
        world.node.running_tasks._attempt_runner = AttemptRunner({"http": http, "script": script})
        yield world
        http.close()


def end_of(world: World, job_id: str) -> RunView:
    """Step until the job's only run has ended."""
    for _ in range(MAX_STEPS):
        (view,) = world.runs(job_id)
        if view.run.status in ENDED_RUN_STATUSES:
            return view
        if view.run.is_held:
            world.settle()
        else:
            world.clock.advance(timedelta(minutes=6))
            world.node.step()
    raise AssertionError(f"the run is still {view.run.status}")


def assert_succeeded(view: RunView) -> None:
    assert (view.run.status, view.run.past_attempts, view.detail.error) == (
        RunStatus.SUCCESS,
        "",
        "",
    )


def submit(world: World, delivery: str, **fields: Any) -> str:
    retries = {} if delivery == "AT_MOST_ONCE" else {"max_retries": 0}
    return world.submit(delivery=delivery, **retries, **fields)


def script_task(marks: Path) -> dict[str, str]:
    code = f"echo ran >> {marks}/ran; echo out; echo err >&2"
    return {"type": "script", "runtime": "bash", "code": code}


def check_script(world: World, view: RunView, marks: Path) -> None:
    assert_succeeded(view)
    assert (marks / "ran").read_text() == "ran\n", "it ran once"
    run, key = view.run, JobKey(T, view.job_id)
    assert world.store.blobs.get(output_key(key, run.run_id, run.attempt)) == b"out\n"
    log = world.store.blobs.get(log_key(key, run.run_id, run.attempt))
    assert sorted((log or b"").split()) == [b"err", b"out"]
    assert list((world.folder / "groups").iterdir()) == []
    assert list((world.folder / "work").iterdir()) == []


@pytest.mark.parametrize(("delivery", "failures"), CASES)
def test_script_runs_once_if_any_opening_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str, failures: int
) -> None:
    openings_failed = 0
    with a_node(tmp_path / "node", tmp_path) as world:
        for first in range(1, MAX_OPENINGS):
            marks = tmp_path / f"marks-{first}"
            marks.mkdir()
            job_id = submit(world, delivery, task=script_task(marks), payload="x" * 20_000)
            with openings_failing(monkeypatch, Openings(first, failures)) as openings:
                world.node.step()
                view = end_of(world, job_id)
            check_script(world, view, marks)
            if not openings.failed:
                break
            openings_failed += 1
    assert 15 < openings_failed < MAX_OPENINGS - 1


@pytest.mark.parametrize(
    ("delivery", "number"), [("AT_LEAST_ONCE", errno.EMFILE), ("AT_MOST_ONCE", errno.ENFILE)]
)
def test_script_runs_once_if_any_opening_of_its_launcher_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str, number: int
) -> None:
    openings_failed = 0
    with a_node(tmp_path / "node", tmp_path) as world:
        for first in range(1, MAX_OPENINGS):
            marks = tmp_path / f"marks-{first}"
            marks.mkdir()
            job_id = submit(world, delivery, task=script_task(marks))
            with monkeypatch.context() as patch:
                faults = LauncherFaults(patch, tmp_path, first, number=number)
                world.node.step()
                check_script(world, end_of(world, job_id), marks)
            if not faults.were_met:
                break
            openings_failed += 1
    assert 5 < openings_failed < MAX_OPENINGS - 1


@pytest.mark.parametrize(("delivery", "failures"), CASES)
def test_http_task_calls_once_if_any_opening_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str, failures: int
) -> None:
    """The task resolves a name. The redirect needs another socket."""
    redirect = answer(307, Location="/there", Connection="close")
    found_answer = answer(200, b"here", Connection="close")

    def handle(connection: socket.socket, request: bytes) -> None:
        connection.sendall(found_answer if request.startswith(b"POST /there ") else redirect)
        connection.shutdown(socket.SHUT_RDWR)

    openings_failed = 0
    with serving(handle) as server, a_node(tmp_path / "node", tmp_path) as world:
        for first in range(1, MAX_OPENINGS):
            url = server.url(host="localhost")
            task = {"type": "http", "method": "POST", "url": url, "follow_redirects": 1}
            job_id = submit(world, delivery, task=task)
            with openings_failing(monkeypatch, Openings(first, failures)) as openings:
                world.node.step()
                view = end_of(world, job_id)
            assert_succeeded(view)
            name = output_key(JobKey(T, job_id), view.run.run_id, view.run.attempt)
            assert world.store.blobs.get(name) == b"here"
            called_paths = [server.request().split()[1] for _ in range(server.requests.qsize())]
            assert called_paths == [b"/", b"/there"]
            if not openings.failed:
                break
            openings_failed += 1
    assert 4 < openings_failed < MAX_OPENINGS - 1
