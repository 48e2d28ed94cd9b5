"""API: all calls that write."""

from typing import Any

from punctual.lambdas.api_runtime import respond
from punctual.lambdas.job_service.handler import build_write_api
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("job-service")
_app = build_write_api(_runtime)


def handler(event: dict[str, Any], context: Any) -> Any:
    return respond(_app, _runtime.log, event, context)
