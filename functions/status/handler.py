"""Stream of the jobs table: lists, events, counts, and an end to what belonged to a job."""

from typing import Any

from punctual.serverless.following import following
from punctual.serverless.runtime import Runtime

_following = following(Runtime.from_env("status"))


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    failed = _following.follow(event["Records"])
    return {"batchItemFailures": [{"itemIdentifier": place} for place in failed]}
