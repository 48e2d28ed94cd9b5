"""What came back too often: the dead-letter queues of the lanes, read when their time comes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from punctual.aws.retries import Client, answer

MOST = 10


class Letter(NamedTuple):
    """A message as it stands in the queue; `receipt` is how this delivery of it is deleted."""

    id: str
    receipt: str
    body: str


class DeadLetters:
    def __init__(self, client: Client, urls: Sequence[str]) -> None:
        self._client = client
        self.urls = urls

    def receive(self, url: str) -> list[Letter]:
        """Ten at the most, at once, hidden for as long as the queue says."""
        response = answer(
            "receiving dead letters",
            lambda: self._client().receive_message(QueueUrl=url, MaxNumberOfMessages=MOST),
        )
        return [
            Letter(one["MessageId"], one["ReceiptHandle"], one["Body"])
            for one in response.get("Messages", [])
        ]

    def delete(self, url: str, letters: Sequence[Letter]) -> None:
        """One that the queue does not delete comes again, and then its run has ended."""
        entries: list[Any] = [
            {"Id": str(number), "ReceiptHandle": letter.receipt}
            for number, letter in enumerate(letters)
        ]
        answer(
            "deleting dead letters",
            lambda: self._client().delete_message_batch(QueueUrl=url, Entries=entries),
        )
