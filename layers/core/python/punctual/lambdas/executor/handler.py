"""Handles a batch of SQS messages in an executor function.

A message to deliver again gets its delay as visibility timeout and is reported as failed. SQS then
keeps it. A failed task does not fail its message, because the failure is written into its run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from punctual.aws.sqs.notifications import parse_notice
from punctual.aws.sqs.run_queue import parse_message
from punctual.aws.sqs.visibility import SqsDeliveries
from punctual.domain.errors import Invalid
from punctual.lambdas.executor.attempt import Delivery, Lane
from punctual.lambdas.executor.batch import Batch
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.executor.threads import TaskRunner, TaskThreads
from punctual.lambdas.executor.webhooks import WebhookDeliveries, WebhookDelivery
from punctual.lambdas.quotas import permits
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.webhook_keys import WebhookKeys
from punctual.tasks.registry import Registry

QUICK = Lane(beats_at_once=False)
LONG = Lane(beats_at_once=True)
LANES = {"quick": QUICK, "long": LONG}


class Context(Protocol):
    """The part of the Lambda context that executors use."""

    def get_remaining_time_in_millis(self) -> int: ...


class ExecutorHandler:
    """Handles batches in one process. `tasks` returns the task registry of a tenant."""

    def __init__(
        self,
        runtime: Runtime,
        lane: str,
        tasks: Callable[[str], Registry],
        hands: TaskRunner | None = None,
    ) -> None:
        self._runtime = runtime
        self._lane = LANES[lane]
        self._tasks = tasks
        self._secrets = WebhookKeys(runtime).secrets
        self._permits = permits(runtime)
        self._hands = hands or TaskThreads(runtime.pause)
        self._deliveries = SqsDeliveries(lambda: runtime.clients.sqs)
        self._urls = {_last(url, "/"): url for url in runtime.settings.queues.values()}

    def handle(self, event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Process 1 to 10 records and return the partial batch response."""
        with self._runtime.tell.told():
            found: list[Delivery] = []
            errands: list[WebhookDelivery] = []
            failed: list[str] = []
            for record in event["Records"]:
                delivery = self._read(record)
                if delivery is None:
                    failed.append(record["messageId"])
                elif isinstance(delivery, WebhookDelivery):
                    errands.append(delivery)
                else:
                    found.append(delivery)
            over = self._runtime.steady() + context.get_remaining_time_in_millis() / 1000
            if found or errands:
                mail = MessageBatch(self._deliveries, self._runtime.clock, self._runtime.tell)
                told = self._errands(mail, over, errands)
                try:
                    failed += self._batch(mail, over, told).run(found)
                except Exception:
                    # Without this the messages stay hidden for the maximum time of a function.
                    mail.later([*found, *told.held])
                    mail.hand_back()
                    raise
        return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}

    def _errands(
        self, mail: MessageBatch, over: float, errands: Sequence[WebhookDelivery]
    ) -> WebhookDeliveries:
        made = (self._runtime, mail, self._tasks, self._secrets, self._hands)
        return WebhookDeliveries(*made, over, errands)

    def _batch(self, mail: MessageBatch, over: float, errands: WebhookDeliveries) -> Batch:
        made = (self._runtime, self._lane, mail, self._tasks, self._hands)
        return Batch(*made, over, errands, self._permits)

    def _read(self, record: Mapping[str, Any]) -> Delivery | WebhookDelivery | None:
        """Return the delivery, or None for an unreadable record.

        SQS delivers an unreadable record again until it becomes a dead letter.
        """
        receives = int(record["attributes"]["ApproximateReceiveCount"])
        try:
            notice = parse_notice(record["body"])
            message = None if notice else parse_message(record["body"])
        except Invalid as error:
            self._runtime.tell.problem(
                "message_unreadable",
                message_id=record["messageId"],
                receives=receives,
                error=error.message,
            )
            return None
        url = self._urls[_last(record["eventSourceARN"], ":")]
        ids = record["messageId"], record["receiptHandle"], url, receives
        if notice is not None:
            return WebhookDelivery(*ids, notice)
        assert message is not None
        return Delivery(*ids, message)


def _last(text: str, separator: str) -> str:
    return text.rsplit(separator, 1)[-1]
