"""Each minute: hand out the partitions of buckets up to two minutes ahead."""

from typing import Any

from punctual.lambdas.planner.handler import planning
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("planner")
_runtime.clients.prepare("dynamodb", "ssm")
_planning = planning(_runtime)


def handler(_event: Any, _context: Any) -> None:
    """Plan at the time of the clock: the event of the tick may be late."""
    with _runtime.tell.told():
        _planning.tick()
