"""The stack of containers: its network, its roles, and the rights to start tasks."""

from functools import cache
from typing import Any

import pytest

from infra.config import stage
from tests.support.infra.synthesis import (
    VPC,
    Resource,
    Synthesis,
    assembly,
    docker_images,
    functions,
    resources,
    synthesise,
)

STACK = "Containers"


@cache
def rehearsal() -> Synthesis:
    return synthesise("rehearsal")


def statements(role: Resource) -> list[dict[str, Any]]:
    return [
        statement
        for policy in role.properties.get("Policies", ())
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def role_of(function: str) -> Resource:
    name = functions(rehearsal())[function].properties["Role"]["Fn::GetAtt"][0]
    (role,) = [role for role in resources(rehearsal(), "AWS::IAM::Role") if role.name == name]
    return role


def statement_of(role: Resource, action: str) -> dict[str, Any]:
    (statement,) = [
        statement
        for statement in statements(role)
        if action in (statement["Action"], *statement["Action"]) or action == statement["Action"]
    ]
    return statement


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_stage_without_containers_has_nothing_of_them(stage: str) -> None:
    assert STACK not in assembly(stage).templates
    for kind in ("AWS::EC2::VPC", "AWS::ECS::Cluster"):
        assert resources(assembly(stage), kind) == []
    assert "containers" not in functions(assembly(stage))


def test_network_has_public_subnets_without_nat_and_without_inbound_rules() -> None:
    assert len(resources(rehearsal(), "AWS::EC2::Subnet", STACK)) == 2
    assert resources(rehearsal(), "AWS::EC2::NatGateway", STACK) == []
    (group,) = resources(rehearsal(), "AWS::EC2::SecurityGroup", STACK)
    assert "SecurityGroupIngress" not in group.properties
    assert resources(rehearsal(), "AWS::EC2::SecurityGroupIngress", STACK) == []
    (endpoint,) = resources(rehearsal(), "AWS::EC2::VPCEndpoint", STACK)
    assert endpoint.properties["VpcEndpointType"] == "Gateway"


def test_stage_with_a_vpc_of_its_own_makes_no_network() -> None:
    own = synthesise("rehearsal", vpc=VPC)
    assert resources(own, "AWS::EC2::VPC") == []
    settings = functions(own)["containers"].properties["Environment"]["Variables"]
    assert VPC["subnets"][0] in str(settings["PUNCTUAL_CONTAINERS"])
    assert '"has_public_address":false' in str(settings["PUNCTUAL_CONTAINERS"])


def test_task_role_has_no_statement() -> None:
    roles = resources(rehearsal(), "AWS::IAM::Role", STACK)
    (task_role,) = [role for role in roles if role.name.startswith("TaskRole")]
    assert statements(task_role) == []
    assert "ManagedPolicyArns" not in task_role.properties
    (trust,) = task_role.properties["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert "aws:SourceAccount" in trust["Condition"]["StringEquals"]
    policies = resources(rehearsal(), "AWS::IAM::Policy", STACK)
    assert policies == []


def test_executor_passes_only_the_two_roles_to_ecs() -> None:
    statement = statement_of(role_of("executor-long"), "iam:PassRole")
    assert statement["Condition"] == {
        "StringEquals": {"iam:PassedToService": ["ecs-tasks.amazonaws.com"]}
    }
    assert len(statement["Resource"]) == 2
    assert {"TaskRole", "ExecutionRole"} == {
        name for name in ("TaskRole", "ExecutionRole") if name in str(statement["Resource"])
    }
    assert "*" not in str(statement["Resource"])


def test_executor_starts_tasks_only_in_the_cluster_of_its_stage() -> None:
    statement = statement_of(role_of("executor-long"), "ecs:RunTask")
    assert list(statement["Condition"]["StringEquals"]) == ["ecs:cluster"]
    assert "task-definition/punctual-rehearsal-*" in str(statement["Resource"])


def test_other_functions_start_no_tasks() -> None:
    for name in functions(rehearsal()):
        if name != "executor-long":
            assert "ecs:RunTask" not in str(statements(role_of(name))), name
            assert "iam:PassRole" not in str(statements(role_of(name))), name


def test_function_stops_tasks_only_in_its_cluster() -> None:
    statement = statement_of(role_of("containers"), "ecs:StopTask")
    assert list(statement["Condition"]["StringEquals"]) == ["ecs:cluster"]
    assert "task/punctual-rehearsal/*" in str(statement["Resource"])


def test_events_of_the_cluster_and_requests_to_stop_start_the_function() -> None:
    rules = {
        rule.properties["Name"]: rule.properties
        for rule in resources(rehearsal(), "AWS::Events::Rule", STACK)
    }
    assert set(rules) == {
        "punctual-rehearsal-sweep",
        "punctual-rehearsal-task-changes",
        "punctual-rehearsal-stop-requests",
    }
    pattern = rules["punctual-rehearsal-task-changes"]["EventPattern"]
    assert pattern["source"] == ["aws.ecs"]
    assert list(pattern["detail"]) == ["clusterArn"]
    assert "EventBusName" not in rules["punctual-rehearsal-task-changes"]
    assert rules["punctual-rehearsal-sweep"]["ScheduleExpression"] == "rate(1 minute)"
    assert "EventBusName" in rules["punctual-rehearsal-stop-requests"]


def test_execution_role_reads_only_secrets_of_the_stage() -> None:
    roles = resources(rehearsal(), "AWS::IAM::Role", STACK)
    (role,) = [role for role in roles if role.name.startswith("ExecutionRole")]
    statement = statement_of(role, "ssm:GetParameters")
    assert "parameter/punctual/rehearsal/secrets/*" in str(statement["Resource"])


def test_execution_role_reads_only_environment_files_of_starts() -> None:
    roles = resources(rehearsal(), "AWS::IAM::Role", STACK)
    (role,) = [role for role in roles if role.name.startswith("ExecutionRole")]
    statement = statement_of(role, "s3:GetObject")
    assert "/outputs/*/start.env" in str(statement["Resource"])
    assert statement_of(role, "s3:GetBucketLocation")["Effect"] == "Allow"
    actions = [str(statement["Action"]) for statement in statements(role)]
    assert sum("s3:" in action for action in actions) == 2


def settings_of(synthesis: Synthesis, function: str) -> str:
    return str(functions(synthesis)[function].properties["Environment"]["Variables"])


def test_stage_names_the_image_of_its_long_scripts() -> None:
    image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/scripts:4"
    named = synthesise("rehearsal", scriptsImage=image)
    assert f'"image":"{image}"' in settings_of(named, "executor-long")
    assert "'PUNCTUAL_CONTAINER_SCRIPTS': 'on'" in settings_of(named, "job-service")


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_deployment_with_docker_builds_the_image_for_the_stage(
    monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    monkeypatch.setattr(stage, "finds_docker", lambda: True)
    built = synthesise("rehearsal", scriptsImage=None, scriptArchitecture=architecture)
    (asset,) = docker_images(built)
    platform = {"x86_64": "linux/amd64", "arm64": "linux/arm64"}[architecture]
    assert asset["source"]["platform"] == platform
    assert "PUNCTUAL_CONTAINER_SCRIPTS" in settings_of(built, "job-service")
    assert ".dkr.ecr." in settings_of(built, "executor-long")


def test_deployment_without_docker_and_image_offers_no_long_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage, "finds_docker", lambda: False)
    bare = synthesise("rehearsal", scriptsImage=None)
    assert docker_images(bare) == []
    assert '"image":""' in settings_of(bare, "executor-long")
    assert "PUNCTUAL_CONTAINER_SCRIPTS" not in settings_of(bare, "job-service")
    assert "containers" in functions(bare), "containers themselves need no image of ours"


def test_stage_without_containers_asks_for_no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise AssertionError("no container needs the image")

    monkeypatch.setattr(stage, "finds_docker", fail)
    assert "PUNCTUAL_CONTAINER_SCRIPTS" not in settings_of(synthesise("dev"), "job-service")


def test_only_what_tasks_read_may_be_deleted() -> None:
    for name in ("executor-long", "containers"):
        (statement,) = [
            statement
            for statement in statements(role_of(name))
            if "outputs/*/run.json" in str(statement["Resource"])
        ]
        assert statement["Action"] == "s3:DeleteObject"
        for file in ("payload.json", "run.json", "start.env"):
            assert f"outputs/*/{file}" in str(statement["Resource"])
        assert len(statement["Resource"]) == 3
