"""Wake-ups: looks at the jobs of some minutes on time, and queues their runs."""

from typing import Any

from punctual.serverless.polling import Polling
from punctual.serverless.runtime import Runtime

_polling: Polling | None = None


def handler(event: Any, context: Any) -> dict[str, Any]:
    global _polling
    _polling = _polling or Polling(Runtime.from_env("poller"))
    return _polling.answer(event, context.get_remaining_time_in_millis() / 1000)
