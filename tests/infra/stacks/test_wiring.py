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
from punctual.aws.dynamodb.control.counter_keys import JOB_STATE_STREAM_FILTERS
from punctual.settings import Settings
from tests.support.infra.synthesised import Made, Resource, functions
from tests.support.infra.wired import DAY, HERE, SHOWN, every, ids, shown, stage, values

CALLED = {"authorizer", "job-service", "job-search"}
CLOCKS = {
    "tick": ("planner", "rate(1 minute)", 60),
    "reconcile": ("reconciler", "rate(1 hour)", 1800),
    "bury": ("dead-letters", "rate(5 minutes)", 300),
}
TABLES = ("jobs", "timers", "runs", "control", "audit")


@pytest.fixture(scope="module", params=SHOWN)
def made(request: pytest.FixtureRequest) -> Made:
    return shown(request.param)


def lanes(made: Made) -> dict[str, int]:
    """Return the maximum number of executors by queue."""
    return {
        lane if priority == "all" else f"{lane}-{priority}": most
        for lane, queues in values(made)["lanes"].items()
        for priority, most in queues.items()
    }


# Functions


def test_functions_may_be_invoked_only_by_their_rule_or_the_api(
    made: Made,
) -> None:
    found = {
        (one["FunctionName"], one["Principal"], one["SourceArn"])
        for one in every(made, "AWS::Lambda::Permission")
    }
    clocks = {
        (f"<{function}.Arn>", "events.amazonaws.com", f"<{clock}.Arn>")
        for clock, (function, *_) in CLOCKS.items()
    }
    api = HERE.format("execute-api") + "<api>/"
    (authorizer,) = ids(made, "AWS::ApiGatewayV2::Authorizer")
    calls = {
        ("<authorizer.Arn>", "apigateway.amazonaws.com", f"{api}authorizers/<{authorizer}>")
    } | {
        (f"<{function}.Arn>", "apigateway.amazonaws.com", f"{api}{path}")
        for function in CALLED - {"authorizer"}
        for path in ("v1/*/*", "v1/$default")
    }
    assert found == clocks | calls
    assert all(
        set(one) == {"Action", "FunctionName", "Principal", "SourceArn"}
        and one["Action"] == "lambda:InvokeFunction"
        for one in every(made, "AWS::Lambda::Permission")
    )


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_function_runs_its_own_folder_with_its_own_role(made: Made, name: str) -> None:
    stack = Stack(App(), "Some")
    folder = name.split("-")[0] if "executor" in name else name.replace("-", "_")
    location = packaging.function_code(folder).bind(stack).s3_location
    assert location is not None
    function = functions(made)[name].properties
    assert function["Code"]["S3Key"] == location.object_key
    role = function["Role"]["Fn::GetAtt"]
    assert role[1] == "Arn"
    (policy,) = roles(made)[role[0]].properties["Policies"]
    assert policy["PolicyName"] == name


def roles(made: Made) -> dict[str, Resource]:
    return {
        name: Resource(name, body["Type"], body)
        for template in made.templates.values()
        for name, body in template["Resources"].items()
        if body["Type"] == "AWS::IAM::Role"
    }


def test_only_lambda_may_assume_a_role(made: Made) -> None:
    for one in every(made, "AWS::IAM::Role"):
        (statement,) = one["AssumeRolePolicyDocument"]["Statement"]
        assert statement == {
            "Action": "sts:AssumeRole",
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
        }


def test_functions_have_their_timeouts(made: Made) -> None:
    found = {name: one.properties["Timeout"] for name, one in functions(made).items()}
    assert found == {
        "authorizer": 10,
        "job-service": 29,
        "job-search": 29,
        "planner": 50,
        "poller": 180,
        "reconciler": 900,
        "executor-quick": 330,
        "executor-long": 900,
        "dead-letters": 240,
        "status": 60,
    }


@pytest.mark.parametrize("name", [name for name in FUNCTION_NAMES if name != "authorizer"])
def test_function_environment_names_tables_and_queues(made: Made, name: str) -> None:
    settings = Settings.from_env(environment(made, name))
    assert {table: getattr(settings, f"{table}_table") for table in TABLES} == {
        table: f"<{table}>" for table in TABLES
    }
    assert settings.wake_queue == "<wake>"
    assert settings.queues == {lane: f"<{lane}.fifo>" for lane in lanes(made)}
    assert settings.bucket.startswith("<OutputsBucket")
    assert settings.event_bus.startswith("<Bus")
    assert settings.run_events == values(made)["runEvents"]
    assert settings.networks == tuple(values(made)["tasksMayReach"]["networks"])
    assert (settings.limits is None) is (values(made)["limits"] is None)


def environment(made: Made, name: str) -> dict[str, str]:
    (found,) = [
        one["Environment"]["Variables"]
        for one in every(made, "AWS::Lambda::Function")
        if one["FunctionName"] == f"punctual-{stage(made)}-{name}"
    ]
    return dict(found)


def test_authorizer_reads_tokens_from_the_control_table(made: Made) -> None:
    assert environment(made, "authorizer")["PUNCTUAL_CONTROL_TABLE"] == "<control>"


def test_dead_letters_function_reads_the_dead_letter_queue_of_each_lane(made: Made) -> None:
    told = environment(made, "dead-letters")["PUNCTUAL_DEAD_LETTERS"].split()
    assert sorted(told) == sorted(f"<{lane}-dead.fifo>" for lane in lanes(made))


# Schedule rules


def test_schedule_rule_starts_one_function_and_drops_late_starts(made: Made) -> None:
    found = {one["Name"]: one for one in every(made, "AWS::Events::Rule")}
    assert len(found) == len(CLOCKS)
    for clock, (function, rate, oldest) in CLOCKS.items():
        one = found[f"punctual-{stage(made)}-{clock}"]
        (target,) = one["Targets"]
        assert (one["ScheduleExpression"], one["State"]) == (rate, "ENABLED")
        assert set(one) == {"Name", "Description", "ScheduleExpression", "State", "Targets"}
        assert target.pop("Id")
        assert target == {
            "Arn": f"<{function}.Arn>",
            "RetryPolicy": {"MaximumRetryAttempts": 1, "MaximumEventAgeInSeconds": oldest},
        }


def test_scheduled_functions_have_their_retry_limits(made: Made) -> None:
    found = {one["FunctionName"]: one for one in every(made, "AWS::Lambda::EventInvokeConfig")}
    assert found == {
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


def test_each_queue_has_its_properties(made: Made) -> None:
    wanted: dict[str, dict[str, Any]] = {
        "wake": {
            "VisibilityTimeout": 180,
            "MessageRetentionPeriod": 3600,
            "RedrivePolicy": {"deadLetterTargetArn": "<wake-dead.Arn>", "maxReceiveCount": 5},
        },
        "wake-dead": {"MessageRetentionPeriod": 14 * DAY},
        "status-failed": {"MessageRetentionPeriod": 14 * DAY},
    }
    fast = {
        "FifoQueue": True,
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    for lane in lanes(made):
        wanted[f"{lane}.fifo"] = {
            **fast,
            "VisibilityTimeout": 330 if lane.startswith("quick") else 960,
            "MessageRetentionPeriod": 4 * DAY,
            "RedrivePolicy": {
                "deadLetterTargetArn": f"<{lane}-dead.fifo.Arn>",
                "maxReceiveCount": 50,
            },
        }
        wanted[f"{lane}-dead.fifo"] = {
            **fast,
            "VisibilityTimeout": 270,
            "MessageRetentionPeriod": 14 * DAY,
        }
    assert {one["QueueName"]: one for one in every(made, "AWS::SQS::Queue")} == {
        f"punctual-{stage(made)}-{name}": {
            "QueueName": f"punctual-{stage(made)}-{name}",
            "SqsManagedSseEnabled": True,
            **one,
        }
        for name, one in wanted.items()
    }


def test_queue_policy_requires_tls(made: Made) -> None:
    for one in every(made, "AWS::SQS::QueuePolicy"):
        (queue,) = one["Queues"]
        assert one["PolicyDocument"]["Statement"] == [
            {
                "Action": "sqs:*",
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Resource": queue.replace(">", ".Arn>"),
            }
        ]


def test_each_event_source_has_its_batch_properties(made: Made) -> None:
    """Queues have no batching window, which would delay runs. The stream has one second."""
    pollers = values(made)["reservedConcurrency"].get("poller", 2 * values(made)["shards"])
    wanted: list[Mapping[str, Any]] = [
        fed("poller", "wake", 10, pollers),
        *(
            fed(
                f"executor-{lane.split('-')[0]}",
                f"{lane}.fifo",
                10 if lane.startswith("quick") else 1,
                most,
            )
            for lane, most in lanes(made).items()
        ),
        {
            "FunctionName": "<status.Arn>",
            "EventSourceArn": "<jobs.StreamArn>",
            "StartingPosition": "TRIM_HORIZON",
            "BatchSize": 200,
            "MaximumBatchingWindowInSeconds": 1,
            "ParallelizationFactor": 4 if stage(made) == "prod" else 1,
            "FilterCriteria": {
                "Filters": [{"Pattern": json.dumps(one)} for one in JOB_STATE_STREAM_FILTERS]
            },
            "BisectBatchOnFunctionError": True,
            "MaximumRetryAttempts": 100,
            "MaximumRecordAgeInSeconds": 6 * 3600,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "DestinationConfig": {"OnFailure": {"Destination": "<status-failed.Arn>"}},
        },
    ]
    found = {one["EventSourceArn"]: one for one in every(made, "AWS::Lambda::EventSourceMapping")}
    assert found == {one["EventSourceArn"]: one for one in wanted}


def fed(function: str, queue: str, batch: int, at_most: int | None) -> dict[str, Any]:
    return {
        "FunctionName": f"<{function}.Arn>",
        "EventSourceArn": f"<{queue}.Arn>",
        "BatchSize": batch,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        **({} if at_most is None else {"ScalingConfig": {"MaximumConcurrency": at_most}}),
    }


def test_queue_consumers_request_exactly_their_reserved_concurrency(made: Made) -> None:
    """Poller and executors request all of their reserved concurrency, and no more."""
    reserved = values(made)["reservedConcurrency"]
    asked: dict[str, int] = {}
    for one in every(made, "AWS::Lambda::EventSourceMapping"):
        name = one["FunctionName"].strip("<>").removesuffix(".Arn")
        asked[name] = asked.get(name, 0) + one.get("ScalingConfig", {}).get("MaximumConcurrency", 0)
    for name in ("poller", "executor-quick", "executor-long"):
        assert name not in reserved or asked[name] == reserved[name], name
