"""Sends messages in batches of ten. Messages that SQS did not accept are sent once more."""

from collections.abc import Mapping, Sequence
from typing import Any

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import Client, RetryPolicy, answer
from punctual.domain.errors import Unavailable

MOST = 10
TRIES = 2


class Queue:
    def __init__(self, client: Client, patience: RetryPolicy) -> None:
        self._client = client
        self._patience = patience

    def send(self, url: str, entries: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Send messages. Return for each whether SQS accepted it.

        Raise `Unavailable` if a call failed and SQS accepted no message.
        """
        taken: list[bool] = []
        failure: Unavailable | None = None
        for chunk in chunked(entries, MOST):
            try:
                taken += self._send_chunk(url, chunk)
            except Unavailable as error:
                failure = error
                taken += [False] * len(chunk)
        if failure is not None and not any(taken):
            raise failure
        return taken

    def _send_chunk(self, url: str, chunk: Sequence[Mapping[str, Any]]) -> list[bool]:
        left = {str(number): entry for number, entry in enumerate(chunk)}
        refused: set[str] = set()
        for attempt in range(TRIES):
            again = self._once(url, left, refused)
            left = {number: entry for number, entry in left.items() if number in again}
            if not left or attempt + 1 == TRIES:
                break
            self._patience.wait(attempt, url)
        return [str(n) not in left and str(n) not in refused for n in range(len(chunk))]

    def _once(
        self, url: str, entries: Mapping[str, Mapping[str, Any]], refused: set[str]
    ) -> set[str]:
        """Send one batch. Return the ids to send again.

        Entries rejected as the sender's fault are added to `refused` and not sent again.
        """
        batch: list[Any] = [{"Id": number, **entry} for number, entry in entries.items()]
        response = answer(
            "sending messages",
            lambda: self._client().send_message_batch(QueueUrl=url, Entries=batch),
        )
        failed = response.get("Failed", [])
        refused |= {entry["Id"] for entry in failed if entry["SenderFault"]}
        return {entry["Id"] for entry in failed if not entry["SenderFault"]}
