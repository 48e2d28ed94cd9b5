"""Builds the task runners of a deployed function. Imports wait until a task needs them."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from punctual.aws.s3 import BLOB_LINK_SECONDS
from punctual.aws.secrets import AwsSecrets
from punctual.engine.ports.clock import NewId
from punctual.lambdas.containers.settings import ContainerSettings
from punctual.lambdas.runtime import Runtime
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, Runner, StopRequest
from punctual.tasks.event import EventTask
from punctual.tasks.placeholders import FindSecret

if TYPE_CHECKING:
    from punctual.lambdas.containers.task import TaskStarter
    from punctual.tasks.reach import AllowedTargets
    from punctual.tasks.runner_event import RunnerArtifact


class _LazyRunner:
    """Builds a runner for its first task."""

    def __init__(self, make: Callable[[], Runner]) -> None:
        self._make = make

    @cached_property
    def _runner(self) -> Runner:
        return self._make()

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        return self._runner.run(attempt, stop, recorder)


class _RunnerBuilders:
    """Builds the runner of each task type. Each method imports what only this type needs."""

    def __init__(
        self, runtime: Runtime, runtime_api: str, containers: ContainerSettings | None
    ) -> None:
        self._runtime = runtime
        self._runtime_api = runtime_api
        self._containers = containers

    @cached_property
    def _starter(self) -> "TaskStarter":
        from punctual.lambdas.containers.task import build_starter

        assert self._containers is not None
        return build_starter(self._runtime, self._containers)

    @cached_property
    def _allowed_targets(self) -> "AllowedTargets":
        from punctual.tasks.reach import decode_targets

        return decode_targets(self._runtime.settings.reach)

    def build_event_task(self) -> Runner:
        return EventTask(self._runtime.ports.feed.publish)

    def build_http_task(self) -> Runner:
        from punctual.tasks.http.addresses import parse_private_network
        from punctual.tasks.http.task import HttpTask

        networks = self._runtime.settings.networks
        return HttpTask(
            monotonic=self._runtime.steady,
            open_networks=[parse_private_network(network) for network in networks],
            closed_ports=[int(port) for _, _, port in [self._runtime_api.rpartition(":")] if port],
        )

    def build_lambda_task(self) -> Runner:
        from punctual.aws.lambda_target import LambdaInvoker
        from punctual.tasks.lambda_function import InvokeTask

        invoker = LambdaInvoker(self._runtime.clients.lambda_client)
        return InvokeTask(invoker, self._allowed_targets.allows_function)

    def build_sqs_task(self) -> Runner:
        from punctual.aws.sqs.task_target import SqsTaskSender
        from punctual.tasks.sqs import QueueTask

        sender = SqsTaskSender(lambda: self._runtime.clients.sqs)
        return QueueTask(sender, self._allowed_targets.allows_queue)

    def build_script_task(self) -> Runner:
        from punctual.aws.script_functions import LambdaScriptFunctions
        from punctual.lambdas.containers.script_task import SizedScriptTask
        from punctual.tasks.script_function import ScriptFunctionTask

        runtime, containers = self._runtime, self._containers
        name_prefix = f"punctual-{runtime.settings.stage}"
        in_function = ScriptFunctionTask(
            LambdaScriptFunctions(runtime.clients.lambda_client, name_prefix),
            sign=lambda claim: runtime.claim_tokens.sign(claim),
            api_url=lambda: runtime.api_address,
            memory_mb=runtime.settings.script_memory_mb,
            find_artifact=partial(_find_artifact, runtime),
        )
        in_container = (
            _LazyRunner(lambda: _build_script_container_task(runtime, containers, self._starter))
            if containers is not None and containers.image
            else None
        )
        return SizedScriptTask(in_function, in_container, runtime.settings.script_memory_mb)

    def build_container_task(self) -> Runner:
        from punctual.lambdas.containers.task import build_container_task

        return build_container_task(self._runtime, self._starter)


def build_attempt_runners(
    runtime: Runtime, runtime_api: str = "", env: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], AttemptRunner]:
    """Return a function from tenant to attempt runner, which reads only the tenant's secrets.

    `runtime_api` is the address where Lambda hands out events. Tasks must not call it, for
    any networks of the stage.
    """
    clients, stage = runtime.clients, runtime.settings.stage
    containers = ContainerSettings.from_env(env)
    builders = _RunnerBuilders(runtime, runtime_api, containers)
    runners: dict[str, Runner] = {
        "event": _LazyRunner(builders.build_event_task),
        "http": _LazyRunner(builders.build_http_task),
        "lambda": _LazyRunner(builders.build_lambda_task),
        "script": _LazyRunner(builders.build_script_task),
        "sqs": _LazyRunner(builders.build_sqs_task),
    }
    secrets = AwsSecrets(lambda: clients.secretsmanager, lambda: clients.ssm, stage, runtime.steady)
    references: SecretReferences | None = None
    if containers is not None:
        runners["container"] = _LazyRunner(builders.build_container_task)
        parameters = AwsSecrets(None, lambda: clients.ssm, stage, runtime.steady)
        references = SecretReferences(
            containers, parameters.get, runtime.settings.script_memory_mb, runtime.new_id
        )
    attempt_runner = AttemptRunner(
        runners, secrets.get, references.of if references else lambda _attempt: None
    )
    return lambda _tenant: attempt_runner


class SecretReferences:
    """Refers to secrets where ECS reads their values, in place of the executor."""

    def __init__(
        self,
        settings: ContainerSettings,
        find_secret: FindSecret,
        function_memory_mb: int,
        new_id: NewId,
    ) -> None:
        self._settings = settings
        self._find_secret = find_secret
        self._function_memory_mb = function_memory_mb
        self._new_id = new_id

    def of(self, attempt: Attempt) -> FindSecret | None:
        """Return what refers to the secrets of an attempt in a container, or None."""
        from punctual.tasks.script_function import needs_container

        task = attempt.task
        if task["type"] == "container":
            return self._refer
        seconds = attempt.timeout.total_seconds()
        if (
            task["type"] == "script"
            and self._settings.image
            and needs_container(task, seconds, self._function_memory_mb)
        ):
            return self._mark
        return None

    def _refer(self, tenant: str, name: str) -> str:
        from punctual.tasks.container.request import SecretText

        return SecretText(self._arn(tenant, name))

    def _mark(self, tenant: str, name: str) -> str:
        from punctual.lambdas.containers.script_task import SecretMark

        return SecretMark(self._new_id(), self._arn(tenant, name))

    def _arn(self, tenant: str, name: str) -> str:
        """Return the ARN of a secret that exists in SSM."""
        try:
            self._find_secret(tenant, name)
        except KeyError:
            raise BadTask(
                f"There is no secret {name!r} for containers: they take only secrets that "
                "`punctual secrets set` has stored"
            ) from None
        return f"{self._settings.parameter_arn}{tenant}/{name}"


def _build_script_container_task(
    runtime: Runtime, settings: ContainerSettings, starter: "TaskStarter"
) -> Runner:
    from punctual.lambdas.containers.script_task import ContainerScriptTask
    from punctual.lambdas.containers.task import START_LINK_SECONDS

    return ContainerScriptTask(
        starter,
        settings.image,
        settings.max_vcpu,
        sign=lambda claim: runtime.claim_tokens.sign(claim),
        api_url=lambda: runtime.api_address,
        find_artifact=partial(_find_artifact, runtime, seconds=START_LINK_SECONDS),
    )


def _find_artifact(
    runtime: Runtime, tenant: str, artifact_id: str, seconds: int = BLOB_LINK_SECONDS
) -> "RunnerArtifact":
    """Return the file with a link that only reads it. A deleted one lasts while runs may use it."""
    from punctual.domain.artifacts import ARTIFACT_CONTENT_TYPE, ArtifactStatus
    from punctual.tasks.runner_event import RunnerArtifact

    artifact = runtime.ports.artifacts.load(tenant, [artifact_id]).get(artifact_id)
    if artifact is None or artifact.status not in (ArtifactStatus.STORED, ArtifactStatus.DELETED):
        raise BadTask(f"There is no artifact {artifact_id}")
    link = runtime.ports.blobs.link(artifact.blob_name, ARTIFACT_CONTENT_TYPE, seconds)
    if link is None:
        raise BadTask(f"The content of the artifact {artifact_id} is gone")
    return RunnerArtifact(link, artifact.sha256, artifact.name, artifact.size)
