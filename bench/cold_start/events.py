"""Events that bring each deployed function to its first AWS call."""

import json
from typing import Any

from punctual.aws.dynamodb.keys import time_key
from punctual.aws.sqs.operation_queue import OperationMessage
from punctual.aws.sqs.operation_queue import to_body as to_operation_body
from punctual.aws.sqs.run_queue import to_body
from punctual.domain.job_state import Lane, Priority
from punctual.engine.ports.lists.operations import OperationKey
from punctual.engine.ports.run_queue import Message
from tests.support.aws.settings import a_settings
from tests.support.aws.stream_records import Stream
from tests.support.builders import JOB, NOON, RUN, a_job_state
from tests.support.deployed.drivers.api import an_event

SETTINGS = a_settings()
DEAD_LETTER_URLS = (
    "https://sqs.invalid/1/quick-normal-dead.fifo https://sqs.invalid/1/long-dead.fifo"
)
MESSAGE = Message("acme", JOB, RUN, NOON, Priority.NORMAL, Lane.QUICK, 1, "http")
OPERATION_MESSAGE = OperationMessage(OperationKey("acme", JOB), revision=1)


def _record(body: str) -> dict[str, Any]:
    return {
        "messageId": "m",
        "receiptHandle": "r",
        "body": body,
        "attributes": {"ApproximateReceiveCount": "1", "MessageGroupId": "g"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:quick-normal.fifo",
    }


def _submission() -> dict[str, Any]:
    job = {"name": "n", "schedule_type": "IMMEDIATE", "task": {"type": "event"}}
    return an_event("POST", "/jobs", body=json.dumps(job))


def events() -> dict[str, Any]:
    """Return an event for each function, by its name."""
    tick = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}
    messages = {"Records": [_record(to_body(MESSAGE))]}
    wakeup = {"f": 1, "places": [[time_key(NOON), 0]]}
    return {
        "authorizer": {"type": "REQUEST", "headers": {"authorization": "Bearer some-token"}},
        "job-service": _submission(),
        "job-search": an_event("GET", f"/jobs/{JOB}"),
        "claims": an_event("POST", "/claims/renew", body=json.dumps({"claims": [{"claim": "x"}]})),
        "planner": tick,
        "poller": {"Records": [_record(json.dumps(wakeup))]},
        "reconciler": tick,
        "operations": {"Records": [_record(to_operation_body(OPERATION_MESSAGE))]},
        "executor-quick": messages,
        "executor-long": messages,
        "dead-letters": tick,
        "status": {"Records": [Stream().of(None, a_job_state())]},
    }


def environment(name: str) -> dict[str, str]:
    """Return the environment variables that the stack sets for a function."""
    lane = name.removeprefix("executor-")
    return {
        **SETTINGS.to_env(),
        "POWERTOOLS_SERVICE_NAME": name,
        "POWERTOOLS_LOG_LEVEL": "INFO",
        **({"PUNCTUAL_LANE": lane} if lane != name else {}),
        **({"PUNCTUAL_DEAD_LETTERS": DEAD_LETTER_URLS} if name == "dead-letters" else {}),
        **(
            {"PUNCTUAL_TOKEN_PARAMETER": "/punctual/dev/token-hash"} if name == "authorizer" else {}
        ),
    }


def folder_of(name: str) -> str:
    return "executor" if name.startswith("executor-") else name.replace("-", "_")
