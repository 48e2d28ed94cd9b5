"""Every five minutes: end the runs of messages that were received too often."""

import os
from typing import Any

from punctual.lambdas.dead_letters.handler import DeadLetterHandler
from punctual.lambdas.runtime import Runtime

_runtime = Runtime.from_env("dead-letters")
_runtime.clients.prepare("dynamodb", "sqs")
_handler = DeadLetterHandler(_runtime, os.environ["PUNCTUAL_DEAD_LETTERS"].split())


def handler(_event: Any, context: Any) -> None:
    _handler.handle(lambda: context.get_remaining_time_in_millis() / 1000)
