"""Waiting for runs and following their logs, on a manual clock."""

import pytest

from punctual.client.endpoints import jobs, runs
from punctual.client.errors import (
    NotFound,
    Unavailable,
    WaitTimeout,
)
from punctual.client.wire import Answer
from tests.support.client.driver import (
    NO_ANSWER,
    NO_CONNECTION,
    StepDriver,
    a_run,
    refused,
    run_with_status,
)


def test_waiting_polls_often_at_first_and_then_less() -> None:
    driver = StepDriver(*[a_run("RUNNING")] * 14, a_run("SUCCESS"))
    run = driver.run_steps(runs.wait_for(driver.settings, run_with_status("QUEUED")))
    assert run.status == "SUCCESS"
    assert driver.pauses[:4] == pytest.approx([0.05, 0.075, 0.1125, 0.16875])
    assert driver.pauses[-1] == 2.0
    assert sorted(driver.pauses) == driver.pauses


def test_waiting_for_an_ended_run_sends_no_request() -> None:
    driver = StepDriver()
    ended = run_with_status("FAILED")
    assert driver.run_steps(runs.wait_for(driver.settings, ended)) is ended


def test_waiting_too_long_reports_the_status() -> None:
    driver = StepDriver(*[a_run("WAITING")] * 99)
    with pytest.raises(WaitTimeout, match="is WAITING after 3 s") as raised:
        driver.run_steps(runs.wait_for(driver.settings, run_with_status("QUEUED"), timeout=3))
    assert driver.now == pytest.approx(103.0)
    assert raised.value.run.status == "WAITING"


def test_unanswered_request_does_not_prolong_a_wait() -> None:
    driver = StepDriver(a_run("RUNNING"), *[NO_ANSWER] * 9)
    with pytest.raises(WaitTimeout, match="is RUNNING after 3 s"):
        driver.run_steps(runs.wait_for(driver.settings, run_with_status("QUEUED"), timeout=3))
    assert driver.now == pytest.approx(103.0, abs=1.1)


def test_waiting_without_time_polls_once() -> None:
    driver = StepDriver(a_run("SUCCESS"))
    assert driver.run_steps(
        runs.wait_for(driver.settings, run_with_status("QUEUED"), timeout=0)
    ).succeeded
    driver = StepDriver(a_run("RUNNING"))
    with pytest.raises(WaitTimeout, match="is RUNNING after 0 s"):
        driver.run_steps(runs.wait_for(driver.settings, run_with_status("QUEUED"), timeout=0))


def test_unavailable_server_ends_a_wait_early() -> None:
    driver = StepDriver(*[NO_CONNECTION] * 2, attempts=2)
    with pytest.raises(Unavailable):
        driver.run_steps(runs.wait_for(driver.settings, run_with_status("QUEUED"), timeout=3600))


def test_run_now_may_wait_for_its_run() -> None:
    driver = StepDriver(a_run("QUEUED"), a_run("RUNNING"), a_run("SUCCESS"))
    run = driver.run_steps(
        jobs.run(driver.settings, "job", payload={"a": 1}, wait=True, timeout=10)
    )
    assert run.succeeded
    assert driver.sent[0].body == b'{"payload":{"a":1}}'


def log_answer(text: str | bytes, next_offset: int) -> Answer:
    data = text if isinstance(text, bytes) else text.encode()
    return Answer(200, {"x-next-offset": str(next_offset)}, data)


def test_logs_are_followed_until_the_run_has_ended() -> None:
    driver = StepDriver(
        refused(404),  # nothing is logged yet
        a_run("QUEUED"),
        log_answer("a\n", 2),
        log_answer("", 2),
        a_run("RUNNING"),
        log_answer("", 2),
        a_run("SUCCESS"),
        log_answer("b\n", 4),  # written while we asked
        log_answer("", 4),
    )
    assert "".join(driver.stream_items(runs.follow_logs(driver.settings, "job", "run"))) == "a\nb\n"
    offsets = [dict(request.query)["after"] for request in driver.sent if request.query]
    assert offsets == ["0", "0", "2", "2", "2", "4"]


def test_logs_of_each_attempt_are_followed_from_its_start() -> None:
    driver = StepDriver(
        log_answer("one\n", 4),
        log_answer("", 4),
        a_run("RUNNING", attempt_number=1),
        log_answer("", 4),
        a_run("RUNNING", attempt_number=2),
        log_answer("two\n", 4),
        log_answer("", 4),
        a_run("SUCCESS", attempt_number=2),
        log_answer("", 4),
    )
    assert list(driver.stream_items(runs.follow_logs(driver.settings, "job", "run"))) == [
        "one\n",
        "two\n",
    ]


def test_log_without_new_text_is_read_each_half_second() -> None:
    """A runner on AWS sends its text each 4 s, and a reader sees it within 5 s."""
    pauses = 12
    driver = StepDriver(
        *[answer for _ in range(pauses) for answer in (log_answer("", 0), a_run("RUNNING"))],
        *(log_answer("", 0), a_run("SUCCESS"), log_answer("", 0)),
    )
    assert list(driver.stream_items(runs.follow_logs(driver.settings, "job", "run"))) == []
    assert driver.pauses[0] < 0.1
    assert (driver.pauses[-1], len(driver.pauses)) == (0.5, pauses)


def test_character_split_between_two_answers_is_joined() -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    driver = StepDriver(
        log_answer(first, 1),
        log_answer(second, 2),
        log_answer(b"\xc3", 3),
        log_answer("", 3),
        a_run("SUCCESS"),
        log_answer("", 3),
    )
    assert (
        "".join(driver.stream_items(runs.follow_logs(driver.settings, "job", "run"))) == "é\ufffd"
    )


def test_logs_of_a_missing_run_are_not_followed() -> None:
    driver = StepDriver(refused(404), refused(404))
    with pytest.raises(NotFound):
        list(driver.stream_items(runs.follow_logs(driver.settings, "job", "run")))


def test_logs_are_read_piece_by_piece() -> None:
    driver = StepDriver(log_answer("ab", 2), log_answer("c", 3), log_answer("", 3))
    assert driver.run_steps(runs.logs(driver.settings, "job", "run")) == ("abc", 3)
