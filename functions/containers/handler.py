"""Events of ECS, requests to stop, and a sweep each minute over the running containers."""

import os
from typing import Any

from punctual.lambdas.containers.runtime import build_handler
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("containers")
_runtime.clients.prepare("dynamodb", "ecs")
_handler = build_handler(_runtime, os.environ)


def handler(event: dict[str, Any], _context: Any) -> None:
    _handler.handle(event)
