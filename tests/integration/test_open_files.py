"""A run that finds no more files to open waits, and is given back; it never fails of that."""

import errno
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import Unavailable
from punctual.local.clock import ManualClock
from punctual.tasks import network, open_files
from punctual.tasks.contract import Attempt, Outcome, Recorder, Stop, StopSignal
from punctual.tasks.open_files import NO_MORE, PAUSES, is_full, retried
from punctual.tasks.registry import Registry
from tests.integration.node_world import NOON, a_world
from tests.integration.test_task_http import an_attempt, answer, call, says, serving


def full() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


class Flaky:
    """A task that cannot open a file for so many times."""

    def __init__(self, times: float) -> None:
        self.left = times

    def run(self, _attempt: Attempt, _stop: Stop, _recorder: Recorder, /) -> Outcome:
        self.left -= 1
        if self.left >= 0:
            raise full()
        return Outcome("SUCCESS")


class NoLog:
    def log(self, _data: bytes) -> None: ...


def failing(times: float) -> Callable[[], str]:
    left = times

    def action() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise full()
        return "done"

    return action


def test_what_opens_files_is_tried_again_and_not_for_ever() -> None:
    waited: list[float] = []
    assert retried(failing(3), waited.append) == "done"
    assert waited == list(PAUSES[:3])
    waited.clear()
    with pytest.raises(OSError, match="Too many"):
        retried(failing(float("inf")), waited.append)
    assert waited == list(PAUSES)
    with pytest.raises(OSError, match="Too many"):
        retried(failing(3), lambda _seconds: True)  # it is to stop


def test_other_errors_are_not_tried_again() -> None:
    def action() -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        retried(action, lambda _seconds: pytest.fail("it waits"))
    wrapped = Unavailable("The data folder does not answer.")
    wrapped.__cause__ = full()
    assert is_full(wrapped)


def test_a_run_begins_as_soon_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "PAUSES", (0.0,) * 5)
    attempt = an_attempt("http://127.0.0.1/")
    found = Registry({"http": Flaky(3)}).run(attempt, StopSignal(), NoLog())
    assert found.status == "SUCCESS"
    found = Registry({"http": Flaky(9)}).run(attempt, StopSignal(), NoLog())
    assert (found.status, found.error) == ("FAILED", NO_MORE)


def test_a_call_waits_for_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "PAUSES", (0.0,) * 5)
    made, left = network._socket, 3

    def sparse(family: int) -> socket.socket:
        nonlocal left
        left -= 1
        if left >= 0:
            raise full()
        return made(family)

    monkeypatch.setattr(network, "_socket", sparse)
    with serving(says(answer(200, b"here"))) as server:
        assert call(server.url()).output == b"here"
        left = 9
        found = call(server.url())
    assert (found.status, found.http_status) == ("FAILED", None)
    assert found.error.endswith(NO_MORE)


def test_a_run_that_cannot_begin_is_given_back_and_runs_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "PAUSES", (0.0,))
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as world:
        flaky = Flaky(2)
        monkeypatch.setattr(world.gate, "run", flaky.run)
        job_id = world.submit(max_retries=0, task={"type": "http", "url": "http://127.0.0.1/"})
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
