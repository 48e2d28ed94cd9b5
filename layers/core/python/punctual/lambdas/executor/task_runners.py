"""Builds the task runners of a deployed function. Imports wait until a task needs them."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from punctual.aws.secrets import AwsSecrets
from punctual.lambdas.containers.settings import ContainerSettings
from punctual.lambdas.runtime import Runtime
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, Runner, StopRequest
from punctual.tasks.event import EventTask
from punctual.tasks.placeholders import FindSecret

if TYPE_CHECKING:
    from punctual.tasks.reach import AllowedTargets


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

    runners: dict[str, Runner] = {
        "event": _LazyRunner(lambda: EventTask(runtime.ports.feed.publish)),
        "http": _LazyRunner(build_http_task),
        "lambda": _LazyRunner(build_lambda_task),
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
        references["container"] = partial(_refer_to_secret, containers.parameter_arn, secrets.get)
    attempt_runner = AttemptRunner(runners, secrets.get, references)
    return lambda _tenant: attempt_runner


def _build_container_task(runtime: Runtime, settings: ContainerSettings) -> Runner:
    from punctual.lambdas.containers.task import build_container_task

    return build_container_task(runtime, settings)


def _refer_to_secret(parameter_arn: str, find_secret: FindSecret, tenant: str, name: str) -> str:
    """Return the reference of a secret that exists. ECS reads its value."""
    from punctual.tasks.container.request import SecretText

    find_secret(tenant, name)
    return SecretText(f"{parameter_arn}{tenant}/{name}")
