"""The `sqs` task: sends the payload to a queue and stores the message id as output."""

import re
from collections.abc import Callable
from typing import Protocol

from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE
from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, StopRequest
from punctual.tasks.lambda_function import OWN_NAME_PREFIX, allow_all
from punctual.tasks.text import as_text, ascii_json

FIFO_SUFFIX = ".fifo"

_QUEUE_URL = re.compile(
    r"https?://(?P<host>[A-Za-z0-9.-]+)(:\d{1,5})?/\d{12}/(?P<name>[A-Za-z0-9_-]{1,80}(\.fifo)?)"
)


class MessageSender(Protocol):
    def send(self, queue_url: str, body: str, run_id: str, tenant: str, is_fifo: bool, /) -> str:
        """Send the message and return its id.

        With `is_fifo`, the run id is the message group and the deduplication id. SQS drops
        duplicates for five minutes. Raise `BadTask` for an error that a retry cannot fix.
        """


class QueueTask:
    """Runs `sqs` tasks."""

    def __init__(
        self, sender: MessageSender, is_allowed: Callable[[str, str], bool] = allow_all
    ) -> None:
        """`is_allowed` receives the tenant and the queue's URL."""
        self._sender = sender
        self._is_allowed = is_allowed

    def run(self, attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        url = as_text(attempt.task["queue_url"])
        problem = queue_problem(url)
        if problem:
            raise BadTask(f"The queue's URL {problem}")
        if not self._is_allowed(attempt.tenant, url):
            raise BadTask(
                "The queue is not one that tasks of this tenant may reach (tasksMayReach)"
            )
        # Send ASCII only. SQS rejects some characters that a payload may contain.
        body = ascii_json(attempt.payload)
        is_fifo = url.endswith(FIFO_SUFFIX)
        message_id = self._sender.send(url, body, attempt.run_id, attempt.tenant, is_fifo)
        return Outcome("SUCCESS", output=message_id.encode(), output_type=TEXT_CONTENT_TYPE)


def queue_problem(url: str) -> str:
    """Return why a task may not send to the queue, or an empty string.

    >>> queue_problem("https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo")
    ''
    >>> queue_problem("https://sqs.eu-central-1.amazonaws.com/123456789012/punctual-dev-wake")
    'is that of a queue of Punctual'
    """
    match = _QUEUE_URL.fullmatch(url)
    if match is None:
        return "must look like https://sqs.<region>.amazonaws.com/<account>/<name>"
    if match["name"].lower().startswith(OWN_NAME_PREFIX):
        return "is that of a queue of Punctual"
    return ""


def queue_name(url: str) -> str:
    """Return the name of the queue, or an empty string for an invalid URL.

    >>> queue_name("https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo")
    'orders.fifo'
    """
    match = _QUEUE_URL.fullmatch(url)
    return match["name"] if match else ""
