"""Starts a task of ECS for a run, and leaves the run to the function `containers`.

1. The start waits for processors and for its second: 15 starts a second in the whole stage.
2. The definition of its image, size and secrets is registered, unless it is known.
3. A row says that this task may exist. The lease of the run is extended beyond some sweeps.
4. RunTask starts the task, with a client token of this attempt and claim.

What a task reads goes to objects of this start, with links to them. They are deleted at its end.

A crash after step 3 is found by the sweep, which asks ECS for the task of this token. A store that
does not answer before step 4 returns the run, and no attempt is counted. From step 4 on a container
may run, so no failure of a store ends the attempt.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from punctual.aws.ecs.task_definitions import Registering
from punctual.aws.ecs.tasks import (
    DefinitionGone,
    NoAnswer,
    NotStarted,
    Rejected,
    Started,
    StartResult,
    TaskStart,
)
from punctual.aws.parameters import Parameters
from punctual.domain.errors import Unavailable
from punctual.engine.ports.blobs import JSON_MEDIA_TYPE, TEXT_CONTENT_TYPE, Blobs
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.containers.runtime import ContainerParts, build_parts
from punctual.lambdas.containers.settings import ContainerSettings
from punctual.lambdas.containers.start_files import (
    ENVIRONMENT_FILE,
    START_FILE_NAMES,
    delete_start_files,
    environment_lines,
    start_folder,
)
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.ssm_secrets import API_ADDRESS_PARAMETER
from punctual.tasks.container.definition import TaskContent
from punctual.tasks.container.next_step import CONTAINER_LEASE, Container, start_id_of
from punctual.tasks.container.request import (
    PAYLOAD_URL_VARIABLE,
    RUN_URL_VARIABLE,
    check_overrides,
    fits,
    overrides_of,
    split_environment,
)
from punctual.tasks.container.sizes import choose_size
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    NoRoom,
    Outcome,
    Recorder,
    StartFailed,
    StopRequest,
    Throttled,
)
from punctual.tasks.runner_event import runner_event
from punctual.tasks.script.task import run_variables
from punctual.tasks.text import as_text, json_bytes

MAX_PERMIT_SECONDS = 40.0  # waited for a permit and for another executor's registration
REGISTRATION_RETRY_SECONDS = 1.0
START_LINK_SECONDS = 3_600  # a link outlives the start deadline and a slow image

_log = logging.getLogger(__name__)


class TaskPlan(NamedTuple):
    """What one start runs. `files` are contents by the variable that gets a link to them."""

    content: TaskContent
    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, bytes]
    is_script: bool = False


class TaskStarter:
    """Starts tasks of ECS.

    - `link` returns a URL that reads an object until after the start deadline.
    - `extend_lease` extends the lease of an attempt, and returns False if the claim is lost.
    """

    def __init__(
        self,
        parts: ContainerParts,
        blobs: Blobs,
        link: Callable[[str], str | None],
        clock: Clock,
        steady: Callable[[], float],
        extend_lease: Callable[[Attempt], bool],
        bucket_arn: str,
    ) -> None:
        self._parts = parts
        self._blobs = blobs
        self._link = link
        self._clock = clock
        self._steady = steady
        self._extend_lease = extend_lease
        self._bucket_arn = bucket_arn

    def start(self, attempt: Attempt, stop: StopRequest, plan: TaskPlan) -> Outcome:
        start_id = start_id_of(attempt.run_id, attempt.attempt_number, attempt.token)
        deadline = self._steady() + MAX_PERMIT_SECONDS
        folder = start_folder(attempt.tenant, attempt.job_id, attempt.run_id, start_id)
        try:
            self._wait_for_permit(start_id, plan.content.size.cpu_units, stop, deadline)
            arn = self._wait_for_definition(plan.content, stop, deadline)
            overrides = self._overrides(plan, folder)
            return self._start(attempt, plan, TaskStart(start_id, arn, overrides))
        except (BadTask, Throttled):
            self._release(start_id, folder)
            raise
        except Unavailable as error:  # nothing of the job has begun
            self._release(start_id, folder)
            raise Throttled(error.message) from error

    def _release(self, start_id: str, folder: str) -> None:
        """Give back the permit, which ends by itself otherwise, and delete what was stored."""
        try:
            self._parts.quota.release(start_id)
            delete_start_files(self._blobs, folder)
        except Unavailable as error:
            _log_unwritten("start_not_released", start_id, error)

    def _wait_for_permit(
        self, start_id: str, cpu_units: int, stop: StopRequest, deadline: float
    ) -> None:
        while True:
            permit = self._parts.quota.take(start_id, cpu_units)
            if permit.is_full:
                raise NoRoom("The containers of this installation use all their processors")
            if self._steady() + permit.wait_seconds > deadline:
                raise Throttled("Too many containers start at the same time")
            if permit.wait_seconds and stop.wait(permit.wait_seconds):
                raise Throttled("The executor stops")
            if permit.is_granted:
                return

    def _wait_for_definition(self, content: TaskContent, stop: StopRequest, deadline: float) -> str:
        while True:
            arn = self._parts.definitions.find_or_register(content)
            if not isinstance(arn, Registering):
                return arn
            is_late = self._steady() + REGISTRATION_RETRY_SECONDS > deadline
            if is_late or stop.wait(REGISTRATION_RETRY_SECONDS):
                raise Throttled("ECS registers the task definition")

    def _start(self, attempt: Attempt, plan: TaskPlan, start: TaskStart) -> Outcome:
        container = Container(
            start.start_id,
            attempt.tenant,
            attempt.job_id,
            attempt.run_id,
            attempt.attempt_number,
            attempt.token,
            plan.content.size,
            int(attempt.timeout.total_seconds()),
            self._clock(),
            keeps_log=attempt.keeps_output,
            is_script=plan.is_script,
        )
        self._parts.rows.put(container)
        try:
            is_held = self._extend_lease(attempt)
        except Unavailable:
            self._delete_row(start.start_id)
            raise
        if not is_held:
            self._delete_row(start.start_id)
            raise Throttled("The claim is lost")
        result = self._start_task(start)
        match result:
            case Started(arn):
                self._set_arn(start.start_id, arn)
            case NoAnswer():
                pass  # the sweep finds the task, or returns the claim
            case _:
                self._delete_row(start.start_id)
                self._raise_refusal(plan.content, result)
        return Outcome("DETACHED")

    def _start_task(self, start: TaskStart) -> StartResult:
        try:
            return self._parts.tasks.start(start)
        except Unavailable as error:  # the task may run
            _log_unwritten("container_start_unknown", start.start_id, error)
            return NoAnswer()

    def _set_arn(self, start_id: str, arn: str) -> None:
        """Note the task that runs. Otherwise its next event or the sweep notes it."""
        try:
            self._parts.rows.set_arn(start_id, arn)
        except Unavailable as error:
            _log_unwritten("container_arn_not_set", start_id, error)

    def _delete_row(self, start_id: str) -> None:
        """Delete the row of a start that started nothing. Otherwise the sweep deletes it."""
        try:
            self._parts.rows.delete([start_id])
        except Unavailable as error:
            _log_unwritten("container_row_not_deleted", start_id, error)

    def _raise_refusal(self, content: TaskContent, result: StartResult) -> None:
        match result:
            case Rejected(reason):
                raise BadTask(reason)
            case NotStarted(reason):
                raise StartFailed(reason)
            case DefinitionGone():
                self._parts.definitions.forget(content)
                raise Throttled("The task definition is registered again")

    def _overrides(self, plan: TaskPlan, folder: str) -> Mapping[str, Any]:
        """Return what the start overrides. Links that do not fit go to a file that ECS reads."""
        links = self._links(folder, plan.files)
        overrides = overrides_of(plan.command, {**plan.environment, **links})
        if links and not fits(overrides):
            name = folder + ENVIRONMENT_FILE
            self._blobs.put(name, environment_lines(links), TEXT_CONTENT_TYPE)
            file_arn = f"{self._bucket_arn}/{name}"
            overrides = overrides_of(plan.command, plan.environment, file_arn)
        check_overrides(overrides)
        return overrides

    def _links(self, folder: str, files: Mapping[str, bytes]) -> dict[str, str]:
        """Store what a task reads, and return a link to each object by its variable."""
        links: dict[str, str] = {}
        for variable, data in files.items():
            name = folder + START_FILE_NAMES[variable]
            self._blobs.put(name, data, JSON_MEDIA_TYPE)
            link = self._link(name)
            if link is not None:
                links[variable] = link
        return links


class ContainerTask:
    """Runs `container` tasks. `runner_event` returns what our runner reads, or nothing."""

    def __init__(self, starter: TaskStarter, runner_event: Callable[[Attempt], bytes]) -> None:
        self._starter = starter
        self._runner_event = runner_event

    def run(self, attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        environment, secrets = split_environment(attempt.task.get("env") or {})
        content = TaskContent(
            attempt.task["image"], choose_size(attempt.task.get("resources")), (), secrets
        )
        files: dict[str, bytes] = {}
        if attempt.payload is not None:
            files[PAYLOAD_URL_VARIABLE] = json_bytes(attempt.payload)
        event_data = self._read_event(attempt)
        if event_data:
            event: dict[str, Any] = {
                **json.loads(event_data),
                "task": {"type": "container"},
                "secret_variables": [secret.variable for secret in secrets],
                "secrets": [],
            }
            files[RUN_URL_VARIABLE] = json_bytes(event)
        command = tuple(as_text(word) for word in attempt.task.get("command") or ())
        plan = TaskPlan(content, command, {**environment, **run_variables(attempt)}, files)
        return self._starter.start(attempt, stop, plan)

    def _read_event(self, attempt: Attempt) -> bytes:
        try:
            return self._runner_event(attempt)
        except Unavailable as error:
            raise Throttled(error.message) from error


def _log_unwritten(event: str, start_id: str, error: Unavailable) -> None:
    _log.error(event, extra={"start_id": start_id, "error": error.message})


def build_starter(runtime: Runtime, settings: ContainerSettings) -> TaskStarter:
    blobs = runtime.ports.blobs

    def extend_lease(attempt: Attempt) -> bool:
        key = JobKey(attempt.tenant, attempt.job_id)
        claim = (key, attempt.run_id, attempt.token)
        return runtime.executor.renew([claim], lease=CONTAINER_LEASE)[0].is_held

    return TaskStarter(
        build_parts(runtime, settings),
        blobs,
        lambda name: blobs.link(name, JSON_MEDIA_TYPE, START_LINK_SECONDS),
        runtime.clock,
        runtime.steady,
        extend_lease,
        settings.bucket_arn,
    )


def build_container_task(runtime: Runtime, starter: TaskStarter) -> ContainerTask:
    """Return the runner of `container` tasks in an executor."""
    address = Parameters(
        lambda: runtime.clients.ssm, [runtime.settings.knobs + API_ADDRESS_PARAMETER]
    )

    def event_of(attempt: Attempt) -> bytes:
        """Return the event for our runner, or nothing before `make deploy` stored the address."""
        addresses = list(address.read().values())
        if not addresses:
            return b""
        return runner_event(
            attempt,
            sign=runtime.claim_tokens.sign,
            api_url=addresses[0],
            lease_seconds_left=CONTAINER_LEASE.total_seconds(),
            lease=CONTAINER_LEASE,  # a runner inside must not shorten the lease that ECS holds
        )

    return ContainerTask(starter, event_of)
