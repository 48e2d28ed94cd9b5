"""API: all calls that read, and calls without a route."""

import os
from typing import Any

from punctual.auth.issuer_config import IssuerConfig
from punctual.lambdas.api_runtime import respond
from punctual.lambdas.job_search.handler import build_read_api
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("job-search")
_app = build_read_api(_runtime, IssuerConfig.from_env(os.environ))


def handler(event: dict[str, Any], context: Any) -> Any:
    return respond(_app, _runtime.log, event, context)
