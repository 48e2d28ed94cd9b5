"""Limits of scripts where functions run them: 840 s and the memory of the stage."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.domain.errors import Invalid
from punctual.node.features import NODE_FEATURES
from punctual.tasks.script_function import MAX_FUNCTION_SCRIPT_SECONDS
from punctual.web.features import Features
from punctual.web.http.json_body import parse_object
from punctual.web.models.job_rules import new_job

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
FUNCTION_FEATURES = NODE_FEATURES._replace(
    node_paths=False,
    max_script_seconds=MAX_FUNCTION_SCRIPT_SECONDS,
    max_script_memory_mb=512,
)


def submit(features: Features, memory_mb: int = 512, **fields: Any) -> dict[str, Any]:
    resources = {"memory_mb": memory_mb}
    task = {"type": "script", "runtime": "bash", "code": "true", "resources": resources}
    job = {"name": "a", "schedule_type": "IMMEDIATE", "task": task, **fields}
    return new_job(parse_object(json.dumps(job).encode()), NOW, features)


def field_errors(memory_mb: int = 512, **fields: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        submit(FUNCTION_FEATURES, memory_mb, **fields)
    return {error.field: error.message for error in raised.value.errors}


@pytest.mark.parametrize("seconds", [1, 840])
def test_script_that_a_function_can_run_is_accepted(seconds: int) -> None:
    document = submit(FUNCTION_FEATURES, timeout_seconds=seconds)
    assert document["timeout_seconds"] == seconds


def test_script_over_the_time_of_a_function_is_refused() -> None:
    message = "must be at most 840 for script tasks of this installation; got 841"
    assert field_errors(timeout_seconds=841) == {"timeout_seconds": message}
    assert submit(NODE_FEATURES, timeout_seconds=86_400), "a node runs it"


def test_script_over_the_memory_of_the_stage_is_refused() -> None:
    message = "must be at most 512 for scripts of this installation; got 513"
    assert field_errors(memory_mb=513) == {"task.resources.memory_mb": message}
    assert submit(NODE_FEATURES, memory_mb=513), "a node has its own limit"
