"""Retention of logs, tables and outputs, and the rights to the access log."""

from typing import Any

import pytest

from infra.config.stage import FUNCTION_NAMES
from punctual.aws.dynamodb.keys import RUN_OBJECT_PREFIXES
from tests.support.infra.synthesised import Made, resources
from tests.support.infra.wired import SHOWN, every, ids, kept, named, shown, stage, values


@pytest.fixture(scope="module", params=SHOWN)
def made(request: pytest.FixtureRequest) -> Made:
    return shown(request.param)


def test_every_log_group_has_the_configured_retention(made: Made) -> None:
    groups = resources(made, "AWS::Logs::LogGroup")
    prefix = f"punctual-{stage(made)}-"
    assert {one.properties["LogGroupName"] for one in groups} == {
        f"/aws/vendedlogs/{prefix}api",
        *(f"/aws/lambda/{prefix}{name}" for name in FUNCTION_NAMES),
    }
    for one in groups:
        assert one.properties["RetentionInDays"] == values(made)["logRetentionDays"]
        assert (one.body["DeletionPolicy"], one.body["UpdateReplacePolicy"]) == kept(made)


def test_tables_are_encrypted_with_the_aws_owned_key(made: Made) -> None:
    """DynamoDB encrypts every table. With `SSEEnabled` false it uses the key of AWS."""
    for one in every(made, "AWS::DynamoDB::Table"):
        assert one["SSESpecification"] == {"SSEEnabled": False}


def test_outputs_expire_after_retention_and_deleted_objects_stay_restorable(
    made: Made,
) -> None:
    outputs, log = (bucket(made, name) for name in ("OutputsBucket", "OutputsAccessLog"))
    assert outputs["LifecycleConfiguration"]["Rules"] == [
        *(
            {
                "Id": f"{prefix.rstrip('/')}-expire",
                "Prefix": prefix,
                "ExpirationInDays": values(made)["retentionDays"],
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


def bucket(made: Made, prefix: str) -> dict[str, Any]:
    (name,) = [one for one in ids(made, "AWS::S3::Bucket") if one.startswith(prefix)]
    found = made.templates["Data"]["Resources"][name]["Properties"]
    return dict(named(made, found, "Data"))


def test_access_to_the_outputs_bucket_is_logged(made: Made) -> None:
    outputs, log = sorted(ids(made, "AWS::S3::Bucket"), key=lambda name: "AccessLog" in name)
    assert bucket(made, "OutputsBucket")["LoggingConfiguration"] == {
        "DestinationBucketName": f"<{log}>"
    }
    (writes,) = [
        statement
        for one in every(made, "AWS::S3::BucketPolicy")
        for statement in one["PolicyDocument"]["Statement"]
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
def test_bucket_is_encrypted_and_retained_in_a_protected_stage(made: Made, name: str) -> None:
    (encryption,) = bucket(made, name)["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    (found,) = [one for one in resources(made, "AWS::S3::Bucket") if one.name.startswith(name)]
    assert (found.body["DeletionPolicy"], found.body["UpdateReplacePolicy"]) == kept(made)


def test_every_bucket_has_a_policy(made: Made) -> None:
    policies = every(made, "AWS::S3::BucketPolicy")
    assert {one["Bucket"] for one in policies} == {
        f"<{one}>" for one in ids(made, "AWS::S3::Bucket")
    }
    for one in policies:
        for statement in one["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Deny":
                mine = one["Bucket"].replace(">", ".Arn>")
                assert statement["Resource"] == [mine, f"{mine}/*"]
