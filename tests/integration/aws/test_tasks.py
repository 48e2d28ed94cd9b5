"""Targets of tasks on AWS: functions, queues, and secrets by reference."""

import base64
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from punctual.aws.clients import Clients
from punctual.aws.lambda_target import LambdaInvoker
from punctual.aws.secrets import SECRET_CACHE_SECONDS, AwsSecrets
from punctual.aws.sqs.task_target import SqsTaskSender
from punctual.domain.errors import Unavailable
from punctual.domain.leases import RENEWAL_INTERVAL, RUN_LEASE
from punctual.lambdas.executor.attempt import TASK_STOP_GRACE_SECONDS
from punctual.tasks.contract import BadTask, Throttled
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
    """A Lambda client that returns or raises `said`. moto needs containers to invoke functions."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []

    def invoke(self, **asked: Any) -> Any:
        self.asked.append(asked)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def error(code: str, status: int = 400) -> ClientError:
    about: Any = {
        "Error": {"Code": code, "Message": "m"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(about, "Invoke")


def test_function_is_invoked_once_and_its_answer_is_returned() -> None:
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


def test_function_error_is_returned_with_its_payload() -> None:
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
def test_temporary_invoke_error_is_unavailable(code: str, status: int) -> None:
    client = Lambda(error(code, status))
    with pytest.raises(Unavailable):
        LambdaInvoker(lambda _: client).invoke("report", b"{}", 60, ORIGIN)
    assert len(client.asked) == 1, "one call, because a second one could run the task twice"


def test_invoke_timeout_is_unavailable() -> None:
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
def test_permanent_invoke_error_is_a_bad_task(code: str, text: str) -> None:
    with pytest.raises(BadTask, match=text):
        LambdaInvoker(lambda _: Lambda(error(code, 404))).invoke("report", b"{}", 60, ORIGIN)


@pytest.mark.parametrize(
    ("allowed", "waited"), [(1, 5), (3, 5), (3.5, 30), (60, 120), (118, 120), (895, 900)]
)
def test_invoke_timeout_is_little_longer_than_attempt_timeout(
    clients: Clients, allowed: float, waited: int
) -> None:
    """A hanging call holds a thread and a socket. An environment has a thousand."""
    config = clients.lambda_client(allowed).meta.config
    assert config.read_timeout == waited
    assert config.read_timeout > allowed + TASK_STOP_GRACE_SECONDS
    assert config.retries["total_max_attempts"] == 1
    assert clients.lambda_client(allowed) is clients.lambda_client(allowed)


def test_invoker_uses_client_with_timeout_of_attempt() -> None:
    asked: list[float] = []

    def client(seconds: float) -> Lambda:
        asked.append(seconds)
        return Lambda({"Payload": io.BytesIO(b"1")})

    LambdaInvoker(client).invoke("report", b"{}", 7, ORIGIN)
    assert asked == [7]


def test_s3_timeout_is_shorter_than_run_lease(clients: Clients) -> None:
    """The executor's loop waits for the read, and renews no lease meanwhile."""
    config = clients.s3.meta.config
    longest = (config.connect_timeout + config.read_timeout) * config.retries["total_max_attempts"]
    assert longest < RUN_LEASE.total_seconds() - RENEWAL_INTERVAL.total_seconds()


def received(clients: Clients, url: str) -> list[dict[str, Any]]:
    response = clients.sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
    )
    return [dict(message) for message in response.get("Messages", [])]


def test_message_has_run_and_tenant_as_attributes(clients: Clients) -> None:
    url = clients.sqs.create_queue(QueueName="orders")["QueueUrl"]
    message_id = SqsTaskSender(lambda: clients.sqs).send(url, '{"n":1}', "run-1", "acme", False)
    (message,) = received(clients, url)
    assert (message["MessageId"], message["Body"]) == (message_id, '{"n":1}')
    attributes = {
        name: attribute["StringValue"] for name, attribute in message["MessageAttributes"].items()
    }
    assert attributes == {"run_id": "run-1", "tenant": "acme"}


def test_fifo_message_uses_run_id_as_group_and_deduplication_id(clients: Clients) -> None:
    url = clients.sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})[
        "QueueUrl"
    ]
    SqsTaskSender(lambda: clients.sqs).send(url, "1", "run-1", "acme", True)
    (message,) = received(clients, url)
    assert message["Attributes"]["MessageGroupId"] == "run-1"
    assert message["Attributes"]["MessageDeduplicationId"] == "run-1"


def test_missing_queue_is_a_bad_task(clients: Clients) -> None:
    url = "https://sqs.eu-central-1.amazonaws.com/123456789012/nothing"
    with pytest.raises(BadTask, match="no such queue"):
        SqsTaskSender(lambda: clients.sqs).send(url, "1", "run-1", "acme", False)


def test_throttled_queue_is_unavailable(clients: Clients) -> None:
    url = clients.sqs.create_queue(QueueName="orders")["QueueUrl"]
    with (
        refused(clients.sqs, "SendMessage", 99, "RequestThrottled"),
        pytest.raises(Unavailable, match="sending a job's message"),
    ):
        SqsTaskSender(lambda: clients.sqs).send(url, "1", "run-1", "acme", False)


class SteadyClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def steady() -> SteadyClock:
    return SteadyClock()


@pytest.fixture
def secrets(clients: Clients, steady: SteadyClock) -> AwsSecrets:
    manager, parameters = clients.secretsmanager, clients.ssm
    for name in ("api-key", "db"):
        manager.create_secret(Name=f"punctual/dev/acme/{name}", SecretString="from the manager")
    manager.create_secret(Name="punctual/dev/acme/binary", SecretBinary=b"\xff")
    for name, kind in [("db", "SecureString"), ("plain", "String")]:
        parameters.put_parameter(
            Name=f"/punctual/dev/secrets/acme/{name}", Value=f"ssm {name}", Type=kind
        )
    return AwsSecrets(lambda: manager, lambda: parameters, "dev", steady)


def test_parameter_store_comes_before_secrets_manager(secrets: AwsSecrets) -> None:
    """The API writes to the parameter store. What it stored must be what runs get."""
    assert secrets.get("acme", "api-key") == "from the manager"
    assert secrets.get("acme", "db") == "ssm db"


def test_reader_without_secrets_manager_finds_only_parameters(
    clients: Clients, secrets: AwsSecrets, steady: SteadyClock
) -> None:
    parameters = clients.ssm
    reader = AwsSecrets(None, lambda: parameters, "dev", steady)
    assert reader.get("acme", "db") == secrets.get("acme", "db") == "ssm db"
    for name in ("api-key", "plain"):
        with pytest.raises(KeyError):
            reader.get("acme", name)


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
def test_value_that_is_not_a_secret_of_tenant_is_missing(
    secrets: AwsSecrets, tenant: str, name: str
) -> None:
    with pytest.raises(KeyError):
        secrets.get(tenant, name)


def test_secret_is_cached_for_a_minute(
    clients: Clients, secrets: AwsSecrets, steady: SteadyClock
) -> None:
    assert secrets.get("acme", "api-key") == "from the manager"
    clients.secretsmanager.put_secret_value(
        SecretId="punctual/dev/acme/api-key", SecretString="changed"
    )
    steady.now += SECRET_CACHE_SECONDS - 1
    assert secrets.get("acme", "api-key") == "from the manager"
    steady.now += 1
    assert secrets.get("acme", "api-key") == "changed"


@pytest.mark.parametrize(
    ("service", "operation"), [("ssm", "GetParameter"), ("secretsmanager", "GetSecretValue")]
)
def test_unavailable_secret_store_is_not_a_missing_secret(
    clients: Clients, secrets: AwsSecrets, service: str, operation: str
) -> None:
    with (
        refused(getattr(clients, service), operation, 99, "InternalServiceError", 500),
        pytest.raises(Unavailable),
    ):
        secrets.get("acme", "missing")


def test_throttled_secret_store_is_neither_missing_nor_an_attempt(
    clients: Clients, secrets: AwsSecrets
) -> None:
    with (
        refused(clients.ssm, "GetParameter", 99, "ThrottlingException", 400),
        pytest.raises(Throttled, match="no more reads of secrets for now; 'db'"),
    ):
        secrets.get("acme", "db")
    assert secrets.get("acme", "db") == "ssm db"


def test_attempts_that_begin_together_share_one_read(clients: Clients, secrets: AwsSecrets) -> None:
    reads: list[Any] = []
    both_asked = Barrier(2)
    clients.ssm.meta.events.register(
        "before-call.ssm.GetParameter", lambda **call: reads.append(call["params"])
    )

    def get(_: int) -> str:
        both_asked.wait(10)
        return secrets.get("acme", "db")

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(get, range(2))) == ["ssm db"] * 2
    assert len(reads) == 1
