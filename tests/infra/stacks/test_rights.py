"""The rights of each function, from the role in the template."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pytest

from infra.config.stage import FUNCTION_NAMES
from tests.support.infra.synthesised import STAGES, assembly, full, functions, resources

# AWS has no resource for these actions, or cannot name it.
ON_ANYTHING = {
    "dynamodb:ListStreams",
    "xray:PutTraceSegments",
    "xray:PutTelemetryRecords",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}
READS = {"BatchGetItem", "GetItem", "Query", "Scan"}
STREAM = {"DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"}


class Grant(NamedTuple):
    action: str
    resource: str


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def policies(made: Any, name: str) -> list[Any]:
    role = functions(made)[name].properties["Role"]["Fn::GetAtt"][0]
    (found,) = [one for one in resources(made, "AWS::IAM::Role") if one.name == role]
    (policy,) = found.properties["Policies"]
    assert "ManagedPolicyArns" not in found.properties
    return list(policy["PolicyDocument"]["Statement"])


def stated(made: Any, name: str, effect: str) -> Iterator[Grant]:
    for statement in policies(made, name):
        if statement["Effect"] == effect:
            for action in listed(statement["Action"]):
                for resource in listed(statement["Resource"]):
                    yield Grant(action, str(resource))


def granted(made: Any, name: str) -> Iterator[Grant]:
    return stated(made, name, "Allow")


def actions(made: Any, name: str, service: str) -> set[str]:
    return {
        one.action.partition(":")[2]
        for one in granted(made, name)
        if one.action.startswith(f"{service}:")
    }


def test_roles_hold_all_policies_inline(stage: str) -> None:
    assert resources(assembly(stage), "AWS::IAM::Policy") == []
    assert resources(assembly(stage), "AWS::IAM::ManagedPolicy") == []
    assert len(resources(assembly(stage), "AWS::IAM::Role")) == len(FUNCTION_NAMES)


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_no_action_contains_a_wildcard(stage: str, name: str) -> None:
    assert [one for one in granted(assembly(stage), name) if "*" in one.action] == []


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_wildcard_resources_are_limited_to_actions_without_resources(name: str) -> None:
    for made in (assembly("dev"), assembly("prod"), full()):
        wide = {one.action for one in granted(made, name) if one.resource == "*"}
        assert wide <= ON_ANYTHING


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_partial_wildcards_are_limited_to_objects_and_task_targets(stage: str, name: str) -> None:
    for one in granted(assembly(stage), name):
        if "*" in one.resource and one.resource != "*":
            blob = one.action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
            assert blob or name.startswith("executor"), one
            ends = re.findall(
                r"/(payloads|outputs|logs)/\*|:task-\*|/secrets/\*|/(?:dev|prod)/\*", one.resource
            )
            assert ends, one


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_writes_only_its_own_log(stage: str, name: str) -> None:
    group = functions(assembly(stage))[name].properties["LoggingConfig"]["LogGroup"]["Ref"]
    logs = [one for one in granted(assembly(stage), name) if one.action.startswith("logs:")]
    assert {one.action for one in logs} == {"logs:CreateLogStream", "logs:PutLogEvents"}
    assert {one.resource for one in logs} == {str({"Fn::GetAtt": [group, "Arn"]})}


def test_job_search_writes_only_limit_shares(stage: str) -> None:
    made = assembly(stage)
    writes = actions(made, "job-search", "dynamodb") - READS
    assert writes == (set() if stage == "dev" else {"PutItem"})
    assert [one["Condition"] for one in policies(made, "job-search") if "PutItem" in str(one)] == (
        [{"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["*#share#*"]}}] * len(writes)
    )
    assert actions(made, "job-search", "s3") == {"GetObject", "ListBucket"}
    assert actions(made, "job-search", "sqs") == set()


def test_authorizer_reads_only_parameters_and_token_rows(
    stage: str,
) -> None:
    made = assembly(stage)
    services = {one.action.partition(":")[0] for one in granted(made, "authorizer")}
    assert services <= {"ssm", "dynamodb", "logs", "xray"}
    assert actions(made, "authorizer", "ssm") == {"GetParameter"}
    assert actions(made, "authorizer", "dynamodb") == {"GetItem", "UpdateItem"}
    rows = [one for one in policies(made, "authorizer") if "dynamodb" in str(one["Action"])]
    assert [one["Condition"] for one in rows] == [
        {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#token#*"]}}
    ]


def test_token_key_is_read_by_authorizer_and_job_service_only(stage: str) -> None:
    readers = {
        name
        for name in FUNCTION_NAMES
        for one in granted(assembly(stage), name)
        if one.action.startswith("ssm:") and "token-key" in one.resource
    }
    assert readers == {"authorizer", "job-service"}
    rights = [one for one in granted(assembly(stage), "job-service") if "ssm:" in one.action]
    assert {one.action for one in rights} == {"ssm:GetParameter"}
    assert len(rights) == 2
    assert all("token-key" in one.resource or "webhook-key" in one.resource for one in rights)


def test_webhook_key_is_read_by_executor_and_job_service_only(stage: str) -> None:
    readers = {
        name
        for name in FUNCTION_NAMES
        for one in granted(assembly(stage), name)
        if one.action.startswith("ssm:") and "webhook-key" in one.resource
    }
    assert readers == {"executor-quick", "job-service"}


def test_only_the_planner_reads_operator_settings(stage: str) -> None:
    readers = {
        name for name in FUNCTION_NAMES if "GetParameters" in actions(assembly(stage), name, "ssm")
    }
    assert readers == {"planner"}


def test_only_executors_reach_task_targets_and_secrets(stage: str) -> None:
    made = assembly(stage)
    for name in FUNCTION_NAMES:
        reach = {
            one.action
            for one in granted(made, name)
            if one.action.startswith(("secretsmanager:", "lambda:"))
        }
        wanted = {"secretsmanager:GetSecretValue"}
        wanted |= {"lambda:InvokeFunction"} if stage == "dev" else set()
        assert reach == (wanted if name.startswith("executor") else set())


def test_tasks_cannot_reach_resources_of_punctual(stage: str) -> None:
    """This holds for any setting of the stage, and for any resource policy in the account."""
    queues = [one.properties["QueueName"] for one in resources(assembly(stage), "AWS::SQS::Queue")]
    for name in FUNCTION_NAMES:
        denied = [
            (one.action, re.search(r"[pP]unctual-[^']*", one.resource))
            for one in stated(assembly(stage), name, "Deny")
        ]
        if not name.startswith("executor"):
            assert denied == []
            continue
        patterns: dict[str, list[str]] = {}
        for action, found in denied:
            assert found is not None
            patterns.setdefault(action, []).append(found[0])
        assert set(patterns["lambda:InvokeFunction"]) == {"punctual-*", "Punctual-*"}
        refused = {
            one for one in queues if any(fnmatchcase(one, p) for p in patterns["sqs:SendMessage"])
        }
        kept = {one for one in queues if "dead" in one or "failed" in one}
        assert refused == kept, "and it sends to the others"


def test_only_the_reconciler_scans_and_no_function_deletes_tables(stage: str) -> None:
    made = assembly(stage)
    scan = {name for name in FUNCTION_NAMES if "Scan" in actions(made, name, "dynamodb")}
    assert scan == {"reconciler"}
    writes = {"BatchWriteItem", "PutItem", "UpdateItem"}
    for name in FUNCTION_NAMES:
        assert actions(made, name, "dynamodb") <= READS | writes | STREAM


def test_only_the_status_function_reads_the_stream(stage: str) -> None:
    readers = {
        name for name in FUNCTION_NAMES if actions(assembly(stage), name, "dynamodb") & STREAM
    }
    assert readers == {"status"}


def test_payloads_are_deleted_by_status_function_and_reconciler_only(
    stage: str,
) -> None:
    made = assembly(stage)
    deleted = {
        (name, one.resource.rpartition("/")[0].rpartition("/")[2])
        for name in FUNCTION_NAMES
        for one in granted(made, name)
        if one.action == "s3:DeleteObject"
    }
    assert deleted == {("status", "payloads"), ("reconciler", "payloads")}


def test_reconciler_deletes_definitions_and_no_job_states(stage: str) -> None:
    deleting = [
        one
        for one in policies(assembly(stage), "reconciler")
        if "dynamodb:BatchWriteItem" in listed(one["Action"]) and "Jobs" in str(one["Resource"])
    ]
    assert [one["Condition"] for one in deleting] == [
        {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["*#body"]}}
    ]


def test_executor_receives_only_from_its_own_lane(stage: str) -> None:
    queues = {
        one.name: one.properties["QueueName"]
        for one in resources(assembly(stage), "AWS::SQS::Queue")
    }
    for lane in ("quick", "long"):
        read = {
            one.resource
            for one in granted(assembly(stage), f"executor-{lane}")
            if one.action == "sqs:ReceiveMessage"
        }
        taken = {name for id_, name in queues.items() if any(id_ in one for one in read)}
        assert taken
        assert all(name.startswith(f"punctual-{stage}-{lane}") for name in taken)
        assert not any("dead" in name for name in taken)
