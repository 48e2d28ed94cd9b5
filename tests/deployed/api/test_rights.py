"""The rights that a call needs, and the rights that a policy grants, by IAM's rules."""

from typing import Any

import pytest

from bench.cost.meter import Call
from tests.support.deployed.grants import Grant, grants, unused
from tests.support.deployed.privilege import Right, allowed, arn, denied, needed

TABLE = arn("dynamodb", "table/jobs")


def call(service: str, operation: str, error: str = "", **params: Any) -> Call:
    return Call("f", service, operation, params, {}, error=error)


def actions(*calls: Call) -> set[tuple[str, str]]:
    return {(right.action, right.resource) for call in calls for right in needed(call)}


def statement(effect: str, action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource, **more}


def test_dynamodb_batches_have_own_actions_and_sqs_batches_do_not() -> None:
    assert actions(call("dynamodb", "BatchWriteItem", RequestItems={"jobs": []})) == {
        ("dynamodb:BatchWriteItem", TABLE)
    }
    sent = call("sqs", "SendMessageBatch", QueueUrl="https://sqs.invalid/1/wake")
    assert actions(sent) == {("sqs:SendMessage", arn("sqs", "wake"))}


def test_transaction_needs_action_of_each_item() -> None:
    items = [{"Put": {"TableName": "jobs"}}, {"ConditionCheck": {"TableName": "jobs"}}]
    assert actions(call("dynamodb", "TransactWriteItems", TransactItems=items)) == {
        ("dynamodb:PutItem", TABLE),
        ("dynamodb:ConditionCheckItem", TABLE),
    }


def test_not_found_answer_of_s3_needs_list_bucket() -> None:
    successful = call("s3", "GetObject", Bucket="b", Key="outputs/a")
    failed = call("s3", "GetObject", "NoSuchKey", Bucket="b", Key="outputs/a")
    assert actions(successful) == {("s3:GetObject", "arn:aws:s3:::b/outputs/a")}
    assert actions(failed) == {*actions(successful), ("s3:ListBucket", "arn:aws:s3:::b")}


def test_each_deleted_object_needs_its_own_right() -> None:
    objects = {"Objects": [{"Key": "a"}, {"Key": "b"}]}
    assert actions(call("s3", "DeleteObjects", Bucket="b", Delete=objects)) == {
        ("s3:DeleteObject", "arn:aws:s3:::b/a"),
        ("s3:DeleteObject", "arn:aws:s3:::b/b"),
    }


@pytest.mark.parametrize(
    ("statements", "answer"),
    [
        ([], False),
        ([statement("Allow", "dynamodb:PutItem", TABLE)], True),
        ([statement("Allow", ["DynamoDB:Put*"], [TABLE])], True),
        ([statement("Allow", "dynamodb:PutItem", f"{TABLE}/index/*")], False),
        ([statement("Allow", "dynamodb:PutItem", arn("dynamodb", "table/job?"))], True),
        ([statement("Allow", "*"), statement("Deny", "dynamodb:*")], False),
        (
            [statement("Allow", "dynamodb:*", Condition={"Bool": {"aws:SecureTransport": "true"}})],
            True,
        ),
        (
            [
                statement(
                    "Allow", "dynamodb:*", Condition={"StringEquals": {"aws:PrincipalTag/a": "b"}}
                )
            ],
            False,
        ),
    ],
)
def test_deny_overrides_allow_and_default_is_deny(
    statements: list[dict[str, Any]], answer: bool
) -> None:
    right = Right("f", "dynamodb:PutItem", TABLE)
    assert allowed(right, statements, {"aws:SecureTransport": "true"}) is answer


def test_leading_keys_condition_limits_rows() -> None:
    wanted = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#token#*"]}}
    policy = [statement("Allow", "dynamodb:GetItem", TABLE, Condition=wanted)]
    for row, answer in (("#token#ab", True), ("#watermark", False), ("acme#tokens", False)):
        read = call("dynamodb", "GetItem", TableName="jobs", Key={"pk": {"S": row}})
        (right,) = needed(read)
        assert allowed(right, policy, {}) is answer


def test_unknown_condition_raises_error() -> None:
    wanted = [statement("Allow", "*", Condition={"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}})]
    with pytest.raises(NotImplementedError, match="IpAddress"):
        allowed(Right("f", "a:b", "*"), wanted, {})


def test_unused_grant_is_found() -> None:
    granted = grants("f", [statement("Allow", ["dynamodb:PutItem", "dynamodb:Scan"], TABLE)])
    used = [Right("f", "dynamodb:PutItem", TABLE), Right("g", "dynamodb:Scan", TABLE)]
    assert unused(granted, used) == [Grant("f", "dynamodb:Scan", TABLE)]


def test_role_without_policies_is_ignored() -> None:
    calls = [call("dynamodb", "PutItem", TableName="jobs", Item={"pk": {"S": "a"}})]
    assert denied(calls, {"g": []}, {}) == []
    assert denied(calls, {"f": []}, {}) == [Right("f", "dynamodb:PutItem", TABLE, "a")]
