"""The event of a run is read whole, or refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.runner.event import UnreadableEvent, read_event

EVENT: dict[str, Any] = {
    "format": 1,
    "claim": "claim-text",
    "api": "https://api/v1/",
    "mode": "wait",
    "job_id": "job-1",
    "run_id": "run-1",
    "name": "A job",
    "attempt_number": 3,
    "scheduled_at": "2026-12-01T10:00:00.250Z",
    "timeout_seconds": 20,
    "lease_seconds_left": 30,
    "task": {"runtime": "bash", "code": "echo {{payload}}"},
    "payload": [1],
    "secrets": ["hush", ""],
    "output": "keep",
}


def test_event_becomes_an_attempt() -> None:
    event = read_event(EVENT, {})
    attempt = event.attempt
    assert (event.api, event.mode, event.keeps_output) == ("https://api/v1", "wait", True)
    assert attempt.scheduled_at == datetime(2026, 12, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    assert (attempt.timeout, attempt.attempt_number) == (timedelta(seconds=20), 3)
    assert (attempt.task, attempt.payload) == (EVENT["task"], [1])
    assert attempt.secrets == {"hush"}


def test_secret_variables_of_the_process_are_masked() -> None:
    fields = EVENT | {"secret_variables": ["TOKEN", "ABSENT"]}
    assert read_event(fields, {"TOKEN": "value", "OTHER": "x"}).attempt.secrets == {"hush", "value"}


def test_discarding_job_is_known() -> None:
    assert not read_event(EVENT | {"output": "discard"}, {}).keeps_output


def test_repr_shows_neither_claim_nor_task() -> None:
    text = repr(read_event(EVENT, {}))
    assert "claim-text" not in text
    assert "echo" not in text


@pytest.mark.parametrize("name", sorted(EVENT))
def test_event_without_a_field_is_refused(name: str) -> None:
    with pytest.raises(UnreadableEvent):
        read_event({field: value for field, value in EVENT.items() if field != name}, {})


@pytest.mark.parametrize(
    "change",
    [{"format": 2}, {"mode": "later"}, {"timeout_seconds": "x"}, {"scheduled_at": 5}, {"api": 1}],
)
def test_event_with_a_wrong_field_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnreadableEvent):
        read_event(EVENT | change, {})


def test_marks_become_the_secrets_of_the_process() -> None:
    task = {"runtime": "bash", "code": "c", "args": ["a-MARK-1", 3], "env": {"K": "MARK-2"}}
    fields = EVENT | {"task": task, "secret_marks": {"MARK-1": "S0", "MARK-2": "S1"}}
    # A value that looks like another mark is not searched again.
    attempt = read_event(fields, {"S0": "MARK-2", "S1": "second"}).attempt
    assert attempt.task["args"] == ["a-MARK-2", 3]
    assert attempt.task["env"] == {"K": "second"}
    assert attempt.secrets == {"hush", "MARK-2", "second"}


def test_mark_without_its_variable_is_refused() -> None:
    with pytest.raises(UnreadableEvent):
        read_event(EVENT | {"secret_marks": {"MARK-1": "S0"}}, {})
