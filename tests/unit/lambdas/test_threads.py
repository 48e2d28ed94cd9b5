"""The threads that run the tasks of an executor invocation."""

import threading

from punctual.lambdas.executor.threads import TaskThreads

TIMEOUT_SECONDS = 20.0  # seconds until a test that hangs fails


def fail_on_sleep(_seconds: float) -> None:
    raise AssertionError("there is something to wait for")


def test_started_tasks_run_at_the_same_time() -> None:
    barrier = threading.Barrier(10, timeout=TIMEOUT_SECONDS)
    threads, done = TaskThreads(fail_on_sleep), []

    def work() -> None:
        barrier.wait()
        done.append(1)

    for _ in range(10):
        threads.start(work)
    while len(done) < 10:
        threads.wait(TIMEOUT_SECONDS)
    assert len(done) == 10


def test_wait_ends_with_the_first_task_that_ends() -> None:
    may_end, threads = threading.Event(), TaskThreads(fail_on_sleep)
    ended: list[str] = []

    def slow() -> None:
        assert may_end.wait(TIMEOUT_SECONDS)
        ended.append("slow")

    threads.start(slow)
    threads.start(lambda: ended.append("fast"))
    threads.wait(TIMEOUT_SECONDS)
    assert ended == ["fast"]
    may_end.set()
    threads.wait(TIMEOUT_SECONDS)
    assert ended == ["fast", "slow"]


def test_ended_task_is_reported_once() -> None:
    paused: list[float] = []
    threads = TaskThreads(paused.append)
    threads.start(lambda: None)
    threads.wait(TIMEOUT_SECONDS)
    threads.wait(1.5)
    assert paused == [1.5]


def test_wait_without_tasks_sleeps_for_the_timeout() -> None:
    paused: list[float] = []
    TaskThreads(paused.append).wait(0.25)
    assert paused == [0.25]
