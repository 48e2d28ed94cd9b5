"""Tasks of ECS on Fargate: start, describe, stop, and what each refusal means.

A start is one call of RunTask with a client token, so a repeated call never starts a second task.
ECS itself repeats nothing: a task that ends is not started again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from punctual.aws.dynamodb.client import chunked
from punctual.aws.retries import (
    THROTTLING_CODES,
    Client,
    RetryPolicy,
    UnknownOutcome,
    call_aws,
    call_once,
    error_code,
)
from punctual.domain.errors import Unavailable
from punctual.tasks.container.task_report import TaskReport, parse_report

MAX_DESCRIBED_TASKS = 100  # tasks in one DescribeTasks
MAX_STOPPED_PAGES = 10  # pages of 100 ended tasks, in which one task is looked for
LAUNCH_TYPE = "FARGATE"
# Codes under which ECS hides throttling and quotas; the message tells what happened.
_VAGUE_CODES = frozenset({"InvalidParameterException", "ClientException", "ServerException"})
_THROTTLING_WORDS = ("rate exceeded", "throttl", "too many concurrent attempts")
_CAPACITY_WORDS = ("capacity is unavailable", "limit on the number", "resource:")
_GONE_DEFINITION_WORDS = ("taskdefinition is inactive", "unable to describe task definition")


class Network(NamedTuple):
    """Where tasks run. A public address stands in for a NAT gateway."""

    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    has_public_address: bool


class TaskStart(NamedTuple):
    """One start: the task definition, and what differs from run to run."""

    start_id: str
    definition_arn: str
    overrides: Mapping[str, Any]  # of the definition, as `overrides_of` builds them


class Started(NamedTuple):
    arn: str


class NotStarted(NamedTuple):
    """Nothing runs. The run goes back to its queue, and this is no attempt."""

    reason: str


class Rejected(NamedTuple):
    """ECS does not accept this task, now or later."""

    reason: str


class DefinitionGone(NamedTuple):
    """The task definition is deregistered."""


class NoAnswer(NamedTuple):
    """The task may run. The same client token or a list of tasks finds it."""


class _Throttled(NamedTuple):
    """The call had no effect, and may be repeated after a wait."""


StartResult = Started | NotStarted | Rejected | DefinitionGone | NoAnswer


class EcsTasks:
    def __init__(
        self, client: Client, cluster: str, network: Network, retry_policy: RetryPolicy
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._network = network
        self._retry_policy = retry_policy

    def start(self, start: TaskStart) -> StartResult:
        """Start a task. A throttled or unanswered call is repeated with the same client token."""
        is_known = True
        for attempt in range(self._retry_policy.tries):
            try:
                result = call_once("starting a task", lambda: self._start_once(start))
            except UnknownOutcome:
                is_known = False
            else:
                if not isinstance(result, _Throttled):
                    return result
            self._retry_policy.wait(attempt, start.start_id)
        return NotStarted("ECS throttles starts of tasks") if is_known else NoAnswer()

    def _start_once(self, start: TaskStart) -> StartResult | _Throttled:
        address = "ENABLED" if self._network.has_public_address else "DISABLED"
        try:
            response = self._client().run_task(
                cluster=self._cluster,
                taskDefinition=start.definition_arn,
                count=1,
                launchType=LAUNCH_TYPE,
                clientToken=start.start_id,
                startedBy=start.start_id,
                networkConfiguration={
                    "awsvpcConfiguration": {
                        "subnets": list(self._network.subnets),
                        "securityGroups": list(self._network.security_groups),
                        "assignPublicIp": address,
                    }
                },
                overrides=start.overrides,
            )
        except ClientError as error:
            return _Throttled() if is_throttled(error) else refusal_of(error)
        if response["tasks"]:
            return Started(response["tasks"][0]["taskArn"])
        # ECS answers 200 with failures and no task where it lacks capacity.
        reasons = [failure.get("reason", "") for failure in response.get("failures", ())]
        return NotStarted(f"ECS started no task: {', '.join(filter(None, reasons)) or 'no reason'}")

    def describe(self, arns: Sequence[str]) -> dict[str, TaskReport]:
        """Return the reports of these tasks by ARN, without those that ECS does not know."""
        reports: dict[str, TaskReport] = {}
        for chunk in chunked(arns, MAX_DESCRIBED_TASKS):
            response = call_aws(
                "describing tasks",
                lambda chunk=chunk: self._client().describe_tasks(  # type: ignore[misc]
                    cluster=self._cluster, tasks=chunk
                ),
            )
            reports.update((task["taskArn"], parse_report(task)) for task in response["tasks"])
        return reports

    def find(self, start_id: str) -> str:
        """Return the ARN of the task that this client token started, or an empty string.

        With `startedBy`, ECS takes no other filter and omits tasks that have ended. They are
        listed without it.
        """
        response = call_aws(
            "listing tasks",
            lambda: self._client().list_tasks(cluster=self._cluster, startedBy=start_id),
        )
        if response["taskArns"]:
            return str(response["taskArns"][0])
        return self._find_stopped(start_id)

    def _find_stopped(self, start_id: str) -> str:
        """Find a task among all that have ended in the last hour.

        Raise `Unavailable` if they are too many to look at: the task may be one of them.
        """
        page: dict[str, str] = {}
        for _ in range(MAX_STOPPED_PAGES):
            response = call_aws(
                "listing stopped tasks",
                lambda page=page: self._client().list_tasks(  # type: ignore[misc]
                    cluster=self._cluster, desiredStatus="STOPPED", **page
                ),
            )
            reports = self.describe(response["taskArns"])
            for arn, report in reports.items():
                if report.start_id == start_id:
                    return arn
            if not response.get("nextToken"):
                return ""
            page = {"nextToken": response["nextToken"]}
        raise Unavailable("Too many tasks of ECS have ended to find one of them")

    def stop(self, arn: str, reason: str) -> None:
        """Stop a task with the grace of its definition. A task that has ended is not an error."""
        call_aws("stopping a task", lambda: self._stop_once(arn, reason))

    def _stop_once(self, arn: str, reason: str) -> None:
        try:
            self._client().stop_task(cluster=self._cluster, task=arn, reason=reason)
        except ClientError as error:
            if is_throttled(error):
                raise UnknownOutcome("throttled") from error
            if error_code(error) != "InvalidParameterException":
                raise


def is_throttled(error: ClientError) -> bool:
    """Return True for a throttle, also if ECS calls it an invalid parameter."""
    if error_code(error) in THROTTLING_CODES:
        return True
    message = _message_of(error)
    return error_code(error) in _VAGUE_CODES and any(word in message for word in _THROTTLING_WORDS)


def refusal_of(error: ClientError) -> StartResult:
    """Return what an error of RunTask means. Raise the error if a repeated call may succeed."""
    code, message = error_code(error), _message_of(error)
    if code == "ConflictException":
        # The token has started this task. Only the other parameters differ.
        response: Mapping[str, Any] = {**error.response}
        resources = response.get("resourceIds", [])
        return Started(resources[0]) if resources else NoAnswer()
    if code in _VAGUE_CODES and any(word in message for word in _CAPACITY_WORDS):
        return NotStarted(f"ECS has no capacity: {_words_of(error)}")
    if code in _VAGUE_CODES and any(word in message for word in _GONE_DEFINITION_WORDS):
        return DefinitionGone()
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500:
        raise error
    return Rejected(f"ECS refused the task with {code}: {_words_of(error)}")


def _message_of(error: ClientError) -> str:
    return _words_of(error).lower()


def _words_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", ""))
