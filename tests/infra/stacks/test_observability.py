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
from infra.stacks.observability.alarms import RUNBOOK_PAGE, Alarms
from infra.stacks.observability.kinds import ALARM_KINDS, KINDS_WITH_OWN_METRICS
from infra.stacks.observability.metrics import EMITTING_FUNCTIONS, WatchedResources
from punctual.lambdas.telemetry import METRIC_NAMESPACE, Metric, PowertoolsTelemetry
from tests.support.infra.observed import (
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
from tests.support.infra.synthesised import Made, Resource, assembly, functions, resources

DAY = 86_400
OURS = ("Data", "Scheduling", "Execution", "Api")


@pytest.fixture(scope="module", params=SHOWN)
def made(request: pytest.FixtureRequest) -> Made:
    return all_on(request.param)


def of(made: Made, namespace: str, **dimensions: str) -> set[str]:
    """Return the names of a resource's metrics that alarms read."""
    return {
        one.name
        for one in watched(made)
        if one.namespace == namespace and one.of == tuple(sorted(dimensions.items()))
    }


def queues(made: Made) -> dict[str, Resource]:
    """Return the queues by their reference from another stack."""
    return {
        f"<{stack}.{one.name}.Arn>": one
        for stack in OURS
        for one in resources(made, "AWS::SQS::Queue", stack)
    }


def sources(made: Made) -> list[Any]:
    return [
        followed(made, one.properties, stack)
        for stack in OURS
        for one in resources(made, "AWS::Lambda::EventSourceMapping", stack)
    ]


def failures(made: Made) -> set[str]:
    """Return the queues for failed messages."""
    behind = {
        f"<{stack}.{one.properties['RedrivePolicy']['deadLetterTargetArn']['Fn::GetAtt'][0]}.Arn>"
        for stack in OURS
        for one in resources(made, "AWS::SQS::Queue", stack)
        if "RedrivePolicy" in one.properties
    }
    aside = {
        one["DestinationConfig"]["OnFailure"]["Destination"]
        for one in sources(made)
        if "DestinationConfig" in one
    }
    return behind | aside


def test_every_function_has_alarms_for_errors_and_throttles(made: Made) -> None:
    found = functions(made).values()
    assert len(found) >= 10
    for one in found:
        name = one.properties["FunctionName"]
        assert of(made, "AWS/Lambda", FunctionName=name) >= {"Errors", "Throttles"}, name


def test_every_queue_has_an_alarm_for_age_or_failures(made: Made) -> None:
    kept = failures(made)
    told = functions(made)["dead-letters"].properties["Environment"]["Variables"]
    emptied = followed(made, told, "Execution")["PUNCTUAL_DEAD_LETTERS"].split()
    assert len(kept) == len(queues(made)) - sum(
        "RedrivePolicy" in one.properties for one in queues(made).values()
    )
    for arn, one in queues(made).items():
        name = one.properties["QueueName"]
        wanted = {"ApproximateAgeOfOldestMessage"}
        if arn in kept:
            wanted = {"ApproximateNumberOfMessagesVisible"}
            # A function may take messages before the metric counts them.
            wanted |= (
                {"NumberOfMessagesReceived"} if arn.replace(".Arn>", ">") in emptied else set()
            )
        assert of(made, "AWS/SQS", QueueName=name) == wanted, name


def test_every_table_has_alarms_for_throttling(made: Made) -> None:
    tables = resources(made, "AWS::DynamoDB::Table")
    assert len(tables) == 5
    for one in tables:
        found = of(made, "AWS/DynamoDB", TableName=f"<Data.{one.name}>")
        assert found == {"ReadThrottleEvents", "WriteThrottleEvents"}


def test_stream_consumers_have_an_iterator_age_alarm(made: Made) -> None:
    followers = [one["FunctionName"] for one in sources(made) if "StartingPosition" in one]
    assert followers
    names = {
        f"<Execution.{one.name}>": one.properties["FunctionName"]
        for one in functions(made).values()
    }
    for one in followers:
        name = names[one.replace(".Arn>", ">")]
        assert "IteratorAge" in of(made, "AWS/Lambda", FunctionName=name)


def test_failed_stream_changes_are_reported_while_the_stream_holds_them(
    made: Made,
) -> None:
    """The stream keeps changes for a day. Later, lists, counters and audit stay wrong."""
    (source,) = [one for one in sources(made) if "StartingPosition" in one]
    given_up = source["MaximumRecordAgeInSeconds"]
    assert given_up <= DAY / 4
    behind = alarms(made)["stream-age"]
    rings = behind["Threshold"] / 1000 + behind["EvaluationPeriods"] * behind["Period"]
    assert rings <= 300
    aside = alarms(made)["dead-letters-status-failed"]
    assert (aside["Threshold"], aside["DatapointsToAlarm"]) == (1, 1)
    assert given_up + aside["EvaluationPeriods"] * aside["Period"] < DAY / 3, "16 hours are left"


def test_api_has_an_alarm_for_5xx(made: Made) -> None:
    (api,) = resources(made, "AWS::ApiGatewayV2::Api")
    assert of(made, "AWS/ApiGateway", ApiId=f"<Api.{api.name}>") == {"5xx"}


def test_minutely_function_has_an_alarm_for_missing_ticks(made: Made) -> None:
    rules = [one.properties for one in resources(made, "AWS::Events::Rule")]
    (target,) = [
        target["Arn"]["Fn::GetAtt"][0]
        for rule in rules
        if rule["ScheduleExpression"] == "rate(1 minute)"
        for target in rule["Targets"]
    ]
    (ticked,) = [one for one in functions(made).values() if one.name == target]
    name = ticked.properties["FunctionName"]
    alarm = alarms(made)["no-tick"]
    assert {one.name for one in series(alarm)} == {"Invocations", "Errors"}
    assert {dict(one.of)["FunctionName"] for one in series(alarm)} == {name}
    assert alarm["TreatMissingData"] == "breaching"
    assert (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (3, 3)
    assert {one["MetricStat"]["Period"] for one in alarm["Metrics"] if "MetricStat" in one} == {60}
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)


def test_missing_data_breaches_only_the_tick_alarm(made: Made) -> None:
    for name, alarm in alarms(made).items():
        if name != "no-tick":
            assert alarm["TreatMissingData"] == "notBreaching", name


def test_failed_runs_trigger_no_alarm(made: Made) -> None:
    told = {one.name for one in watched(made) if one.namespace == METRIC_NAMESPACE}
    assert not told & {Metric.FAILED, Metric.RETRIED, Metric.MISSED}


def test_alarms_read_metrics_as_they_are_emitted(capsys: pytest.CaptureFixture[str]) -> None:
    found = [one for one in watched(assembly("prod")) if one.namespace == METRIC_NAMESPACE]
    assert {one.name for one in found} == {
        Metric.LATENESS,
        Metric.WATERMARK_LAG,
        Metric.RECONCILER_FINDS,
    }
    for one in found:
        service = dict(one.of)["service"]
        tell = PowertoolsTelemetry(service, "prod")
        with tell.invocation():
            tell.metric(Metric(one.name))
        assert told(json.loads(capsys.readouterr().out)) == {one}


def told(line: Mapping[str, Any]) -> set[Series]:
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    (names,) = directive["Dimensions"]
    dimensions = tuple(sorted((name, line[name]) for name in names))
    return {Series(directive["Namespace"], one["Name"], dimensions) for one in directive["Metrics"]}


def test_every_metric_has_emitting_functions() -> None:
    assert set(EMITTING_FUNCTIONS) == set(Metric)
    there = set(functions(assembly("prod")))
    assert {service for services in EMITTING_FUNCTIONS.values() for service in services} <= there


def test_every_alarm_has_a_description_and_notifies_start_and_end(
    made: Made,
) -> None:
    (topic,) = observed(made, "AWS::SNS::Topic")
    for name, alarm in alarms(made).items():
        meaning, section = alarm["AlarmDescription"].split(f" What to do: {RUNBOOK_PAGE}#")
        assert len(meaning) > 30
        assert meaning.endswith(".")
        assert section in ALARM_KINDS
        assert name == section or name.startswith(f"{section}-")
        assert alarm["AlarmActions"] == alarm["OKActions"] == [f"<Observability.{topic}>"]


def test_stage_with_metrics_has_all_alarm_kinds() -> None:
    found = {one["AlarmDescription"].rsplit("#", 1)[1] for one in alarms(assembly("prod")).values()}
    assert found == set(ALARM_KINDS)


def test_stage_without_metrics_has_alarms_on_free_metrics_only() -> None:
    assert not [one for one in watched(all_on("dev")) if one.namespace == METRIC_NAMESPACE]
    found = {one["AlarmDescription"].rsplit("#", 1)[1] for one in alarms(all_on("dev")).values()}
    assert found == set(ALARM_KINDS) - set(KINDS_WITH_OWN_METRICS)


def test_default_stage_has_no_paid_parts_except_its_dashboard() -> None:
    found = assembly("dev").templates["Observability"]["Resources"].values()
    assert {one["Type"] for one in found} == {
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
            functions=("planner",), lanes={"long": "long"}, tables={}, api="api"
        ),
        topic=Topic(stack, "Topic"),
    )
    found = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    names = {one["Properties"]["AlarmName"] for one in found}
    assert names == {"punctual-dev-stream-age", "punctual-dev-no-tick"}


def test_only_the_alarm_address_is_subscribed() -> None:
    (mail,) = observed(all_on("dev"), "AWS::SNS::Subscription").values()
    assert (mail["Protocol"], mail["Endpoint"]) == ("email", ON_CALL)
    assert not observed(assembly("prod"), "AWS::SNS::Subscription")


def test_only_alarms_of_the_stage_may_publish_to_the_topic_over_tls() -> None:
    made = assembly("prod")
    ((name, topic),) = observed(made, "AWS::SNS::Topic").items()
    ((key_name, key),) = observed(made, "AWS::KMS::Key").items()
    assert topic["TopicName"] == "punctual-prod-alarms"
    assert topic["KmsMasterKeyId"] == f"<Observability.{key_name}.Arn>"
    assert key["EnableKeyRotation"] is True
    (policy,) = observed(made, "AWS::SNS::TopicPolicy").values()
    statements = {one["Effect"]: one for one in policy["PolicyDocument"]["Statement"]}
    assert statements["Deny"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    allowed = statements["Allow"]
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Resource"] == f"<Observability.{name}>"
    assert allowed["Condition"]["ArnLike"]["aws:SourceArn"].endswith(":alarm:punctual-prod-*")
    # CloudWatch uses the key without a source that a condition could name.
    (opened,) = [one for one in key["KeyPolicy"]["Statement"] if "Service" in one["Principal"]]
    assert opened["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alarms": "all"}, "`alarms` must be true, false, or a list from no-tick, oldest-message"),
        ({"alarms": []}, "`alarms` must be"),
        ({"alarms": ["no-tick", "no-tick"]}, "`alarms` must be"),
        ({"alarms": ["no-tock"]}, "`alarms` must be"),
        ({"alarms": [["no-tick"]]}, "`alarms` must be"),
        ({"alarms": ["lateness"]}, "lateness, watermark, reconciler need `metrics`"),
        ({"alarmEmail": ON_CALL}, "`alarmEmail` would get no mail: `alarms` chooses none, and"),
        ({"dashboard": "yes"}, "`dashboard` must be true or false"),
    ],
)
def test_invalid_observability_setting_is_named(values: dict[str, Any], message: str) -> None:
    stages = read_context()["stages"]
    with pytest.raises(WrongStage, match=message):
        read_stage("dev", {"dev": {**stages["dev"], **values}})
