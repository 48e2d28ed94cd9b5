"""`python -m infra.operations.redrive STAGE`: send failed changes to `status` again.

A message in the failure queue names positions in the stream, not the changes. The stream keeps
them for a day. `status` may process a change twice without harm.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.app import context
from infra.config.stage import Stage, WrongStage, described

MESSAGES_PER_RECEIVE = 10
HIDDEN_SECONDS = 900  # until a message becomes visible again
CHANGES_PER_CALL = 200  # the batch size of the stream

Say = Callable[[str], None]


class Piece(NamedTuple):
    """A part of one shard of the stream: from one change to another."""

    stream: str
    shard: str
    first: str
    last: str

    def __str__(self) -> str:
        return f"{self.shard}, {self.first} to {self.last}"


class Failed(RuntimeError):
    """Raised if the function did not process the changes."""


def redrive(stage: Stage, session: Any, say: Say) -> int:
    """Send the changes of all messages again; return the number of messages that stay."""
    sqs, streams = session.client("sqs"), session.client("dynamodbstreams")
    queue = sqs.get_queue_url(QueueName=stage.physical("status-failed"))["QueueUrl"]
    hand_on = _hand_on(session.client("lambda"), stage.physical("status"))
    stay = 0
    for message in _messages(sqs, queue):
        piece = piece_of(message["Body"])
        try:
            number = sum(hand_on(page) for page in changes(streams, piece))
        except streams.exceptions.TrimmedDataAccessException:
            say(f"{piece}: older than a day, the stream does not hold it any more")
            stay += 1
        except Failed as error:
            say(f"{piece}: {error}")
            stay += 1
        else:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            say(f"{piece}: {number} changes followed")
    return stay


def piece_of(body: str) -> Piece:
    """Return the part of the stream that a failure message names.

    >>> piece_of('{"DDBStreamBatchInfo": {"streamArn": "arn", "shardId": "s",'
    ...          '"startSequenceNumber": "1", "endSequenceNumber": "2"}}')
    Piece(stream='arn', shard='s', first='1', last='2')
    """
    told = json.loads(body)["DDBStreamBatchInfo"]
    return Piece(
        told["streamArn"], told["shardId"], told["startSequenceNumber"], told["endSequenceNumber"]
    )


def changes(streams: Any, piece: Piece) -> Iterator[list[dict[str, Any]]]:
    """Yield the changes of a piece, as Lambda would pass them to the function."""
    iterator = streams.get_shard_iterator(
        StreamArn=piece.stream,
        ShardId=piece.shard,
        ShardIteratorType="AT_SEQUENCE_NUMBER",
        SequenceNumber=piece.first,
    )["ShardIterator"]
    while iterator is not None:
        page = streams.get_records(ShardIterator=iterator, Limit=CHANGES_PER_CALL)
        found = [as_event(one, piece.stream) for one in page["Records"]]
        mine = [one for one in found if _place(one) <= int(piece.last)]
        if mine:
            yield mine
        done = len(mine) < len(found) or (mine and _place(mine[-1]) == int(piece.last))
        iterator = None if done else page.get("NextShardIterator")


def as_event(record: Mapping[str, Any], stream: str) -> dict[str, Any]:
    """Convert a value to the JSON of stream records, where times are numbers and bytes text."""
    event: dict[str, Any] = json.loads(json.dumps(record, default=_plain))
    return {**event, "eventSourceARN": stream}


def _place(event: Mapping[str, Any]) -> int:
    return int(event["dynamodb"]["SequenceNumber"])


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"a stream holds no {type(value).__name__}")


def _messages(sqs: Any, queue: str) -> Iterator[dict[str, Any]]:
    """Yield each message once, also if SQS delivers it again after `HIDDEN_SECONDS`."""
    seen: set[str] = set()
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue,
            MaxNumberOfMessages=MESSAGES_PER_RECEIVE,
            VisibilityTimeout=HIDDEN_SECONDS,
        )
        new = [one for one in answer.get("Messages", []) if one["MessageId"] not in seen]
        if not new:
            return
        seen.update(one["MessageId"] for one in new)
        yield from new


def _hand_on(client: Any, function: str) -> Callable[[Sequence[Mapping[str, Any]]], int]:
    def hand_on(records: Sequence[Mapping[str, Any]]) -> int:
        answer = client.invoke(
            FunctionName=function, Payload=json.dumps({"Records": list(records)}).encode()
        )
        said = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise Failed(f"{function} fails: {said.get('errorType')}: {said.get('errorMessage')}")
        if said["batchItemFailures"]:
            raise Failed(f"{function} stops at {said['batchItemFailures'][0]['itemIdentifier']}")
        return len(records)

    return hand_on


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("python -m infra.operations.redrive STAGE", file=sys.stderr)
        return 2
    try:
        stage = described(arguments[0], context()["stages"])
        stay = redrive(stage, boto3.Session(), print)
    except WrongStage as error:
        print(f"redrive: {error}", file=sys.stderr)
        return 1
    except (BotoCoreError, ClientError) as error:
        print(f"redrive: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    print(f"{stay} stay in {stage.physical('status-failed')}")
    return 1 if stay else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
