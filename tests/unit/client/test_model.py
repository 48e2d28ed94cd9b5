"""Answers as values, also from servers older and newer than this client."""

import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from punctual.client import Job, NotFound, RunFailed, Unexpected
from punctual.client.answers.schedules import Preview
from punctual.client.calls.error_mapping import error_of_problem, parse_problem
from punctual.client.installation import NewToken, Stats
from punctual.client.model import convert_model, decode_json, decode_model
from punctual.client.run import Output, Run
from punctual.client.wire import Answer
from tests.support.client.kinds import JOB, RUN


def a_run(**fields: Any) -> Run:
    return convert_model(Run, {**RUN, **fields})


def test_model_has_aware_times_and_timedeltas() -> None:
    run = a_run(
        start_time="2026-11-18T10:00:00.500Z",
        end_time="2026-11-18T10:00:42.000Z",
        duration_ms=1500,
        lateness_ms=0.5,
    )
    assert run.start_time == datetime(2026, 11, 18, 10, 0, 0, 500_000, tzinfo=UTC)
    assert run.duration == timedelta(seconds=1.5)
    assert run.lateness == timedelta(microseconds=500)
    job = convert_model(Job, {**JOB, "interval_seconds": 300, "exclude": ["2026-12-24"]})
    assert job.interval == job.timeout == timedelta(minutes=5)
    assert job.exclude == (date(2026, 12, 24),)
    assert job.deadline is None


def test_queued_run_has_no_duration() -> None:
    run = a_run(status="QUEUED")
    assert (run.duration, run.lateness, run.ended) == (None, None, False)


def test_local_time_keeps_its_offset() -> None:
    preview = convert_model(
        Preview,
        {"times": [{"utc": "2026-12-01T09:00:00Z", "local": "2026-12-01T10:00:00.000+01:00"}]},
    )
    assert preview.times[0].local == preview.times[0].utc
    assert preview.times[0].local.utcoffset() == timedelta(hours=1)


def test_unknown_fields_are_reachable_at_every_depth() -> None:
    attempt = {"attempt_number": 1, "status": "LOST", "zone": 2}
    newer_job = {
        **JOB,
        "colour": "red",
        "latest_run": {**RUN, "host": "a", "attempts": [attempt]},
    }
    job = convert_model(Job, newer_job)
    assert job.raw["colour"] == "red"
    assert job.latest_run is not None
    assert job.latest_run.raw["host"] == "a"
    assert job.latest_run.attempts[0].raw["zone"] == 2


def test_unknown_run_status_is_kept() -> None:
    assert not a_run(status="POSTPONED").ended
    assert a_run(status="ABANDONED", end_time="2026-11-18T10:00:02Z").ended


def test_missing_or_null_field_has_its_default() -> None:
    job = convert_model(Job, {**JOB, "exclude": None, "tags": None, "latest_run": None})
    assert (job.exclude, job.tags, job.latest_run) == ((), {}, None)
    assert convert_model(Stats, {}).jobs == {}


@pytest.mark.parametrize(
    "value",
    [[], "text", None, {}, {**JOB, "job_id": 5}, {**JOB, "created_at": "2026-11-18T10:00:00"}],
    ids=str,
)
def test_answer_that_is_not_a_job_is_unexpected(value: Any) -> None:
    with pytest.raises(Unexpected, match="is not a Job"):
        convert_model(Job, value)


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff"], ids=repr)
def test_answer_that_is_not_json_asks_to_check_the_url(body: bytes) -> None:
    with pytest.raises(Unexpected, match="PUNCTUAL_URL"):
        decode_json(Answer(200, {}, body))


def test_model_value_is_frozen() -> None:
    with pytest.raises(AttributeError):
        convert_model(Job, JOB).name = "b"  # type: ignore[misc]


def test_model_repr_shows_own_fields_and_no_secret() -> None:
    shown = repr(convert_model(Job, {**JOB, "priority": "NORMAL"}))
    assert "name='nightly'" in shown
    assert "raw" not in shown
    assert "priority" not in shown
    secret = {"token_id": "t", "tenant": "a", "name": "n", "role": "admin", "token": "pnc_secret"}
    new_token = decode_model(NewToken, Answer(201, {}, msgspec.json.encode(secret)))
    assert new_token.token == "pnc_secret"
    assert "pnc_secret" not in repr(new_token)


def test_successful_run_raises_no_error() -> None:
    run = a_run()
    assert run.raise_for_outcome() is run


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"status": "FAILED", "error_message": "exit code 3"}, "has ended FAILED: exit code 3"),
        (
            {"status": "SKIPPED", "reason": {"code": "OVERLAP", "text": "One ran."}},
            "has ended SKIPPED: One ran.",
        ),
        ({"status": "CANCELLED"}, "has ended CANCELLED."),
        ({"status": "RUNNING"}, "has not ended: it is RUNNING."),
    ],
)
def test_run_without_success_raises_its_reason(fields: dict[str, Any], text: str) -> None:
    run = a_run(**fields)
    with pytest.raises(RunFailed) as raised:
        run.raise_for_outcome()
    assert str(raised.value).endswith(text)
    assert raised.value.run is run


def test_output_is_read_as_bytes_text_and_json() -> None:
    output = Output(b'{"a": "\xc3\xa9"}', "application/json", False)
    assert output.text == '{"a": "é"}'
    assert output.json() == {"a": "é"}


def test_run_failed_error_survives_pickling() -> None:
    error = RunFailed("It failed.", a_run(status="FAILED"))
    restored = pickle.loads(pickle.dumps(error))
    assert (str(restored), restored.run) == ("It failed.", error.run)


def test_api_error_survives_pickling() -> None:
    error = error_of_problem(
        parse_problem({"detail": "No.", "code": "NOT_FOUND"}, 404), uncertain=True
    )
    restored = pickle.loads(pickle.dumps(error))
    assert isinstance(restored, NotFound)
    assert (restored.status, restored.uncertain, str(restored)) == (404, True, str(error))


@pytest.mark.parametrize("value", [None, [], "x", {"errors": "x"}, {"errors": [1]}], ids=str)
def test_gateway_refusal_becomes_a_problem(value: Any) -> None:
    problem = parse_problem(value, 502, "id-1")
    assert (problem.status, problem.code, problem.errors) == (502, "HTTP_502", ())
    assert "502" in problem.detail
    assert "request id-1." in str(error_of_problem(problem))
