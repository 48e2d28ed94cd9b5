"""The `event` task: publishes the payload as an event."""

from collections.abc import Callable, Sequence
from typing import Any

from punctual.tasks.contract import Attempt, Outcome, Recorder, Stop
from punctual.tasks.limits import DEFAULT_DETAIL_TYPE
from punctual.tasks.text import as_text, moment

Event = dict[str, Any]
Publish = Callable[[Sequence[Event]], Sequence[str]]


def build_event(attempt: Attempt) -> Event:
    """The event of an attempt whose placeholders are expanded."""
    detail_type = attempt.task.get("detail_type")
    return {
        "source": "punctual",
        "detail-type": DEFAULT_DETAIL_TYPE if detail_type is None else as_text(detail_type),
        "detail": {
            "job_id": attempt.job_id,
            "run_id": attempt.run_id,
            "scheduled_time": moment(attempt.scheduled_at),
            "attempt": attempt.attempt_number,
            "name": attempt.name,
            "payload": attempt.payload,
        },
    }


def published(event_id: str) -> Outcome:
    """How an attempt ended whose event stands in the stream."""
    return Outcome("SUCCESS", output=event_id.encode(), output_type="text/plain; charset=utf-8")


class EventTask:
    """Publishes through a port; a caller that commits events itself uses the functions above."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    def run(self, attempt: Attempt, _stop: Stop, _recorder: Recorder, /) -> Outcome:
        (event_id,) = self._publish([build_event(attempt)])
        return published(event_id)
