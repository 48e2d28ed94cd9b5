"""Messages of a lane: claim each run, execute it and record its end."""

import os
from typing import Any

from punctual.lambdas.executor.handler import ExecutorHandler
from punctual.lambdas.executor.task_runners import build_attempt_runners
from punctual.lambdas.runtime import Runtime

_lane = os.environ["PUNCTUAL_LANE"]
_runtime = Runtime.from_env(f"executor-{_lane}")
_runtime.clients.prepare("dynamodb")
_handler = ExecutorHandler(
    _runtime,
    _lane,
    build_attempt_runners(_runtime, os.environ.get("AWS_LAMBDA_RUNTIME_API", ""), os.environ),
)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return _handler.handle(event, context)
