"""Task definitions of ECS: registered once for each content, reused, and removed when idle.

1. A row of the control table names the definition of a content.
2. The first executor that needs a new content locks its row and registers. The others wait.
3. A definition without use for 30 days loses its row, and is then deregistered.

Each content has a family of its own, so two executors never register revisions of one family.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import from_item, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout
from punctual.aws.ecs.log_tail import STREAM_PREFIX
from punctual.aws.ecs.tasks import LAUNCH_TYPE, is_throttled
from punctual.aws.retries import (
    Client,
    ConditionFailed,
    RetryPolicy,
    UnknownOutcome,
    call_aws,
    call_once,
    error_code,
)
from punctual.tasks.container.definition import TaskContent
from punctual.tasks.container.task_report import CONTAINER_NAME
from punctual.tasks.contract import BadTask

DEFINITIONS_PARTITION = "#task-definitions"
DEFINITION_RETENTION = timedelta(days=30)
USE_RESOLUTION = timedelta(days=1)  # a use is noted once a day
REGISTRATION_LOCK = timedelta(seconds=30)
# Memory keeps an ARN for so long, far below the retention.
CACHE_TIME = timedelta(hours=1)
STOP_GRACE_SECONDS = 30  # from SIGTERM to SIGKILL; Fargate allows 120 at most
LOG_BUFFER = "25m"
DEFINITION_ARN_FIELD, USED_FIELD, LOCKED_FIELD = "arn", "used", "lock"
_DEFINITIONS_PAGE_SIZE = 100


class StageDefinition(NamedTuple):
    """The settings of a stage that every task definition holds."""

    family_prefix: str
    task_role: str
    execution_role: str
    log_group: str
    region: str
    architecture: str  # as ECS names it: X86_64 or ARM64


class Registering(NamedTuple):
    """Another executor registers this content, or ECS is busy. Try again shortly."""


class TaskDefinitions:
    def __init__(
        self,
        client: Client,
        dynamo: DynamoClient,
        table: str,
        stage: StageDefinition,
        clock: Callable[[], datetime],
        retry_policy: RetryPolicy,
    ) -> None:
        self._client = client
        self._dynamo = dynamo
        self._table = table
        self._stage = stage
        self._clock = clock
        self._retry_policy = retry_policy
        self._known: dict[str, tuple[datetime, str]] = {}  # by hash: until when, and the ARN

    def find_or_register(self, content: TaskContent) -> str | Registering:
        """Return the ARN of the content's definition. Register it where there is none."""
        now = self._clock()
        content_hash = content.hash(*self._stage)
        known_until, arn = self._known.get(content_hash, (now, ""))
        if now < known_until:
            return arn
        key = _definition_key(content_hash)
        row = self._dynamo.read(self._table, [key]).get(key)
        values = {} if row is None else from_item(check_layout(row))
        if DEFINITION_ARN_FIELD not in values:
            return self._register(content, content_hash, now)
        is_noted = now - keys.parse_time_key(values[USED_FIELD]) < USE_RESOLUTION
        if not is_noted and not self._note_use(key, now):
            return Registering()  # it was removed since the read
        arn = str(values[DEFINITION_ARN_FIELD])
        self._known[content_hash] = (now + CACHE_TIME, arn)
        return arn

    def forget(self, content: TaskContent) -> None:
        """Delete the row of a definition that ECS no longer has."""
        content_hash = content.hash(*self._stage)
        self._known.pop(content_hash, None)
        self._dynamo.delete(self._table, [_definition_key(content_hash)])

    def deregister_unused(self, now: datetime) -> int:
        """Deregister the definitions without use for 30 days. Return their number."""
        rows = self._dynamo.query(
            self._table, KeyRange(DEFINITIONS_PARTITION), _DEFINITIONS_PAGE_SIZE
        )
        removed = 0
        for row in rows:
            values = from_item(check_layout(row))
            if now - keys.parse_time_key(values[USED_FIELD]) < DEFINITION_RETENTION:
                continue
            key = keys.RowKey(values[keys.PK], values[keys.SK])
            # The row goes first: an executor that uses it again has noted a newer use.
            if self._delete_if_unused(key, values[USED_FIELD]) and DEFINITION_ARN_FIELD in values:
                self._deregister(values[DEFINITION_ARN_FIELD])
                removed += 1
        return removed

    def _register(
        self, content: TaskContent, content_hash: str, now: datetime
    ) -> str | Registering:
        key = _definition_key(content_hash)
        if not self._lock(key, now):
            return Registering()
        for attempt in range(self._retry_policy.tries):
            try:
                arn = call_once(
                    "registering a task definition",
                    lambda: self._register_once(content, content_hash),
                )
            except UnknownOutcome:  # at worst the next try makes one more revision
                self._retry_policy.wait(attempt, content_hash)
            else:
                self._set_arn(key, arn)
                self._known[content_hash] = (now + CACHE_TIME, arn)
                return arn
        return Registering()

    def _register_once(self, content: TaskContent, content_hash: str) -> str:
        try:
            response = self._client().register_task_definition(
                **definition_parameters(content, content_hash, self._stage)
            )
        except ClientError as error:
            if is_throttled(error):
                raise UnknownOutcome("throttled") from error
            if error_code(error) in ("ClientException", "InvalidParameterException"):
                message = error.response.get("Error", {}).get("Message", "")
                raise BadTask(f"ECS refused the task definition: {message}") from error
            raise
        return str(response["taskDefinition"]["taskDefinitionArn"])

    def _lock(self, key: keys.RowKey, now: datetime) -> bool:
        """Lock a content for its registration. A lock of a crashed executor ends by itself."""
        values = {
            keys.LAYOUT_ATTR: keys.ROW_LAYOUT,
            USED_FIELD: keys.time_key(now),
            LOCKED_FIELD: keys.time_key(now + REGISTRATION_LOCK),
        }
        condition = Condition(
            "attribute_not_exists(#pk) OR (attribute_not_exists(#arn) AND #lock < :now)",
            names={"#pk": keys.PK, "#arn": DEFINITION_ARN_FIELD, "#lock": LOCKED_FIELD},
            values=to_item({":now": keys.time_key(now)}),
        )
        failure = self._dynamo.put_if(self._table, {**key.item(), **to_item(values)}, condition)
        return failure is None

    def _set_arn(self, key: keys.RowKey, arn: str) -> None:
        condition = Condition(
            "attribute_exists(#pk)",
            "SET #arn = :arn",
            {"#pk": keys.PK, "#arn": DEFINITION_ARN_FIELD},
            to_item({":arn": arn}),
        )
        self._dynamo.update_if(self._table, key, condition)

    def _note_use(self, key: keys.RowKey, now: datetime) -> bool:
        condition = Condition(
            "attribute_exists(#pk)",
            "SET #used = :used",
            {"#pk": keys.PK, "#used": USED_FIELD},
            to_item({":used": keys.time_key(now)}),
        )
        answer = self._dynamo.update_if(self._table, key, condition)
        return not isinstance(answer, ConditionFailed)

    def _delete_if_unused(self, key: keys.RowKey, used: str) -> bool:
        """Delete the row, unless it was used since it was read."""
        return self._dynamo.transact(
            [
                {
                    "Delete": {
                        "TableName": self._table,
                        "Key": key.item(),
                        "ConditionExpression": "#used = :used",
                        "ExpressionAttributeNames": {"#used": USED_FIELD},
                        "ExpressionAttributeValues": to_item({":used": used}),
                    }
                }
            ]
        )

    def _deregister(self, arn: str) -> None:
        call_aws(
            "deregistering a task definition",
            lambda: self._client().deregister_task_definition(taskDefinition=arn),
        )


def definition_parameters(
    content: TaskContent, content_hash: str, stage: StageDefinition
) -> dict[str, Any]:
    """Return the parameters of RegisterTaskDefinition."""
    container: dict[str, Any] = {
        "name": CONTAINER_NAME,
        "image": content.image,
        "essential": True,
        "stopTimeout": STOP_GRACE_SECONDS,
        # An init process reaps orphans, and hands signals on.
        "linuxParameters": {"initProcessEnabled": content.has_init},
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {
                "awslogs-group": stage.log_group,
                "awslogs-region": stage.region,
                "awslogs-stream-prefix": STREAM_PREFIX,
                # A slow log service must not freeze the program. A full buffer drops lines.
                "mode": "non-blocking",
                "max-buffer-size": LOG_BUFFER,
            },
        },
    }
    if content.entry_point:
        container["entryPoint"] = list(content.entry_point)
    if content.secrets:
        container["secrets"] = [
            {"name": secret.variable, "valueFrom": secret.arn} for secret in sorted(content.secrets)
        ]
    return {
        "family": f"{stage.family_prefix}-{content_hash}",
        "requiresCompatibilities": [LAUNCH_TYPE],
        "networkMode": "awsvpc",
        "cpu": str(content.size.cpu_units),
        "memory": str(content.size.memory_mb),
        "runtimePlatform": {
            "cpuArchitecture": stage.architecture,
            "operatingSystemFamily": "LINUX",
        },
        "taskRoleArn": stage.task_role,
        "executionRoleArn": stage.execution_role,
        "containerDefinitions": [container],
    }


def _definition_key(content_hash: str) -> keys.RowKey:
    return keys.RowKey(DEFINITIONS_PARTITION, content_hash)
