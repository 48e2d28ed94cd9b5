"""Waiting for runs and following their logs, on a clock that only they move."""

import pytest

from punctual.client.endpoints import jobs, runs
from punctual.client.errors import (
    NotFound,
    Unavailable,
    WaitTimeout,
)
from punctual.client.wire import Answer
from tests.support.client_hand import NO_ANSWER, NO_CONNECTION, Hand, a_run, as_seen, refused


def test_waiting_looks_often_at_first_and_then_less() -> None:
    hand = Hand(*[a_run("RUNNING")] * 14, a_run("SUCCESS"))
    run = hand.run_steps(runs.wait_for(hand.settings, as_seen("QUEUED")))
    assert run.status == "SUCCESS"
    assert hand.pauses[:4] == pytest.approx([0.05, 0.075, 0.1125, 0.16875])
    assert hand.pauses[-1] == 2.0
    assert sorted(hand.pauses) == hand.pauses


def test_a_run_that_has_ended_is_not_asked_about() -> None:
    hand = Hand()
    ended = as_seen("FAILED")
    assert hand.run_steps(runs.wait_for(hand.settings, ended)) is ended


def test_who_waits_too_long_hears_how_it_stands() -> None:
    hand = Hand(*[a_run("WAITING")] * 99)
    with pytest.raises(WaitTimeout, match="is WAITING after 3 s") as told:
        hand.run_steps(runs.wait_for(hand.settings, as_seen("QUEUED"), timeout=3))
    assert hand.now == pytest.approx(103.0)
    assert told.value.run.status == "WAITING"


def test_a_server_that_hangs_does_not_prolong_a_wait() -> None:
    hand = Hand(a_run("RUNNING"), *[NO_ANSWER] * 9)
    with pytest.raises(WaitTimeout, match="is RUNNING after 3 s"):
        hand.run_steps(runs.wait_for(hand.settings, as_seen("QUEUED"), timeout=3))
    assert hand.now == pytest.approx(103.0, abs=1.1)


def test_who_waits_no_time_looks_once() -> None:
    hand = Hand(a_run("SUCCESS"))
    assert hand.run_steps(runs.wait_for(hand.settings, as_seen("QUEUED"), timeout=0)).succeeded
    hand = Hand(a_run("RUNNING"))
    with pytest.raises(WaitTimeout, match="is RUNNING after 0 s"):
        hand.run_steps(runs.wait_for(hand.settings, as_seen("QUEUED"), timeout=0))


def test_a_server_that_does_not_answer_is_told_while_there_is_time() -> None:
    hand = Hand(*[NO_CONNECTION] * 2, attempts=2)
    with pytest.raises(Unavailable):
        hand.run_steps(runs.wait_for(hand.settings, as_seen("QUEUED"), timeout=3600))


def test_an_order_may_wait_for_its_run() -> None:
    hand = Hand(a_run("QUEUED"), a_run("RUNNING"), a_run("SUCCESS"))
    run = hand.run_steps(jobs.run(hand.settings, "job", payload={"a": 1}, wait=True, timeout=10))
    assert run.succeeded
    assert hand.sent[0].body == b'{"payload":{"a":1}}'


def logged(text: str | bytes, following: int) -> Answer:
    data = text if isinstance(text, bytes) else text.encode()
    return Answer(200, {"x-next-offset": str(following)}, data)


def test_logs_are_followed_until_the_run_has_ended_and_all_is_read() -> None:
    hand = Hand(
        refused(404),  # nothing is logged yet
        a_run("QUEUED"),
        logged("a\n", 2),
        logged("", 2),
        a_run("RUNNING"),
        logged("", 2),
        a_run("SUCCESS"),
        logged("b\n", 4),  # written while we asked
        logged("", 4),
    )
    assert "".join(hand.stream_items(runs.follow_logs(hand.settings, "job", "run"))) == "a\nb\n"
    offsets = [dict(request.query)["after"] for request in hand.sent if request.query]
    assert offsets == ["0", "0", "2", "2", "2", "4"]


def test_each_attempt_is_followed_from_its_beginning() -> None:
    hand = Hand(
        logged("one\n", 4),
        logged("", 4),
        a_run("RUNNING", attempt_number=1),
        logged("", 4),
        a_run("RUNNING", attempt_number=2),
        logged("two\n", 4),
        logged("", 4),
        a_run("SUCCESS", attempt_number=2),
        logged("", 4),
    )
    assert list(hand.stream_items(runs.follow_logs(hand.settings, "job", "run"))) == [
        "one\n",
        "two\n",
    ]


def test_a_letter_that_is_cut_in_two_is_one_letter() -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    hand = Hand(
        logged(first, 1), logged(second, 2), logged(b"\xc3", 3), logged("", 3), a_run("SUCCESS"),
        logged("", 3),
    )  # fmt: skip
    assert "".join(hand.stream_items(runs.follow_logs(hand.settings, "job", "run"))) == "é\ufffd"


def test_logs_of_no_run_are_not_followed() -> None:
    hand = Hand(refused(404), refused(404))
    with pytest.raises(NotFound):
        list(hand.stream_items(runs.follow_logs(hand.settings, "job", "run")))


def test_logs_are_read_in_as_many_pieces_as_they_come() -> None:
    hand = Hand(logged("ab", 2), logged("c", 3), logged("", 3))
    assert hand.run_steps(runs.logs(hand.settings, "job", "run")) == ("abc", 3)
