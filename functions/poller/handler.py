"""Wake-ups: evaluate the due timers of partitions and dispatch their runs."""

from typing import Any

from punctual.lambdas.poller.handler import PollerHandler
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("poller")
_runtime.clients.prepare("dynamodb", "sqs")
_handler = PollerHandler(_runtime)


def handler(event: Any, context: Any) -> dict[str, Any]:
    return _handler.handle(event, context.get_remaining_time_in_millis() / 1000)
