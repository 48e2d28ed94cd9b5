"""The end of a container's log, from CloudWatch Logs."""

from typing import NamedTuple

from botocore.exceptions import ClientError

from punctual.aws.retries import Client, call_aws, error_code
from punctual.tasks.container.task_report import CONTAINER_NAME

STREAM_PREFIX = "run"
MAX_TAIL_EVENTS = 10_000  # events in one GetLogEvents, which holds at most 1 MB
MAX_TAIL_BYTES = 256 * 1024
_MISSING_STREAM_CODE = "ResourceNotFoundException"


class Tail(NamedTuple):
    """The last lines of a container. `is_cut` is set if earlier lines exist."""

    data: bytes
    is_cut: bool


NO_TAIL = Tail(b"", False)


def stream_name(arn: str) -> str:
    """Return the name of the log stream of a task.

    >>> stream_name("arn:aws:ecs:eu-west-1:1:task/punctual-dev/0123abcd")
    'run/main/0123abcd'
    """
    return f"{STREAM_PREFIX}/{CONTAINER_NAME}/{arn.rsplit('/', 1)[-1]}"


class LogTails:
    def __init__(self, client: Client, log_group: str) -> None:
        self._client = client
        self._log_group = log_group

    def read(self, arn: str) -> Tail:
        """Return the end of a task's log. A stream that does not exist yet is an empty log."""
        return call_aws("reading the log of a container", lambda: self._read(stream_name(arn)))

    def _read(self, stream: str) -> Tail:
        try:
            response = self._client().get_log_events(
                logGroupName=self._log_group,
                logStreamName=stream,
                startFromHead=False,
                limit=MAX_TAIL_EVENTS,
            )
        except ClientError as error:
            if error_code(error) == _MISSING_STREAM_CODE:
                return NO_TAIL
            raise
        lines = [event["message"] for event in response["events"]]
        data = "".join(f"{line}\n" for line in lines).encode()
        is_cut = len(data) > MAX_TAIL_BYTES or len(lines) == MAX_TAIL_EVENTS
        return Tail(data[-MAX_TAIL_BYTES:], is_cut)
