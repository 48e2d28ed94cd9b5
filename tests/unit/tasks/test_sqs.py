"""The `sqs` task: the queues that it may send to, and its messages."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, StopSignal
from punctual.tasks.sqs import QueueTask, queue_problem
from punctual.tasks.validation import task_problems

HOST = "https://sqs.eu-central-1.amazonaws.com/123456789012/"


class FakeSqs:
    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str, bool]] = []

    def send(self, queue_url: str, body: str, run_id: str, tenant: str, fifo: bool, /) -> str:
        assert tenant == "acme"
        self.sent.append((queue_url, body, run_id, fifo))
        return f"message-{len(self.sent)}"


class NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError("nothing is logged here")


def run(url: str, payload: Any = None) -> tuple[Outcome, FakeSqs]:
    sqs = FakeSqs()
    attempt = Attempt(
        tenant="acme",
        job_id="job-1",
        run_id="run-1",
        name="n",
        attempt_number=1,
        scheduled_at=datetime(2026, 12, 1, tzinfo=UTC),
        task={"type": "sqs", "queue_url": url},
        payload=payload,
        timeout=timedelta(seconds=5),
        token=7,
    )
    return AttemptRunner({"sqs": QueueTask(sqs)}).run(attempt, StopSignal(), NoLog()), sqs


def test_sqs_task_sends_the_payload_and_returns_the_message_id() -> None:
    outcome, sqs = run(HOST + "orders", {"n": 1})
    assert sqs.sent == [(HOST + "orders", '{"n":1}', "run-1", False)]
    assert outcome == Outcome(
        "SUCCESS", output=b"message-1", output_type="text/plain; charset=utf-8"
    )


def test_fifo_queue_is_recognized_by_its_name() -> None:
    _, sqs = run(HOST + "orders.fifo", None)
    assert sqs.sent == [(HOST + "orders.fifo", "null", "run-1", True)]


@pytest.mark.parametrize("text", ["é", "\u0001", "\ufffe", "\ud800", "\U0001f570"])
def test_characters_that_sqs_refuses_are_escaped(text: str) -> None:
    _, sqs = run(HOST + "orders", {"text": text})
    ((_, body, _, _),) = sqs.sent
    assert body.isascii()
    assert json.loads(body) == {"text": text}


@pytest.mark.parametrize(
    "url",
    [
        HOST + "orders",
        HOST + "orders.fifo",
        "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/a_b-c",
        "http://localhost:4566/000000000000/orders",
        HOST + "about-punctual-things",
    ],
)
def test_queue_is_named_by_its_url(url: str) -> None:
    assert queue_problem(url) == ""
    assert list(task_problems({"type": "sqs", "queue_url": url})) == []
    assert run(url)[0].status == "SUCCESS"


RESERVED_QUEUE = "is that of a queue of Punctual"
WRONG_FORM = "must look like https://sqs.<region>.amazonaws.com/<account>/<name>"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (HOST + "punctual-dev-wake", RESERVED_QUEUE),
        (HOST + "punctual-prod-quick-high.fifo", RESERVED_QUEUE),
        (HOST + "PUNCTUAL-dev-wake", RESERVED_QUEUE),
        ("orders", WRONG_FORM),
        (HOST, WRONG_FORM),
        (HOST + "orders/more", WRONG_FORM),
        (HOST + "orders.fifo.fifo", WRONG_FORM),
        (HOST + "orders?x=1", WRONG_FORM),
        ("https://user@sqs.eu-central-1.amazonaws.com/123456789012/orders", WRONG_FORM),
        ("arn:aws:sqs:eu-central-1:123456789012:orders", WRONG_FORM),
        ("ftp://sqs.eu-central-1.amazonaws.com/123456789012/orders", WRONG_FORM),
        (HOST + "orders\n", WRONG_FORM),
    ],
)
def test_reserved_queue_is_refused_at_validation_and_at_the_call(url: str, problem: str) -> None:
    assert list(task_problems({"type": "sqs", "queue_url": url})) == [("queue_url", problem)]
    outcome, sqs = run(url)
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert outcome.error == f"The queue's URL {problem}"
    assert sqs.sent == []


def test_queue_url_of_a_placeholder_is_checked_at_the_call() -> None:
    url = "{{payload.queue}}"
    assert list(task_problems({"type": "sqs", "queue_url": url})) == []
    outcome, sqs = run(url, {"queue": HOST + "punctual-dev-wake"})
    assert (outcome.status, sqs.sent) == ("FAILED", [])
