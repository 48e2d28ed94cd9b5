"""What ECS says about a task, in a state-change event or in an answer of DescribeTasks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from punctual.tasks.limits import RESERVED_DETAIL_TYPES

CONTAINER_NAME = "main"  # the only container of each task

# The events that the function `containers` receives.
ECS_SOURCE, ECS_EVENT_TYPE = "aws.ecs", "ECS Task State Change"
STOP_REQUESTED = RESERVED_DETAIL_TYPES[2]

RUNNING_STATUS, STOPPED_STATUS = "RUNNING", "STOPPED"
UNKNOWN_STATUS = "UNKNOWN"  # ours, while ECS does not answer


class TaskReport(NamedTuple):
    """One report of ECS. A higher `version` is a later one, whatever the order of arrival.

    `exit_code` is None while the container runs, and where ECS knows none. `reason` is ECS's
    reason for the end of the container, and `stopped_reason` for the end of the task.
    """

    arn: str
    start_id: str  # the client token of the call that started the task
    version: int
    status: str
    stop_code: str = ""
    stopped_reason: str = ""
    exit_code: int | None = None
    reason: str = ""
    started_at: datetime | None = None  # when the container began
    stopped_at: datetime | None = None

    @property
    def is_stopped(self) -> bool:
        return self.status == STOPPED_STATUS

    @property
    def words(self) -> str:
        """Return the reasons that ECS gives for the end, each once."""
        return ": ".join(dict.fromkeys(filter(None, (self.stopped_reason, self.reason))))


def parse_report(task: Mapping[str, Any]) -> TaskReport:
    """Return the report in the `detail` of an event, or in a task of DescribeTasks."""
    container: Mapping[str, Any] = next(
        (item for item in task.get("containers", ()) if item.get("name") == CONTAINER_NAME), {}
    )
    return TaskReport(
        arn=task["taskArn"],
        start_id=task.get("startedBy", ""),
        version=int(task.get("version", 0)),
        status=task["lastStatus"],
        stop_code=task.get("stopCode", ""),
        stopped_reason=task.get("stoppedReason", ""),
        exit_code=container.get("exitCode"),
        reason=container.get("reason", ""),
        started_at=_parse_time(task.get("startedAt")),
        stopped_at=_parse_time(task.get("stoppedAt")),
    )


def _parse_time(value: Any) -> datetime | None:
    """Return the time of an event, which is text, or of an answer of the client."""
    if value is None or isinstance(value, datetime):
        return value
    return datetime.fromisoformat(str(value))
