"""Invocation of the functions that run scripts, in an environment of the tenant.

Nothing is sent twice. A throttle certainly started nothing, so the run goes back to its queue.
"""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
)

from punctual.aws.retries import error_code
from punctual.domain.errors import Unavailable
from punctual.tasks.contract import BadTask, NoRoom, Throttled
from punctual.tasks.script_function import NoAnswer, RunnerDied

START_SECONDS = 3.0  # a function that is started asynchronously answers at once

_NO_CONCURRENCY_CODE = "TooManyRequestsException"
# With each of these Lambda has not called the function.
_UNSTARTED_INVOKE_CODES = frozenset(
    {
        "CodeArtifactUserPendingException",
        "EC2ThrottledException",
        "EC2UnexpectedException",
        "ENILimitReachedException",
        "InvalidRuntimeException",
        "RequestLimitExceeded",
        "ResourceConflictException",
        "ResourceNotReadyException",
        "SnapStartNotReadyException",
        "SubnetIPAddressLimitReachedException",
        "ThrottledException",
        "ThrottlingException",
        _NO_CONCURRENCY_CODE,
    }
)
_THROTTLE_TEXT = "rate exceeded"
_TOO_LARGE_CODES = frozenset({"RequestTooLargeException", "RequestEntityTooLargeException"})
_UNSENT_INVOKE_ERRORS = (ConnectTimeoutError, EndpointConnectionError, NoCredentialsError)


class LambdaScriptFunctions:
    """Invokes functions. `client` returns a client without retries, by its read timeout."""

    def __init__(self, client: Callable[[float], Any], name_prefix: str) -> None:
        self._client = client
        self._name_prefix = name_prefix

    def invoke(self, function: str, tenant: str, event: bytes, seconds: float, /) -> bytes:
        response = self._call(function, tenant, event, seconds, "RequestResponse")
        try:
            answer: bytes = response["Payload"].read()
        except Exception as error:  # the answer breaks off in many ways
            raise NoAnswer(f"the answer broke off: {type(error).__name__}") from error
        if response.get("FunctionError"):
            raise RunnerDied(_failure_text(answer))
        return answer

    def start(self, function: str, tenant: str, event: bytes, /) -> None:
        self._call(function, tenant, event, START_SECONDS, "Event")

    def _call(
        self, function: str, tenant: str, event: bytes, seconds: float, invocation_type: str
    ) -> Any:
        try:
            return self._client(seconds).invoke(
                FunctionName=f"{self._name_prefix}-{function}",
                InvocationType=invocation_type,
                TenantId=tenant,
                Payload=event,
            )
        except ClientError as error:
            raise _lambda_error(error) from error
        except _UNSENT_INVOKE_ERRORS as error:
            raise Throttled(f"Lambda could not be reached: {type(error).__name__}") from error
        except ParamValidationError as error:
            raise Unavailable(
                "The SDK of this deployment cannot name tenants of Lambda."
            ) from error
        except BotoCoreError as error:
            raise NoAnswer(type(error).__name__) from error


def _lambda_error(error: ClientError) -> Exception:
    """Return what an error of Lambda means for the run."""
    code = error_code(error)
    text = error.response.get("Error", {}).get("Message", "")
    if code in _UNSTARTED_INVOKE_CODES or _THROTTLE_TEXT in text.lower():
        reason = error.response.get("Reason") or code
        refusal = NoRoom if code == _NO_CONCURRENCY_CODE else Throttled
        return refusal(f"Lambda does not start another script now: {reason}")
    if code in _TOO_LARGE_CODES:
        return BadTask("The task with its payload and filled placeholders is too large for Lambda")
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return NoAnswer(code)
    return Unavailable(f"AWS refused with {code} while starting a script.")


def _failure_text(answer: bytes) -> str:
    """Return the start of Lambda's own words. It has no output of the script."""
    return answer[:300].decode(errors="replace")
