"""API: everything that reads, and whatever no route names."""

from typing import Any

from punctual.serverless.api import answer
from punctual.serverless.api_reads import reading
from punctual.serverless.runtime import Runtime

_runtime = Runtime.from_env("job-search")
_app = reading(_runtime)


def handler(event: dict[str, Any], context: Any) -> Any:
    return answer(_app, _runtime.tell, event, context)
