"""Each minute: hand out the partitions of buckets up to two minutes ahead."""

from typing import Any

from punctual.lambdas.planner.handler import build_handler
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("planner")
_runtime.clients.prepare("dynamodb", "ssm")
_handler = build_handler(_runtime)


def handler(_event: Any, _context: Any) -> None:
    """Plan at the time of the clock: the event of the tick may be late."""
    with _runtime.log.invocation():
        _handler.tick()
