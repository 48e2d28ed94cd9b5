"""Each connection between resources is compared as a whole.

So no property can be missing or unexpected. Names replace references: `<wake.Arn>` is the ARN of
that queue in any stack, and `<wake>` is its URL.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import App, Stack

from infra.build import packaging
from infra.config.stage import FUNCTION_NAMES
from punctual.aws.dynamodb.keys import JOB_STATE_STREAM_FILTERS
from punctual.settings import Settings
from tests.support.infra.references import DAY, HERE, SHOWN, every, ids, stage, synthesis_of, values
from tests.support.infra.synthesis import Resource, Synthesis, functions

CALLED = {"authorizer", "job-service", "job-search", "claims"}
CLOCKS = {
    "tick": ("planner", "rate(1 minute)", 60),
    "reconcile": ("reconciler", "rate(1 hour)", 1800),
    "bury": ("dead-letters", "rate(5 minutes)", 300),
}
TABLES = ("jobs", "timers", "runs", "control", "audit", "lists")


@pytest.fixture(scope="module", params=SHOWN)
def synthesis(request: pytest.FixtureRequest) -> Synthesis:
    return synthesis_of(request.param)


def lanes(synthesis: Synthesis) -> dict[str, int]:
    """Return the maximum number of executors by queue."""
    return {
        lane if priority == "all" else f"{lane}-{priority}": maximum
        for lane, queues in values(synthesis)["lanes"].items()
        for priority, maximum in queues.items()
    }


# Functions


def test_functions_may_be_invoked_only_by_their_rule_or_the_api(
    synthesis: Synthesis,
) -> None:
    permissions = {
        (permission["FunctionName"], permission["Principal"], permission["SourceArn"])
        for permission in every(synthesis, "AWS::Lambda::Permission")
    }
    clocks = {
        (f"<{function}.Arn>", "events.amazonaws.com", f"<{clock}.Arn>")
        for clock, (function, *_) in CLOCKS.items()
    }
    api = HERE.format("execute-api") + "<api>/"
    (authorizer,) = ids(synthesis, "AWS::ApiGatewayV2::Authorizer")
    calls = {
        ("<authorizer.Arn>", "apigateway.amazonaws.com", f"{api}authorizers/<{authorizer}>")
    } | {
        (f"<{function}.Arn>", "apigateway.amazonaws.com", f"{api}{path}")
        for function in CALLED - {"authorizer"}
        for path in ("v1/*/*", "v1/$default")
    }
    assert permissions == clocks | calls
    assert all(
        set(permission) == {"Action", "FunctionName", "Principal", "SourceArn"}
        and permission["Action"] == "lambda:InvokeFunction"
        for permission in every(synthesis, "AWS::Lambda::Permission")
    )


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_runs_its_own_folder_with_its_own_role(synthesis: Synthesis, name: str) -> None:
    stack = Stack(App(), "Some")
    folder = name.split("-")[0] if "executor" in name else name.replace("-", "_")
    location = packaging.function_code(folder).bind(stack).s3_location
    assert location is not None
    function = functions(synthesis)[name].properties
    assert function["Code"]["S3Key"] == location.object_key
    role = function["Role"]["Fn::GetAtt"]
    assert role[1] == "Arn"
    (policy,) = roles(synthesis)[role[0]].properties["Policies"]
    assert policy["PolicyName"] == name


def roles(synthesis: Synthesis) -> dict[str, Resource]:
    return {
        name: Resource(name, body["Type"], body)
        for template in synthesis.templates.values()
        for name, body in template["Resources"].items()
        if body["Type"] == "AWS::IAM::Role"
    }


def test_only_lambda_may_assume_a_role(synthesis: Synthesis) -> None:
    for role in every(synthesis, "AWS::IAM::Role"):
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement == {
            "Action": "sts:AssumeRole",
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
        }


def test_functions_have_their_timeouts(synthesis: Synthesis) -> None:
    timeouts = {
        name: function.properties["Timeout"] for name, function in functions(synthesis).items()
    }
    assert timeouts == {
        "authorizer": 10,
        "job-service": 29,
        "job-search": 29,
        "claims": 29,
        "planner": 50,
        "poller": 180,
        "reconciler": 900,
        "operations": 60,
        "executor-quick": 330,
        "executor-long": 900,
        "dead-letters": 240,
        "status": 60,
    }


@pytest.mark.parametrize("name", [name for name in FUNCTION_NAMES if name != "authorizer"])
def test_function_environment_names_tables_and_queues(synthesis: Synthesis, name: str) -> None:
    settings = Settings.from_env(environment(synthesis, name))
    assert {table: getattr(settings, f"{table}_table") for table in TABLES} == {
        table: f"<{table}>" for table in TABLES
    }
    assert settings.list_slots == values(synthesis)["listSlots"]
    assert settings.feed_slots == values(synthesis)["feedSlots"]
    assert settings.operations_per_second == values(synthesis)["operationsPerSecond"]
    assert settings.wake_queue == "<wake>"
    assert settings.operation_queue == "<operations>"
    assert settings.queues == {lane: f"<{lane}.fifo>" for lane in lanes(synthesis)}
    assert settings.bucket.startswith("<OutputsBucket")
    assert settings.event_bus.startswith("<Bus")
    assert settings.run_events == values(synthesis)["runEvents"]
    assert settings.networks == tuple(values(synthesis)["tasksMayReach"]["networks"])
    assert (settings.limits is None) is (values(synthesis)["limits"] is None)


def environment(synthesis: Synthesis, name: str) -> dict[str, str]:
    (variables,) = [
        function["Environment"]["Variables"]
        for function in every(synthesis, "AWS::Lambda::Function")
        if function["FunctionName"] == f"punctual-{stage(synthesis)}-{name}"
    ]
    return dict(variables)


def test_authorizer_reads_tokens_from_the_control_table(synthesis: Synthesis) -> None:
    assert environment(synthesis, "authorizer")["PUNCTUAL_CONTROL_TABLE"] == "<control>"


def test_dead_letters_function_reads_the_dead_letter_queue_of_each_lane(
    synthesis: Synthesis,
) -> None:
    addresses = environment(synthesis, "dead-letters")["PUNCTUAL_DEAD_LETTERS"].split()
    assert sorted(addresses) == sorted(f"<{lane}-dead.fifo>" for lane in lanes(synthesis))


# Schedule rules


def test_schedule_rule_starts_one_function_and_drops_late_starts(synthesis: Synthesis) -> None:
    rules = {event_rule["Name"]: event_rule for event_rule in every(synthesis, "AWS::Events::Rule")}
    assert len(rules) == len(CLOCKS)
    for clock, (function, rate, oldest) in CLOCKS.items():
        rule = rules[f"punctual-{stage(synthesis)}-{clock}"]
        (target,) = rule["Targets"]
        assert (rule["ScheduleExpression"], rule["State"]) == (rate, "ENABLED")
        assert set(rule) == {"Name", "Description", "ScheduleExpression", "State", "Targets"}
        assert target.pop("Id")
        assert target == {
            "Arn": f"<{function}.Arn>",
            "RetryPolicy": {"MaximumRetryAttempts": 1, "MaximumEventAgeInSeconds": oldest},
        }


def test_scheduled_functions_have_their_retry_limits(synthesis: Synthesis) -> None:
    configs = {
        config["FunctionName"]: config
        for config in every(synthesis, "AWS::Lambda::EventInvokeConfig")
        if "script" not in config["FunctionName"]
    }
    assert configs == {
        f"<{name}>": {
            "FunctionName": f"<{name}>",
            "Qualifier": "$LATEST",
            "MaximumRetryAttempts": retries,
            "MaximumEventAgeInSeconds": oldest,
        }
        for name, retries, oldest in (
            ("planner", 0, 60),
            ("reconciler", 1, 1800),
            ("dead-letters", 0, 300),
        )
    }


# Queues and event sources


def test_each_queue_has_its_properties(synthesis: Synthesis) -> None:
    expected: dict[str, dict[str, Any]] = {
        "wake": {
            "VisibilityTimeout": 180,
            "MessageRetentionPeriod": 3600,
            "RedrivePolicy": {"deadLetterTargetArn": "<wake-dead.Arn>", "maxReceiveCount": 5},
        },
        "wake-dead": {"MessageRetentionPeriod": 14 * DAY},
        "operations": {
            "VisibilityTimeout": 360,
            "MessageRetentionPeriod": 4 * 3600,
            "RedrivePolicy": {
                "deadLetterTargetArn": "<operations-dead.Arn>",
                "maxReceiveCount": 10,
            },
        },
        "operations-dead": {"MessageRetentionPeriod": 14 * DAY},
        "status-failed": {"MessageRetentionPeriod": 14 * DAY},
    }
    fast = {
        "FifoQueue": True,
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    for lane in lanes(synthesis):
        expected[f"{lane}.fifo"] = {
            **fast,
            "VisibilityTimeout": 330 if lane.startswith("quick") else 960,
            "MessageRetentionPeriod": 4 * DAY,
            "RedrivePolicy": {
                "deadLetterTargetArn": f"<{lane}-dead.fifo.Arn>",
                "maxReceiveCount": 50,
            },
        }
        expected[f"{lane}-dead.fifo"] = {
            **fast,
            "VisibilityTimeout": 270,
            "MessageRetentionPeriod": 14 * DAY,
        }
    assert {queue["QueueName"]: queue for queue in every(synthesis, "AWS::SQS::Queue")} == {
        f"punctual-{stage(synthesis)}-{name}": {
            "QueueName": f"punctual-{stage(synthesis)}-{name}",
            "SqsManagedSseEnabled": True,
            **properties,
        }
        for name, properties in expected.items()
    }


def test_queue_policy_requires_tls(synthesis: Synthesis) -> None:
    for policy in every(synthesis, "AWS::SQS::QueuePolicy"):
        (queue,) = policy["Queues"]
        assert policy["PolicyDocument"]["Statement"] == [
            {
                "Action": "sqs:*",
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Resource": queue.replace(">", ".Arn>"),
            }
        ]


def test_each_event_source_has_its_batch_properties(synthesis: Synthesis) -> None:
    """Queues have no batching window, which would delay runs. The stream has one second."""
    pollers = values(synthesis)["reservedConcurrency"].get(
        "poller", 2 * values(synthesis)["shards"]
    )
    expected: list[Mapping[str, Any]] = [
        fed("poller", "wake", 10, pollers),
        fed("operations", "operations", 1, 2),
        *(
            fed(
                f"executor-{lane.split('-')[0]}",
                f"{lane}.fifo",
                10 if lane.startswith("quick") else 1,
                maximum,
            )
            for lane, maximum in lanes(synthesis).items()
        ),
        {
            "FunctionName": "<status.Arn>",
            "EventSourceArn": "<jobs.StreamArn>",
            "StartingPosition": "TRIM_HORIZON",
            "BatchSize": 200,
            "MaximumBatchingWindowInSeconds": 1,
            "ParallelizationFactor": 4 if stage(synthesis) == "prod" else 1,
            "FilterCriteria": {
                "Filters": [
                    {"Pattern": json.dumps(pattern)} for pattern in JOB_STATE_STREAM_FILTERS
                ]
            },
            "BisectBatchOnFunctionError": True,
            "MaximumRetryAttempts": 100,
            "MaximumRecordAgeInSeconds": 6 * 3600,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "DestinationConfig": {"OnFailure": {"Destination": "<status-failed.Arn>"}},
        },
    ]
    mappings = {
        mapping["EventSourceArn"]: mapping
        for mapping in every(synthesis, "AWS::Lambda::EventSourceMapping")
    }
    assert mappings == {mapping["EventSourceArn"]: mapping for mapping in expected}


def fed(function: str, queue: str, batch: int, at_most: int | None) -> dict[str, Any]:
    return {
        "FunctionName": f"<{function}.Arn>",
        "EventSourceArn": f"<{queue}.Arn>",
        "BatchSize": batch,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        **({} if at_most is None else {"ScalingConfig": {"MaximumConcurrency": at_most}}),
    }


def test_queue_consumers_request_exactly_their_reserved_concurrency(synthesis: Synthesis) -> None:
    """Poller and executors request all of their reserved concurrency, and no more."""
    reserved = values(synthesis)["reservedConcurrency"]
    totals: dict[str, int] = {}
    for mapping in every(synthesis, "AWS::Lambda::EventSourceMapping"):
        name = mapping["FunctionName"].strip("<>").removesuffix(".Arn")
        totals[name] = totals.get(name, 0) + mapping.get("ScalingConfig", {}).get(
            "MaximumConcurrency", 0
        )
    for name in ("poller", "executor-quick", "executor-long"):
        assert name not in reserved or totals[name] == reserved[name], name
