"""Handles a batch of SQS messages in an executor function.

A message to deliver again gets its delay as visibility timeout and is reported as failed. SQS then
keeps it. A failed task does not fail its message, because the failure is written into its run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from punctual.aws.sqs.notifications import parse_notification
from punctual.aws.sqs.run_queue import parse_message
from punctual.aws.sqs.visibility import SqsDeliveries
from punctual.domain.errors import Invalid
from punctual.lambdas.executor.admission import Admission
from punctual.lambdas.executor.attempt import Delivery, LaneSettings
from punctual.lambdas.executor.batch import Batch
from punctual.lambdas.executor.messages import MessageBatch
from punctual.lambdas.executor.threads import TaskRunner, TaskThreads
from punctual.lambdas.executor.webhooks import WebhookDeliveries, WebhookDelivery
from punctual.lambdas.quotas import build_run_permits, build_script_permits
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.webhook_keys import WebhookKeys
from punctual.tasks.attempt_runner import AttemptRunner

QUICK_LANE = LaneSettings(renews_at_once=False)
LONG_LANE = LaneSettings(renews_at_once=True)
LANE_SETTINGS = {"quick": QUICK_LANE, "long": LONG_LANE}


class LambdaContext(Protocol):
    """The part of the Lambda context that executors use."""

    def get_remaining_time_in_millis(self) -> int: ...


class ExecutorHandler:
    """Handles batches in one process. `attempt_runner_for` returns the runner of a tenant."""

    def __init__(
        self,
        runtime: Runtime,
        lane: str,
        attempt_runner_for: Callable[[str], AttemptRunner],
        task_runner: TaskRunner | None = None,
    ) -> None:
        self._runtime = runtime
        self._lane = LANE_SETTINGS[lane]._replace(
            function_memory_mb=runtime.settings.script_memory_mb
        )
        self._attempt_runner_for = attempt_runner_for
        self._secrets = WebhookKeys(runtime).secrets
        self._permits = build_run_permits(runtime)
        self._script_permits = build_script_permits(runtime)
        self._task_runner = task_runner or TaskThreads(runtime.pause)
        self._deliveries = SqsDeliveries(lambda: runtime.clients.sqs)
        self._queue_urls = {_last_part(url, "/"): url for url in runtime.settings.queues.values()}

    def handle(self, event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Process 1 to 10 records and return the partial batch response."""
        with self._runtime.log.invocation():
            deliveries: list[Delivery] = []
            webhook_deliveries: list[WebhookDelivery] = []
            failed: list[str] = []
            for record in event["Records"]:
                delivery = self._parse_record(record)
                if delivery is None:
                    failed.append(record["messageId"])
                elif isinstance(delivery, WebhookDelivery):
                    webhook_deliveries.append(delivery)
                else:
                    deliveries.append(delivery)
            ends_steady = self._runtime.steady() + context.get_remaining_time_in_millis() / 1000
            if deliveries or webhook_deliveries:
                messages = MessageBatch(self._deliveries, self._runtime.clock, self._runtime.log)
                webhooks = self._build_webhooks(messages, ends_steady, webhook_deliveries)
                try:
                    failed += self._build_batch(messages, ends_steady, webhooks).run(deliveries)
                except Exception:
                    # Without this the messages stay hidden for the maximum time of a function.
                    messages.back_off([*deliveries, *webhooks.unfinished])
                    messages.batch_failures()
                    raise
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}

    def _build_webhooks(
        self, messages: MessageBatch, ends_steady: float, deliveries: Sequence[WebhookDelivery]
    ) -> WebhookDeliveries:
        runtime = self._runtime
        return WebhookDeliveries(
            deliveries,
            job_states=runtime.ports.job_states,
            history=runtime.ports.history,
            messages=messages,
            attempt_runner_for=self._attempt_runner_for,
            secrets=self._secrets,
            task_runner=self._task_runner,
            ends_steady=ends_steady,
            clock=runtime.clock,
            steady=runtime.steady,
            log=runtime.log,
        )

    def _build_batch(
        self, messages: MessageBatch, ends_steady: float, webhooks: WebhookDeliveries
    ) -> Batch:
        runtime = self._runtime
        admission = Admission(
            permits=self._permits,
            script_permits=self._script_permits,
            function_memory_mb=runtime.settings.script_memory_mb,
            executor=runtime.executor,
            messages=messages,
            queues=runtime.settings.queues,
            clock=runtime.clock,
            steady=runtime.steady,
            log=runtime.log,
        )
        return Batch(
            executor=runtime.executor,
            blobs=runtime.ports.blobs,
            read_upload=lambda claim, text: runtime.claim_tokens.read_upload(claim, text),
            lane=self._lane,
            messages=messages,
            admission=admission,
            webhooks=webhooks,
            attempt_runner_for=self._attempt_runner_for,
            task_runner=self._task_runner,
            ends_steady=ends_steady,
            clock=runtime.clock,
            steady=runtime.steady,
            new_id=runtime.new_id,
            log=runtime.log,
        )

    def _parse_record(self, record: Mapping[str, Any]) -> Delivery | WebhookDelivery | None:
        """Return the delivery, or None for an unreadable record.

        SQS delivers an unreadable record again until it becomes a dead letter.
        """
        receive_count = int(record["attributes"]["ApproximateReceiveCount"])
        try:
            notification = parse_notification(record["body"])
            message = None if notification else parse_message(record["body"])
        except Invalid as error:
            self._runtime.log.error(
                "message_unreadable",
                message_id=record["messageId"],
                receives=receive_count,
                error=error.message,
            )
            return None
        url = self._queue_urls[_last_part(record["eventSourceARN"], ":")]
        message_id, handle = record["messageId"], record["receiptHandle"]
        if notification is not None:
            return WebhookDelivery(message_id, handle, url, receive_count, notification)
        assert message is not None
        return Delivery(message_id, handle, url, receive_count, message)


def _last_part(text: str, separator: str) -> str:
    return text.rsplit(separator, 1)[-1]
