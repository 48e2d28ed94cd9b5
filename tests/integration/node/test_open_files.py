"""A run that reaches the limit of open files waits or is returned. It does not fail.

`test_open_file_faults.py` fails each opening of a file in a run.
"""

import errno
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import Unavailable
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest, StopSignal
from punctual.tasks.http import network
from punctual.tasks.script import open_files
from punctual.tasks.script.open_files import (
    NOT_BEGUN_MESSAGE,
    RETRY_PAUSE_SECONDS,
    NotBegun,
    is_file_limit,
    retry_not_begun,
    retry_until_free,
)
from tests.integration.tasks.test_http import an_attempt, answer, answers_with, call, serving
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, a_world
from tests.support.scripts.script_runs import an_attempt as a_script
from tests.support.scripts.script_runs import execute


def too_many_open_files() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


class FlakyTask:
    """A task that cannot open a file the first `times` times."""

    def __init__(self, times: float) -> None:
        self.failures_left = times
        self.reached = threading.Event()

    def run(self, _attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        self.failures_left -= 1
        self.reached.set()
        if self.failures_left >= 0:
            raise NotBegun from too_many_open_files()
        return Outcome("SUCCESS")


class NoLog:
    def log(self, _data: bytes) -> None: ...


def failing_action(times: float) -> Callable[[], str]:
    failures_left = times

    def action() -> str:
        nonlocal failures_left
        failures_left -= 1
        if failures_left >= 0:
            raise NotBegun from too_many_open_files()
        return "done"

    return action


def test_opening_of_a_file_is_retried_a_limited_number_of_times() -> None:
    pauses: list[float] = []
    assert retry_not_begun(failing_action(3), pauses.append) == "done"
    assert pauses == list(RETRY_PAUSE_SECONDS[:3])
    pauses.clear()
    with pytest.raises(NotBegun):
        retry_not_begun(failing_action(float("inf")), pauses.append)
    assert pauses == list(RETRY_PAUSE_SECONDS)
    with pytest.raises(NotBegun):
        retry_not_begun(failing_action(3), lambda _seconds: True)  # a stop is requested


def test_begun_attempt_retries_until_a_file_is_free() -> None:
    pauses: list[float] = []
    assert retry_until_free(failing_action(100), pauses.append) == "done"
    assert pauses[: len(RETRY_PAUSE_SECONDS)] == list(RETRY_PAUSE_SECONDS)
    assert set(pauses[len(RETRY_PAUSE_SECONDS) :]) == {RETRY_PAUSE_SECONDS[-1]}


def test_other_errors_are_not_retried() -> None:
    def action() -> None:
        raise OSError(errno.ENOSPC, "full")

    for repeated in (retry_not_begun, retry_until_free):
        with pytest.raises(OSError, match="full"):
            repeated(action, lambda _seconds: pytest.fail("it waits"))
    wrapped = Unavailable("The data folder does not answer.")
    wrapped.__cause__ = too_many_open_files()
    assert is_file_limit(wrapped)


def test_run_begins_when_a_file_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (0.0,) * 5)
    attempt = an_attempt("http://127.0.0.1/")
    outcome = AttemptRunner({"http": FlakyTask(3)}).run(attempt, StopSignal(), NoLog())
    assert outcome.status == "SUCCESS"
    outcome = AttemptRunner({"http": FlakyTask(9)}).run(attempt, StopSignal(), NoLog())
    assert (outcome.status, outcome.error, outcome.begun) == ("FAILED", NOT_BEGUN_MESSAGE, False)


def test_http_call_waits_for_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (0.0,) * 5)
    new_socket, failures_left = network._new_socket, 3

    def limited_socket(family: int) -> socket.socket:
        nonlocal failures_left
        failures_left -= 1
        if failures_left >= 0:
            raise too_many_open_files()
        return new_socket(family)

    monkeypatch.setattr(network, "_new_socket", limited_socket)
    with serving(answers_with(answer(200, b"here"))) as server:
        assert call(server.url()).output == b"here"
        failures_left = 9
        outcome = call(server.url())
    assert (outcome.status, outcome.http_status, outcome.begun) == ("FAILED", None, False)


def test_task_that_fails_after_its_begin_is_not_run_again() -> None:
    runs = 0

    class BegunTask:
        def run(self, _attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
            nonlocal runs
            runs += 1
            raise too_many_open_files()

    outcome = AttemptRunner({"http": BegunTask()}).run(
        an_attempt("http://x/"), StopSignal(), NoLog()
    )
    assert (runs, outcome.status, outcome.begun) == (1, "FAILED", True)


def test_script_that_prints_the_not_begun_message_counts_as_begun(tmp_path: Path) -> None:
    outcome = execute(tmp_path, a_script(f"echo '{NOT_BEGUN_MESSAGE}' >&2; exit 1"))
    assert outcome.error.endswith(NOT_BEGUN_MESSAGE)
    assert (outcome.status, outcome.begun) == ("FAILED", True)


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_run_that_cannot_begin_is_returned_and_runs_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (0.0,))
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as world:
        flaky = FlakyTask(2)
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


def test_run_that_waits_for_a_file_at_shutdown_runs_after_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt has not begun, so the stop does not count, not even under AT_MOST_ONCE."""
    monkeypatch.setattr(open_files, "RETRY_PAUSE_SECONDS", (60.0,))
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as world:
        flaky = FlakyTask(2)
        monkeypatch.setattr(world.gate, "run", flaky.run)
        task = {"type": "http", "url": "http://127.0.0.1/"}
        job_id = world.submit(delivery="AT_MOST_ONCE", task=task)
        world.node.step()
        assert flaky.reached.wait(10)
        world.node.close()
        world.settle()
        assert world.statuses(job_id) == ["WAITING"]
    clock.advance(timedelta(minutes=1))
    with a_world(tmp_path, clock) as world:
        world.gate.open.set()
        world.node.step()
        world.settle()
        assert world.statuses(job_id) == ["SUCCESS"]
