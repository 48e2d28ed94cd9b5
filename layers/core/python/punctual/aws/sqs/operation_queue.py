"""Messages of operations in a standard queue: each lets a function run the next slices of one."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from punctual.aws.sqs.sender import MAX_SQS_DELAY_SECONDS, SqsBatchSender
from punctual.domain.errors import Invalid, Unavailable
from punctual.engine.ports.lists.operations import OperationKey

OPERATION_MESSAGE_LAYOUT = 1


class OperationMessage(NamedTuple):
    """An operation to continue from a revision. A receiver drops the message of an earlier one.

    So a repeated message ends, although each message leads to the next one. `failed_tries` counts
    the slices that failed since one worked.
    """

    key: OperationKey
    revision: int
    failed_tries: int = 0


class OperationQueue:
    def __init__(self, sender: SqsBatchSender, url: str) -> None:
        self._sender = sender
        self._url = url

    def send(self, messages: Sequence[OperationMessage], delay_seconds: float = 0) -> None:
        """Send messages, to be received after `delay_seconds`, or after 15 minutes if that is less.

        Raise `Unavailable` if SQS did not accept all. A later tick of the planner sends those.
        """
        delay = max(0, min(MAX_SQS_DELAY_SECONDS, math.ceil(delay_seconds)))
        entries = [
            {"MessageBody": to_body(message), "DelaySeconds": delay}
            for message in dict.fromkeys(messages)
        ]
        if not all(self._sender.send(self._url, entries)):
            raise Unavailable("A message of an operation could not be sent.")


def to_body(message: OperationMessage) -> str:
    """Return the body in ASCII. SQS rejects some characters that a tenant name may contain."""
    values: dict[str, Any] = {
        "f": OPERATION_MESSAGE_LAYOUT,
        "tenant": message.key.tenant,
        "operation_id": message.key.operation_id,
        "revision": message.revision,
        "tries": message.failed_tries,
    }
    return json.dumps(values, separators=(",", ":"))


def parse_operation_message(body: str) -> OperationMessage:
    try:
        values = json.loads(body)
        if values["f"] > OPERATION_MESSAGE_LAYOUT:
            raise ValueError(values["f"])
        key = OperationKey(str(values["tenant"]), str(values["operation_id"]))
        return OperationMessage(key, int(values["revision"]), int(values["tries"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(
            "This is not a message of an operation, or a later version wrote it."
        ) from error
