"""Waiting for runs and operations, and following logs, in virtual time."""

from typing import Any

import pytest

from punctual.client.endpoints import jobs, operations, runs
from punctual.client.errors import NotFound, Unavailable, WaitTimeout
from punctual.client.run import Run
from punctual.client.wire import Answer
from tests.support.client.driver import (
    NO_ANSWER,
    StepDriver,
    answer_with,
    refused,
    run_with_status,
)
from tests.support.client.feed_driver import FeedDriver, a_state
from tests.support.client.kinds import JOB

JOB_ID = str(JOB["job_id"])

RUNNING = a_state(0, "RUNNING")


def wait(driver: FeedDriver, **options: Any) -> Run:
    return driver.run_steps(runs.wait_for(driver.settings, run_with_status("QUEUED"), **options))


def follow_logs(driver: FeedDriver) -> list[str]:
    return list(driver.stream_items(runs.follow_logs(driver.settings, JOB_ID, "run")))


def test_end_of_a_run_is_told_at_once_and_a_minute_takes_few_calls() -> None:
    driver = FeedDriver(RUNNING, a_state(60, "SUCCESS"))
    assert wait(driver).succeeded
    assert driver.elapsed < 60.1
    assert driver.calls == {"changes": 4, str(run_with_status("").run_id): 2}
    assert driver.pauses == []


def test_wait_on_a_server_that_does_not_wait_asks_every_three_seconds() -> None:
    driver = FeedDriver(RUNNING, a_state(59, "SUCCESS"), polls=True)
    assert wait(driver).succeeded
    assert driver.elapsed < 62.5
    assert driver.calls["changes"] <= 22
    assert driver.calls.total() - driver.calls["changes"] <= 3
    assert set(driver.pauses) <= {3.0}


def test_each_state_is_read_once() -> None:
    driver = FeedDriver(
        a_state(0, "QUEUED"),
        a_state(2, "RUNNING"),
        a_state(4, "QUEUED", attempt_number=2),
        a_state(5, "RUNNING", attempt_number=2),
        a_state(9, "SUCCESS", attempt_number=2),
    )
    states = driver.stream_items(runs.watch(driver.settings, run_with_status("QUEUED")))
    assert [(run.status, run.attempt_number) for run in states] == [
        ("QUEUED", 1),
        ("RUNNING", 1),
        ("QUEUED", 2),
        ("RUNNING", 2),
        ("SUCCESS", 2),
    ]
    assert driver.calls.total() == 1 + 5 + 4


def test_waiting_for_an_ended_run_sends_no_request() -> None:
    driver = FeedDriver()
    ended = run_with_status("FAILED")
    assert driver.run_steps(runs.wait_for(driver.settings, ended)) is ended
    assert list(driver.stream_items(runs.watch(driver.settings, ended))) == [ended]


def test_run_that_has_ended_meanwhile_is_returned_at_once() -> None:
    driver = FeedDriver(a_state(0, "SUCCESS"))
    assert wait(driver).succeeded
    assert driver.calls.total() == 2


@pytest.mark.parametrize("status", [0, 503])
def test_wait_survives_outages(status: int) -> None:
    """The node is killed twice, or the feed answers 503 for a while."""
    driver = FeedDriver(
        RUNNING,
        a_state(200, "SUCCESS"),
        outages=[(10, 40), (60, 190)],
        outage_status=status,
    )
    assert wait(driver).succeeded
    assert 200 <= driver.elapsed < 206
    assert driver.calls.total() < 160
    assert_no_busy_loop(driver)


def test_wait_gives_up_after_the_time_for_reconnecting() -> None:
    driver = FeedDriver(RUNNING, outages=[(10, 10_000)], reconnect_seconds=30)
    with pytest.raises(Unavailable):
        wait(driver)
    assert 40 <= driver.elapsed < 60
    assert_no_busy_loop(driver)


def test_expired_cursor_reads_the_run_again() -> None:
    driver = FeedDriver(RUNNING, a_state(30, "SUCCESS"), outages=[(5, 40)], gap_at=41)
    assert wait(driver).succeeded
    assert 40 < driver.elapsed < 50


def test_lost_entry_delays_the_end_by_a_minute() -> None:
    driver = FeedDriver(RUNNING, a_state(10, "SUCCESS"))
    driver.loses_entries = True
    assert wait(driver).succeeded
    assert 60 < driver.elapsed < 81
    assert_no_busy_loop(driver)


def test_server_that_answers_too_early_is_not_asked_in_a_loop() -> None:
    """A node that stops lets all waiting calls go."""
    driver = FeedDriver(RUNNING, a_state(10, "SUCCESS"))
    driver.answers_early = True
    with pytest.raises(WaitTimeout):
        wait(driver, timeout=5)
    assert driver.calls["changes"] < 30


def assert_no_busy_loop(driver: FeedDriver) -> None:
    """Assert that no ten seconds have more than 30 calls."""
    later = driver.times[30:]
    assert all(last - first > 10 for first, last in zip(driver.times, later, strict=False))


@pytest.mark.parametrize("polls", [False, True])
@pytest.mark.parametrize("seconds", [0.5, 3])
def test_waiting_too_long_reports_the_status(seconds: float, polls: bool) -> None:
    driver = FeedDriver(a_state(0, "WAITING"), polls=polls)
    with pytest.raises(WaitTimeout, match=f"is WAITING after {seconds:g} s") as raised:
        wait(driver, timeout=seconds)
    assert seconds <= driver.elapsed < seconds + 1
    assert raised.value.run.status == "WAITING"


def test_unanswered_request_does_not_prolong_a_wait() -> None:
    running = run_with_status("QUEUED")
    driver = StepDriver(answer_with(200, {"next_cursor": "a"}), *[NO_ANSWER] * 9)
    with pytest.raises(WaitTimeout, match="is QUEUED after 3 s"):
        driver.run_steps(runs.wait_for(driver.settings, running, timeout=3))
    assert driver.now == pytest.approx(103.0, abs=2.1)


def test_waiting_without_time_reads_once() -> None:
    driver = FeedDriver(a_state(0, "SUCCESS"))
    assert wait(driver, timeout=0).succeeded
    driver = FeedDriver(RUNNING)
    with pytest.raises(WaitTimeout, match="is RUNNING after 0 s"):
        wait(driver, timeout=0)
    assert driver.calls.total() == 2


def test_run_now_may_wait_for_its_run() -> None:
    driver = FeedDriver(a_state(0, "QUEUED"), a_state(1, "RUNNING"), a_state(2, "SUCCESS"))
    run = driver.run_steps(
        jobs.run(driver.settings, JOB_ID, payload={"a": 1}, wait=True, timeout=10)
    )
    assert run.succeeded
    assert driver.calls["runNow"] == 1


@pytest.mark.parametrize("polls", [False, True])
def test_operation_is_followed_by_its_entries(polls: bool) -> None:
    steps = [a_state(number, "RUNNING", done=number) for number in range(3)]
    driver = FeedDriver(*steps, a_state(25, "DONE", done=3), polls=polls)
    shown: list[int] = []
    ended = driver.run_steps(
        operations.wait_for(driver.settings, "op", on_progress=lambda op: shown.append(op.done))
    )
    assert (ended.status, ended.done) == ("DONE", 3)
    assert shown == [0, 1, 2, 3]
    assert driver.elapsed < 28.5
    assert driver.calls["op"] == 2


def test_operation_outlives_an_outage_and_an_expired_cursor() -> None:
    driver = FeedDriver(
        a_state(0, "RUNNING", done=0),
        a_state(30, "DONE", done=3),
        outages=[(5, 50)],
        gap_at=51,
    )
    ended = driver.run_steps(operations.wait_for(driver.settings, "op"))
    assert ended.ended
    assert_no_busy_loop(driver)


def test_logs_are_followed_until_the_run_has_ended() -> None:
    driver = FeedDriver(
        a_state(0, "QUEUED"),
        a_state(30, "RUNNING"),
        a_state(33, "SUCCESS"),
        logs=[(30.5, 1, b"a\n"), (31.5, 1, b"b\n"), (32.99, 1, b"c\n")],
    )
    assert follow_logs(driver) == ["a\n", "b\n", "c\n"]
    assert driver.elapsed < 33.2
    assert driver.calls["logs"] <= 12


def test_logs_of_each_attempt_are_followed_from_its_start() -> None:
    driver = FeedDriver(
        a_state(0, "RUNNING", attempt_number=1),
        a_state(3, "RUNNING", attempt_number=2),
        a_state(6, "SUCCESS", attempt_number=2),
        logs=[(0, 1, b"one\n"), (4, 2, b"two\n")],
    )
    assert follow_logs(driver) == ["one\n", "two\n"]


def test_log_without_new_text_is_read_each_second_by_a_server_that_waits() -> None:
    driver = FeedDriver(RUNNING, a_state(60, "SUCCESS"))
    assert follow_logs(driver) == []
    assert driver.pauses == []
    assert driver.elapsed < 60.1
    assert 58 <= driver.calls["logs"] <= 62
    assert driver.calls["changes"] <= 62


def test_log_without_new_text_is_read_each_half_second() -> None:
    """A runner on AWS sends its text each 4 s, and a reader sees it within 5 s."""
    driver = FeedDriver(RUNNING, a_state(60, "SUCCESS"), polls=True)
    assert follow_logs(driver) == []
    assert max(driver.pauses[1:]) <= 0.5  # the first answer tells that the server does not wait
    assert driver.calls["logs"] <= 126
    assert driver.calls["changes"] <= 22
    assert driver.elapsed < 64


def test_followed_logs_survive_an_outage() -> None:
    driver = FeedDriver(
        RUNNING,
        a_state(50, "SUCCESS"),
        logs=[(1, 1, b"a\n"), (15, 1, b"b\n"), (49, 1, b"c\n")],
        outages=[(10, 30), (35, 45)],
    )
    assert "".join(follow_logs(driver)) == "a\nb\nc\n"
    assert_no_busy_loop(driver)


def log_answer(text: str | bytes, next_offset: int) -> Answer:
    data = text if isinstance(text, bytes) else text.encode()
    return Answer(200, {"x-next-offset": str(next_offset)}, data)


def test_character_split_between_two_answers_is_joined() -> None:
    driver = FeedDriver(
        RUNNING,
        a_state(5, "SUCCESS"),
        logs=[(0, 1, "é".encode()[:1]), (2, 1, "é".encode()[1:]), (4, 1, b"\xc3")],
    )
    assert "".join(follow_logs(driver)) == "é\ufffd"


def test_logs_of_a_missing_run_are_not_followed() -> None:
    driver = StepDriver(answer_with(200, {"next_cursor": "a"}), refused(404))
    with pytest.raises(NotFound):
        list(driver.stream_items(runs.follow_logs(driver.settings, JOB_ID, "run")))


def test_logs_are_read_piece_by_piece() -> None:
    driver = StepDriver(log_answer("ab", 2), log_answer("c", 3), log_answer("", 3))
    assert driver.run_steps(runs.logs(driver.settings, JOB_ID, "run")) == ("abc", 3)
