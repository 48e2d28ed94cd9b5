"""Each minute: who looks after which minute, up to two ahead."""

from typing import Any

from punctual.lambdas.planner.handler import planning
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("planner")
_runtime.clients.prepare("dynamodb", "ssm")
_planning = planning(_runtime)


def handler(_event: Any, _context: Any) -> None:
    """The tick says only that it is time: what time it is, the clock says."""
    with _runtime.tell.told():
        _planning.tick()
