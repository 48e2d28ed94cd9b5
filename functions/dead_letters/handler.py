"""Messages that came back too often: their runs end as FAILED, and somebody is told."""

from typing import Any

from punctual.serverless.burying import Burying
from punctual.serverless.runtime import Runtime

_runtime = Runtime.from_env("dead-letters")
_runtime.clients.prepare("dynamodb", "sqs")
_burying = Burying(_runtime)


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    return _burying.handle(event)
