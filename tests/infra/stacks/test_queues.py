"""Queues, event sources and schedule rules."""

import json
from typing import Any

from punctual.aws.dynamodb.keys import JOB_STATE_STREAM_FILTERS
from punctual.domain.leases import RUN_LEASE
from tests.support.infra.synthesis import Resource, assembly, functions, resources, stage_settings

LANES = {
    "dev": {"quick-high", "quick-normal", "quick-low", "long"},
    "prod": {"quick-high", "quick-normal", "quick-low", "long"},
}


def queues(stage: str) -> dict[str, Resource]:
    """Return the queues by their name without the stage."""
    all_queues = resources(assembly(stage), "AWS::SQS::Queue")
    return {
        queue.properties["QueueName"].removeprefix(f"punctual-{stage}-"): queue
        for queue in all_queues
    }


def mappings(stage: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return function, queue and mapping. The queue of the stream is ""."""
    by_id = {resource.name: name for name, resource in queues(stage).items()}
    names = {
        function_resource.name: name
        for name, function_resource in functions(assembly(stage)).items()
    }
    result = []
    for mapping in resources(assembly(stage), "AWS::Lambda::EventSourceMapping"):
        source = str(mapping.properties["EventSourceArn"])
        fed = [name for logical, name in by_id.items() if logical in source]
        function = mapping.properties["FunctionName"]["Fn::GetAtt"][0]
        result.append((names[function], fed[0] if fed else "", dict(mapping.properties)))
    return result


def test_stage_has_the_configured_queues(stage: str) -> None:
    lanes = {f"{lane}.fifo" for lane in LANES[stage]}
    dead = {f"{lane}-dead.fifo" for lane in LANES[stage]}
    others = {"wake", "wake-dead", "operations", "operations-dead", "status-failed"}
    assert set(queues(stage)) == {*lanes, *dead, *others}


def test_lane_queues_are_fifo_with_high_throughput(stage: str) -> None:
    for name, queue in queues(stage).items():
        if not name.endswith(".fifo"):
            assert "FifoQueue" not in queue.properties
            continue
        assert queue.properties["FifoQueue"] is True
        assert queue.properties["DeduplicationScope"] == "messageGroup"
        assert queue.properties["FifoThroughputLimit"] == "perMessageGroupId"
        assert not queue.properties.get("ContentBasedDeduplication")


def test_failed_messages_move_to_the_dead_letter_queue_of_their_queue(stage: str) -> None:
    by_name = queues(stage)
    for lane in (*(f"{lane}.fifo" for lane in LANES[stage]), "wake", "operations"):
        redrive = by_name[lane].properties["RedrivePolicy"]
        dead = by_name[lane.replace(".fifo", "-dead.fifo") if "." in lane else f"{lane}-dead"]
        assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": [dead.name, "Arn"]}
        assert dead.properties["MessageRetentionPeriod"] == 14 * 86_400


def test_duplicates_of_a_long_run_do_not_reach_the_receive_limit(stage: str) -> None:
    for lane in LANES[stage]:
        maximum = queues(stage)[f"{lane}.fifo"].properties["RedrivePolicy"]["maxReceiveCount"]
        assert maximum > 900 / RUN_LEASE.total_seconds()


def test_every_queue_is_encrypted_and_requires_tls(stage: str) -> None:
    guarded = set()
    for policy in resources(assembly(stage), "AWS::SQS::QueuePolicy"):
        (statement,) = policy.properties["PolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Action"]) == ("Deny", "sqs:*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        guarded |= {queue["Ref"] for queue in policy.properties["Queues"]}
    assert guarded == {queue.name for queue in queues(stage).values()}
    assert all(queue.properties["SqsManagedSseEnabled"] for queue in queues(stage).values())


def test_visibility_timeout_covers_the_function_timeout(stage: str) -> None:
    by_name = functions(assembly(stage))
    for function, queue, _ in mappings(stage):
        if queue:
            hidden = queues(stage)[queue].properties.get("VisibilityTimeout", 30)
            assert hidden >= by_name[function].properties["Timeout"]


def test_dead_letter_reappears_in_the_next_round_of_the_function(
    stage: str,
) -> None:
    takes = functions(assembly(stage))["dead-letters"].properties["Timeout"]
    for lane in LANES[stage]:
        hidden = queues(stage)[f"{lane}-dead.fifo"].properties["VisibilityTimeout"]
        assert takes < hidden < 300


def test_each_queue_has_one_consumer(stage: str) -> None:
    fed = {queue: function for function, queue, _ in mappings(stage)}
    expected = {f"{lane}.fifo": f"executor-{lane.split('-')[0]}" for lane in LANES[stage]}
    assert fed == {**expected, "wake": "poller", "operations": "operations", "": "status"}


def test_batch_item_failures_are_reported(stage: str) -> None:
    for _, _, mapping in mappings(stage):
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_lane_has_its_batch_size_and_maximum_concurrency(stage: str) -> None:
    configured = stage_settings(stage)["lanes"]
    for function, queue, mapping in mappings(stage):
        if function.startswith("executor"):
            lane, _, priority = queue.removesuffix(".fifo").partition("-")
            assert mapping["BatchSize"] == (10 if lane == "quick" else 1)
            maximum = mapping["ScalingConfig"]["MaximumConcurrency"]
            assert maximum == configured[lane][priority or "all"]


def test_queue_concurrency_fits_the_reserved_concurrency(stage: str) -> None:
    by_name = functions(assembly(stage))
    totals: dict[str, int] = {}
    for function, queue, mapping in mappings(stage):
        if queue and by_name[function].properties.get("ReservedConcurrentExecutions"):
            totals[function] = (
                totals.get(function, 0) + mapping["ScalingConfig"]["MaximumConcurrency"]
            )
    for function, total in totals.items():
        assert total <= by_name[function].properties["ReservedConcurrentExecutions"]
    assert bool(totals) is (stage == "prod")


def test_jobs_stream_mapping_limits_retries_and_reports_failures(stage: str) -> None:
    (mapping,) = [mapping for _, queue, mapping in mappings(stage) if not queue]
    assert "JobsTable" in str(mapping["EventSourceArn"])
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    filters = [json.loads(filter_["Pattern"]) for filter_ in mapping["FilterCriteria"]["Filters"]]
    assert filters == [dict(pattern) for pattern in JOB_STATE_STREAM_FILTERS]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert 0 < mapping["MaximumRetryAttempts"] <= 100
    assert 3600 <= mapping["MaximumRecordAgeInSeconds"] < 86_400
    failed = {"Fn::GetAtt": [queues(stage)["status-failed"].name, "Arn"]}
    assert mapping["DestinationConfig"] == {"OnFailure": {"Destination": failed}}


def test_schedule_rules_start_planner_reconciler_and_dead_letters(stage: str) -> None:
    names = {function.name: name for name, function in functions(assembly(stage)).items()}
    rules = {}
    for rule in resources(assembly(stage), "AWS::Events::Rule"):
        (target,) = rule.properties["Targets"]
        retry = target["RetryPolicy"]
        rules[names[target["Arn"]["Fn::GetAtt"][0]]] = rule.properties["ScheduleExpression"]
        assert rule.properties["State"] == "ENABLED"
        assert retry["MaximumRetryAttempts"] <= 1
        assert retry["MaximumEventAgeInSeconds"] <= 1800
    assert rules == {
        "planner": "rate(1 minute)",
        "reconciler": "rate(1 hour)",
        "dead-letters": "rate(5 minutes)",
    }


def test_parameters_have_the_values_of_the_stage(stage: str) -> None:
    parameters = {
        parameter.properties["Name"]: parameter.properties["Value"]
        for parameter in resources(assembly(stage), "AWS::SSM::Parameter")
    }
    values = stage_settings(stage)
    assert parameters == {
        f"/punctual/{stage}/shards": str(values["shards"]),
        f"/punctual/{stage}/pace": str(values["pace"]),
        f"/punctual/{stage}/dispatch": "on",
        f"/punctual/{stage}/token-hash": "unset",
        f"/punctual/{stage}/api-address": parameters[f"/punctual/{stage}/api-address"],
    }
    assert "/v1" in str(parameters[f"/punctual/{stage}/api-address"])
