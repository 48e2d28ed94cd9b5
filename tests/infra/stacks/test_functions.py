"""Properties of all functions, and of some."""

from typing import Any

import pytest

from infra.app import read_context
from infra.build.packaging import FUNCTIONS_FOLDER
from infra.config.stage import FUNCTION_NAMES
from infra.constructs.queue import LANE_SHAPES
from punctual.settings import Settings
from tests.support.infra.synthesised import (
    ISSUER,
    STAGES,
    VPC,
    Resource,
    assembly,
    full,
    functions,
    resources,
)


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def values(stage: str) -> dict[str, Any]:
    found: dict[str, Any] = read_context()["stages"][stage]
    return found


def test_stage_has_all_sized_functions(stage: str) -> None:
    assert set(functions(assembly(stage))) == set(FUNCTION_NAMES)


def test_every_function_folder_is_deployed(stage: str) -> None:
    names = {name.split("-")[0] if "executor" in name else name for name in FUNCTION_NAMES}
    assert {name.replace("-", "_") for name in names} == {
        one.parent.name for one in FUNCTIONS_FOLDER.glob("*/handler.py")
    }


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_runs_python_on_arm_with_both_layers(stage: str, name: str) -> None:
    function = functions(assembly(stage))[name].properties
    assert (function["Runtime"], function["Architectures"]) == ("python3.13", ["arm64"])
    assert function["Handler"] == "handler.handler"
    layers = [one["Ref"] for one in function["Layers"]]
    assert [layer[: len("LayersCore")] for layer in layers] == ["LayersCore", "LayersVend"]
    assert function["MemorySize"] == values(stage)["memory"][name]


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_has_its_own_log_group_with_retention(stage: str, name: str) -> None:
    function = functions(assembly(stage))[name].properties
    group = function["LoggingConfig"]["LogGroup"]["Ref"]
    (log,) = [one for one in resources(assembly(stage), "AWS::Logs::LogGroup") if one.name == group]
    assert log.properties["LogGroupName"] == f"/aws/lambda/punctual-{stage}-{name}"
    assert log.properties["RetentionInDays"] == values(stage)["logRetentionDays"]
    kept = "RetainExceptOnCreate" if stage == "prod" else "Delete"
    assert log.body["DeletionPolicy"] == kept


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_tracing_and_reserved_concurrency_follow_the_stage(stage: str, name: str) -> None:
    function = functions(assembly(stage))[name].properties
    assert function.get("TracingConfig") is None
    assert functions(full())[name].properties["TracingConfig"] == {"Mode": "Active"}
    reserved = values(stage)["reservedConcurrency"].get(name)
    assert function.get("ReservedConcurrentExecutions") == reserved


@pytest.mark.parametrize("name", [name for name in FUNCTION_NAMES if name != "authorizer"])
def test_function_environment_holds_the_settings(stage: str, name: str) -> None:
    told = functions(assembly(stage))[name].properties["Environment"]["Variables"]
    assert told["POWERTOOLS_SERVICE_NAME"] == name
    settings = Settings.from_env({key: plain(value) for key, value in told.items()})
    assert (settings.stage, settings.knobs) == (stage, f"/punctual/{stage}/")
    assert settings.metrics is values(stage)["metrics"]

    assert settings.queues.keys() == {
        lane if priority == "all" else f"{lane}-{priority}"
        for lane, queues in values(stage)["lanes"].items()
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
    made = functions(assembly(stage))
    told = {name: one.properties["Environment"]["Variables"] for name, one in made.items()}
    assert told["executor-quick"]["PUNCTUAL_LANE"] == "quick"
    assert told["executor-long"]["PUNCTUAL_LANE"] == "long"
    ours = {name for name in told["authorizer"] if name.startswith("PUNCTUAL_")}
    assert ours == {"PUNCTUAL_CONTROL_TABLE", "PUNCTUAL_KNOBS"}
    assert told["authorizer"]["PUNCTUAL_KNOBS"] == f"/punctual/{stage}/"
    for name, function in functions(full()).items():
        environment = function.properties["Environment"]["Variables"]
        trusting = {key: value for key, value in environment.items() if "OIDC" in key}
        # job-search shows the issuer in GET /health.
        assert trusting == (TRUSTED if name in ("authorizer", "job-search") else {})


def test_dead_letters_function_has_the_queues_of_all_lanes(stage: str) -> None:
    made = functions(assembly(stage))["dead-letters"]
    told = plain(made.properties["Environment"]["Variables"]["PUNCTUAL_DEAD_LETTERS"])
    assert len(told.split()) == sum(len(one) for one in values(stage)["lanes"].values())


def test_only_poller_and_executors_allow_recursion(stage: str) -> None:
    """Lambda stops a chain through SQS after about 16 hops unless the function allows it."""
    made = functions(assembly(stage))
    loops = {name for name, one in made.items() if one.properties.get("RecursiveLoop") == "Allow"}
    assert loops == {"poller", "executor-quick", "executor-long"}


def test_function_timeouts_fit_their_callers(stage: str) -> None:
    seconds = {name: one.properties["Timeout"] for name, one in functions(assembly(stage)).items()}
    assert max(seconds["job-service"], seconds["job-search"], seconds["authorizer"]) < 30
    assert seconds["planner"] < 60
    assert seconds["executor-quick"] == LANE_SHAPES["quick"].timeout_seconds
    assert seconds["executor-long"] == LANE_SHAPES["long"].timeout_seconds


def test_scheduled_functions_have_few_retries(stage: str) -> None:
    found = {
        function_of(one, stage): one.properties
        for one in resources(assembly(stage), "AWS::Lambda::EventInvokeConfig")
    }
    assert set(found) == {"planner", "reconciler", "dead-letters"}
    planner = found["planner"]
    assert (planner["MaximumRetryAttempts"], planner["MaximumEventAgeInSeconds"]) == (0, 60)
    assert found["reconciler"]["MaximumEventAgeInSeconds"] <= 3600
    buries = found["dead-letters"]
    assert (buries["MaximumRetryAttempts"], buries["MaximumEventAgeInSeconds"]) == (0, 300)


def function_of(one: Resource, stage: str) -> str:
    name = one.properties["FunctionName"]["Ref"]
    (found,) = [key for key, made in functions(assembly(stage)).items() if made.name == name]
    return found


def test_functions_are_in_a_vpc_only_if_the_stage_has_one(stage: str) -> None:
    assert all("VpcConfig" not in one.properties for one in functions(assembly(stage)).values())
    for one in functions(full()).values():
        assert one.properties["VpcConfig"] == {
            "SubnetIds": VPC["subnets"],
            "SecurityGroupIds": VPC["securityGroups"],
        }


def test_each_stack_has_its_own_layers(stage: str) -> None:
    for name, one in assembly(stage).templates.items():
        layers = [r for r in one["Resources"].values() if r["Type"] == "AWS::Lambda::LayerVersion"]
        assert len(layers) == (0 if name in ("Data", "Observability") else 2)
        assert all(layer["Properties"]["CompatibleArchitectures"] == ["arm64"] for layer in layers)
