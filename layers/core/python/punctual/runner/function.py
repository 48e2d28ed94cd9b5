"""The handler of the three script functions."""

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from punctual.runner.environment import RunnerEnvironment
from punctual.runner.event import read_event
from punctual.runner.http_client import CallFailed, HttpClient, HttpRequest
from punctual.runner.session import Session, SessionEnd
from punctual.runner.wiring import function_environment

RUNTIME_API_VARIABLE = "AWS_LAMBDA_RUNTIME_API"
RUNTIME_API_SECONDS = 10.0


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Carry out one run and return its answer."""
    environment = _environment()
    end = carry_out(event, environment)
    if environment.is_retired:
        response_url = _response_url(context, os.environ)
        return retire(end.answer, response_url, environment.http, os._exit)
    return end.answer


def carry_out(event: Mapping[str, Any], environment: RunnerEnvironment) -> SessionEnd:
    """Carry out one run, unless an earlier one left something in the environment."""
    session = Session(read_event(event, environment.variables), environment)
    if environment.is_retired:
        return session.decline()
    end = session.run()
    environment.is_retired = not end.is_clean
    return end


def retire(
    answer: dict[str, Any], response_url: str, http: HttpClient, end_process: Callable[[int], Any]
) -> dict[str, Any]:
    """Send the answer to Lambda, then end this process, so that no other run comes here.

    Lambda starts the environment anew. Without Lambda the answer is returned, and the next run is
    declined.
    """
    request = HttpRequest("POST", response_url, body=json.dumps(answer).encode())
    try:
        is_sent = bool(response_url) and http.call(request, RUNTIME_API_SECONDS).is_success
    except CallFailed:
        is_sent = False
    if is_sent:
        end_process(1)
    return answer


def _response_url(context: Any, variables: Mapping[str, str]) -> str:
    address = variables.get(RUNTIME_API_VARIABLE, "")
    request_id = getattr(context, "aws_request_id", "")
    if not address or not request_id:
        return ""
    return f"http://{address}/2018-06-01/runtime/invocation/{request_id}/response"


@cache
def _environment() -> RunnerEnvironment:
    return function_environment(os.environ)
