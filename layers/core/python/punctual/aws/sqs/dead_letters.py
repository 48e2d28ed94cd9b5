"""The dead-letter queues of the lanes, with messages that were received too often."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from punctual.aws.retries import Client, call_aws
from punctual.aws.sqs.sender import MAX_SQS_BATCH


class DeadLetterMessage(NamedTuple):
    """A dead letter. `receipt_handle` is the handle that deletes this delivery."""

    id: str
    receipt_handle: str
    body: str


class DeadLetterQueues:
    def __init__(self, client: Client, urls: Sequence[str]) -> None:
        self._client = client
        self.urls = urls

    def receive(self, url: str) -> list[DeadLetterMessage]:
        """Receive up to ten messages. The visibility timeout of the queue applies."""
        response = call_aws(
            "receiving dead letters",
            lambda: self._client().receive_message(QueueUrl=url, MaxNumberOfMessages=MAX_SQS_BATCH),
        )
        return [
            DeadLetterMessage(message["MessageId"], message["ReceiptHandle"], message["Body"])
            for message in response.get("Messages", [])
        ]

    def delete(self, url: str, letters: Sequence[DeadLetterMessage]) -> None:
        """Delete messages. A message that is not deleted returns, but its run has ended by then."""
        entries: list[Any] = [
            {"Id": str(number), "ReceiptHandle": letter.receipt_handle}
            for number, letter in enumerate(letters)
        ]
        call_aws(
            "deleting dead letters",
            lambda: self._client().delete_message_batch(QueueUrl=url, Entries=entries),
        )
