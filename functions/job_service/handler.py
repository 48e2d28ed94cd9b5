"""API: all calls that write."""

from typing import Any

from punctual.lambdas.api_runtime import answer
from punctual.lambdas.job_service.handler import writing
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("job-service")
_app = writing(_runtime)


def handler(event: dict[str, Any], context: Any) -> Any:
    return answer(_app, _runtime.tell, event, context)
