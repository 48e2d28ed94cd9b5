"""Sending of the messages of `sqs` tasks."""

from typing import Any

from botocore.exceptions import ClientError

from punctual.aws.retries import Client, call_aws, error_code
from punctual.tasks.contract import BadTask

_SQS_REJECTIONS = {
    "AWS.SimpleQueueService.NonExistentQueue": "There is no such queue in this region",
    "QueueDoesNotExist": "There is no such queue in this region",
    "AccessDenied": "Punctual may not send to this queue",
    "AccessDeniedException": "Punctual may not send to this queue",
    "InvalidAddress": "SQS does not accept this URL of a queue",
    "InvalidParameterValue": "SQS does not accept this message for the queue",
}


class SqsTaskSender:
    def __init__(self, client: Client) -> None:
        self._client = client

    def send(self, queue_url: str, body: str, run_id: str, tenant: str, fifo: bool, /) -> str:
        fifo_arguments: dict[str, Any] = {}
        if fifo:
            fifo_arguments = {"MessageGroupId": run_id, "MessageDeduplicationId": run_id}

        def send_once() -> Any:
            try:
                return self._client().send_message(
                    QueueUrl=queue_url,
                    MessageBody=body,
                    MessageAttributes={
                        name: {"DataType": "String", "StringValue": value}
                        for name, value in (("run_id", run_id), ("tenant", tenant))
                    },
                    **fifo_arguments,
                )
            except ClientError as error:
                code = error_code(error)
                if code in _SQS_REJECTIONS:
                    raise BadTask(_SQS_REJECTIONS[code]) from error
                raise

        message_id: str = call_aws("sending a job's message", send_once)["MessageId"]
        return message_id
