"""Visibility timeouts and acknowledgement of delivered messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import Client, call_aws
from punctual.aws.sqs.sender import MAX_SQS_BATCH
from punctual.domain.errors import Unavailable

MAX_VISIBILITY_SECONDS = 43_200  # the longest visibility timeout of SQS


class SqsDeliveries:
    """Delivered messages by receipt handle. A stale handle is not an error."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def set_visibility(self, url: str, seconds_by_handle: Mapping[str, int]) -> None:
        """Set the visibility timeout of each message to the given seconds from now."""
        entries = [
            {
                "ReceiptHandle": handle,
                "VisibilityTimeout": max(0, min(MAX_VISIBILITY_SECONDS, seconds)),
            }
            for handle, seconds in seconds_by_handle.items()
        ]
        self._call_in_batches("hiding messages", "change_message_visibility_batch", url, entries)

    def acknowledge(self, url: str, handles: Sequence[str]) -> None:
        entries = [{"ReceiptHandle": handle} for handle in handles]
        self._call_in_batches("acknowledging messages", "delete_message_batch", url, entries)

    def _call_in_batches(
        self, activity: str, operation: str, url: str, entries: Sequence[Mapping[str, Any]]
    ) -> None:
        for chunk in chunked(entries, MAX_SQS_BATCH):
            batch = [{"Id": str(number), **entry} for number, entry in enumerate(chunk)]
            response = call_aws(activity, self._call(operation, url, batch))
            # SQS reports a stale handle as the sender's fault. The message needs no action then.
            failed = [
                failure for failure in response.get("Failed", []) if not failure["SenderFault"]
            ]
            if failed:
                raise Unavailable(f"SQS failed {len(failed)} times while {activity}.")

    def _call(self, operation: str, url: str, batch: Sequence[Any]) -> Callable[[], Any]:
        return lambda: getattr(self._client(), operation)(QueueUrl=url, Entries=batch)
