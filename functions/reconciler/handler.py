"""Every day, in pieces: repair jobs without a timer."""

from typing import Any

from punctual.lambdas.reconciler.handler import continue_walk
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("reconciler")
_runtime.clients.prepare("dynamodb")


def handler(_event: Any, context: Any) -> None:
    continue_walk(_runtime, context.get_remaining_time_in_millis() / 1000)
