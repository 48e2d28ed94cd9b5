"""The dead-letter queues of the lanes, with messages that were received too often."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from punctual.aws.retries import Client, answer

MOST = 10


class Letter(NamedTuple):
    """A dead letter. `receipt` is the handle that deletes this delivery."""

    id: str
    receipt: str
    body: str


class DeadLetters:
    def __init__(self, client: Client, urls: Sequence[str]) -> None:
        self._client = client
        self.urls = urls

    def receive(self, url: str) -> list[Letter]:
        """Receive up to ten messages. The visibility timeout of the queue applies."""
        response = answer(
            "receiving dead letters",
            lambda: self._client().receive_message(QueueUrl=url, MaxNumberOfMessages=MOST),
        )
        return [
            Letter(one["MessageId"], one["ReceiptHandle"], one["Body"])
            for one in response.get("Messages", [])
        ]

    def delete(self, url: str, letters: Sequence[Letter]) -> None:
        """Delete messages. A message that is not deleted returns, but its run has ended by then."""
        entries: list[Any] = [
            {"Id": str(number), "ReceiptHandle": letter.receipt}
            for number, letter in enumerate(letters)
        ]
        answer(
            "deleting dead letters",
            lambda: self._client().delete_message_batch(QueueUrl=url, Entries=entries),
        )
