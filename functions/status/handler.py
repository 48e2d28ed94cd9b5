"""Stream of the jobs table: update lists, events and counts; delete the data of ended jobs."""

from typing import Any

from punctual.lambdas.runtime import Runtime
from punctual.lambdas.status.handler import build_handler

_runtime = Runtime.from_env("status")
_runtime.clients.prepare("dynamodb", "events")
_handler = build_handler(_runtime)


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    failed = _handler.handle(event["Records"])
    return {
        "batchItemFailures": [{"itemIdentifier": sequence_number} for sequence_number in failed]
    }
