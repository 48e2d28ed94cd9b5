"""Targets of `lambda` and `sqs` tasks: functions and queues that are not part of the stage."""

import io
import json
import zipfile
from pathlib import Path

from tests.rehearsal.emulator import PLAIN_IMAGE, RUNNER_IMAGE, Account
from tests.support.acceptance import task_function

FUNCTION = "task-answers"
QUEUE = "task-inbox"
CLOSED = "closed-function"
TENANT = "acme"
TENANT_FUNCTION = "acme-answers"
TENANT_QUEUE = "acme-inbox"
"""`tasksMayReach` in cdk.json names the targets of each tenant."""

FOR_LAMBDA = {
    "Effect": "Allow",
    "Principal": {"Service": "lambda.amazonaws.com"},
    "Action": "sts:AssumeRole",
}


def put_targets(account: Account) -> dict[str, str]:
    """Create the targets, and return the acceptance suite's variables for them.

    They exist before the deploy and must survive the destroy.
    """
    for name in (FUNCTION, CLOSED, TENANT_FUNCTION):
        _put_function(account, name)
    urls = {
        name: str(account.client("sqs").create_queue(QueueName=name)["QueueUrl"])
        for name in (QUEUE, TENANT_QUEUE)
    }
    return {
        "PUNCTUAL_TASK_FUNCTION": FUNCTION,
        "PUNCTUAL_TASK_CLOSED": CLOSED,
        "PUNCTUAL_TASK_QUEUE": urls[QUEUE],
        "PUNCTUAL_TASK_IMAGE": RUNNER_IMAGE,
        "PUNCTUAL_TASK_PLAIN_IMAGE": PLAIN_IMAGE,
        "PUNCTUAL_TENANT": TENANT,
        "PUNCTUAL_TENANT_FUNCTION": TENANT_FUNCTION,
        "PUNCTUAL_TENANT_QUEUE": urls[TENANT_QUEUE],
    }


def _put_function(account: Account, name: str) -> None:
    role = account.client("iam").create_role(
        RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [FOR_LAMBDA]})
    )
    account.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=role["Role"]["Arn"],
        Handler=f"{Path(task_function.__file__).stem}.handler",
        Code={"ZipFile": _zipped(Path(task_function.__file__))},
        Timeout=60,
    )


def _zipped(file: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.write(file, file.name)
    return buffer.getvalue()
