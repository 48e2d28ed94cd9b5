"""Visibility timeouts and acknowledgement of delivered messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import Client, answer
from punctual.domain.errors import Unavailable

MOST = 10
LONGEST = 43_200  # seconds; the longest visibility timeout of SQS


class SqsDeliveries:
    """Delivered messages by receipt handle. A stale handle is not an error."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def hide(self, url: str, handles: Mapping[str, int]) -> None:
        """Set the visibility timeout of each message to the given seconds from now."""
        entries = [
            {"ReceiptHandle": handle, "VisibilityTimeout": max(0, min(LONGEST, seconds))}
            for handle, seconds in handles.items()
        ]
        self._all("hiding messages", "change_message_visibility_batch", url, entries)

    def acknowledge(self, url: str, handles: Sequence[str]) -> None:
        entries = [{"ReceiptHandle": handle} for handle in handles]
        self._all("acknowledging messages", "delete_message_batch", url, entries)

    def _all(
        self, doing: str, operation: str, url: str, entries: Sequence[Mapping[str, Any]]
    ) -> None:
        for chunk in chunked(entries, MOST):
            batch = [{"Id": str(number), **entry} for number, entry in enumerate(chunk)]
            response = answer(doing, self._call(operation, url, batch))
            # SQS reports a stale handle as the sender's fault. The message needs no action then.
            failed = [one for one in response.get("Failed", []) if not one["SenderFault"]]
            if failed:
                raise Unavailable(f"SQS failed {len(failed)} times while {doing}.")

    def _call(self, operation: str, url: str, batch: Sequence[Any]) -> Callable[[], Any]:
        return lambda: getattr(self._client(), operation)(QueueUrl=url, Entries=batch)
