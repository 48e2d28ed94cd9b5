"""Stream of the jobs table: lists, events, counts, and an end to what belonged to a job."""

from typing import Any

from punctual.lambdas.runtime import Runtime
from punctual.lambdas.status.handler import following

_runtime = Runtime.from_env("status")
_runtime.clients.prepare("dynamodb", "events")
_following = following(_runtime)


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    failed = _following.follow(event["Records"])
    return {"batchItemFailures": [{"itemIdentifier": place} for place in failed]}
