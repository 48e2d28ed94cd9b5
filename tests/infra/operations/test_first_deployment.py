"""A first deployment: the required account limits, and recovery after a failure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.app import read_context
from infra.config.stage import FUNCTION_NAMES, SCRIPT_FUNCTION_NAMES, Stage, read_stage
from infra.operations.account import BOOTSTRAP_PARAMETER, NotReady, check_concurrency
from infra.operations.deploy import deploy
from infra.operations.first_deployment import (
    FUNCTIONS_BY_STACK,
    STACK_SUFFIXES,
    check_log_groups,
    log_groups,
    missing_stacks,
)
from punctual.lambdas.ssm_secrets import ADMIN_HASH_PARAMETER, UNSET_SECRET
from tests.infra.operations.test_deploy import REGION, Printed, put, read, session
from tests.support.infra.synthesis import assembly, resources, synthesise

__all__ = ["session"]  # a fixture
ACCOUNT = "123456789012"
UNRESERVED = 100  # executions that Lambda keeps for functions without a reservation
EMPTY = json.dumps({"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}})


def prod(**values: Any) -> Stage:
    stages = read_context()["stages"]
    return read_stage("prod", {"prod": {**stages["prod"], **values}})


def limit_for_prod() -> int:
    """Return the smallest limit of an account that `prod` fits into."""
    return prod().concurrency.total_reserved + UNRESERVED


def refusal(session: Any, stage: Stage) -> str:
    with pytest.raises(NotReady) as raised:
        check_concurrency(session, stage, ACCOUNT, REGION)
    return str(raised.value)


def test_account_with_a_low_limit_is_refused_with_a_fitting_percentage(
    session: Any,
) -> None:
    session.limit = 400
    error = refusal(session, prod())
    assert f"stage prod reserves {prod().concurrency.total_reserved} executions" in error
    assert "has a limit of 400, of which other functions reserve 0: 300 can be reserved" in error
    assert f"--quota-code L-B99A9384 --desired-value {limit_for_prod()}" in error
    percent = int(error.split("`concurrencyPercent` of prod to ")[1].split()[0])
    assert check_concurrency(session, prod(concurrencyPercent=percent), ACCOUNT, REGION) == ""
    assert refusal(session, prod(concurrencyPercent=percent + 1))


def test_reservations_of_other_functions_reduce_the_available_concurrency(session: Any) -> None:
    session.limit, session.others = limit_for_prod(), 150
    assert f"--desired-value {limit_for_prod() + 150}" in refusal(session, prod())
    session.limit = limit_for_prod() + 150
    assert check_concurrency(session, prod(), ACCOUNT, REGION) == ""


def test_account_with_ten_executions_must_reserve_nothing(session: Any) -> None:
    session.limit = 10
    assert "set `reservedConcurrency` to {} and `lanes` as in dev" in refusal(session, prod())
    dev = read_stage("dev", read_context()["stages"])
    warning = check_concurrency(session, dev, ACCOUNT, REGION)
    assert warning.startswith("Warning: executors and pollers of dev may take 10 executions")
    session.limit = 11
    assert check_concurrency(session, dev, ACCOUNT, REGION) == ""


def reserve(session: Any, executions: Mapping[str, int]) -> None:
    """Create functions of prod with reserved executions."""
    trust = json.dumps({"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]})
    iam, client = session.client("iam"), session.client("lambda")
    role = iam.create_role(RoleName="any", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    for name, number in executions.items():
        function_name = prod().resource_name(name)
        client.create_function(
            FunctionName=function_name,
            Role=role,
            Runtime="python3.13",
            Handler="a.b",
            Code={"ZipFile": b"a"},
        )
        client.put_function_concurrency(
            FunctionName=function_name, ReservedConcurrentExecutions=number
        )


@pytest.mark.parametrize("names", [("executor-quick",), SCRIPT_FUNCTION_NAMES, FUNCTION_NAMES])
def test_existing_reservations_of_the_stage_count_as_its_own(
    session: Any, names: Sequence[str]
) -> None:
    executions = {name: prod().reserved[name] for name in names}
    reserve(session, executions)
    session.limit, session.others = limit_for_prod(), sum(executions.values())
    assert check_concurrency(session, prod(), ACCOUNT, REGION) == ""


def test_unreadable_limits_stop_the_deployment(session: Any) -> None:
    def denied() -> None:
        error = {"Error": {"Code": "AccessDeniedException", "Message": "no GetAccountSettings"}}
        raise ClientError(error, "GetAccountSettings")  # type: ignore[arg-type]

    session._settings = denied
    assert "Lambda's limits could not be read" in refusal(session, prod())


def test_account_below_the_required_limit_gets_no_deployment(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    session.limit = 100
    cdk = Cdk(session, {})
    with pytest.raises(NotReady, match=f"reserves {prod().concurrency.total_reserved}"):
        deploy(prod(), session, cdk, Printed())
    assert cdk.calls == []
    assert session.client("ssm").describe_parameters()["Parameters"][1:] == []


class Cdk:
    """A CDK command line that creates the requested stacks up to the one that fails."""

    def __init__(self, session: Any, effects: dict[str, Callable[[], None]]) -> None:
        self.calls: list[list[str]] = []
        self._session = session
        self._effects = effects

    def __call__(self, arguments: Sequence[str]) -> int:
        self.calls.append(list(arguments))
        client = self._session.client("cloudformation")
        for stack in STACK_SUFFIXES if "--all" in arguments else ():
            name = f"Punctual-prod-{stack}"
            try:
                client.describe_stacks(StackName=name)
            except ClientError:
                client.create_stack(StackName=name, TemplateBody=EMPTY)
            if stack in self._effects:
                self._effects[stack]()
                return 1
        put(self._session, "/punctual/prod/" + ADMIN_HASH_PARAMETER, UNSET_SECRET)
        for argument in arguments:
            if argument.startswith("--outputs-file="):
                outputs = {"Punctual-prod-Api": {"Address": "https://a.example.com/v1"}}
                Path(argument.partition("=")[2]).write_text(json.dumps(outputs))
        return 0

    def option(self, call: int) -> str:
        """Return the stacks that a call creates without protection."""
        options = [
            argument
            for argument in self.calls[call]
            if argument.startswith("--context=unprotected=")
        ]
        return options[0].rpartition("=")[2] if options else ""


class Stacks:
    """An account with stacks in any state. moto has no failed stacks."""

    def __init__(self, session: Any, states: dict[str, dict[str, Any]]) -> None:
        self._session = session
        self.states = states
        self.opened: list[str] = []

    def client(self, name: str) -> Any:
        new_client = self._session.client(name)
        if name == "cloudformation":
            describe = new_client.describe_stacks

            def described_stack(StackName: str) -> Any:
                state = self.states.get(StackName.rsplit("-", 1)[1])
                return {"Stacks": [state]} if state else describe(StackName=StackName)

            def update(StackName: str, EnableTerminationProtection: bool) -> None:
                assert EnableTerminationProtection is False
                self.opened.append(StackName)

            new_client.describe_stacks = described_stack
            new_client.update_termination_protection = update
        return new_client


def test_first_deployment_is_protected_after_all_stacks_exist(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    cdk, printed = Cdk(session, {}), Printed()
    assert deploy(prod(), session, cdk, printed) == 0
    assert cdk.option(0) == ",".join(STACK_SUFFIXES)
    assert len(cdk.calls) == 2
    second = cdk.calls[1]
    assert second[1 : 1 + len(STACK_SUFFIXES)] == [
        f"Punctual-prod-{suffix}" for suffix in STACK_SUFFIXES
    ]
    assert "--exclusively" in second
    assert cdk.option(1) == ""
    assert deploy(prod(), session, cdk, printed) == 0  # an update keeps the protection
    assert (cdk.option(2), len(cdk.calls)) == ("", 3)


def test_retry_after_a_failure_protects_existing_stacks(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    printed = Printed()
    client = session.client("cloudformation")

    def fail() -> None:
        for stack in ("Execution",):
            client.delete_stack(StackName=f"Punctual-prod-{stack}")

    cdk = Cdk(session, {"Execution": fail})
    assert deploy(prod(), session, cdk, printed) == 1
    assert "docs/runbook.md, *A first deployment that failed*" in printed.text
    assert len(cdk.calls) == 1
    assert read_or_none(session, "/punctual/prod/" + ADMIN_HASH_PARAMETER) is None
    retry = Cdk(session, {})
    assert deploy(prod(), session, retry, printed) == 0
    assert retry.option(0) == "Execution,Api,Observability"
    assert retry.calls[1][1:4] == [
        f"Punctual-prod-{suffix}" for suffix in ("Execution", "Api", "Observability")
    ]


def read_or_none(session: Any, name: str) -> str | None:
    try:
        return read(session, name)
    except session.client("ssm").exceptions.ParameterNotFound:
        return None


def test_failed_protection_fails_the_deployment(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    printed = Printed()

    class Refusing(Cdk):
        def __call__(self, arguments: Sequence[str]) -> int:
            return 5 if "--exclusively" in arguments else super().__call__(arguments)

    assert deploy(prod(), session, Refusing(session, {}), printed) == 5
    assert "The API:" not in printed.text


def test_unprotected_stage_is_deployed_in_one_step(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    cdk = Cdk(session, {})
    assert deploy(replace(prod(), protected=False), session, cdk, Printed()) == 0
    assert [len(cdk.calls), cdk.option(0)] == [1, ""]


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"])
def test_stack_that_could_not_be_created_loses_its_protection(session: Any, status: str) -> None:
    failed = {"StackStatus": status, "EnableTerminationProtection": True}
    standing = {"StackStatus": "CREATE_COMPLETE", "EnableTerminationProtection": True}
    stacks = Stacks(session, {"Execution": failed, "Data": standing, "Scheduling": standing})
    printed = Printed()
    assert missing_stacks(stacks, prod(), printed) == ("Execution", "Api", "Observability")
    assert stacks.opened == ["Punctual-prod-Execution"]
    assert f"Punctual-prod-Execution could not be created before ({status})" in printed.text


@pytest.mark.parametrize("status", ["UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"])
def test_existing_stack_keeps_its_protection(session: Any, status: str) -> None:
    standing = {"StackStatus": status, "EnableTerminationProtection": True}
    stacks = Stacks(session, dict.fromkeys(STACK_SUFFIXES, standing))
    assert missing_stacks(stacks, prod(), Printed()) == ()
    assert stacks.opened == []


@pytest.mark.parametrize("status", ["CREATE_IN_PROGRESS", "ROLLBACK_IN_PROGRESS"])
def test_stack_in_progress_stops_the_deployment(session: Any, status: str) -> None:
    stacks = Stacks(session, {"Data": {"StackStatus": status}})
    with pytest.raises(NotReady, match=f"Punctual-prod-Data is busy .{status}"):
        missing_stacks(stacks, prod(), Printed())


def test_log_groups_of_a_former_stage_are_named_before_a_deployment(
    session: Any,
) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    logs = session.client("logs")
    for name in ("/aws/lambda/punctual-prod-planner", "/aws/vendedlogs/punctual-prod-api"):
        logs.create_log_group(logGroupName=name)
    logs.create_log_group(logGroupName="/aws/lambda/punctual-prod-of-another-program")
    cdk = Cdk(session, {})
    with pytest.raises(NotReady) as raised:
        deploy(prod(), session, cdk, Printed())
    assert cdk.calls == []
    assert [line.split()[-1] for line in str(raised.value).splitlines()[1:]] == [
        "/aws/lambda/punctual-prod-planner",
        "/aws/vendedlogs/punctual-prod-api",
    ]
    check_log_groups(session, prod(), ("Data", "Execution"))  # these stacks have no such log groups


def test_log_groups_match_the_templates() -> None:
    synthesis = assembly("prod")
    for stack in STACK_SUFFIXES:
        names = {
            group.properties["LogGroupName"]
            for group in resources(synthesis, "AWS::Logs::LogGroup", stack)
        }
        assert set(log_groups(prod(), (stack,))) == names
    assert set(FUNCTIONS_BY_STACK) < set(STACK_SUFFIXES) == set(synthesis.templates)


def test_only_existing_stacks_and_their_tables_have_deletion_protection() -> None:
    complete, first = assembly("prod"), synthesise("prod", unprotected="Data,Api")
    guarded = {stack["displayName"]: stack for stack in _stacks(complete.manifest)}
    opened = {stack["displayName"]: stack for stack in _stacks(first.manifest)}
    protects = "terminationProtection"
    assert all(stack["properties"].get(protects) for stack in guarded.values())
    assert {name for name, stack in opened.items() if not stack["properties"].get(protects)} == {
        "Punctual-prod-Data",
        "Punctual-prod-Api",
    }
    for synthesis, protected in ((complete, True), (first, False)):
        for table in resources(synthesis, "AWS::DynamoDB::Table"):
            assert table.properties["DeletionProtectionEnabled"] is protected
            assert table.body["DeletionPolicy"] == "RetainExceptOnCreate"


def _stacks(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        artifact
        for artifact in manifest["artifacts"].values()
        if artifact["type"].endswith(":stack")
    ]
