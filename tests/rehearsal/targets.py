"""What `lambda` and `sqs` tasks reach: somebody else's function and queue in the account."""

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.acceptance import task_function
from tests.rehearsal.emulator import Account

FUNCTION = "task-answers"
QUEUE = "task-inbox"
CLOSED = "somebody-elses"
"""The stage says which names tasks may reach: `tasksMayReach` in cdk.json."""

FOR_LAMBDA = {
    "Effect": "Allow",
    "Principal": {"Service": "lambda.amazonaws.com"},
    "Action": "sts:AssumeRole",
}


@dataclass(frozen=True)
class Targets:
    """`closed` is a function that tasks may not invoke, where there is anybody to refuse it."""

    function: str
    queue_url: str
    closed: str | None

    @property
    def environment(self) -> dict[str, str]:
        """What the acceptance suite is told of them."""
        told = {"PUNCTUAL_TASK_FUNCTION": self.function, "PUNCTUAL_TASK_QUEUE": self.queue_url}
        return {**told, "PUNCTUAL_TASK_CLOSED": self.closed} if self.closed else told


def put_targets(account: Account, guarded: bool) -> Targets:
    """They stand before the deploy, and are to stand after the destroy."""
    for name in (FUNCTION, CLOSED):
        _put_function(account, name)
    queue = account.client("sqs").create_queue(QueueName=QUEUE)
    return Targets(FUNCTION, queue["QueueUrl"], CLOSED if guarded else None)


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
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.write(file, file.name)
    return held.getvalue()
