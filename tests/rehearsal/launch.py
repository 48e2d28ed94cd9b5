"""The emulator with what keeps it from a deployment of ours; it runs in a virtualenv of its own.

1. A mapping of a FIFO queue hands out one batch at a time there, so that a lane would be a single
   executor. AWS runs as many as the mapping allows, none with a group that another one holds; the
   emulator's queues keep groups apart as well.
2. It knows no saved queries of CloudWatch Logs and so refuses the stack that holds them: they are
   taken here, and do nothing.
"""

from collections.abc import Mapping
from typing import Any

from ministack.app import main  # type: ignore[import-not-found]
from ministack.services import lambda_svc  # type: ignore[import-not-found]
from ministack.services.cloudformation.provisioners import (  # type: ignore[import-not-found]
    _RESOURCE_HANDLERS,
)

Props = Mapping[str, Any]
_serial = lambda_svc._sqs_esm_concurrency


def _concurrency(
    mapping: Props, function: Props, config: Props, _queue: Props | None = None
) -> int:
    allowed: int = _serial(mapping, function, config, None)
    return allowed


def _created(logical_id: str, _props: Props, stack: str) -> tuple[str, Props]:
    return f"{stack}/{logical_id}", {}


def _updated(physical_id: str, _old: Props, _new: Props, _stack: str) -> tuple[str, Props]:
    return physical_id, {}


def _deleted(_physical_id: str, _props: Props) -> None:
    pass


lambda_svc._sqs_esm_concurrency = _concurrency
_RESOURCE_HANDLERS["AWS::Logs::QueryDefinition"] = {
    "create": _created,
    "update": _updated,
    "delete": _deleted,
}
main()
