"""Queues, event sources and schedule rules."""

import json
from typing import Any

import pytest

from infra.app import read_context
from punctual.aws.dynamodb.control.counter_keys import JOB_STATE_STREAM_FILTERS
from punctual.domain.durations import RUN_LEASE
from tests.support.infra.synthesised import STAGES, Resource, assembly, functions, resources

LANES = {
    "dev": {"quick-high", "quick-normal", "quick-low", "long"},
    "prod": {"quick-high", "quick-normal", "quick-low", "long"},
}


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def queues(stage: str) -> dict[str, Resource]:
    """Return the queues by their name without the stage."""
    found = resources(assembly(stage), "AWS::SQS::Queue")
    return {one.properties["QueueName"].removeprefix(f"punctual-{stage}-"): one for one in found}


def mappings(stage: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return function, queue and mapping. The queue of the stream is ""."""
    by_id = {one.name: name for name, one in queues(stage).items()}
    names = {one.name: name for name, one in functions(assembly(stage)).items()}
    found = []
    for one in resources(assembly(stage), "AWS::Lambda::EventSourceMapping"):
        source = str(one.properties["EventSourceArn"])
        fed = [name for logical, name in by_id.items() if logical in source]
        function = one.properties["FunctionName"]["Fn::GetAtt"][0]
        found.append((names[function], fed[0] if fed else "", dict(one.properties)))
    return found


def test_stage_has_the_configured_queues(stage: str) -> None:
    lanes = {f"{lane}.fifo" for lane in LANES[stage]}
    dead = {f"{lane}-dead.fifo" for lane in LANES[stage]}
    assert set(queues(stage)) == {*lanes, *dead, "wake", "wake-dead", "status-failed"}


def test_lane_queues_are_fifo_with_high_throughput(stage: str) -> None:
    for name, one in queues(stage).items():
        if not name.endswith(".fifo"):
            assert "FifoQueue" not in one.properties
            continue
        assert one.properties["FifoQueue"] is True
        assert one.properties["DeduplicationScope"] == "messageGroup"
        assert one.properties["FifoThroughputLimit"] == "perMessageGroupId"
        assert not one.properties.get("ContentBasedDeduplication")


def test_failed_messages_move_to_the_dead_letter_queue_of_their_queue(stage: str) -> None:
    made = queues(stage)
    for lane in (*(f"{lane}.fifo" for lane in LANES[stage]), "wake"):
        redrive = made[lane].properties["RedrivePolicy"]
        dead = made[lane.replace(".fifo", "-dead.fifo") if "." in lane else "wake-dead"]
        assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": [dead.name, "Arn"]}
        assert dead.properties["MessageRetentionPeriod"] == 14 * 86_400


def test_duplicates_of_a_long_run_do_not_reach_the_receive_limit(stage: str) -> None:
    for lane in LANES[stage]:
        most = queues(stage)[f"{lane}.fifo"].properties["RedrivePolicy"]["maxReceiveCount"]
        assert most > 900 / RUN_LEASE.total_seconds()


def test_every_queue_is_encrypted_and_requires_tls(stage: str) -> None:
    guarded = set()
    for one in resources(assembly(stage), "AWS::SQS::QueuePolicy"):
        (statement,) = one.properties["PolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Action"]) == ("Deny", "sqs:*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        guarded |= {queue["Ref"] for queue in one.properties["Queues"]}
    assert guarded == {one.name for one in queues(stage).values()}
    assert all(one.properties["SqsManagedSseEnabled"] for one in queues(stage).values())


def test_visibility_timeout_covers_the_function_timeout(stage: str) -> None:
    made = functions(assembly(stage))
    for function, queue, _ in mappings(stage):
        if queue:
            hidden = queues(stage)[queue].properties.get("VisibilityTimeout", 30)
            assert hidden >= made[function].properties["Timeout"]


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
    assert fed == {**expected, "wake": "poller", "": "status"}


def test_batch_item_failures_are_reported(stage: str) -> None:
    for _, _, one in mappings(stage):
        assert one["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_lane_has_its_batch_size_and_maximum_concurrency(stage: str) -> None:
    given = read_context()["stages"][stage]["lanes"]
    for function, queue, one in mappings(stage):
        if function.startswith("executor"):
            lane, _, priority = queue.removesuffix(".fifo").partition("-")
            assert one["BatchSize"] == (10 if lane == "quick" else 1)
            most = one["ScalingConfig"]["MaximumConcurrency"]
            assert most == given[lane][priority or "all"]


def test_queue_concurrency_fits_the_reserved_concurrency(stage: str) -> None:
    made = functions(assembly(stage))
    wanted: dict[str, int] = {}
    for function, queue, one in mappings(stage):
        if queue and made[function].properties.get("ReservedConcurrentExecutions"):
            wanted[function] = wanted.get(function, 0) + one["ScalingConfig"]["MaximumConcurrency"]
    for function, most in wanted.items():
        assert most <= made[function].properties["ReservedConcurrentExecutions"]
    assert bool(wanted) is (stage == "prod")


def test_jobs_stream_mapping_limits_retries_and_reports_failures(stage: str) -> None:
    (one,) = [one for _, queue, one in mappings(stage) if not queue]
    assert "JobsTable" in str(one["EventSourceArn"])
    assert one["StartingPosition"] == "TRIM_HORIZON"
    filters = [json.loads(filter_["Pattern"]) for filter_ in one["FilterCriteria"]["Filters"]]
    assert filters == [dict(wanted) for wanted in JOB_STATE_STREAM_FILTERS]
    assert one["BisectBatchOnFunctionError"] is True
    assert 0 < one["MaximumRetryAttempts"] <= 100
    assert 3600 <= one["MaximumRecordAgeInSeconds"] < 86_400
    failed = {"Fn::GetAtt": [queues(stage)["status-failed"].name, "Arn"]}
    assert one["DestinationConfig"] == {"OnFailure": {"Destination": failed}}


def test_schedule_rules_start_planner_reconciler_and_dead_letters(stage: str) -> None:
    names = {one.name: name for name, one in functions(assembly(stage)).items()}
    found = {}
    for one in resources(assembly(stage), "AWS::Events::Rule"):
        (target,) = one.properties["Targets"]
        retry = target["RetryPolicy"]
        found[names[target["Arn"]["Fn::GetAtt"][0]]] = one.properties["ScheduleExpression"]
        assert one.properties["State"] == "ENABLED"
        assert retry["MaximumRetryAttempts"] <= 1
        assert retry["MaximumEventAgeInSeconds"] <= 1800
    assert found == {
        "planner": "rate(1 minute)",
        "reconciler": "rate(1 hour)",
        "dead-letters": "rate(5 minutes)",
    }


def test_parameters_have_the_values_of_the_stage(stage: str) -> None:
    found = {
        one.properties["Name"]: one.properties["Value"]
        for one in resources(assembly(stage), "AWS::SSM::Parameter")
    }
    values = read_context()["stages"][stage]
    assert found == {
        f"/punctual/{stage}/shards": str(values["shards"]),
        f"/punctual/{stage}/pace": str(values["pace"]),
        f"/punctual/{stage}/dispatch": "on",
        f"/punctual/{stage}/token-hash": "unset",
    }
