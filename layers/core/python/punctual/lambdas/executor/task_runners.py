"""Builds the task runners of a deployed function. Imports wait until a task needs them."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from punctual.aws.secrets import AwsSecrets
from punctual.lambdas.runtime import Runtime
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, Runner, StopRequest
from punctual.tasks.event import EventTask

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
    runtime: Runtime, runtime_api: str = ""
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
    attempt_runner = AttemptRunner(runners, secrets.get)
    return lambda _tenant: attempt_runner
