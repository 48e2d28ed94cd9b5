"""Sends messages in batches of ten. Messages that SQS did not accept are sent once more."""

from collections.abc import Mapping, Sequence
from typing import Any

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import Client, RetryPolicy, call_aws
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import Lane, Priority

MAX_SQS_BATCH = 10
MAX_SQS_SEND_TRIES = 2
MAX_SQS_DELAY_SECONDS = 900  # the longest delay of SQS


def queue_url(urls: Mapping[str, str], lane: Lane, priority: Priority) -> str:
    """Return the queue of a priority. A lane without queues by priority has a single one."""
    return urls.get(f"{lane.value}-{priority.name.lower()}") or urls[lane.value]


class SqsBatchSender:
    def __init__(self, client: Client, retry_policy: RetryPolicy) -> None:
        self._client = client
        self._retry_policy = retry_policy

    def send(self, url: str, entries: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Send messages. Return for each whether SQS accepted it.

        Raise `Unavailable` if a call failed and SQS accepted no message.
        """
        accepted: list[bool] = []
        failure: Unavailable | None = None
        for chunk in chunked(entries, MAX_SQS_BATCH):
            try:
                accepted += self._send_chunk(url, chunk)
            except Unavailable as error:
                failure = error
                accepted += [False] * len(chunk)
        if failure is not None and not any(accepted):
            raise failure
        return accepted

    def _send_chunk(self, url: str, chunk: Sequence[Mapping[str, Any]]) -> list[bool]:
        pending = {str(number): entry for number, entry in enumerate(chunk)}
        rejected: set[str] = set()
        for attempt in range(MAX_SQS_SEND_TRIES):
            retry_ids = self._send_once(url, pending, rejected)
            pending = {number: entry for number, entry in pending.items() if number in retry_ids}
            if not pending or attempt + 1 == MAX_SQS_SEND_TRIES:
                break
            self._retry_policy.wait(attempt, url)
        unaccepted = pending.keys() | rejected
        return [str(number) not in unaccepted for number in range(len(chunk))]

    def _send_once(
        self, url: str, entries: Mapping[str, Mapping[str, Any]], rejected: set[str]
    ) -> set[str]:
        """Send one batch. Return the ids to send again.

        Entries rejected as the sender's fault are added to `rejected` and not sent again.
        """
        batch: list[Any] = [{"Id": number, **entry} for number, entry in entries.items()]
        response = call_aws(
            "sending messages",
            lambda: self._client().send_message_batch(QueueUrl=url, Entries=batch),
        )
        failed = response.get("Failed", [])
        rejected |= {entry["Id"] for entry in failed if entry["SenderFault"]}
        return {entry["Id"] for entry in failed if not entry["SenderFault"]}
