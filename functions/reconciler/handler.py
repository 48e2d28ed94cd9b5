"""Each day, in pieces: a walk over all jobs for what should have a timer and has none."""

from typing import Any

from punctual.serverless.runtime import Runtime
from punctual.serverless.walking import walk

_runtime: Runtime | None = None


def handler(_event: Any, context: Any) -> None:
    global _runtime
    _runtime = _runtime or Runtime.from_env("reconciler")
    walk(_runtime, context.get_remaining_time_in_millis() / 1000)
