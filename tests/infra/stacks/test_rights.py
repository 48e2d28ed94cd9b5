"""The rights of each function, from the role in the template."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pytest

from infra.config.stage import FUNCTION_NAMES, SCRIPT_FUNCTION_NAMES
from tests.support.infra.synthesis import (
    assembly,
    full,
    functions,
    resources,
    script_functions,
    synthesise,
)

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


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def policies(synthesis: Any, name: str) -> list[Any]:
    role = functions(synthesis)[name].properties["Role"]["Fn::GetAtt"][0]
    (resource,) = [
        resource for resource in resources(synthesis, "AWS::IAM::Role") if resource.name == role
    ]
    (policy,) = resource.properties["Policies"]
    assert "ManagedPolicyArns" not in resource.properties
    return list(policy["PolicyDocument"]["Statement"])


def stated(synthesis: Any, name: str, effect: str) -> Iterator[Grant]:
    for statement in policies(synthesis, name):
        if statement["Effect"] == effect:
            for action in listed(statement["Action"]):
                for resource in listed(statement["Resource"]):
                    yield Grant(action, str(resource))


def granted(synthesis: Any, name: str) -> Iterator[Grant]:
    return stated(synthesis, name, "Allow")


def actions(synthesis: Any, name: str, service: str) -> set[str]:
    return {
        grant.action.partition(":")[2]
        for grant in granted(synthesis, name)
        if grant.action.startswith(f"{service}:")
    }


def test_roles_hold_all_policies_inline(stage: str) -> None:
    assert resources(assembly(stage), "AWS::IAM::Policy") == []
    assert resources(assembly(stage), "AWS::IAM::ManagedPolicy") == []
    count = len(FUNCTION_NAMES) + len(SCRIPT_FUNCTION_NAMES)
    assert len(resources(assembly(stage), "AWS::IAM::Role")) == count


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_no_action_contains_a_wildcard(stage: str, name: str) -> None:
    assert [grant for grant in granted(assembly(stage), name) if "*" in grant.action] == []


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_wildcard_resources_are_limited_to_actions_without_resources(name: str) -> None:
    for synthesis in (assembly("dev"), assembly("prod"), full()):
        wide = {grant.action for grant in granted(synthesis, name) if grant.resource == "*"}
        assert wide <= ON_ANYTHING


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_partial_wildcards_are_limited_to_objects_and_task_targets(stage: str, name: str) -> None:
    for grant in granted(assembly(stage), name):
        if "*" in grant.resource and grant.resource != "*":
            blob = grant.action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
            secret = grant.action in ("ssm:PutParameter", "ssm:DeleteParameter")
            assert blob or secret or name.startswith("executor"), grant
            ends = re.findall(
                r"/(payloads|outputs|logs|artifacts)/\*|:task-\*|/secrets/\*|/(?:dev|prod)/\*",
                grant.resource,
            )
            assert ends, grant


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_writes_only_its_own_log(stage: str, name: str) -> None:
    group = functions(assembly(stage))[name].properties["LoggingConfig"]["LogGroup"]["Ref"]
    logs = [grant for grant in granted(assembly(stage), name) if grant.action.startswith("logs:")]
    assert {grant.action for grant in logs} == {"logs:CreateLogStream", "logs:PutLogEvents"}
    assert {grant.resource for grant in logs} == {str({"Fn::GetAtt": [group, "Arn"]})}


def test_job_search_writes_only_limit_shares(stage: str) -> None:
    synthesis = assembly(stage)
    writes = actions(synthesis, "job-search", "dynamodb") - READS
    assert writes == (set() if stage == "dev" else {"PutItem"})
    assert [
        statement["Condition"]
        for statement in policies(synthesis, "job-search")
        if "PutItem" in str(statement)
    ] == ([{"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["*#share#*"]}}] * len(writes))
    assert actions(synthesis, "job-search", "s3") == {"GetObject", "ListBucket"}
    assert actions(synthesis, "job-search", "sqs") == set()


def test_authorizer_reads_only_parameters_and_token_rows(
    stage: str,
) -> None:
    synthesis = assembly(stage)
    services = {grant.action.partition(":")[0] for grant in granted(synthesis, "authorizer")}
    assert services <= {"ssm", "dynamodb", "logs", "xray"}
    assert actions(synthesis, "authorizer", "ssm") == {"GetParameter"}
    assert actions(synthesis, "authorizer", "dynamodb") == {"GetItem", "UpdateItem"}
    rows = [
        statement
        for statement in policies(synthesis, "authorizer")
        if "dynamodb" in str(statement["Action"])
    ]
    assert [statement["Condition"] for statement in rows] == [
        {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#token#*"]}}
    ]


def test_claims_function_changes_runs_and_their_objects_only(stage: str) -> None:
    synthesis = assembly(stage)
    services = {grant.action.partition(":")[0] for grant in granted(synthesis, "claims")}
    assert services <= {"dynamodb", "s3", "sqs", "ssm", "logs", "xray"}
    assert actions(synthesis, "claims", "sqs") == {"SendMessage"}
    objects = {
        (grant.action, grant.resource.rpartition("/")[0].rpartition("/")[2])
        for grant in granted(synthesis, "claims")
        if grant.action.startswith("s3:") and grant.action != "s3:ListBucket"
    }
    assert objects == {
        (f"s3:{action}", prefix)
        for action in ("GetObject", "PutObject", "DeleteObject")
        for prefix in ("outputs", "logs")
    }
    writes = actions(synthesis, "claims", "dynamodb") - READS
    assert writes == {"BatchWriteItem", "UpdateItem"}


def test_token_key_is_read_only_where_tokens_or_claims_are_signed(stage: str) -> None:
    readers = {
        name
        for name in FUNCTION_NAMES
        for grant in granted(assembly(stage), name)
        if grant.action.startswith("ssm:") and "token-key" in grant.resource
    }
    assert readers == {"authorizer", "job-service", "claims", "executor-long"}
    rights = [grant for grant in granted(assembly(stage), "job-service") if "ssm:" in grant.action]
    reads = [grant for grant in rights if grant.action == "ssm:GetParameter"]
    assert len(reads) == 2
    assert all("token-key" in grant.resource or "webhook-key" in grant.resource for grant in reads)


def test_job_service_writes_secrets_of_tasks_and_reads_none(stage: str) -> None:
    rights = [grant for grant in granted(assembly(stage), "job-service") if "ssm:" in grant.action]
    writes = {(grant.action, grant.resource) for grant in rights if "Parameter" in grant.action}
    writes -= {(action, resource) for action, resource in writes if action == "ssm:GetParameter"}
    assert {action for action, _ in writes} == {"ssm:PutParameter", "ssm:DeleteParameter"}
    assert all(f":parameter/punctual/{stage}/secrets/*" in resource for _, resource in writes)
    for name in FUNCTION_NAMES:
        readers = [
            grant
            for grant in granted(assembly(stage), name)
            if grant.action.startswith("ssm:Get") and "/secrets/" in grant.resource
        ]
        assert bool(readers) is name.startswith("executor-"), name


def test_webhook_key_is_read_by_executor_and_job_service_only(stage: str) -> None:
    readers = {
        name
        for name in FUNCTION_NAMES
        for grant in granted(assembly(stage), name)
        if grant.action.startswith("ssm:") and "webhook-key" in grant.resource
    }
    assert readers == {"executor-quick", "job-service"}


def test_only_the_planner_reads_operator_settings(stage: str) -> None:
    readers = {
        name for name in FUNCTION_NAMES if "GetParameters" in actions(assembly(stage), name, "ssm")
    }
    assert readers == {"planner"}


def test_only_executors_reach_task_targets_and_secrets(stage: str) -> None:
    synthesis = assembly(stage)
    for name in FUNCTION_NAMES:
        reach = {
            grant.action
            for grant in granted(synthesis, name)
            if grant.action.startswith(("secretsmanager:", "lambda:"))
        }
        expected = {"secretsmanager:GetSecretValue"}
        if stage == "dev" or name == "executor-long":
            expected.add("lambda:InvokeFunction")
        assert reach == (expected if name.startswith("executor") else set())


def test_executors_invoke_only_script_functions_and_what_tenants_are_allowed(stage: str) -> None:
    scripts = {function.name for function in script_functions(assembly(stage)).values()}
    for name in FUNCTION_NAMES:
        invoked = [
            grant.resource
            for grant in granted(assembly(stage), name)
            if grant.action == "lambda:InvokeFunction"
        ]
        if not name.startswith("executor"):
            assert invoked == []
            continue
        named = {script for script in scripts if any(script in arn for arn in invoked)}
        assert named == (scripts if name == "executor-long" else set()), "scripts have its lane"
        others = [arn for arn in invoked if not any(script in arn for script in scripts)]
        assert all(":task-*" in arn for arn in others), "cdk.json allows these to all tenants"
        assert len(others) == (1 if stage == "dev" else 0)


def test_tasks_cannot_reach_resources_of_punctual(stage: str) -> None:
    """This holds for any setting of the stage, and for any resource policy in the account."""
    queues = [
        queue.properties["QueueName"] for queue in resources(assembly(stage), "AWS::SQS::Queue")
    ]
    for name in FUNCTION_NAMES:
        denied = [
            (grant.action, re.search(r"[pP]unctual-[^']*", grant.resource))
            for grant in stated(assembly(stage), name, "Deny")
        ]
        if not name.startswith("executor"):
            assert denied == []
            continue
        patterns: dict[str, list[str]] = {}
        for action, match in denied:
            assert match is not None
            patterns.setdefault(action, []).append(match[0])
        own_names = {f"punctual-*-{name}" for name in FUNCTION_NAMES}
        assert set(patterns["lambda:InvokeFunction"]) == {*own_names, "Punctual-*"}
        refused = {
            queue
            for queue in queues
            if any(fnmatchcase(queue, p) for p in patterns["sqs:SendMessage"])
        }
        internal = {queue for queue in queues if "dead" in queue or "failed" in queue}
        assert refused == internal, "and it sends to the others"


def test_status_function_changes_places_only_in_a_stage_that_has_some(stage: str) -> None:
    found = [
        statement
        for statement in policies(assembly(stage), "status")
        if "*#share#*" in str(statement.get("Condition"))
    ]
    expected = {"dynamodb:BatchGetItem", "dynamodb:PutItem"}
    assert [set(statement["Action"]) for statement in found] == (
        [] if stage == "dev" else [expected]
    )


@pytest.mark.parametrize("lane", ["quick", "long"])
def test_executor_of_scripts_takes_places_of_functions_in_a_stage_without_limits(
    lane: str,
) -> None:
    """Scripts run in the long lane. The functions get the numbers that the stage reserves."""
    synthesis = synthesise("dev", reservedConcurrency={"script-bash": 3})
    name = f"executor-{lane}"
    places = [
        statement
        for statement in policies(synthesis, name)
        if "*#share#*" in str(statement.get("Condition"))
    ]
    assert len(places) == (1 if lane == "long" else 0)
    variables = functions(synthesis)[name].properties["Environment"]["Variables"]
    assert variables["PUNCTUAL_SCRIPT_PLACES"] == "script-bash=3"
    assert "PUNCTUAL_SCRIPT_PLACES" not in str(functions(assembly("dev"))[name].properties)


# They delete rows of secrets, of names that no job has any more, of operations that have ended,
# and marks of counts that are folded.
DELETING_FUNCTIONS = ("job-service", "reconciler", "operations", "planner", "status")


def test_only_the_reconciler_scans_and_no_function_deletes_tables(stage: str) -> None:
    synthesis = assembly(stage)
    scan = {name for name in FUNCTION_NAMES if "Scan" in actions(synthesis, name, "dynamodb")}
    assert scan == {"reconciler"}
    writes = {"BatchWriteItem", "PutItem", "UpdateItem"}
    for name in FUNCTION_NAMES:
        deletes = {"DeleteItem"} if name in DELETING_FUNCTIONS else set()
        assert actions(synthesis, name, "dynamodb") <= READS | writes | deletes | STREAM


def test_only_the_status_function_reads_the_stream(stage: str) -> None:
    readers = {
        name for name in FUNCTION_NAMES if actions(assembly(stage), name, "dynamodb") & STREAM
    }
    assert readers == {"status"}


def test_payloads_are_deleted_by_status_function_and_reconciler_only(
    stage: str,
) -> None:
    synthesis = assembly(stage)
    deleted = {
        (name, grant.resource.rpartition("/")[0].rpartition("/")[2])
        for name in FUNCTION_NAMES
        for grant in granted(synthesis, name)
        if grant.action == "s3:DeleteObject"
    }
    # What runs stored by themselves. The executor of scripts merges the parts of a log, too.
    of_runs = {("claims", "outputs"), ("claims", "logs"), ("executor-long", "logs")}
    assert deleted - of_runs == {
        ("status", "payloads"),
        ("reconciler", "payloads"),
        ("reconciler", "artifacts"),
    }


def test_executor_receives_only_from_its_own_lane(stage: str) -> None:
    queues = {
        queue.name: queue.properties["QueueName"]
        for queue in resources(assembly(stage), "AWS::SQS::Queue")
    }
    for lane in ("quick", "long"):
        read = {
            grant.resource
            for grant in granted(assembly(stage), f"executor-{lane}")
            if grant.action == "sqs:ReceiveMessage"
        }
        consumed = {name for id_, name in queues.items() if any(id_ in arn for arn in read)}
        assert consumed
        assert all(name.startswith(f"punctual-{stage}-{lane}") for name in consumed)
        assert not any("dead" in name for name in consumed)
