"""The emulator, corrected where it is stricter than AWS; runs in its own virtualenv.

A mapping of a FIFO queue hands out one batch at a time there, so a lane would be one executor.
AWS runs as many at a time as the mapping allows, none with a group that another one holds; the
emulator's queues keep groups apart as well.
"""

from typing import Any

from ministack.app import main  # type: ignore[import-not-found]
from ministack.services import lambda_svc  # type: ignore[import-not-found]

serial = lambda_svc._sqs_esm_concurrency


def concurrency(
    mapping: dict[str, Any],
    function: dict[str, Any],
    config: dict[str, Any],
    _queue: dict[str, Any] | None = None,
) -> int:
    allowed: int = serial(mapping, function, config, None)
    return allowed


lambda_svc._sqs_esm_concurrency = concurrency
main()
