"""Alarm conditions, topic policies and small resources, compared as a whole."""

import pytest

from tests.support.infra.observability import LISTED, listed
from tests.support.infra.references import HERE, SHOWN, every, ids, stage, synthesis_of
from tests.support.infra.synthesis import FULL, Synthesis, resources

CLOUDWATCH = {"Service": "cloudwatch.amazonaws.com"}


@pytest.fixture(scope="module", params=SHOWN)
def synthesis(request: pytest.FixtureRequest) -> Synthesis:
    return synthesis_of(request.param)


@pytest.fixture(scope="module")
def alarmed() -> Synthesis:
    return synthesis_of("full")


def test_alarms_match_the_list() -> None:
    """Update after an intended change: python -m tests.support.infra.observability."""
    assert listed() == LISTED.read_text()


def test_topic_key_is_usable_by_the_account_and_cloudwatch_only(alarmed: Synthesis) -> None:
    (key,) = every(alarmed, "AWS::KMS::Key")
    assert key["EnableKeyRotation"] is True
    assert key["KeyPolicy"]["Statement"] == [
        {
            "Action": "kms:*",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:<AWS::Partition>:iam::<AWS::AccountId>:root"},
            "Resource": "*",
        },
        {
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Effect": "Allow",
            "Principal": CLOUDWATCH,
            "Resource": "*",
        },
    ]
    (body,) = resources(alarmed, "AWS::KMS::Key")
    assert body.body["DeletionPolicy"] == body.body["UpdateReplacePolicy"] == "Delete"


def test_topic_accepts_alarms_of_its_stage_over_tls_only(
    alarmed: Synthesis,
) -> None:
    (name,), (key,) = ids(alarmed, "AWS::SNS::Topic"), ids(alarmed, "AWS::KMS::Key")
    (topic,) = every(alarmed, "AWS::SNS::Topic")
    assert topic == {
        "TopicName": "punctual-prod-alarms",
        "DisplayName": "Punctual (prod)",
        "KmsMasterKeyId": f"<{key}.Arn>",
    }
    (policy,) = every(alarmed, "AWS::SNS::TopicPolicy")
    assert policy["Topics"] == [f"<{name}>"]
    refused, allowed = policy["PolicyDocument"]["Statement"]
    assert refused == {
        "Action": "sns:Publish",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        "Effect": "Deny",
        "Principal": "*",
        "Resource": f"<{name}>",
        "Sid": "AllowPublishThroughSSLOnly",
    }
    alarm_arns = HERE.format("cloudwatch") + "alarm:punctual-prod-*"
    del allowed["Sid"]
    assert allowed == {
        "Action": "sns:Publish",
        "Condition": {
            "StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"},
            "ArnLike": {"aws:SourceArn": alarm_arns},
        },
        "Effect": "Allow",
        "Principal": CLOUDWATCH,
        "Resource": f"<{name}>",
    }


def test_email_subscription_belongs_to_the_topic(alarmed: Synthesis) -> None:
    (name,) = ids(alarmed, "AWS::SNS::Topic")
    assert every(alarmed, "AWS::SNS::Subscription") == [
        {"Endpoint": FULL["alarmEmail"], "Protocol": "email", "TopicArn": f"<{name}>"}
    ]


def test_parameters_are_plain_text_under_the_stage_prefix(synthesis: Synthesis) -> None:
    for parameter in every(synthesis, "AWS::SSM::Parameter"):
        assert parameter["Type"] == "String", "no template can make another"
        assert parameter["Name"].startswith(f"/punctual/{stage(synthesis)}/")


def test_layers_are_compatible_with_the_function_runtime(synthesis: Synthesis) -> None:
    run = {function["Runtime"] for function in every(synthesis, "AWS::Lambda::Function")}
    for layer in every(synthesis, "AWS::Lambda::LayerVersion"):
        assert set(layer["CompatibleRuntimes"]) == run == {"python3.13"}


def test_queues_are_deleted_with_their_stack_in_a_protected_stage(synthesis: Synthesis) -> None:
    """The job states send queued runs again. A split lane drops its former queue."""
    for queue in resources(synthesis, "AWS::SQS::Queue"):
        assert queue.body["DeletionPolicy"] == queue.body["UpdateReplacePolicy"] == "Delete", (
            queue.name
        )
