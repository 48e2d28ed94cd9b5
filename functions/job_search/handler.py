"""API: everything that reads, and whatever no route names."""

import os
from typing import Any

from punctual.access.trust import Trust
from punctual.serverless.api import answer
from punctual.serverless.api_reads import reading
from punctual.serverless.runtime import Runtime

_runtime = Runtime.from_env("job-search")
_app = reading(_runtime, Trust.from_env(os.environ))


def handler(event: dict[str, Any], context: Any) -> Any:
    return answer(_app, _runtime.tell, event, context)
