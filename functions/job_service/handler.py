"""API: everything that writes."""

from typing import Any

from punctual.serverless.api import answer
from punctual.serverless.api_writes import writing
from punctual.serverless.runtime import Runtime

_runtime = Runtime.from_env("job-service")
_app = writing(_runtime)


def handler(event: dict[str, Any], context: Any) -> Any:
    return answer(_app, _runtime.tell, event, context)
