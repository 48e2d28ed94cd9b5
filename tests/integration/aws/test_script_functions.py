"""The functions that run scripts: each failure of Lambda says whether a script may have started."""

import io
from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from punctual.aws.clients import Clients
from punctual.aws.script_functions import START_SECONDS, LambdaScriptFunctions
from punctual.domain.errors import Unavailable
from punctual.tasks.contract import BadTask, Throttled
from punctual.tasks.script_function import NoAnswer, RunnerDied


class Lambda:
    """A Lambda client that returns or raises `answer`. moto knows no tenants."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.calls: list[dict[str, Any]] = []

    def invoke(self, **call: Any) -> Any:
        self.calls.append(call)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def an_error(code: str, status: int, message: str = "m", reason: str = "") -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response | ({"Reason": reason} if reason else {}), "Invoke")


def functions(client: Lambda) -> LambdaScriptFunctions:
    return LambdaScriptFunctions(lambda _seconds: client, "punctual-dev")


def test_waiting_call_names_function_and_tenant_and_returns_the_answer() -> None:
    client = Lambda({"StatusCode": 200, "Payload": io.BytesIO(b'{"format":1}')})
    assert functions(client).invoke("script-bash", "acme", b"{}", 30) == b'{"format":1}'
    assert client.calls == [
        {
            "FunctionName": "punctual-dev-script-bash",
            "InvocationType": "RequestResponse",
            "TenantId": "acme",
            "Payload": b"{}",
        }
    ]


def test_detached_call_does_not_wait() -> None:
    seconds_asked = []
    client = Lambda({"StatusCode": 202})

    def client_for(seconds: float) -> Lambda:
        seconds_asked.append(seconds)
        return client

    LambdaScriptFunctions(client_for, "punctual-dev").start("script-node", "acme", b"{}")
    assert [call["InvocationType"] for call in client.calls] == ["Event"]
    assert seconds_asked == [START_SECONDS]


def test_sdk_of_the_project_knows_the_tenant_of_a_call() -> None:
    session = boto3.Session(
        region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    client: Any = Clients(session).lambda_client(1)
    shape: Any = client.meta.service_model.operation_model("Invoke").input_shape
    assert "TenantId" in shape.members


THROTTLES = [
    an_error("TooManyRequestsException", 429, "Rate Exceeded.", reason)
    for reason in (
        "ConcurrentInvocationLimitExceeded",
        "ReservedFunctionConcurrentInvocationLimitExceeded",
        "FunctionInvocationRateLimitExceeded",
        "CallerRateLimitExceeded",
        "",
    )
] + [
    # A throttle may arrive under the code of another error.
    an_error("InvalidParameterValueException", 400, "Rate exceeded (ErrorCode: Throttling)"),
    an_error("ThrottlingException", 400),
    an_error("EC2ThrottledException", 502),
    an_error("ENILimitReachedException", 502),
    an_error("ResourceConflictException", 409),
    an_error("ResourceNotReadyException", 502),
]


@pytest.mark.parametrize("error", THROTTLES, ids=str)
@pytest.mark.parametrize("waits", [True, False])
def test_throttle_proves_that_nothing_started(error: ClientError, waits: bool) -> None:
    client = Lambda(error)
    with pytest.raises(Throttled) as raised:
        call(client, waits)
    response: Any = error.response
    assert response.get("Reason", response["Error"]["Code"]) in str(raised.value)
    assert len(client.calls) == 1, "the queue repeats the run, not the adapter"


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://lambda"),
        ConnectTimeoutError(endpoint_url="https://lambda"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("waits", [True, False])
def test_call_that_was_not_sent_started_nothing(error: BotoCoreError, waits: bool) -> None:
    with pytest.raises(Throttled, match="could not be reached"):
        call(Lambda(error), waits)


@pytest.mark.parametrize(
    "error",
    [
        an_error("ServiceException", 500),
        an_error("KMSAccessDeniedException", 502),
        ReadTimeoutError(endpoint_url="https://lambda"),
        ConnectionClosedError(endpoint_url="https://lambda"),
    ],
    ids=str,
)
@pytest.mark.parametrize("waits", [True, False])
def test_lost_answer_is_not_repeated(error: Exception, waits: bool) -> None:
    client = Lambda(error)
    with pytest.raises(NoAnswer):
        call(client, waits)
    assert len(client.calls) == 1, "the script may run"


def test_answer_that_breaks_off_is_lost() -> None:
    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise ReadTimeoutError(endpoint_url="https://lambda")

    with pytest.raises(NoAnswer, match="ReadTimeoutError"):
        call(Lambda({"StatusCode": 200, "Payload": Broken()}), waits=True)


def test_function_error_says_that_the_runner_died() -> None:
    answer = b'{"errorType":"Runtime.ExitError","errorMessage":"signal: killed"}'
    client = Lambda({"Payload": io.BytesIO(answer), "FunctionError": "Unhandled"})
    with pytest.raises(RunnerDied, match="signal: killed"):
        call(client, waits=True)


@pytest.mark.parametrize("code", ["RequestTooLargeException", "RequestEntityTooLargeException"])
def test_task_over_the_size_of_an_event_is_a_bad_task(code: str) -> None:
    with pytest.raises(BadTask, match="too large for Lambda"):
        call(Lambda(an_error(code, 413)), waits=False)


@pytest.mark.parametrize(
    ("code", "status"), [("AccessDeniedException", 403), ("ResourceNotFoundException", 404)]
)
def test_other_refusal_names_its_code(code: str, status: int) -> None:
    with pytest.raises(Unavailable, match=f"AWS refused with {code} while starting a script"):
        call(Lambda(an_error(code, status)), waits=False)


def call(client: Lambda, waits: bool) -> None:
    if waits:
        functions(client).invoke("script-python", "acme", b"{}", 30)
    else:
        functions(client).start("script-python", "acme", b"{}")
