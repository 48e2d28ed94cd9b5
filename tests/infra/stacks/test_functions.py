"""Properties of all functions, and of some."""

from typing import Any

import pytest

from infra.build.packaging import FUNCTIONS_FOLDER
from infra.config.stage import FUNCTION_NAMES
from infra.constructs.queue import LANE_SHAPES
from punctual.settings import Settings
from tests.support.infra.synthesis import (
    ISSUER,
    VPC,
    Resource,
    assembly,
    full,
    functions,
    resources,
    stage_settings,
)


def test_stage_has_all_sized_functions(stage: str) -> None:
    assert set(functions(assembly(stage))) == set(FUNCTION_NAMES)


def test_every_function_folder_is_deployed(stage: str) -> None:
    names = {name.split("-")[0] if "executor" in name else name for name in FUNCTION_NAMES}
    assert {name.replace("-", "_") for name in {*names, "containers"}} == {
        path.parent.name for path in FUNCTIONS_FOLDER.glob("*/handler.py")
    }


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_runs_python_on_arm_with_both_layers(stage: str, name: str) -> None:
    function = functions(assembly(stage))[name].properties
    assert (function["Runtime"], function["Architectures"]) == ("python3.13", ["arm64"])
    assert function["Handler"] == "handler.handler"
    layers = [layer["Ref"] for layer in function["Layers"]]
    assert [layer[: len("LayersCore")] for layer in layers] == ["LayersCore", "LayersVend"]
    assert function["MemorySize"] == stage_settings(stage)["memory"][name]


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_has_its_own_log_group_with_retention(stage: str, name: str) -> None:
    function = functions(assembly(stage))[name].properties
    group = function["LoggingConfig"]["LogGroup"]["Ref"]
    (log,) = [
        log_group
        for log_group in resources(assembly(stage), "AWS::Logs::LogGroup")
        if log_group.name == group
    ]
    assert log.properties["LogGroupName"] == f"/aws/lambda/punctual-{stage}-{name}"
    assert log.properties["RetentionInDays"] == stage_settings(stage)["logRetentionDays"]
    policy = "RetainExceptOnCreate" if stage == "prod" else "Delete"
    assert log.body["DeletionPolicy"] == policy


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_tracing_and_reserved_concurrency_follow_the_stage(stage: str, name: str) -> None:
    function = functions(assembly(stage))[name].properties
    assert function.get("TracingConfig") is None
    assert functions(full())[name].properties["TracingConfig"] == {"Mode": "Active"}
    reserved = stage_settings(stage)["reservedConcurrency"].get(name)
    assert function.get("ReservedConcurrentExecutions") == reserved


@pytest.mark.parametrize("name", [name for name in FUNCTION_NAMES if name != "authorizer"])
def test_function_environment_holds_the_settings(stage: str, name: str) -> None:
    environment = functions(assembly(stage))[name].properties["Environment"]["Variables"]
    assert environment["POWERTOOLS_SERVICE_NAME"] == name
    settings = Settings.from_env({key: plain(value) for key, value in environment.items()})
    assert (settings.stage, settings.knobs) == (stage, f"/punctual/{stage}/")
    assert settings.metrics is stage_settings(stage)["metrics"]

    assert settings.queues.keys() == {
        lane if priority == "all" else f"{lane}-{priority}"
        for lane, queues in stage_settings(stage)["lanes"].items()
        for priority in queues
    }


def plain(value: Any) -> str:
    """Return a text with each reference shortened, as CloudFormation would resolve it."""
    if isinstance(value, str):
        return value
    match value:
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(plain(part) for part in parts)
    return "reference"


TRUSTED = {
    "PUNCTUAL_OIDC_ISSUER": ISSUER["issuer"],
    "PUNCTUAL_OIDC_AUDIENCE": ISSUER["audience"],
    "PUNCTUAL_OIDC_TENANT_CLAIM": "https://example.com/tenant",
    "PUNCTUAL_OIDC_ROLE_CLAIM": "role",
    "PUNCTUAL_OIDC_CLIENT_ID": "punctual-pages",
}


def test_executor_has_its_lane_and_authorizer_has_the_issuer(stage: str) -> None:
    by_name = functions(assembly(stage))
    environments = {
        name: function.properties["Environment"]["Variables"] for name, function in by_name.items()
    }
    assert environments["executor-quick"]["PUNCTUAL_LANE"] == "quick"
    assert environments["executor-long"]["PUNCTUAL_LANE"] == "long"
    variables = {name for name in environments["authorizer"] if name.startswith("PUNCTUAL_")}
    assert variables == {"PUNCTUAL_CONTROL_TABLE", "PUNCTUAL_KNOBS"}
    assert environments["authorizer"]["PUNCTUAL_KNOBS"] == f"/punctual/{stage}/"
    for name, function in functions(full()).items():
        environment = function.properties["Environment"]["Variables"]
        trusting = {key: value for key, value in environment.items() if "OIDC" in key}
        # job-search shows the issuer in GET /health.
        assert trusting == (TRUSTED if name in ("authorizer", "job-search") else {})


def test_dead_letters_function_has_the_queues_of_all_lanes(stage: str) -> None:
    function = functions(assembly(stage))["dead-letters"]
    value = plain(function.properties["Environment"]["Variables"]["PUNCTUAL_DEAD_LETTERS"])
    assert len(value.split()) == sum(
        len(queues) for queues in stage_settings(stage)["lanes"].values()
    )


def test_only_poller_and_executors_allow_recursion(stage: str) -> None:
    """Lambda stops a chain through SQS after about 16 hops unless the function allows it."""
    by_name = functions(assembly(stage))
    loops = {
        name
        for name, function in by_name.items()
        if function.properties.get("RecursiveLoop") == "Allow"
    }
    assert loops == {"poller", "operations", "executor-quick", "executor-long"}


def test_function_timeouts_fit_their_callers(stage: str) -> None:
    seconds = {
        name: function.properties["Timeout"]
        for name, function in functions(assembly(stage)).items()
    }
    assert max(seconds["job-service"], seconds["job-search"], seconds["authorizer"]) < 30
    assert seconds["planner"] < 60
    assert seconds["executor-quick"] == LANE_SHAPES["quick"].timeout_seconds
    assert seconds["executor-long"] == LANE_SHAPES["long"].timeout_seconds


def test_scheduled_functions_have_few_retries(stage: str) -> None:
    configs = {
        function_of(config, stage): config.properties
        for config in resources(assembly(stage), "AWS::Lambda::EventInvokeConfig")
        if not config.name.startswith("Script")
    }
    assert set(configs) == {"planner", "reconciler", "dead-letters"}
    planner = configs["planner"]
    assert (planner["MaximumRetryAttempts"], planner["MaximumEventAgeInSeconds"]) == (0, 60)
    assert configs["reconciler"]["MaximumEventAgeInSeconds"] <= 3600
    buries = configs["dead-letters"]
    assert (buries["MaximumRetryAttempts"], buries["MaximumEventAgeInSeconds"]) == (0, 300)


def function_of(config: Resource, stage: str) -> str:
    name = config.properties["FunctionName"]["Ref"]
    (function_name,) = [
        key for key, function in functions(assembly(stage)).items() if function.name == name
    ]
    return function_name


def test_functions_are_in_a_vpc_only_if_the_stage_has_one(stage: str) -> None:
    assert all(
        "VpcConfig" not in function.properties for function in functions(assembly(stage)).values()
    )
    for function in functions(full()).values():
        assert function.properties["VpcConfig"] == {
            "SubnetIds": VPC["subnets"],
            "SecurityGroupIds": VPC["securityGroups"],
        }


def test_each_stack_has_its_own_layers(stage: str) -> None:
    for name, template in assembly(stage).templates.items():
        layers = [
            body
            for layer, body in template["Resources"].items()
            if body["Type"] == "AWS::Lambda::LayerVersion" and layer.startswith("Layers")
        ]
        assert len(layers) == (0 if name in ("Data", "Observability") else 2)
        assert all(layer["Properties"]["CompatibleArchitectures"] == ["arm64"] for layer in layers)
