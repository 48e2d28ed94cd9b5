"""Failed stream changes are sent to the status function again, in the form of the stream."""

import io
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from infra.app import read_context
from infra.config.stage import read_stage
from infra.operations.redrive import main, redrive
from punctual.aws.dynamodb.stream_records import sequence_number_of

REGION = "eu-central-1"
STAGE = read_stage("dev", read_context()["stages"])
TABLE = "jobs"


class Status:
    """The status function with a fixed answer. It records its input."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"batchItemFailures": []}
        self.crashes = False

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        assert FunctionName == "punctual-dev-status"
        self.given += json.loads(Payload)["Records"]
        error = {"errorType": "Unreadable", "errorMessage": "no head"}
        answer = error if self.crashes else self.answer
        failed = {"FunctionError": "Unhandled"} if self.crashes else {}
        return {"Payload": io.BytesIO(json.dumps(answer).encode()), **failed}


class World:
    """A table with a stream and the queue of failed changes, in moto."""

    def __init__(self) -> None:
        self.status = Status()
        self.said: list[str] = []
        self._session = boto3.Session(
            aws_access_key_id="x", aws_secret_access_key="x", region_name=REGION
        )
        self._clients: dict[str, Any] = {"lambda": self.status}
        self.table = self.client("dynamodb").create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )["TableDescription"]
        self.stream = self.table["LatestStreamArn"]
        self.queue = self.client("sqs").create_queue(QueueName="punctual-dev-status-failed")

    def client(self, service: str) -> Any:
        if service not in self._clients:
            # The type stubs allow only literal names.
            self._clients[service] = self._session.client(service)  # type: ignore[call-overload]
        return self._clients[service]

    def write(self, *ids: str) -> list[str]:
        """Write rows, and return their positions in the stream."""
        before = len(self.records())
        for key in ids:
            item = {"pk": {"S": key}, "h": {"B": b"\x00\xff"}}
            self.client("dynamodb").put_item(TableName=TABLE, Item=item)
        return [record["dynamodb"]["SequenceNumber"] for record in self.records()[before:]]

    def records(self) -> list[dict[str, Any]]:
        streams = self.client("dynamodbstreams")
        iterator = streams.get_shard_iterator(
            StreamArn=self.stream, ShardId=self.shard, ShardIteratorType="TRIM_HORIZON"
        )
        records: list[dict[str, Any]] = streams.get_records(
            ShardIterator=iterator["ShardIterator"]
        )["Records"]
        return records

    @property
    def shard(self) -> str:
        described = self.client("dynamodbstreams").describe_stream(StreamArn=self.stream)
        return str(described["StreamDescription"]["Shards"][0]["ShardId"])

    def fail(self, first: str, last: str) -> None:
        info = {
            "streamArn": self.stream,
            "shardId": self.shard,
            "startSequenceNumber": first,
            "endSequenceNumber": last,
            "batchSize": 1,
        }
        self.client("sqs").send_message(
            QueueUrl=self.queue["QueueUrl"],
            MessageBody=json.dumps({"version": "1.0", "DDBStreamBatchInfo": info}),
        )

    def redrive(self) -> int:
        return redrive(STAGE, self, self.said.append)

    def left(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        response = self.client("sqs").get_queue_attributes(
            QueueUrl=self.queue["QueueUrl"], AttributeNames=names
        )
        return sum(int(response["Attributes"][name]) for name in names)


@pytest.fixture
def world() -> Iterator[World]:
    with mock_aws():
        yield World()


def keys(world: World) -> list[str]:
    return [record["dynamodb"]["Keys"]["pk"]["S"] for record in world.status.given]


def test_only_failed_changes_are_sent_again(world: World) -> None:
    places = world.write("a", "b", "c", "d")
    world.fail(places[1], places[2])
    assert world.redrive() == 0
    assert keys(world) == ["b", "c"]
    assert world.left() == 0
    assert world.said == [f"{world.shard}, {places[1]} to {places[2]}: 2 changes sent"]


def test_changes_are_sent_in_the_form_of_the_stream(world: World) -> None:
    (place,) = world.write("a")
    world.fail(place, place)
    world.redrive()
    (record,) = world.status.given
    assert record["eventSourceARN"] == world.stream
    assert record["eventName"] == "INSERT"
    assert sequence_number_of(record) == place
    assert record["dynamodb"]["NewImage"]["h"] == {"B": "AP8="}
    assert isinstance(record["dynamodb"]["ApproximateCreationDateTime"], float | int)


@pytest.mark.parametrize("crashes", [True, False])
def test_change_that_fails_again_stays_in_the_queue(world: World, crashes: bool) -> None:
    first, second = world.write("a", "b")
    world.fail(first, first)
    world.fail(second, second)
    world.status.crashes = crashes
    world.status.answer = {"batchItemFailures": [{"itemIdentifier": first}]}
    assert world.redrive() == 2
    assert world.left() == 2
    why = "failed: Unreadable: no head" if crashes else f"stopped at {first}"
    assert [f"punctual-dev-status {why}" in line for line in world.said] == [True, True]


def test_redrive_ends_although_messages_reappear(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that waits for its store takes half a minute, and a queue may hold hundreds."""
    monkeypatch.setattr("infra.operations.redrive.REDRIVE_VISIBILITY_SECONDS", 0)
    places = world.write("a", "b", "c")
    for place in places:
        world.fail(place, place)
    world.status.crashes = True
    assert world.redrive() == 3
    assert sorted(keys(world)) == ["a", "b", "c"]


def test_change_lost_from_the_stream_stays_and_is_reported(world: World) -> None:
    (place,) = world.write("a")
    world.fail(place, place)
    shard = world.shard
    with Stubber(world.client("dynamodbstreams")) as stub:
        stub.add_client_error("get_shard_iterator", "TrimmedDataAccessException")
        assert world.redrive() == 1
    assert world.left() == 1
    forgotten = "older than a day, so the stream no longer has it"
    assert world.said == [f"{shard}, {place} to {place}: {forgotten}"]


def test_empty_queue_needs_no_redrive(world: World) -> None:
    assert world.redrive() == 0
    assert world.said == []


def test_unknown_stage_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["qa"]) == 1
    assert "cdk.json has no stage 'qa'" in capsys.readouterr().err
    assert main([]) == 2
