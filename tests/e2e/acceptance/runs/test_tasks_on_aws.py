"""Tasks with targets in an AWS account: Lambda functions and SQS queues."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
import pytest

from tests.support.acceptance.contract import (
    PATIENCE,
    Api,
    Json,
    a_client,
    eventually,
    fields_of,
    soon,
    unique,
)

PAYLOAD = {"a": [1, None], "ü": "é", "kept": "{{run_id}}"}
TOMORROW = 86_400


@pytest.fixture
def function() -> str:
    """Return a function with the code of task_function.py that the installation may invoke."""
    return named("PUNCTUAL_TASK_FUNCTION", "function to invoke")


@pytest.fixture
def closed() -> str:
    """Return an existing function that the installation may not invoke."""
    return named("PUNCTUAL_TASK_CLOSED", "function that is closed to tasks")


@dataclass(frozen=True)
class Inbox:
    """A queue to which the installation may send, and from which the tests receive."""

    url: str
    client: Any

    def message(self, run: Json) -> Json:
        """Return the message of a run, or None. Messages of other runs stay in the queue."""
        received = self.client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1,
            VisibilityTimeout=1,
            MessageAttributeNames=["run_id"],
        )
        for message in received.get("Messages", []):
            if message["MessageAttributes"]["run_id"]["StringValue"] == run["run_id"]:
                self.client.delete_message(
                    QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"]
                )
                return message
        return None


@pytest.fixture
def inbox() -> Inbox:
    return inbox_at(named("PUNCTUAL_TASK_QUEUE", "queue to send to"))


def inbox_at(url: str) -> Inbox:
    return Inbox(url, boto3.client("sqs", region_name=os.environ.get("AWS_REGION")))


@dataclass(frozen=True)
class OneTenant:
    """A tenant that `tasksMayReach` names, with its own function and queue."""

    api: Api
    function: str
    inbox: Inbox


@pytest.fixture
def tenant(api: Api) -> Iterator[OneTenant]:
    name = named("PUNCTUAL_TENANT", "tenant with a function and a queue of its own")
    function = named("PUNCTUAL_TENANT_FUNCTION", "function of one tenant")
    inbox = inbox_at(named("PUNCTUAL_TENANT_QUEUE", "queue of one tenant"))
    body = {"name": unique("acceptance"), "role": "admin", "tenant": name}
    response = api("POST", "/tokens", body)
    assert response.status_code == 201, response.text
    with a_client(api.url, response.json()["token"]) as http:
        caller = Api(http)
        yield OneTenant(caller, function, inbox)
        caller.clear()
        assert caller("DELETE", f"/tokens/{response.json()['token_id']}").status_code == 200


def named(variable: str, description: str) -> str:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"no {description} is named: {variable}")
    return value


def ran(api: Api, task: Json, **fields: Json) -> Json:
    retry = {"backoff_seconds": 1, "multiplier": 1, "jitter": False}
    job = api.create(schedule_type="IMMEDIATE", task=task, **{"retry": retry, **fields})
    return api.only_run(job["job_id"])


def invoke(function: str) -> Json:
    return {"type": "lambda", "function": function}


def send(queue_url: str) -> Json:
    return {"type": "sqs", "queue_url": queue_url}


@pytest.mark.needs("lambda")
def test_lambda_task_sends_the_payload_and_stores_the_response(api: Api, function: str) -> None:
    run = ran(api, invoke(function), payload=PAYLOAD)
    assert (run["status"], run["attempt_number"], run["error_message"]) == ("SUCCESS", 1, None)
    assert json.loads(api.output(run)) == {"sent": PAYLOAD}


@pytest.mark.needs("lambda")
def test_payload_may_name_the_function(api: Api, function: str) -> None:
    payload = {"which": function}
    run = ran(api, invoke("{{payload.which}}"), payload=payload)
    assert run["status"] == "SUCCESS"
    assert json.loads(api.output(run)) == {"sent": payload}


@pytest.mark.needs("lambda")
def test_failed_function_fails_the_run_with_its_error(api: Api, function: str) -> None:
    message = unique("broken")
    payload = {"fails_until": soon(TOMORROW), "message": message}
    run = ran(api, invoke(function), payload=payload, max_retries=1)
    assert (run["status"], len(run["attempts"])) == ("FAILED", 2)
    for source in (run, *run["attempts"]):
        assert message in source["error_message"]


@pytest.mark.needs("lambda")
def test_failed_function_is_invoked_again_until_it_succeeds(api: Api, function: str) -> None:
    payload = {"fails_until": soon(3 + PATIENCE / 2), "message": "not yet"}
    run = ran(api, invoke(function), payload=payload, max_retries=60)
    *failed, last = run["attempts"]
    assert (run["status"], last["status"], run["error_message"]) == ("SUCCESS", "SUCCESS", None)
    assert {attempt["status"] for attempt in failed} == {"FAILED"}
    assert json.loads(api.output(run)) == {"sent": payload}


@pytest.mark.needs("lambda")
def test_slow_function_is_timed_out(api: Api, function: str) -> None:
    run = ran(api, invoke(function), payload={"seconds": 20}, timeout_seconds=1, max_retries=0)
    assert (run["status"], len(run["attempts"])) == ("TIMED_OUT", 1)


@pytest.mark.needs("lambda")
@pytest.mark.usefixtures("function")
def test_unknown_or_closed_function_fails_without_a_retry(api: Api) -> None:
    """The payload names the function, so only the executor can refuse it."""
    payload = {"where": unique("nobodys")}
    run = ran(api, invoke("{{payload.where}}"), payload=payload, max_retries=3)
    assert (run["status"], len(run["attempts"])) == ("FAILED", 1)
    assert run["error_message"] in (
        "There is no such function",
        "Punctual may not invoke this function",
        "The function is not one that tasks of this tenant may reach (tasksMayReach)",
    )


@pytest.mark.needs("lambda")
def test_function_outside_tasks_may_reach_is_refused(api: Api, closed: str) -> None:
    assert refused_fields(api, invoke(closed)) == {"task.function"}
    run = ran(api, invoke("{{payload.where}}"), payload={"where": closed}, max_retries=3)
    assert (run["status"], len(run["attempts"])) == ("FAILED", 1)
    assert "may reach (tasksMayReach)" in run["error_message"]


def refused_fields(api: Api, task: Json) -> set[str]:
    answer = api("POST", "/jobs", {"name": "n", "schedule_type": "IMMEDIATE", "task": task})
    return set(fields_of(answer))


@pytest.mark.needs("sqs")
def test_sqs_task_sends_the_payload_and_stores_the_message_id(api: Api, inbox: Inbox) -> None:
    run = ran(api, send(inbox.url), payload=PAYLOAD)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 1)
    message = eventually(partial(inbox.message, run))
    assert json.loads(message["Body"]) == PAYLOAD
    assert api.output(run).decode() == message["MessageId"]


@pytest.mark.needs("sqs")
def test_payload_may_name_the_queue(api: Api, inbox: Inbox) -> None:
    payload = {"where": inbox.url}
    run = ran(api, send("{{payload.where}}"), payload=payload)
    assert run["status"] == "SUCCESS"
    assert json.loads(eventually(partial(inbox.message, run))["Body"]) == payload


@pytest.mark.needs("sqs")
def test_unknown_or_closed_queue_fails_without_a_retry(api: Api, inbox: Inbox) -> None:
    """The payload names the queue, so only the executor can refuse it."""
    payload = {"where": inbox.url.rpartition("/")[0] + f"/{unique('nobodys')}"}
    run = ran(api, send("{{payload.where}}"), payload=payload, max_retries=3)
    assert (run["status"], len(run["attempts"])) == ("FAILED", 1)
    assert run["error_message"] in (
        "There is no such queue in this region",
        "Punctual may not send to this queue",
        "The queue is not one that tasks of this tenant may reach (tasksMayReach)",
    )


@pytest.mark.needs("lambda")
def test_function_of_one_tenant_runs_only_for_that_tenant(api: Api, tenant: OneTenant) -> None:
    assert refused_fields(api, invoke(tenant.function)) == {"task.function"}
    payload = {"where": tenant.function}
    filled_in = ran(api, invoke("{{payload.where}}"), payload=payload, max_retries=3)
    assert (filled_in["status"], len(filled_in["attempts"])) == ("FAILED", 1)
    assert "may reach (tasksMayReach)" in filled_in["error_message"]
    run = ran(tenant.api, invoke(tenant.function), payload=PAYLOAD)
    assert (run["status"], run["error_message"]) == ("SUCCESS", None)
    assert json.loads(tenant.api.output(run)) == {"sent": PAYLOAD}


@pytest.mark.needs("sqs")
def test_queue_of_one_tenant_receives_only_messages_of_that_tenant(
    api: Api, tenant: OneTenant
) -> None:
    assert refused_fields(api, send(tenant.inbox.url)) == {"task.queue_url"}
    payload = {"where": tenant.inbox.url}
    filled_in = ran(api, send("{{payload.where}}"), payload=payload, max_retries=3)
    assert (filled_in["status"], len(filled_in["attempts"])) == ("FAILED", 1)
    assert "may reach (tasksMayReach)" in filled_in["error_message"]
    run = ran(tenant.api, send(tenant.inbox.url), payload=PAYLOAD)
    assert run["status"] == "SUCCESS"
    assert json.loads(eventually(partial(tenant.inbox.message, run))["Body"]) == PAYLOAD


@pytest.mark.needs("lambda", "sqs")
def test_named_tenant_reaches_only_its_own_targets(
    tenant: OneTenant, function: str, inbox: Inbox
) -> None:
    """`*` applies to tenants without an entry of their own."""
    assert refused_fields(tenant.api, invoke(function)) == {"task.function"}
    assert refused_fields(tenant.api, send(inbox.url)) == {"task.queue_url"}
