"""The event of a run for the runner of scripts, and the runner's answer.

The runner executes without rights of ours: all that it needs stands in the event.
"""

import json
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from punctual.domain.claims import ClaimIdentity
from punctual.domain.leases import RUN_LEASE
from punctual.domain.timestamps import format_time
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE
from punctual.tasks.contract import Attempt, Outcome
from punctual.tasks.text import json_bytes

RUNNER_FORMAT = 1
_ANSWER_STATUSES = ("SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED")
_RUNNER_TASK_FIELDS = ("runtime", "code", "args", "env", "resources")

SignClaim = Callable[[ClaimIdentity], str]


class RunnerArtifact(NamedTuple):
    """A file of the run, with a link that only reads it."""

    url: str
    sha256: str
    name: str
    size: int


class InvalidAnswer(ValueError):
    """The answer is not one of the runner."""


def runner_event(
    attempt: Attempt,
    *,
    sign: SignClaim,
    api_url: str,
    lease_seconds_left: float,
    lease: timedelta = RUN_LEASE,
    artifact: RunnerArtifact | None = None,
) -> bytes:
    """Return the event of an attempt with filled placeholders, as JSON."""
    task: dict[str, Any] = {
        name: attempt.task[name]
        for name in _RUNNER_TASK_FIELDS
        if attempt.task.get(name) is not None
    }
    if artifact is not None:
        task["artifact"] = artifact._asdict()
    claim = ClaimIdentity(
        attempt.tenant,
        attempt.job_id,
        attempt.run_id,
        attempt.attempt_number,
        attempt.token,
        int(lease.total_seconds()),
    )
    event = {
        "format": RUNNER_FORMAT,
        "claim": sign(claim),
        "api": api_url,
        "mode": "detached" if attempt.is_detached else "wait",
        "job_id": attempt.job_id,
        "run_id": attempt.run_id,
        "name": attempt.name,
        "attempt_number": attempt.attempt_number,
        "scheduled_at": format_time(attempt.scheduled_at),
        "timeout_seconds": attempt.timeout.total_seconds(),
        "lease_seconds_left": lease_seconds_left,
        "task": task,
        "payload": attempt.payload,
        "secrets": sorted(attempt.secrets),
        "output": "keep" if attempt.keeps_output else "discard",
    }
    return json_bytes(event)


def parse_answer(data: bytes) -> tuple[Outcome, bytes]:
    """Return outcome and log of a runner for which an executor waited."""
    try:
        answer = json.loads(data)
        if answer["format"] != RUNNER_FORMAT or answer["status"] not in _ANSWER_STATUSES:
            raise ValueError("unknown format or status")
        outcome = Outcome(
            answer["status"],
            answer.get("error", ""),
            answer.get("retryable", True),
            output=_decoded(answer, "output"),
            output_type=answer.get("output_type") or TEXT_CONTENT_TYPE,
            output_truncated=answer.get("output_truncated", False),
            logs_truncated=answer.get("logs_truncated", False),
            exit_code=answer.get("exit_code"),
            begun=answer.get("begun", True),
            output_upload=answer.get("output_upload") or "",
            log_offset=answer.get("log_offset", 0),
        )
        return outcome, _decoded(answer, "log")
    except (ValueError, TypeError, KeyError, Error) as error:
        raise InvalidAnswer(f"The runner's answer has another form: {error}") from error


def _decoded(answer: Mapping[str, Any], name: str) -> bytes:
    return b64decode(answer.get(name) or "", validate=True)
