"""What tasks reach on AWS: functions, queues, and secrets by reference."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from punctual.aws.clients import Clients
from punctual.aws.lambda_target import LambdaInvoker
from punctual.aws.secrets import SECRET_CACHE_SECONDS, AwsSecrets
from punctual.aws.sqs.task_target import SqsTaskSender
from punctual.domain.durations import RENEWAL_INTERVAL, RUN_LEASE
from punctual.domain.errors import Unavailable
from punctual.lambdas.executor.attempt import TASK_STOP_GRACE_SECONDS
from punctual.tasks.contract import BadTask
from punctual.tasks.lambda_function import InvocationResult
from tests.support.aws.moto_faults import refused

REGION = "eu-central-1"


@pytest.fixture
def clients() -> Iterator[Clients]:
    with mock_aws():
        yield Clients(
            boto3.Session(
                region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
            )
        )


ORIGIN = {"tenant": "acme", "job_id": "job-1", "run_id": "run-1"}


class Lambda:
    """moto runs functions in containers only: what boto3 would answer, or raise."""

    def __init__(self, said: Any) -> None:
        self._said = said
        self.asked: list[dict[str, Any]] = []

    def invoke(self, **asked: Any) -> Any:
        self.asked.append(asked)
        if isinstance(self._said, Exception):
            raise self._said
        return self._said


def error(code: str, status: int = 400) -> ClientError:
    about: Any = {
        "Error": {"Code": code, "Message": "m"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(about, "Invoke")


def test_a_function_is_invoked_once_and_its_answer_read() -> None:
    client = Lambda({"Payload": io.BytesIO(b"[1]"), "StatusCode": 200})
    assert LambdaInvoker(lambda _: client).invoke("report", b"{}", 60, ORIGIN) == InvocationResult(
        b"[1]", ""
    )
    (asked,) = client.asked
    context = json.loads(base64.b64decode(asked.pop("ClientContext")))
    assert context == {"custom": ORIGIN}
    assert asked == {
        "FunctionName": "report",
        "InvocationType": "RequestResponse",
        "Payload": b"{}",
    }


def test_a_functions_error_comes_with_what_it_said() -> None:
    client = Lambda({"Payload": io.BytesIO(b'{"errorType":"X"}'), "FunctionError": "Unhandled"})
    invoked = LambdaInvoker(lambda _: client).invoke("report", b"{}", 60, ORIGIN)
    assert invoked == InvocationResult(b'{"errorType":"X"}', "Unhandled")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("TooManyRequestsException", 429),
        ("ThrottlingException", 400),
        ("ServiceException", 500),
        ("EC2ThrottledException", 502),
        ("KMSAccessDeniedException", 502),
        ("ResourceConflictException", 409),
    ],
)
def test_what_may_pass_is_unavailable(code: str, status: int) -> None:
    client = Lambda(error(code, status))
    with pytest.raises(Unavailable):
        LambdaInvoker(lambda _: client).invoke("report", b"{}", 60, ORIGIN)
    assert len(client.asked) == 1, "once: the second call might be a second run"


def test_an_answer_that_never_comes_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="ReadTimeoutError"):
        LambdaInvoker(lambda _: Lambda(ReadTimeoutError(endpoint_url="x"))).invoke(
            "report", b"{}", 60, ORIGIN
        )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("ResourceNotFoundException", "There is no such function"),
        ("AccessDeniedException", "Punctual may not invoke this function"),
    ],
)
def test_what_stays_wrong_is_not_tried_again(code: str, text: str) -> None:
    with pytest.raises(BadTask, match=text):
        LambdaInvoker(lambda _: Lambda(error(code, 404))).invoke("report", b"{}", 60, ORIGIN)


@pytest.mark.parametrize(
    ("allowed", "waited"), [(1, 5), (3, 5), (3.5, 30), (60, 120), (118, 120), (895, 900)]
)
def test_a_function_is_waited_for_little_longer_than_its_attempt_may_take(
    clients: Clients, allowed: float, waited: int
) -> None:
    """A call that hangs keeps a thread and a socket, of which an environment has a thousand."""
    config = clients.lambda_client(allowed).meta.config
    assert config.read_timeout == waited
    assert config.read_timeout > allowed + TASK_STOP_GRACE_SECONDS
    assert config.retries["total_max_attempts"] == 1
    assert clients.lambda_client(allowed) is clients.lambda_client(allowed)


def test_the_invoker_asks_for_a_client_by_its_attempts_time() -> None:
    asked: list[float] = []

    def client(seconds: float) -> Lambda:
        asked.append(seconds)
        return Lambda({"Payload": io.BytesIO(b"1")})

    LambdaInvoker(client).invoke("report", b"{}", 7, ORIGIN)
    assert asked == [7]


def test_a_blob_is_not_waited_for_until_claims_are_over(clients: Clients) -> None:
    """An executor's loop waits for it, and renews no other claim of its batch meanwhile."""
    config = clients.s3.meta.config
    longest = (config.connect_timeout + config.read_timeout) * config.retries["total_max_attempts"]
    assert longest < RUN_LEASE.total_seconds() - RENEWAL_INTERVAL.total_seconds()


def received(clients: Clients, url: str) -> list[dict[str, Any]]:
    found = clients.sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
    )
    return [dict(one) for one in found.get("Messages", [])]


def test_a_message_carries_its_run_and_its_tenant(clients: Clients) -> None:
    url = clients.sqs.create_queue(QueueName="orders")["QueueUrl"]
    message_id = SqsTaskSender(lambda: clients.sqs).send(url, '{"n":1}', "run-1", "acme", False)
    (message,) = received(clients, url)
    assert (message["MessageId"], message["Body"]) == (message_id, '{"n":1}')
    said = {name: one["StringValue"] for name, one in message["MessageAttributes"].items()}
    assert said == {"run_id": "run-1", "tenant": "acme"}


def test_a_fifo_queue_knows_the_run_by_group_and_deduplication(clients: Clients) -> None:
    url = clients.sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})[
        "QueueUrl"
    ]
    SqsTaskSender(lambda: clients.sqs).send(url, "1", "run-1", "acme", True)
    (message,) = received(clients, url)
    assert message["Attributes"]["MessageGroupId"] == "run-1"
    assert message["Attributes"]["MessageDeduplicationId"] == "run-1"


def test_a_queue_that_is_not_there_is_not_tried_again(clients: Clients) -> None:
    url = "https://sqs.eu-central-1.amazonaws.com/123456789012/nothing"
    with pytest.raises(BadTask, match="no such queue"):
        SqsTaskSender(lambda: clients.sqs).send(url, "1", "run-1", "acme", False)


def test_a_queue_that_is_throttled_may_be_tried_again(clients: Clients) -> None:
    url = clients.sqs.create_queue(QueueName="orders")["QueueUrl"]
    with (
        refused(clients.sqs, "SendMessage", 99, "RequestThrottled"),
        pytest.raises(Unavailable, match="sending a job's message"),
    ):
        SqsTaskSender(lambda: clients.sqs).send(url, "1", "run-1", "acme", False)


class Minute:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steady() -> Minute:
    return Minute()


@pytest.fixture
def secrets(clients: Clients, steady: Minute) -> AwsSecrets:
    manager, parameters = clients.secretsmanager, clients.ssm
    manager.create_secret(Name="punctual/dev/acme/api-key", SecretString="from the manager")
    manager.create_secret(Name="punctual/dev/acme/binary", SecretBinary=b"\xff")
    for name, kind in [("api-key", "SecureString"), ("db", "SecureString"), ("plain", "String")]:
        parameters.put_parameter(
            Name=f"/punctual/dev/secrets/acme/{name}", Value=f"ssm {name}", Type=kind
        )
    return AwsSecrets(lambda: manager, lambda: parameters, "dev", steady)


def test_a_secret_is_found_in_either_store_the_manager_first(secrets: AwsSecrets) -> None:
    assert secrets.get("acme", "api-key") == "from the manager"
    assert secrets.get("acme", "db") == "ssm db"


@pytest.mark.parametrize(
    ("tenant", "name"),
    [
        ("acme", "missing"),
        ("acme", "plain"),
        ("acme", "binary"),
        ("other", "api-key"),
        ("acme/x", "db"),
        ("", "acme/db"),
        ("acme", "a:b"),
    ],
)
def test_what_is_no_secret_of_the_tenant_is_missing(
    secrets: AwsSecrets, tenant: str, name: str
) -> None:
    with pytest.raises(KeyError):
        secrets.get(tenant, name)


def test_a_secret_is_kept_for_a_minute(
    clients: Clients, secrets: AwsSecrets, steady: Minute
) -> None:
    assert secrets.get("acme", "api-key") == "from the manager"
    clients.secretsmanager.put_secret_value(
        SecretId="punctual/dev/acme/api-key", SecretString="changed"
    )
    steady.now += SECRET_CACHE_SECONDS - 1
    assert secrets.get("acme", "api-key") == "from the manager"
    steady.now += 1
    assert secrets.get("acme", "api-key") == "changed"


def test_a_store_that_does_not_answer_is_no_missing_secret(
    clients: Clients, secrets: AwsSecrets
) -> None:
    with (
        refused(clients.secretsmanager, "GetSecretValue", 99, "InternalServiceError", 500),
        pytest.raises(Unavailable),
    ):
        secrets.get("acme", "db")
