"""The data stack: tables, buckets and the event bus."""

from typing import Any

import pytest
from aws_cdk.assertions import Template

from punctual.aws.dynamodb.keys import PK, RUN_OBJECT_PREFIXES, SK, TTL
from tests.support.infra import synthesis

TABLES = {
    "Jobs": True,
    "Timers": False,
    "Runs": True,
    "Control": True,
    "Audit": True,
    "Lists": True,
}


@pytest.fixture(scope="module")
def template(stage: str) -> Template:
    return synthesis.template(synthesis.assembly(stage), "Data")


def table(template: Template, name: str) -> dict[str, Any]:
    tables = template.find_resources("AWS::DynamoDB::Table")
    (resource,) = [body for key, body in tables.items() if key.startswith(f"{name}Table")]
    return dict(resource)


def test_data_stack_has_six_tables_and_two_buckets(template: Template) -> None:
    assert len(template.find_resources("AWS::DynamoDB::Table")) == len(TABLES)
    assert len(template.find_resources("AWS::S3::Bucket")) == 2


@pytest.mark.parametrize("name", TABLES)
def test_table_has_string_keys_on_demand_billing_and_recovery(
    template: Template, name: str
) -> None:
    properties = table(template, name)["Properties"]
    assert properties["KeySchema"] == [
        {"AttributeName": PK, "KeyType": "HASH"},
        {"AttributeName": SK, "KeyType": "RANGE"},
    ]
    kinds = {a["AttributeName"]: a["AttributeType"] for a in properties["AttributeDefinitions"]}
    assert kinds == {PK: "S", SK: "S"}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_no_indexes(template: Template, name: str) -> None:
    """An index would be paid for with each write of a row."""
    assert "GlobalSecondaryIndexes" not in table(template, name)["Properties"]


@pytest.mark.parametrize(("name", "expires"), TABLES.items())
def test_all_tables_except_timers_expire_rows(template: Template, name: str, expires: bool) -> None:
    expiry = table(template, name)["Properties"].get("TimeToLiveSpecification")
    assert expiry == ({"AttributeName": TTL, "Enabled": True} if expires else None)


@pytest.mark.parametrize("name", TABLES)
def test_only_the_jobs_table_has_a_stream(template: Template, name: str) -> None:
    stream = table(template, name)["Properties"].get("StreamSpecification")
    assert stream == ({"StreamViewType": "NEW_AND_OLD_IMAGES"} if name == "Jobs" else None)


@pytest.mark.parametrize("name", TABLES)
def test_only_a_protected_stage_retains_its_tables(
    template: Template, stage: str, name: str
) -> None:
    resource = table(template, name)
    assert resource["Properties"]["DeletionProtectionEnabled"] is (stage == "prod")
    policies = ("RetainExceptOnCreate", "Retain") if stage == "prod" else ("Delete", "Delete")
    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == policies


def test_buckets_are_private_and_encrypted(template: Template) -> None:
    buckets = template.find_resources("AWS::S3::Bucket").values()
    assert len(buckets) == 2
    for bucket in buckets:
        properties = bucket["Properties"]
        assert properties["PublicAccessBlockConfiguration"] == {
            "BlockPublicAcls": True,
            "BlockPublicPolicy": True,
            "IgnorePublicAcls": True,
            "RestrictPublicBuckets": True,
        }
        assert properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert properties["OwnershipControls"] == {
            "Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]
        }


@pytest.mark.parametrize(
    "condition",
    [{"Bool": {"aws:SecureTransport": "false"}}, {"NumericLessThan": {"s3:TlsVersion": 1.2}}],
)
def test_buckets_refuse_requests_without_tls(template: Template, condition: dict[str, Any]) -> None:
    refusal = {
        "Effect": "Deny",
        "Action": "s3:*",
        "Principal": {"AWS": "*"},
        "Condition": condition,
    }
    policies = template.find_resources("AWS::S3::BucketPolicy").values()
    assert len(policies) == 2
    for policy in policies:
        statements = policy["Properties"]["PolicyDocument"]["Statement"]
        assert [s for s in statements if refusal.items() <= s.items()]


def test_outputs_expire_after_retention_and_payloads_do_not(template: Template, stage: str) -> None:
    (bucket,) = template.find_resources(
        "AWS::S3::Bucket", {"Properties": {"VersioningConfiguration": {"Status": "Enabled"}}}
    ).values()
    rules = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
    assert {
        rule.get("Prefix"): rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule
    } == dict.fromkeys(RUN_OBJECT_PREFIXES, synthesis.stage_settings(stage)["retentionDays"])
    assert "LoggingConfiguration" in bucket["Properties"]


def test_stage_has_its_own_event_bus(template: Template, stage: str) -> None:
    (bus,) = template.find_resources("AWS::Events::EventBus").values()
    assert bus["Properties"]["Name"] == f"punctual-{stage}"
