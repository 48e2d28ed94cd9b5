"""Each minute: who looks after which minute, up to two ahead."""

from typing import Any

from punctual.serverless.planning import Planning, planning
from punctual.serverless.runtime import Runtime

_runtime: Runtime | None = None
_planning: Planning | None = None


def handler(_event: Any, _context: Any) -> None:
    """The tick says only that it is time: what time it is, the clock says."""
    global _runtime, _planning
    _runtime = _runtime or Runtime.from_env("planner")
    _planning = _planning or planning(_runtime)
    with _runtime.tell.told():
        _planning.tick()
