"""The alarms of all templates cover every resource."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template
from aws_cdk.aws_sns import Topic

from infra.app import read_context
from infra.config.stage import WrongStage, read_stage
from infra.stacks.observability.alarm_kinds import (
    ALARM_KINDS,
    KINDS_WITH_OWN_METRICS,
    KINDS_WITH_RESERVATIONS,
)
from infra.stacks.observability.alarms import RUNBOOK_PAGE, Alarms
from infra.stacks.observability.metrics import EMITTING_FUNCTIONS, WatchedResources
from punctual.lambdas.telemetry import METRIC_NAMESPACE, Metric, PowertoolsTelemetry
from punctual.tasks.script_function import MAX_FUNCTION_SCRIPT_SECONDS
from tests.support.infra.observability import (
    ON_CALL,
    SHOWN,
    Series,
    alarms,
    all_on,
    followed,
    observed,
    series,
    watched,
)
from tests.support.infra.synthesis import (
    Resource,
    Synthesis,
    assembly,
    functions,
    resources,
    script_functions,
    synthesise,
)

DAY = 86_400
OURS = ("Data", "Scheduling", "Execution", "Api")


@pytest.fixture(scope="module", params=SHOWN)
def synthesis(request: pytest.FixtureRequest) -> Synthesis:
    return all_on(request.param)


def metrics_of(synthesis: Synthesis, namespace: str, **dimensions: str) -> set[str]:
    """Return the names of a resource's metrics that alarms read."""
    return {
        metric.name
        for metric in watched(synthesis)
        if metric.namespace == namespace and metric.of == tuple(sorted(dimensions.items()))
    }


def queues(synthesis: Synthesis) -> dict[str, Resource]:
    """Return the queues by their reference from another stack."""
    return {
        f"<{stack}.{queue.name}.Arn>": queue
        for stack in OURS
        for queue in resources(synthesis, "AWS::SQS::Queue", stack)
    }


def sources(synthesis: Synthesis) -> list[Any]:
    return [
        followed(synthesis, mapping.properties, stack)
        for stack in OURS
        for mapping in resources(synthesis, "AWS::Lambda::EventSourceMapping", stack)
    ]


def failures(synthesis: Synthesis) -> set[str]:
    """Return the queues for failed messages."""
    behind = {
        f"<{stack}.{queue.properties['RedrivePolicy']['deadLetterTargetArn']['Fn::GetAtt'][0]}.Arn>"
        for stack in OURS
        for queue in resources(synthesis, "AWS::SQS::Queue", stack)
        if "RedrivePolicy" in queue.properties
    }
    aside = {
        source["DestinationConfig"]["OnFailure"]["Destination"]
        for source in sources(synthesis)
        if "DestinationConfig" in source
    }
    return behind | aside


def test_every_function_has_alarms_for_errors_and_throttles(synthesis: Synthesis) -> None:
    all_functions = functions(synthesis).values()
    assert len(all_functions) >= 10
    for function in all_functions:
        name = function.properties["FunctionName"]
        assert metrics_of(synthesis, "AWS/Lambda", FunctionName=name) >= {"Errors", "Throttles"}, (
            name
        )


def test_every_script_function_has_alarms_for_failures_and_capacity(synthesis: Synthesis) -> None:
    all_functions = script_functions(synthesis).values()
    assert {function.properties["Runtime"] for function in all_functions} == {"python3.13"}
    for function in all_functions:
        expected = {"Errors", "Throttles", "AsyncEventsDropped", "Duration"}
        if "ReservedConcurrentExecutions" in function.properties:
            expected.add("ConcurrentExecutions")
        name = function.properties["FunctionName"]
        assert metrics_of(synthesis, "AWS/Lambda", FunctionName=name) == expected, name


def test_alarms_of_capacity_ring_before_the_bound_of_their_function(synthesis: Synthesis) -> None:
    bounded = {**script_functions(synthesis), "claims": functions(synthesis)["claims"]}
    for name, function in bounded.items():
        timeout_ms = function.properties["Timeout"] * 1000
        duration = alarms(synthesis)[f"duration-{name}"]["Threshold"]
        assert 0.89 * timeout_ms < duration < timeout_ms
        reserved = function.properties.get("ReservedConcurrentExecutions")
        rings = alarms(synthesis).get(f"concurrency-{name}")
        assert (rings is None) == (reserved is None)
        if rings is not None and reserved is not None:
            assert 0.8 * reserved <= rings["Threshold"] < reserved
    scripts = alarms(synthesis)["duration-script-python"]["Threshold"]
    assert scripts > MAX_FUNCTION_SCRIPT_SECONDS * 1000, "a script may take all of its time"


def test_function_of_containers_has_alarms_where_the_stage_has_it() -> None:
    synthesis = synthesise("dev", alarms=True, containers=True)
    name = functions(synthesis)["containers"].properties["FunctionName"]
    metrics = metrics_of(synthesis, "AWS/Lambda", FunctionName=name)
    assert metrics == {"Errors", "Throttles", "Duration"}


def test_every_queue_has_an_alarm_for_age_or_failures(synthesis: Synthesis) -> None:
    failed = failures(synthesis)
    variables = functions(synthesis)["dead-letters"].properties["Environment"]["Variables"]
    emptied = followed(synthesis, variables, "Execution")["PUNCTUAL_DEAD_LETTERS"].split()
    assert len(failed) == len(queues(synthesis)) - sum(
        "RedrivePolicy" in queue.properties for queue in queues(synthesis).values()
    )
    for arn, queue in queues(synthesis).items():
        name = queue.properties["QueueName"]
        expected = {"ApproximateAgeOfOldestMessage"}
        if arn in failed:
            expected = {"ApproximateNumberOfMessagesVisible"}
            # A function may take messages before the metric counts them.
            expected |= (
                {"NumberOfMessagesReceived"} if arn.replace(".Arn>", ">") in emptied else set()
            )
        assert metrics_of(synthesis, "AWS/SQS", QueueName=name) == expected, name


def test_every_table_has_alarms_for_throttling(synthesis: Synthesis) -> None:
    tables = resources(synthesis, "AWS::DynamoDB::Table")
    assert len(tables) == 6
    for table in tables:
        metrics = metrics_of(synthesis, "AWS/DynamoDB", TableName=f"<Data.{table.name}>")
        assert metrics == {"ReadThrottleEvents", "WriteThrottleEvents"}


def test_stream_consumers_have_an_iterator_age_alarm(synthesis: Synthesis) -> None:
    followers = [
        source["FunctionName"] for source in sources(synthesis) if "StartingPosition" in source
    ]
    assert followers
    names = {
        f"<Execution.{function.name}>": function.properties["FunctionName"]
        for function in functions(synthesis).values()
    }
    for follower in followers:
        name = names[follower.replace(".Arn>", ">")]
        assert "IteratorAge" in metrics_of(synthesis, "AWS/Lambda", FunctionName=name)


def test_failed_stream_changes_are_reported_while_the_stream_holds_them(
    synthesis: Synthesis,
) -> None:
    """The stream keeps changes for a day. Later, lists, counters and audit stay wrong."""
    (source,) = [source for source in sources(synthesis) if "StartingPosition" in source]
    given_up = source["MaximumRecordAgeInSeconds"]
    assert given_up <= DAY / 4
    behind = alarms(synthesis)["stream-age"]
    rings = behind["Threshold"] / 1000 + behind["EvaluationPeriods"] * behind["Period"]
    assert rings <= 300
    aside = alarms(synthesis)["dead-letters-status-failed"]
    assert (aside["Threshold"], aside["DatapointsToAlarm"]) == (1, 1)
    assert given_up + aside["EvaluationPeriods"] * aside["Period"] < DAY / 3, "16 hours are left"


def test_api_has_an_alarm_for_5xx(synthesis: Synthesis) -> None:
    (api,) = resources(synthesis, "AWS::ApiGatewayV2::Api")
    assert metrics_of(synthesis, "AWS/ApiGateway", ApiId=f"<Api.{api.name}>") == {"5xx"}


def test_minutely_function_has_an_alarm_for_missing_ticks(synthesis: Synthesis) -> None:
    rules = [event_rule.properties for event_rule in resources(synthesis, "AWS::Events::Rule")]
    (target,) = [
        target["Arn"]["Fn::GetAtt"][0]
        for rule in rules
        if rule["ScheduleExpression"] == "rate(1 minute)"
        for target in rule["Targets"]
    ]
    (ticked,) = [function for function in functions(synthesis).values() if function.name == target]
    name = ticked.properties["FunctionName"]
    alarm = alarms(synthesis)["no-tick"]
    assert {metric.name for metric in series(alarm)} == {"Invocations", "Errors"}
    assert {dict(metric.of)["FunctionName"] for metric in series(alarm)} == {name}
    assert alarm["TreatMissingData"] == "breaching"
    assert (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (3, 3)
    assert {part["MetricStat"]["Period"] for part in alarm["Metrics"] if "MetricStat" in part} == {
        60
    }
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)


def test_missing_data_breaches_only_the_tick_alarm(synthesis: Synthesis) -> None:
    for name, alarm in alarms(synthesis).items():
        if name != "no-tick":
            assert alarm["TreatMissingData"] == "notBreaching", name


def test_failed_runs_trigger_no_alarm(synthesis: Synthesis) -> None:
    names = {metric.name for metric in watched(synthesis) if metric.namespace == METRIC_NAMESPACE}
    assert not names & {Metric.FAILED, Metric.RETRIED, Metric.MISSED}


def test_alarms_read_metrics_as_they_are_emitted(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = [
        metric for metric in watched(assembly("prod")) if metric.namespace == METRIC_NAMESPACE
    ]
    assert {metric.name for metric in metrics} == {
        Metric.LATENESS,
        Metric.WATERMARK_LAG,
        Metric.RECONCILER_FINDS,
        Metric.LIST_LAG,
    }
    for metric in metrics:
        service = dict(metric.of)["service"]
        tell = PowertoolsTelemetry(service, "prod")
        with tell.invocation():
            tell.metric(Metric(metric.name))
        assert series_in(json.loads(capsys.readouterr().out)) == {metric}


def series_in(line: Mapping[str, Any]) -> set[Series]:
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    (names,) = directive["Dimensions"]
    dimensions = tuple(sorted((name, line[name]) for name in names))
    return {
        Series(directive["Namespace"], metric["Name"], dimensions)
        for metric in directive["Metrics"]
    }


def test_every_metric_has_emitting_functions() -> None:
    assert set(EMITTING_FUNCTIONS) == set(Metric)
    existing = set(functions(assembly("prod")))
    assert {service for services in EMITTING_FUNCTIONS.values() for service in services} <= existing


def test_every_alarm_has_a_description_and_notifies_start_and_end(
    synthesis: Synthesis,
) -> None:
    (topic,) = observed(synthesis, "AWS::SNS::Topic")
    for name, alarm in alarms(synthesis).items():
        meaning, section = alarm["AlarmDescription"].split(f" See {RUNBOOK_PAGE}#")
        assert len(meaning) > 30
        assert meaning.endswith(".")
        assert section in ALARM_KINDS
        assert name == section or name.startswith(f"{section}-")
        assert alarm["AlarmActions"] == alarm["OKActions"] == [f"<Observability.{topic}>"]


def test_stage_with_metrics_has_all_alarm_kinds() -> None:
    sections = {
        alarm["AlarmDescription"].rsplit("#", 1)[1] for alarm in alarms(assembly("prod")).values()
    }
    assert sections == set(ALARM_KINDS)


def test_stage_without_metrics_has_alarms_on_free_metrics_only() -> None:
    assert not [metric for metric in watched(all_on("dev")) if metric.namespace == METRIC_NAMESPACE]
    sections = {
        alarm["AlarmDescription"].rsplit("#", 1)[1] for alarm in alarms(all_on("dev")).values()
    }
    missing = {*KINDS_WITH_OWN_METRICS, *KINDS_WITH_RESERVATIONS}
    assert read_context()["stages"]["dev"]["reservedConcurrency"] == {}
    assert sections == set(ALARM_KINDS) - missing


def test_default_stage_has_no_paid_parts_except_its_dashboard() -> None:
    all_resources = assembly("dev").templates["Observability"]["Resources"].values()
    assert {resource["Type"] for resource in all_resources} == {
        "AWS::Logs::QueryDefinition",
        "AWS::CloudWatch::Dashboard",
    }


def test_stage_may_choose_alarm_kinds() -> None:
    stages = {"dev": {**read_context()["stages"]["dev"], "alarms": ["stream-age", "no-tick"]}}
    stack = Stack(App())
    Alarms(
        stack,
        "Alarms",
        stage=read_stage("dev", stages),
        watched=WatchedResources(
            functions=("planner",),
            script_functions=(),
            lanes={"long": "long"},
            tables={},
            api="api",
        ),
        topic=Topic(stack, "Topic"),
    )
    alarms_found = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    names = {alarm["Properties"]["AlarmName"] for alarm in alarms_found}
    assert names == {"punctual-dev-stream-age", "punctual-dev-no-tick"}


def test_only_the_alarm_address_is_subscribed() -> None:
    (mail,) = observed(all_on("dev"), "AWS::SNS::Subscription").values()
    assert (mail["Protocol"], mail["Endpoint"]) == ("email", ON_CALL)
    assert not observed(assembly("prod"), "AWS::SNS::Subscription")


def test_only_alarms_of_the_stage_may_publish_to_the_topic_over_tls() -> None:
    synthesis = assembly("prod")
    ((name, topic),) = observed(synthesis, "AWS::SNS::Topic").items()
    ((key_name, key),) = observed(synthesis, "AWS::KMS::Key").items()
    assert topic["TopicName"] == "punctual-prod-alarms"
    assert topic["KmsMasterKeyId"] == f"<Observability.{key_name}.Arn>"
    assert key["EnableKeyRotation"] is True
    (policy,) = observed(synthesis, "AWS::SNS::TopicPolicy").values()
    statements = {
        statement["Effect"]: statement for statement in policy["PolicyDocument"]["Statement"]
    }
    assert statements["Deny"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    allowed = statements["Allow"]
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Resource"] == f"<Observability.{name}>"
    assert allowed["Condition"]["ArnLike"]["aws:SourceArn"].endswith(":alarm:punctual-prod-*")
    # CloudWatch uses the key without a source that a condition could name.
    (opened,) = [
        statement
        for statement in key["KeyPolicy"]["Statement"]
        if "Service" in statement["Principal"]
    ]
    assert opened["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alarms": "all"}, "`alarms` must be true, false, or a list from no-tick, oldest-message"),
        ({"alarms": []}, "`alarms` must be"),
        ({"alarms": ["no-tick", "no-tick"]}, "`alarms` must be"),
        ({"alarms": ["no-tock"]}, "`alarms` must be"),
        ({"alarms": [["no-tick"]]}, "`alarms` must be"),
        ({"alarms": ["lateness"]}, "lateness, watermark, reconciler, list-lag need `metrics`"),
        ({"alarmEmail": ON_CALL}, "`alarmEmail` requires `alarms` or `budgetDollars`"),
        ({"dashboard": "yes"}, "`dashboard` must be true or false"),
    ],
)
def test_invalid_observability_setting_is_named(values: dict[str, Any], message: str) -> None:
    stages = read_context()["stages"]
    with pytest.raises(WrongStage, match=message):
        read_stage("dev", {"dev": {**stages["dev"], **values}})
