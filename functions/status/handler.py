"""Stream of the jobs table: update lists, events and counts; delete the data of ended jobs."""

from typing import Any

from punctual.lambdas.runtime import Runtime
from punctual.lambdas.status.handler import following

_runtime = Runtime.from_env("status")
_runtime.clients.prepare("dynamodb", "events")
_following = following(_runtime)


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    failed = _following.follow(event["Records"])
    return {"batchItemFailures": [{"itemIdentifier": place} for place in failed]}
