from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, BadTask, Outcome, StopSignal
from punctual.tasks.event import EventFields, EventTask, build_event


class NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError("nothing is logged here")


def an_attempt(**task: Any) -> Attempt:
    return Attempt(
        tenant="local",
        job_id="job-1",
        run_id="run-1",
        name="Tägliche Arbeit",
        attempt_number=2,
        scheduled_at=datetime(2026, 12, 1, 11, tzinfo=timezone(timedelta(hours=1))),
        task={"type": "event", **task},
        payload={"n": [1, None]},
        timeout=timedelta(seconds=5),
        token=7,
    )


def test_event_names_its_attempt() -> None:
    assert build_event(an_attempt()) == {
        "source": "punctual",
        "detail-type": "Job Run",
        "detail": {
            "tenant": "local",
            "job_id": "job-1",
            "run_id": "run-1",
            "scheduled_time": "2026-12-01T10:00:00.000Z",
            "attempt": 2,
            "name": "Tägliche Arbeit",
            "payload": {"n": [1, None]},
        },
    }


def test_event_has_the_detail_type_of_its_job() -> None:
    assert build_event(an_attempt(detail_type="Order Due"))["detail-type"] == "Order Due"
    assert build_event(an_attempt(detail_type=None))["detail-type"] == "Job Run"


@pytest.mark.parametrize("name", ["Job State Change", "Run State Change", "RUN state change"])
def test_reserved_detail_type_is_refused(name: str) -> None:
    with pytest.raises(BadTask, match="The detail type is reserved for Punctual"):
        build_event(an_attempt(detail_type=name))
    attempt = replace(an_attempt(detail_type="{{payload}}"), payload=name)
    events = EventTask(lambda _: pytest.fail("It was published."))
    outcome = AttemptRunner({"event": events}).run(attempt, StopSignal(), NoLog())
    assert (outcome.status, outcome.retryable) == ("FAILED", False)


def test_output_is_the_id_of_the_published_event() -> None:
    published: list[EventFields] = []

    def publish(events: Sequence[EventFields]) -> Sequence[str]:
        published.extend(events)
        return ["event-9"]

    attempt = an_attempt()
    outcome = EventTask(publish).run(attempt, StopSignal(), NoLog())

    assert outcome == Outcome("SUCCESS", output=b"event-9", output_type="text/plain; charset=utf-8")
    assert published == [build_event(attempt)]
    assert attempt.scheduled_at.astimezone(UTC).hour == 10
