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

from infra.app import read_context
from infra.config.stage import Stage, WrongStage, read_stage
from infra.operations.output import Say, one_line

MAX_MESSAGES_PER_RECEIVE = 10
REDRIVE_VISIBILITY_SECONDS = 900  # until a message becomes visible again
MAX_CHANGES_PER_CALL = 200  # the batch size of the stream


class StreamRange(NamedTuple):
    """A part of one shard of the stream: from one change to another."""

    stream: str
    shard: str
    first_sequence: str
    last_sequence: str

    def __str__(self) -> str:
        return f"{self.shard}, {self.first_sequence} to {self.last_sequence}"


class RedriveFailed(RuntimeError):
    """Raised if the function did not process the changes."""


def redrive(stage: Stage, session: Any, say: Say) -> int:
    """Send the changes of all messages again; return the number of remaining messages."""
    sqs, streams = session.client("sqs"), session.client("dynamodbstreams")
    queue = sqs.get_queue_url(QueueName=stage.resource_name("status-failed"))["QueueUrl"]
    send_changes = _invoker(session.client("lambda"), stage.resource_name("status"))
    remaining = 0
    for message in _receive_messages(sqs, queue):
        stream_range = parse_range(message["Body"])
        try:
            change_count = sum(send_changes(page) for page in read_changes(streams, stream_range))
        except streams.exceptions.TrimmedDataAccessException:
            say(f"{stream_range}: older than a day, so the stream no longer has it")
            remaining += 1
        except RedriveFailed as error:
            say(f"{stream_range}: {error}")
            remaining += 1
        else:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            say(f"{stream_range}: {change_count} changes sent")
    return remaining


def parse_range(body: str) -> StreamRange:
    """Return the part of the stream that a failure message names.

    >>> parse_range('{"DDBStreamBatchInfo": {"streamArn": "arn", "shardId": "s",'
    ...          '"startSequenceNumber": "1", "endSequenceNumber": "2"}}')
    StreamRange(stream='arn', shard='s', first_sequence='1', last_sequence='2')
    """
    batch_info = json.loads(body)["DDBStreamBatchInfo"]
    return StreamRange(
        batch_info["streamArn"],
        batch_info["shardId"],
        batch_info["startSequenceNumber"],
        batch_info["endSequenceNumber"],
    )


def read_changes(streams: Any, stream_range: StreamRange) -> Iterator[list[dict[str, Any]]]:
    """Yield the changes of a range, as Lambda would pass them to the function."""
    iterator = streams.get_shard_iterator(
        StreamArn=stream_range.stream,
        ShardId=stream_range.shard,
        ShardIteratorType="AT_SEQUENCE_NUMBER",
        SequenceNumber=stream_range.first_sequence,
    )["ShardIterator"]
    while iterator is not None:
        page = streams.get_records(ShardIterator=iterator, Limit=MAX_CHANGES_PER_CALL)
        events = [as_event(record, stream_range.stream) for record in page["Records"]]
        events_in_range = [
            event for event in events if _sequence_number(event) <= int(stream_range.last_sequence)
        ]
        if events_in_range:
            yield events_in_range
        is_last = len(events_in_range) < len(events) or (
            events_in_range
            and _sequence_number(events_in_range[-1]) == int(stream_range.last_sequence)
        )
        iterator = None if is_last else page.get("NextShardIterator")


def as_event(record: Mapping[str, Any], stream: str) -> dict[str, Any]:
    """Convert a value to the JSON of stream records, where times are numbers and bytes text."""
    event: dict[str, Any] = json.loads(json.dumps(record, default=_json_value))
    return {**event, "eventSourceARN": stream}


def _sequence_number(event: Mapping[str, Any]) -> int:
    return int(event["dynamodb"]["SequenceNumber"])


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"a stream cannot have a {type(value).__name__}")


def _receive_messages(sqs: Any, queue: str) -> Iterator[dict[str, Any]]:
    """Yield each message once, also if SQS delivers it again after `REDRIVE_VISIBILITY_SECONDS`."""
    seen_ids: set[str] = set()
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue,
            MaxNumberOfMessages=MAX_MESSAGES_PER_RECEIVE,
            VisibilityTimeout=REDRIVE_VISIBILITY_SECONDS,
        )
        new_messages = [
            message
            for message in answer.get("Messages", [])
            if message["MessageId"] not in seen_ids
        ]
        if not new_messages:
            return
        seen_ids.update(message["MessageId"] for message in new_messages)
        yield from new_messages


def _invoker(client: Any, function: str) -> Callable[[Sequence[Mapping[str, Any]]], int]:
    def send_changes(records: Sequence[Mapping[str, Any]]) -> int:
        answer = client.invoke(
            FunctionName=function, Payload=json.dumps({"Records": list(records)}).encode()
        )
        result = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise RedriveFailed(
                f"{function} failed: {result.get('errorType')}: {result.get('errorMessage')}"
            )
        if result["batchItemFailures"]:
            raise RedriveFailed(
                f"{function} stopped at {result['batchItemFailures'][0]['itemIdentifier']}"
            )
        return len(records)

    return send_changes


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m infra.operations.redrive STAGE", file=sys.stderr)
        return 2
    try:
        stage = read_stage(arguments[0], read_context()["stages"])
        remaining = redrive(stage, boto3.Session(), print)
    except WrongStage as error:
        print(f"redrive: {error}", file=sys.stderr)
        return 1
    except (BotoCoreError, ClientError) as error:
        print(f"redrive: {one_line(error)}", file=sys.stderr)
        return 1
    print(f"{remaining} messages remain in {stage.resource_name('status-failed')}")
    return 1 if remaining else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
