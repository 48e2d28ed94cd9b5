"""Limits of scripts on AWS: 840 s and the memory of the stage, and more in containers."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.domain.errors import Invalid
from punctual.lambdas.job_service.handler import stage_features
from punctual.node.features import NODE_FEATURES
from punctual.settings import Settings
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
    return errors_of(FUNCTION_FEATURES, memory_mb, **fields)


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


SETTINGS = Settings(
    *(
        "dev",
        "jobs",
        "timers",
        "runs",
        "control",
        "audit",
        "lists",
        "bucket",
        "wake",
        "operations",
        "bus",
        "/punctual/dev/",
    ),
    max_container_vcpu=4,
)


def errors_of(features: Features, memory_mb: int = 512, **fields: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        submit(features, memory_mb, **fields)
    return {error.field: error.message for error in raised.value.errors}


def test_stage_without_an_image_for_scripts_says_what_to_do() -> None:
    features = stage_features(SETTINGS)
    message = errors_of(features, timeout_seconds=841)["timeout_seconds"]
    assert message == (
        "must be at most 840 for script tasks of this installation; got 841. More runs in "
        "containers, and the stage has no image for them: set `scriptsImage` in cdk.json, or "
        "deploy from a machine with Docker"
    )
    message = errors_of(features, memory_mb=513)["task.resources.memory_mb"]
    assert message.endswith("or deploy from a machine with Docker")
    assert submit(features, timeout_seconds=840)


def test_stage_without_containers_names_its_limit_alone() -> None:
    features = stage_features(replace(SETTINGS, max_container_vcpu=0))
    message = "must be at most 840 for script tasks of this installation; got 841"
    assert errors_of(features, timeout_seconds=841) == {"timeout_seconds": message}


def test_stage_with_an_image_for_scripts_takes_what_fits_its_containers() -> None:
    features = stage_features(replace(SETTINGS, container_scripts=True))
    assert submit(features, timeout_seconds=86_400)["timeout_seconds"] == 86_400
    assert submit(features, memory_mb=30_592)
    assert errors_of(features, memory_mb=30_593) == {
        "task.resources.memory_mb": (
            "must be at most 30,592 for a script in a container with 4 vCPU; got 30,593"
        )
    }
    assert list(errors_of(features, timeout_seconds=86_401)) == ["timeout_seconds"]
