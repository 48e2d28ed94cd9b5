"""What a call needs and what a policy grants, by IAM's rules."""

from typing import Any

import pytest

from bench.meter import Call
from tests.support.deployed.granted import Grant, grants, unused
from tests.support.deployed.privilege import Right, allowed, arn, denied, needed

TABLE = arn("dynamodb", "table/jobs")


def call(service: str, operation: str, error: str = "", **params: Any) -> Call:
    return Call("f", service, operation, params, {}, error=error)


def actions(*calls: Call) -> set[tuple[str, str]]:
    return {(right.action, right.resource) for one in calls for right in needed(one)}


def statement(effect: str, action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource, **more}


def test_batches_of_rows_have_rights_of_their_own_and_batches_of_messages_none() -> None:
    assert actions(call("dynamodb", "BatchWriteItem", RequestItems={"jobs": []})) == {
        ("dynamodb:BatchWriteItem", TABLE)
    }
    sent = call("sqs", "SendMessageBatch", QueueUrl="https://sqs.invalid/1/wake")
    assert actions(sent) == {("sqs:SendMessage", arn("sqs", "wake"))}


def test_a_transaction_needs_the_right_to_each_thing_it_does() -> None:
    items = [{"Put": {"TableName": "jobs"}}, {"ConditionCheck": {"TableName": "jobs"}}]
    assert actions(call("dynamodb", "TransactWriteItems", TransactItems=items)) == {
        ("dynamodb:PutItem", TABLE),
        ("dynamodb:ConditionCheckItem", TABLE),
    }


def test_to_be_told_that_an_object_is_missing_takes_the_right_to_list() -> None:
    there = call("s3", "GetObject", Bucket="b", Key="outputs/a")
    gone = call("s3", "GetObject", "NoSuchKey", Bucket="b", Key="outputs/a")
    assert actions(there) == {("s3:GetObject", "arn:aws:s3:::b/outputs/a")}
    assert actions(gone) == {*actions(there), ("s3:ListBucket", "arn:aws:s3:::b")}


def test_each_object_that_goes_takes_its_own_right() -> None:
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
def test_a_denial_wins_and_nothing_is_granted_unasked(
    statements: list[dict[str, Any]], answer: bool
) -> None:
    right = Right("f", "dynamodb:PutItem", TABLE)
    assert allowed(right, statements, {"aws:SecureTransport": "true"}) is answer


def test_rows_of_a_table_are_granted_by_what_their_keys_begin_with() -> None:
    wanted = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#token#*"]}}
    policy = [statement("Allow", "dynamodb:GetItem", TABLE, Condition=wanted)]
    for row, answer in (("#token#ab", True), ("#watermark", False), ("acme#tokens", False)):
        read = call("dynamodb", "GetItem", TableName="jobs", Key={"pk": {"S": row}})
        (right,) = needed(read)
        assert allowed(right, policy, {}) is answer


def test_a_condition_nobody_has_thought_of_is_not_taken_for_granted() -> None:
    wanted = [statement("Allow", "*", Condition={"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}})]
    with pytest.raises(NotImplementedError, match="IpAddress"):
        allowed(Right("f", "a:b", "*"), wanted, {})


def test_what_no_call_needed_is_found() -> None:
    granted = grants("f", [statement("Allow", ["dynamodb:PutItem", "dynamodb:Scan"], TABLE)])
    used = [Right("f", "dynamodb:PutItem", TABLE), Right("g", "dynamodb:Scan", TABLE)]
    assert unused(granted, used) == [Grant("f", "dynamodb:Scan", TABLE)]


def test_who_has_no_policy_is_no_function() -> None:
    calls = [call("dynamodb", "PutItem", TableName="jobs", Item={"pk": {"S": "a"}})]
    assert denied(calls, {"g": []}, {}) == []
    assert denied(calls, {"f": []}, {}) == [Right("f", "dynamodb:PutItem", TABLE, "a")]
