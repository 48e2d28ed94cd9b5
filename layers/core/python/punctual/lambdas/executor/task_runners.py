"""Builds the task runners of a deployed function. Imports wait until a task needs them."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from punctual.aws.secrets import AwsSecrets
from punctual.lambdas.containers.settings import ContainerSettings
from punctual.lambdas.runtime import Runtime
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, Runner, StopRequest
from punctual.tasks.event import EventTask
from punctual.tasks.placeholders import FindSecret

if TYPE_CHECKING:
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


def build_attempt_runners(
    runtime: Runtime, runtime_api: str = "", env: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], AttemptRunner]:
    """Return a function from tenant to attempt runner, which reads only the tenant's secrets.

    `runtime_api` is the address where Lambda hands out events. Tasks must not call it, for
    any networks of the stage.
    """
    clients = runtime.clients

    def build_http_task() -> Runner:
        from punctual.tasks.http.addresses import parse_private_network
        from punctual.tasks.http.task import HttpTask

        return HttpTask(
            monotonic=runtime.steady,
            open_networks=[parse_private_network(network) for network in runtime.settings.networks],
            closed_ports=[int(port) for _, _, port in [runtime_api.rpartition(":")] if port],
        )

    def allowed_reach() -> "AllowedTargets":
        from punctual.tasks.reach import decode_targets

        return decode_targets(runtime.settings.reach)

    def build_lambda_task() -> Runner:
        from punctual.aws.lambda_target import LambdaInvoker
        from punctual.tasks.lambda_function import InvokeTask

        return InvokeTask(LambdaInvoker(clients.lambda_client), allowed_reach().allows_function)

    def build_sqs_task() -> Runner:
        from punctual.aws.sqs.task_target import SqsTaskSender
        from punctual.tasks.sqs import QueueTask

        return QueueTask(SqsTaskSender(lambda: clients.sqs), allowed_reach().allows_queue)

    def build_script_task() -> Runner:
        from punctual.aws.script_functions import LambdaScriptFunctions
        from punctual.tasks.script_function import ScriptFunctionTask

        return ScriptFunctionTask(
            LambdaScriptFunctions(clients.lambda_client, f"punctual-{runtime.settings.stage}"),
            sign=lambda claim: runtime.claim_tokens.sign(claim),
            api_url=lambda: runtime.api_address,
            memory_mb=runtime.settings.script_memory_mb,
            find_artifact=partial(_find_artifact, runtime),
        )

    runners: dict[str, Runner] = {
        "event": _LazyRunner(lambda: EventTask(runtime.ports.feed.publish)),
        "http": _LazyRunner(build_http_task),
        "lambda": _LazyRunner(build_lambda_task),
        "script": _LazyRunner(build_script_task),
        "sqs": _LazyRunner(build_sqs_task),
    }
    secrets = AwsSecrets(
        lambda: clients.secretsmanager,
        lambda: clients.ssm,
        runtime.settings.stage,
        runtime.steady,
    )
    references: dict[str, FindSecret] = {}
    containers = ContainerSettings.from_env(env)
    if containers is not None:
        runners["container"] = _LazyRunner(partial(_build_container_task, runtime, containers))
        parameters = AwsSecrets(None, lambda: clients.ssm, runtime.settings.stage, runtime.steady)
        references["container"] = partial(
            _refer_to_secret, containers.parameter_arn, parameters.get
        )
    attempt_runner = AttemptRunner(runners, secrets.get, references)
    return lambda _tenant: attempt_runner


def _build_container_task(runtime: Runtime, settings: ContainerSettings) -> Runner:
    from punctual.lambdas.containers.task import build_container_task

    return build_container_task(runtime, settings)


def _refer_to_secret(parameter_arn: str, find_secret: FindSecret, tenant: str, name: str) -> str:
    """Return the reference of a secret that exists in SSM. ECS reads its value."""
    from punctual.tasks.container.request import SecretText

    try:
        find_secret(tenant, name)
    except KeyError:
        raise BadTask(
            f"There is no secret {name!r} for containers: they take only secrets that "
            "`punctual secrets set` has stored"
        ) from None
    return SecretText(f"{parameter_arn}{tenant}/{name}")


def _find_artifact(runtime: Runtime, tenant: str, artifact_id: str) -> "RunnerArtifact":
    """Return the file with a link that only reads it. A deleted one lasts while runs may use it."""
    from punctual.domain.artifacts import ARTIFACT_CONTENT_TYPE, ArtifactStatus
    from punctual.tasks.runner_event import RunnerArtifact

    artifact = runtime.ports.artifacts.load(tenant, [artifact_id]).get(artifact_id)
    if artifact is None or artifact.status not in (ArtifactStatus.STORED, ArtifactStatus.DELETED):
        raise BadTask(f"There is no artifact {artifact_id}")
    link = runtime.ports.blobs.link(artifact.blob_name, ARTIFACT_CONTENT_TYPE)
    if link is None:
        raise BadTask(f"The content of the artifact {artifact_id} is gone")
    return RunnerArtifact(link, artifact.sha256, artifact.name, artifact.size)
