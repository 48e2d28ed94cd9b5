"""Messages of operations: act on the next jobs or runs of one, at the rate of the stage."""

from typing import Any

from punctual.lambdas.operations.handler import build_handler
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("operations")
_runtime.clients.prepare("dynamodb", "sqs")
_handler = build_handler(_runtime)


def handler(event: Any, _context: Any) -> dict[str, Any]:
    return _handler.handle(event["Records"])
