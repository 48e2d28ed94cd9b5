"""The `event` task: publishes the payload as an event."""

from collections.abc import Callable, Sequence
from typing import Any

from punctual.domain.timestamps import format_time
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE
from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, StopRequest
from punctual.tasks.limits import DEFAULT_DETAIL_TYPE, RESERVED_DETAIL_TYPES
from punctual.tasks.text import as_text

EventFields = dict[str, Any]
Publish = Callable[[Sequence[EventFields]], Sequence[str]]

# Event rules may ignore case.
_RESERVED_DETAIL_TYPES = frozenset(name.casefold() for name in RESERVED_DETAIL_TYPES)


def build_event(attempt: Attempt) -> EventFields:
    """Return the event of an attempt. Its placeholders must be expanded."""
    requested = attempt.task.get("detail_type")
    detail_type = DEFAULT_DETAIL_TYPE if requested is None else as_text(requested)
    problem = detail_type_problem(detail_type)
    if problem:
        raise BadTask(f"The detail type {problem}")
    return {
        "source": "punctual",
        "detail-type": detail_type,
        "detail": {
            "tenant": attempt.tenant,
            "job_id": attempt.job_id,
            "run_id": attempt.run_id,
            "scheduled_time": format_time(attempt.scheduled_at),
            "attempt": attempt.attempt_number,
            "name": attempt.name,
            "payload": attempt.payload,
        },
    }


def detail_type_problem(detail_type: str) -> str:
    """Return why a job may not use this detail type, or an empty string.

    >>> detail_type_problem("Order Due")
    ''
    >>> detail_type_problem("Run State Change")
    'is reserved for Punctual'
    """
    return (
        "is reserved for Punctual"
        if detail_type.strip().casefold() in _RESERVED_DETAIL_TYPES
        else ""
    )


def published_outcome(event_id: str) -> Outcome:
    """Return the outcome of an attempt after its event is stored."""
    return Outcome("SUCCESS", output=event_id.encode(), output_type=TEXT_CONTENT_TYPE)


class EventTask:
    """Publishes events through a port.

    A caller that commits events itself uses `build_event` and `published_outcome` instead.
    """

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    def run(self, attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        (event_id,) = self._publish([build_event(attempt)])
        return published_outcome(event_id)
