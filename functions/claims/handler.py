"""API: the calls of external executors, which hold a signed claim and no token."""

from typing import Any

from punctual.lambdas.api_runtime import respond
from punctual.lambdas.claims.handler import build_claims_api
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("claims")
_app = build_claims_api(_runtime)


def handler(event: dict[str, Any], context: Any) -> Any:
    return respond(_app, _runtime.log, event, context)
