"""Containers over the in-memory engine, a control table in moto, and the stand-in for ECS."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
from punctual.aws.ecs.containers import ContainerRows
from punctual.aws.ecs.log_tail import LogTails
from punctual.aws.ecs.task_definitions import StageDefinition, TaskDefinitions
from punctual.aws.ecs.tasks import EcsTasks, Network
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.domain.run import RunStatus
from punctual.engine.execution.executor import Assignment, FinishedAttempt
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import RunView
from punctual.engine.quotas.container_quota import ContainerQuota
from punctual.lambdas.containers.handler import ContainersHandler
from punctual.lambdas.containers.runtime import ContainerParts
from punctual.lambdas.containers.script_task import ContainerScriptTask, SecretMark
from punctual.lambdas.containers.task import ContainerTask, TaskStarter
from punctual.tasks.assignment import attempt_of, detail_of
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.container.next_step import CONTAINER_LEASE
from punctual.tasks.container.request import SecretText
from punctual.tasks.contract import Attempt, Outcome
from punctual.tasks.runner_event import RunnerArtifact
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.claims.scene import ClaimsScene
from tests.support.containers.ecs import Ecs, FakeTask
from tests.support.deployed.drivers.telemetry import RecordedTelemetry

IMAGE = "registry.example.com/report:1"
BUCKET_URL = "https://bucket.example.com/"
SCRIPTS_IMAGE = "registry.example.com/scripts:1"
BUCKET_ARN = "arn:aws:s3:::punctual-dev-outputs"
MINUTE = timedelta(minutes=1)
STAGE = StageDefinition("punctual-dev", "role:task", "role:pull", "/logs", "eu-west-1", "X86_64")
NETWORK = Network(("subnet-a", "subnet-b"), ("sg-a",), has_public_address=True)


def _find_artifact(_tenant: str, artifact_id: str) -> RunnerArtifact:
    return RunnerArtifact(BUCKET_URL + artifact_id, "0" * 64, "report.zip", 9)


class _NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError(f"a container logs nothing in the executor: {data!r}")


class _Patience:
    """A stop request that never comes. Waiting for it moves the clock."""

    def __init__(self, scene: ClaimsScene) -> None:
        self._scene = scene

    def reason(self) -> str:
        return ""

    def wait(self, seconds: float) -> bool:
        self._scene.wait(seconds)
        return False


class ContainersWorld:
    """One executor, the function `containers`, and ECS. Its clock stands until a test moves it."""

    def __init__(self, aws: Moto, scene: ClaimsScene, max_vcpu: int = 4) -> None:
        self.scene = scene
        self.ecs = Ecs(scene.world.clock)
        for client in (aws.clients.ecs, aws.clients.logs):
            self.ecs.answer(client)
        self.log = RecordedTelemetry()
        clock = scene.world.clock
        table = aws.settings.control_table
        policy = RetryPolicy(lambda _seconds: None, "test")
        dynamo = DynamoClient(lambda: aws.clients.dynamodb, ThreadPool(1), policy)
        rows = ContainerRows(dynamo, table)
        self.rows = rows
        self.parts = ContainerParts(
            rows,
            EcsTasks(lambda: aws.clients.ecs, "punctual-dev", NETWORK, policy),
            TaskDefinitions(lambda: aws.clients.ecs, dynamo, table, STAGE, clock, policy),
            ContainerQuota(
                DynamoQuotaRows(dynamo, table, clock),
                clock,
                max_vcpu * 1_024,
                lambda: sum(row.size.cpu_units for row in rows.load_all()),
            ),
        )
        self.handler = ContainersHandler(
            executor=scene.executor,
            rows=rows,
            tasks=self.parts.tasks,
            definitions=self.parts.definitions,
            quota=self.parts.quota,
            tails=LogTails(lambda: aws.clients.logs, "/logs"),
            blobs=scene.ports.blobs,
            clock=clock,
            log=self.log,
        )
        starter = TaskStarter(
            self.parts,
            scene.ports.blobs,
            lambda name: f"{BUCKET_URL}{name}{self.link_end}",
            clock,
            lambda: scene.world.now.timestamp(),
            self._extend_lease,
            BUCKET_ARN,
        )
        self._container_task = ContainerTask(
            starter, lambda attempt: b'{"format":1,"run_id":"%s"}' % attempt.run_id.encode()
        )
        self._script_task = ContainerScriptTask(
            starter,
            SCRIPTS_IMAGE,
            max_vcpu,
            sign=scene.tokens.sign,
            api_url=lambda: "https://api.example.com/v1",
            find_artifact=_find_artifact,
        )
        self.link_end = ""  # of the links that tasks get, for example a signature
        self.extends_leases = True  # False: the store does not answer this call
        self.use_secrets({})

    def _extend_lease(self, attempt: Attempt) -> bool:
        if not self.extends_leases:
            raise Unavailable("The store does not answer")
        key = JobKey(attempt.tenant, attempt.job_id)
        claim = (key, attempt.run_id, attempt.token)
        return self.scene.executor.renew([claim], lease=CONTAINER_LEASE)[0].is_held

    def use_secrets(self, arns: Mapping[str, str]) -> None:
        """Give the tenant secrets, by name."""

        def refer(_tenant: str, name: str) -> str:
            return SecretText(arns[name])

        def mark(_tenant: str, name: str) -> str:
            return SecretMark(f"random-{name}", arns[name])

        self.runner = AttemptRunner(
            {"container": self._container_task, "script": self._script_task},
            secret_references=lambda attempt: mark if attempt.task["type"] == "script" else refer,
        )

    # What a person and the executor do

    def submit(self, task: dict[str, Any] | None = None, **document: Any) -> JobKey:
        wanted = {"type": "container", "image": IMAGE, **(task or {})}
        return self.scene.submit(task=wanted, **document)

    def execute(self) -> list[Outcome]:
        """Claim all queued runs and hand them over, as the executor function does."""
        return [self.hand_over(assignment) for assignment in self.scene.claim_runs()]

    def hand_over(self, assignment: Assignment) -> Outcome:
        attempt = replace(attempt_of(assignment), is_detached=True)
        outcome = self.runner.run(attempt, _Patience(self.scene), _NoLog())
        run = assignment.run
        if not outcome.begun and outcome.start_failed:
            self.scene.executor.return_failed_start(
                assignment.key, run.run_id, run.token, outcome.error
            )
        elif not outcome.begun:
            self.scene.executor.return_claim(
                assignment.key, run.run_id, run.token, False, never_started=True
            )
        elif outcome.status != "DETACHED":
            detail = detail_of(assignment, outcome)
            status = RunStatus(outcome.status)
            self.scene.executor.finish(
                [
                    FinishedAttempt(
                        assignment.key, run.run_id, run.token, status, outcome.retryable, detail
                    )
                ]
            )
        return outcome

    def start_script(self, task: dict[str, Any] | None = None, **document: Any) -> JobKey:
        """Submit a long script and hand its run over."""
        script = {"type": "script", "runtime": "bash", "code": "echo hi", **(task or {})}
        key = self.scene.submit(task=script, **{"timeout_seconds": 1_000, **document})
        assert [outcome.status for outcome in self.execute()] == ["DETACHED"]
        return key

    def runner_event(self, task: FakeTask) -> dict[str, Any]:
        """Return the event that the runner in this task reads."""
        url = task.environment["PUNCTUAL_RUN_URL"]
        event: dict[str, Any] = json.loads(self.scene.blobs[url.removeprefix(BUCKET_URL)])
        return event

    def start(self, task: dict[str, Any] | None = None, **document: Any) -> JobKey:
        """Submit a job and hand its run over."""
        key = self.submit(task, **document)
        assert [outcome.status for outcome in self.execute()] == ["DETACHED"]
        return key

    # What time does

    def deliver_events(self, *order: int) -> None:
        """Deliver all events of ECS, or those at these places."""
        events = list(self.ecs.events)
        self.ecs.events.clear()
        for event in [events[place] for place in order] if order else events:
            self.handler.handle(event)

    def lose_events(self) -> None:
        self.ecs.events.clear()

    def sweep(self, minutes: int = 1) -> None:
        """Let minutes pass, with a sweep and the due evaluations after each."""
        for _ in range(minutes):
            self.scene.world.now += MINUTE
            self.handler.handle({"detail-type": "Scheduled Event"})
            self.evaluate()

    def pass_without_sweep(self, time: timedelta) -> None:
        self.scene.world.now += time
        self.evaluate()

    def evaluate(self) -> None:
        self.scene.evaluate()

    # Results

    @property
    def task(self) -> FakeTask:
        return self.ecs.newest_task()

    def run_of(self, key: JobKey) -> RunView:
        """Return the latest run of a job, with its attempts."""
        search = self.scene.world.search
        run_id = search.job(*key).state.latest_run_id
        return search.run(*key, run_id)

    def log_of(self, key: JobKey) -> bytes:
        run_id = self.run_of(key).run.run_id
        return self.scene.world.search.logs(*key, run_id, 0).data

    def cancel(self, key: JobKey) -> None:
        """Cancel the latest run, as a person does."""
        self.scene.world.jobs.cancel_run(*key, self.run_of(key).run.run_id)


@contextmanager
def containers_world(max_vcpu: int = 4) -> Iterator[ContainersWorld]:
    scene = ClaimsScene(hands_over_scripts=True)
    with moto(scene.world.clock) as aws:
        yield ContainersWorld(aws, scene, max_vcpu)
