"""A run that finds no more files to open waits, and is given back; it never fails of that.

`test_open_files_everywhere.py` goes through all places of a run where a file is opened.
"""

import errno
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import Unavailable
from punctual.node.clock import ManualClock
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest, StopSignal
from punctual.tasks.http import network
from punctual.tasks.registry import Registry
from punctual.tasks.script import open_files
from punctual.tasks.script.open_files import (
    NOT_BEGUN_MESSAGE,
    RETRY_PAUSE_SECONDS,
    NotBegun,
    is_file_limit,
    retry_not_begun,
    retry_until_free,
)
from tests.integration.tasks.test_http import an_attempt, answer, call, says, serving
from tests.support.node.node_world import NOON, a_world
from tests.support.scripts.script_runs import an_attempt as a_script
from tests.support.scripts.script_runs import execute


def full() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


class Flaky:
    """A task that cannot open a file for so many times."""

    def __init__(self, times: float) -> None:
        self.left = times
        self.met = threading.Event()

    def run(self, _attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        self.left -= 1
        self.met.set()
        if self.left >= 0:
            raise NotBegun from full()
        return Outcome("SUCCESS")


class NoLog:
    def log(self, _data: bytes) -> None: ...


def failing(times: float) -> Callable[[], str]:
    left = times

    def action() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise NotBegun from full()
        return "done"

    return action


def test_what_opens_files_is_tried_again_and_not_for_ever() -> None:
    waited: list[float] = []
    assert retry_not_begun(failing(3), waited.append) == "done"
    assert waited == list(RETRY_PAUSE_SECONDS[:3])
    waited.clear()
    with pytest.raises(NotBegun):
        retry_not_begun(failing(float("inf")), waited.append)
    assert waited == list(RETRY_PAUSE_SECONDS)
    with pytest.raises(NotBegun):
        retry_not_begun(failing(3), lambda _seconds: True)  # it is to stop


def test_what_an_attempt_that_has_begun_needs_is_tried_until_there_is_room() -> None:
    waited: list[float] = []
    assert retry_until_free(failing(100), waited.append) == "done"
    assert waited[: len(RETRY_PAUSE_SECONDS)] == list(RETRY_PAUSE_SECONDS)
    assert set(waited[len(RETRY_PAUSE_SECONDS) :]) == {RETRY_PAUSE_SECONDS[-1]}


def test_other_errors_are_not_tried_again() -> None:
    def action() -> None:
        raise OSError(errno.ENOSPC, "full")

    for repeated in (retry_not_begun, retry_until_free):
        with pytest.raises(OSError, match="full"):
            repeated(action, lambda _seconds: pytest.fail("it waits"))
    wrapped = Unavailable("The data folder does not answer.")
    wrapped.__cause__ = full()
    assert is_file_limit(wrapped)


def test_a_run_begins_as_soon_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (0.0,) * 5)
    attempt = an_attempt("http://127.0.0.1/")
    found = Registry({"http": Flaky(3)}).run(attempt, StopSignal(), NoLog())
    assert found.status == "SUCCESS"
    found = Registry({"http": Flaky(9)}).run(attempt, StopSignal(), NoLog())
    assert (found.status, found.error, found.begun) == ("FAILED", NOT_BEGUN_MESSAGE, False)


def test_a_call_waits_for_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (0.0,) * 5)
    made, left = network._new_socket, 3

    def sparse(family: int) -> socket.socket:
        nonlocal left
        left -= 1
        if left >= 0:
            raise full()
        return made(family)

    monkeypatch.setattr(network, "_new_socket", sparse)
    with serving(says(answer(200, b"here"))) as server:
        assert call(server.url()).output == b"here"
        left = 9
        found = call(server.url())
    assert (found.status, found.http_status, found.begun) == ("FAILED", None, False)


def test_a_task_that_meets_the_lack_after_it_began_is_not_run_again() -> None:
    runs = 0

    class Begun:
        def run(self, _attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
            nonlocal runs
            runs += 1
            raise full()

    found = Registry({"http": Begun()}).run(an_attempt("http://x/"), StopSignal(), NoLog())
    assert (runs, found.status, found.begun) == (1, "FAILED", True)


def test_a_script_that_prints_the_message_of_a_lack_has_begun(tmp_path: Path) -> None:
    found = execute(tmp_path, a_script(f"echo '{NOT_BEGUN_MESSAGE}' >&2; exit 1"))
    assert found.error.endswith(NOT_BEGUN_MESSAGE)
    assert (found.status, found.begun) == ("FAILED", True)


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_a_run_that_cannot_begin_is_given_back_and_runs_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (0.0,))
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as world:
        flaky = Flaky(2)
        monkeypatch.setattr(world.gate, "run", flaky.run)
        task = {"type": "http", "url": "http://127.0.0.1/"}
        job_id = world.submit(max_retries=0, delivery=delivery, task=task)
        world.node.step()
        world.settle()
        assert world.statuses(job_id) == ["WAITING"]
        for _ in range(20):
            clock.set(clock.now + timedelta(seconds=30))
            world.node.step()
            if world.statuses(job_id) == ["RUNNING"]:
                world.settle()
                break
        (view,) = world.runs(job_id)
        assert (view.run.status.value, view.run.attempt) == ("SUCCESS", 1)


def test_a_run_that_waits_for_a_file_while_the_node_stops_runs_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it had begun, so the stop counts as no attempt under AT_MOST_ONCE either."""
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (60.0,))
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as world:
        flaky = Flaky(2)
        monkeypatch.setattr(world.gate, "run", flaky.run)
        task = {"type": "http", "url": "http://127.0.0.1/"}
        job_id = world.submit(delivery="AT_MOST_ONCE", task=task)
        world.node.step()
        assert flaky.met.wait(10)
        world.node.close()
        world.settle()
        assert world.statuses(job_id) == ["WAITING"]
    clock.advance(timedelta(minutes=1))
    with a_world(tmp_path, clock) as world:
        world.gate.open.set()
        world.node.step()
        world.settle()
        assert world.statuses(job_id) == ["SUCCESS"]
