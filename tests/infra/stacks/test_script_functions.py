"""The functions that run scripts hold no right, and serve one tenant in each environment."""

import pytest

from infra.build.runner import RUNNER_HANDLER
from infra.config.stage import RUNNER_MEMORY_MB, SCRIPT_FUNCTION_NAMES
from punctual.domain.leases import DETACHED_LEASE
from punctual.tasks.limits import SCRIPT_FUNCTIONS
from punctual.tasks.script_function import MAX_FUNCTION_SCRIPT_SECONDS
from tests.support.infra.synthesis import (
    Resource,
    assembly,
    full,
    resources,
    script_functions,
    stage_settings,
    synthesise,
)


def role_of(function: Resource, stage: str) -> Resource:
    name = function.properties["Role"]["Fn::GetAtt"][0]
    (role,) = [role for role in resources(assembly(stage), "AWS::IAM::Role") if role.name == name]
    return role


def test_each_runtime_has_a_function(stage: str) -> None:
    assert set(script_functions(assembly(stage))) == set(SCRIPT_FUNCTION_NAMES)
    assert set(SCRIPT_FUNCTIONS.values()) == set(SCRIPT_FUNCTION_NAMES)


@pytest.mark.parametrize("name", SCRIPT_FUNCTION_NAMES)
def test_role_of_a_script_function_has_no_statement(stage: str, name: str) -> None:
    role = role_of(script_functions(assembly(stage))[name], stage)
    assert set(role.properties) == {"AssumeRolePolicyDocument", "Description", "Tags"}
    policies = [
        policy
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy")
        for policy in resources(assembly(stage), kind)
    ]
    assert [policy.name for policy in policies if role.name in str(policy.body)] == []


@pytest.mark.parametrize("name", SCRIPT_FUNCTION_NAMES)
def test_environment_serves_one_tenant_only(stage: str, name: str) -> None:
    function = script_functions(assembly(stage))[name].properties
    assert function["TenancyConfig"] == {"TenantIsolationMode": "PER_TENANT"}
    assert "SnapStart" not in function, "Lambda does not take both"


@pytest.mark.parametrize("name", SCRIPT_FUNCTION_NAMES)
def test_script_function_runs_the_runner_without_settings(stage: str, name: str) -> None:
    function = script_functions(assembly(stage))[name].properties
    assert (function["Runtime"], function["Handler"]) == ("python3.13", RUNNER_HANDLER)
    assert function["Architectures"] == [stage_settings(stage)["scriptArchitecture"]]
    assert function["MemorySize"] == stage_settings(stage)["scriptMemoryMb"] + RUNNER_MEMORY_MB
    assert function["Timeout"] - MAX_FUNCTION_SCRIPT_SECONDS == 60, "the runner ends the run"
    assert "Environment" not in function, "a script could read it"
    assert "VpcConfig" not in function, "a script must not reach private networks"


def test_scripts_stay_outside_of_the_vpc_of_the_stage() -> None:
    for function in script_functions(full()).values():
        assert "VpcConfig" not in function.properties
        assert "TracingConfig" not in function.properties


def test_nothing_logs_for_a_script_function(stage: str) -> None:
    for function in script_functions(assembly(stage)).values():
        assert "LoggingConfig" not in function.properties
    groups = resources(assembly(stage), "AWS::Logs::LogGroup")
    assert [group.name for group in groups if "Script" in group.name] == []


def test_only_node_has_a_layer(stage: str) -> None:
    functions = script_functions(assembly(stage))
    layers = {
        name: len(function.properties.get("Layers", [])) for name, function in functions.items()
    }
    assert layers == {"script-node": 1, "script-python": 0, "script-bash": 0}


def test_lambda_repeats_no_script(stage: str) -> None:
    configs = [
        config.properties
        for config in resources(assembly(stage), "AWS::Lambda::EventInvokeConfig")
        if config.name.startswith("Script")
    ]
    assert len(configs) == len(SCRIPT_FUNCTION_NAMES)
    for config in configs:
        assert config["MaximumRetryAttempts"] == 0
        assert config["MaximumEventAgeInSeconds"] < DETACHED_LEASE.total_seconds(), (
            "an event that Lambda holds back is dropped before its lease ends"
        )


def test_reserved_concurrency_limits_scripts(stage: str) -> None:
    reserved = stage_settings(stage)["reservedConcurrency"]
    for name, function in script_functions(assembly(stage)).items():
        assert function.properties.get("ReservedConcurrentExecutions") == reserved.get(name)


def test_stage_chooses_memory_and_architecture() -> None:
    synthesis = synthesise("dev", scriptMemoryMb=2_048, scriptArchitecture="arm64")
    for function in script_functions(synthesis).values():
        assert function.properties["MemorySize"] == 2_048 + RUNNER_MEMORY_MB
        assert function.properties["Architectures"] == ["arm64"]
