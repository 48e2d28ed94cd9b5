"""Invocation of the functions of `lambda` tasks, without retries.

A retry could run the function twice.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from punctual.aws.retries import UnknownOutcome, call_once, error_code
from punctual.domain.errors import Unavailable
from punctual.tasks.contract import BadTask
from punctual.tasks.lambda_function import InvocationResult

# Errors that a retry cannot fix, and their messages.
_LAMBDA_REJECTIONS = {
    "AccessDeniedException": "Punctual may not invoke this function",
    "InvalidParameterValueException": "Lambda does not accept this name of a function",
    "ResourceNotFoundException": "There is no such function",
    "ValidationException": "Lambda does not accept this name of a function",
}
_LAMBDA_BUSY_CODES = frozenset(
    {"EC2ThrottledException", "TooManyRequestsException", "ResourceNotReadyException"}
)


class LambdaInvoker:
    """Invokes functions. `client` returns a client with a timeout for that many seconds."""

    def __init__(self, client: Callable[[float], Any]) -> None:
        self._client = client

    def invoke(
        self, function: str, payload: bytes, seconds: float, origin: Mapping[str, str], /
    ) -> InvocationResult:
        client = self._client(seconds)
        try:
            return call_once(
                "invoking a function", lambda: _invoke(client, function, payload, origin)
            )
        except UnknownOutcome as unknown_outcome:
            raise Unavailable(f"Lambda did not answer: {unknown_outcome}.") from unknown_outcome


def _invoke(
    client: Any, function: str, payload: bytes, origin: Mapping[str, str]
) -> InvocationResult:
    context = json.dumps({"custom": dict(origin)}).encode()
    try:
        response = client.invoke(
            FunctionName=function,
            InvocationType="RequestResponse",
            Payload=payload,
            ClientContext=base64.b64encode(context).decode(),
        )
    except ClientError as error:
        code = error_code(error)
        if code in _LAMBDA_REJECTIONS:
            raise BadTask(_LAMBDA_REJECTIONS[code]) from error
        if code in _LAMBDA_BUSY_CODES:
            raise UnknownOutcome("it is busy") from error
        raise
    return InvocationResult(response["Payload"].read(), response.get("FunctionError", ""))
