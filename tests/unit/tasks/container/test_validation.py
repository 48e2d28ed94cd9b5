"""The checks of a container task, at creation and before its start."""

from typing import Any

import pytest

from punctual.tasks.container.definition import SecretReference
from punctual.tasks.container.request import (
    MAX_COMMAND_BYTES,
    MAX_OVERRIDE_CHARACTERS,
    SecretText,
    check_overrides,
    command_bytes,
    overrides_of,
    split_environment,
)
from punctual.tasks.container.validation import container_problems
from punctual.tasks.contract import BadTask

IMAGE = "public.ecr.aws/docker/library/alpine:3.20"


def problems(max_vcpu: int = 16, **fields: Any) -> dict[str, str]:
    return dict(container_problems({"type": "container", "image": IMAGE, **fields}, max_vcpu))


@pytest.mark.parametrize(
    "image",
    [
        "alpine",
        "library/alpine:3.20",
        "123456789012.dkr.ecr.eu-west-1.amazonaws.com/reports:v1.2",
        "registry.example.com:5000/team/report",
        f"alpine@sha256:{'0' * 64}",
    ],
)
def test_names_of_images_are_accepted(image: str) -> None:
    assert problems(image=image) == {}


@pytest.mark.parametrize("image", ["Alpine", "alpine 3", "https://a/b", "a:b:c", "", "a@sha256:1"])
def test_text_that_names_no_image_is_refused(image: str) -> None:
    assert list(problems(image=image)) == ["image"]


def test_image_may_not_come_from_a_payload() -> None:
    assert problems(image="{{payload.image}}") == {"image": "must not hold placeholders"}


def test_size_that_fargate_lacks_is_refused() -> None:
    assert list(problems(resources={"cpu": 3})) == ["resources.cpu"]
    assert list(problems(resources={"memory_mb": 700})) == ["resources.memory_mb"]
    assert problems(resources={"cpu": 2, "memory_mb": 4_096}) == {}


def test_size_that_the_stage_can_never_run_is_refused() -> None:
    assert problems(max_vcpu=2, resources={"cpu": 4}) == {
        "resources.cpu": "must be at most 2 in this installation (maxContainerVcpu); got 4"
    }
    assert problems(max_vcpu=4, resources={"cpu": 4}) == {}


def test_command_and_environment_have_a_common_limit() -> None:
    room = MAX_COMMAND_BYTES - command_bytes(["echo", ""], {"A": ""})
    assert problems(command=["echo", "x" * room], env={"A": ""}) == {}
    assert list(problems(command=["echo", "x" * room], env={"A": "1"})) == ["env"]
    assert list(problems(command=["x" * MAX_COMMAND_BYTES])) == ["command"]


def test_secret_stands_only_for_a_whole_variable() -> None:
    assert problems(env={"TOKEN": "{{secret:token}}", "B": "{{ secret:token }}"}) == {}
    found = problems(command=["run", "{{secret:token}}"], env={"H": "Bearer {{secret:token}}"})
    assert list(found) == ["command.1", "env.H"]
    assert set(found.values()) == {"a secret may only be the whole value of a variable in env"}


def test_fields_of_wrong_types_are_left_to_the_model() -> None:
    assert problems(resources="large", command="echo", env=[]) == {}
    assert problems(resources={"cpu": "2"}, command=[1]) == {}


def test_environment_is_split_into_values_and_references() -> None:
    plain, secrets = split_environment({"A": 1, "B": "x", "TOKEN": SecretText("arn:secret")})
    assert plain == {"A": "1", "B": "x"}
    assert secrets == (SecretReference("TOKEN", "arn:secret"),)


@pytest.mark.parametrize("name", ["", "A=B", "PUNCTUAL_CLAIM"])
def test_environment_with_a_reserved_name_fails_the_attempt(name: str) -> None:
    with pytest.raises(BadTask):
        split_environment({name: "x"})


def test_overrides_beyond_the_limit_of_ecs_fail_the_attempt() -> None:
    room = MAX_OVERRIDE_CHARACTERS - len(
        '{"containerOverrides":[{"name":"main","environment":[{"name":"A","value":""}],'
        '"command":["echo"]}]}'
    )
    check_overrides(overrides_of(["echo"], {"A": "x" * room}))
    with pytest.raises(BadTask, match="have 8,193 characters together; ECS takes 8,192"):
        check_overrides(overrides_of(["echo"], {"A": "x" * (room + 1)}))
    with pytest.raises(BadTask, match="NUL"):
        check_overrides(overrides_of(["\0"], {}))
