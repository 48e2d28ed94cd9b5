"""Retention of logs, tables and outputs, and the rights to the access log."""

from typing import Any

import pytest

from infra.config.stage import FUNCTION_NAMES
from punctual.aws.dynamodb.keys import RUN_OBJECT_PREFIXES
from tests.support.infra.references import (
    SHOWN,
    data_policies,
    every,
    ids,
    named,
    stage,
    synthesis_of,
    values,
)
from tests.support.infra.synthesis import Synthesis, resources


@pytest.fixture(scope="module", params=SHOWN)
def synthesis(request: pytest.FixtureRequest) -> Synthesis:
    return synthesis_of(request.param)


def test_every_log_group_has_the_configured_retention(synthesis: Synthesis) -> None:
    groups = resources(synthesis, "AWS::Logs::LogGroup")
    prefix = f"punctual-{stage(synthesis)}-"
    assert {log_group.properties["LogGroupName"] for log_group in groups} == {
        f"/aws/vendedlogs/{prefix}api",
        *(f"/aws/lambda/{prefix}{name}" for name in FUNCTION_NAMES),
    }
    for log_group in groups:
        assert log_group.properties["RetentionInDays"] == values(synthesis)["logRetentionDays"]
        assert (
            log_group.body["DeletionPolicy"],
            log_group.body["UpdateReplacePolicy"],
        ) == data_policies(synthesis)


def test_tables_are_encrypted_with_the_aws_owned_key(synthesis: Synthesis) -> None:
    """DynamoDB encrypts every table. With `SSEEnabled` false it uses the key of AWS."""
    for table in every(synthesis, "AWS::DynamoDB::Table"):
        assert table["SSESpecification"] == {"SSEEnabled": False}


def test_outputs_expire_after_retention_and_deleted_objects_stay_restorable(
    synthesis: Synthesis,
) -> None:
    outputs, log = (bucket(synthesis, name) for name in ("OutputsBucket", "OutputsAccessLog"))
    assert outputs["LifecycleConfiguration"]["Rules"] == [
        *(
            {
                "Id": f"{prefix.rstrip('/')}-expire",
                "Prefix": prefix,
                "ExpirationInDays": values(synthesis)["retentionDays"],
                "Status": "Enabled",
            }
            for prefix in RUN_OBJECT_PREFIXES
        ),
        {
            "Id": "deleted-stays-restorable",
            "NoncurrentVersionExpiration": {"NoncurrentDays": 35},  # the recovery window
            "ExpiredObjectDeleteMarker": True,
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
            "Status": "Enabled",
        },
    ]
    assert log["LifecycleConfiguration"]["Rules"] == [
        {
            "Id": "access-log-expires",
            "ExpirationInDays": 90,
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
            "Status": "Enabled",
        }
    ]
    assert (outputs["VersioningConfiguration"], log.get("VersioningConfiguration")) == (
        {"Status": "Enabled"},
        None,
    )


def bucket(synthesis: Synthesis, prefix: str) -> dict[str, Any]:
    (name,) = [
        bucket_id for bucket_id in ids(synthesis, "AWS::S3::Bucket") if bucket_id.startswith(prefix)
    ]
    properties = synthesis.templates["Data"]["Resources"][name]["Properties"]
    return dict(named(synthesis, properties, "Data"))


def test_access_to_the_outputs_bucket_is_logged(synthesis: Synthesis) -> None:
    outputs, log = sorted(ids(synthesis, "AWS::S3::Bucket"), key=lambda name: "AccessLog" in name)
    assert bucket(synthesis, "OutputsBucket")["LoggingConfiguration"] == {
        "DestinationBucketName": f"<{log}>"
    }
    (writes,) = [
        statement
        for policy in every(synthesis, "AWS::S3::BucketPolicy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]
    assert writes == {
        "Action": "s3:PutObject",
        "Effect": "Allow",
        "Principal": {"Service": "logging.s3.amazonaws.com"},
        "Resource": f"<{log}.Arn>/*",
        "Condition": {
            "ArnLike": {"aws:SourceArn": f"<{outputs}.Arn>"},
            "StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"},
        },
    }


@pytest.mark.parametrize("name", ["OutputsBucket", "OutputsAccessLog"])
def test_bucket_is_encrypted_and_retained_in_a_protected_stage(
    synthesis: Synthesis, name: str
) -> None:
    (encryption,) = bucket(synthesis, name)["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    (resource,) = [
        candidate
        for candidate in resources(synthesis, "AWS::S3::Bucket")
        if candidate.name.startswith(name)
    ]
    assert (resource.body["DeletionPolicy"], resource.body["UpdateReplacePolicy"]) == data_policies(
        synthesis
    )


def test_every_bucket_has_a_policy(synthesis: Synthesis) -> None:
    policies = every(synthesis, "AWS::S3::BucketPolicy")
    assert {policy["Bucket"] for policy in policies} == {
        f"<{name}>" for name in ids(synthesis, "AWS::S3::Bucket")
    }
    for policy in policies:
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Deny":
                arn = policy["Bucket"].replace(">", ".Arn>")
                assert statement["Resource"] == [arn, f"{arn}/*"]
