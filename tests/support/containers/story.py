"""A run in a container, with processes that are killed, frozen and cut off at their calls.

Each call of the executor, and of the function `containers`, reaches the stores, ECS and the logs
through one plan of faults. A process that is killed or cut off is followed by a fresh one, as
Lambda starts it. While a process is frozen, the others go on for minutes.

A minute passes as on AWS: messages and events are delivered again until they are handled, ECS
moves its tasks, and a sweep runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
from punctual.aws.ecs.containers import ContainerRows
from punctual.aws.ecs.log_tail import LogTails
from punctual.aws.ecs.task_definitions import TaskDefinitions
from punctual.aws.ecs.tasks import EcsTasks
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.claims import ClaimIdentity
from punctual.domain.decide import Verdict
from punctual.domain.errors import Unavailable
from punctual.domain.leases import DETACHED_LEASE
from punctual.domain.run import Run, RunStatus
from punctual.engine.execution.claims import ClaimFinish, ClaimRenewal, ClaimStatus
from punctual.engine.execution.executor import Assignment, Executor, FinishedAttempt
from punctual.engine.ports.rows import NO_DETAIL, JobKey, RunKey
from punctual.engine.quotas.container_quota import ContainerQuota
from punctual.lambdas.containers.handler import ContainersHandler
from punctual.lambdas.containers.runtime import ContainerParts
from punctual.lambdas.containers.script_task import ContainerScriptTask
from punctual.lambdas.containers.task import ContainerTask, TaskStarter
from punctual.tasks.assignment import attempt_of, detail_of
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.container.next_step import CONTAINER_LEASE
from punctual.tasks.container.task_report import STOP_REQUESTED
from punctual.tasks.contract import Attempt, Outcome
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.claims.scene import ClaimsScene
from tests.support.containers.ecs import Ecs, FakeTask
from tests.support.containers.world import (
    BUCKET_ARN,
    IMAGE,
    MINUTE,
    NETWORK,
    SCRIPTS_IMAGE,
    STAGE,
)
from tests.support.deployed.drivers.telemetry import RecordedTelemetry
from tests.support.ports import a_change_applier, an_executor
from tests.support.simulation.port_faults import (
    Crash,
    Fault,
    Plan,
    port_with_faults,
    with_faults,
)

CONTAINER = {"type": "container", "image": IMAGE}
LONG_SCRIPT = {"type": "script", "runtime": "bash", "code": "echo done"}
FROZEN_SECONDS = 420  # longer than the lease of a container, and than every limit of a start
MAX_MINUTES = 40
MAX_DELIVERIES = 3  # of one event: Lambda repeats an invocation twice
MAX_VCPU = 4
BROKEN = (Crash, Unavailable)


class Play(NamedTuple):
    """The document of a job, and the minute in which a person cancels its run."""

    document: Mapping[str, Any]
    cancel_minute: int = 0


class _Patience:
    """A stop request that never comes. Waiting for it moves the clock."""

    def __init__(self, scene: ClaimsScene) -> None:
        self._scene = scene

    def reason(self) -> str:
        return ""

    def wait(self, seconds: float) -> bool:
        self._scene.wait(seconds)
        return False


class _NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError(f"a container logs nothing in the executor: {data!r}")


class _Process:
    """An environment of the executor and of the function `containers`, as Lambda starts it."""

    def __init__(self, aws: Moto, scene: ClaimsScene, plan: Plan, name: str) -> None:
        def reached(port: Any, port_name: str) -> Any:
            return port_with_faults(port, plan, name, port_name)

        world, clock = scene.world, scene.world.clock
        ports = with_faults(scene.ports, plan, name)
        applier = a_change_applier(ports, clock, lambda: world.now.timestamp())
        self.scene = scene
        self.executor: Executor = an_executor(
            ports, applier, world.new_id, f"{name}-1", hands_over_scripts=True
        )
        policy = RetryPolicy(lambda _seconds: None, name)
        table = aws.settings.control_table
        client = DynamoClient(lambda: aws.clients.dynamodb, ThreadPool(1), policy)
        dynamo = reached(client, "control")
        rows = ContainerRows(dynamo, table)
        ecs = reached(aws.clients.ecs, "registry")
        self.parts = ContainerParts(
            rows,
            reached(EcsTasks(lambda: aws.clients.ecs, "punctual-dev", NETWORK, policy), "ecs"),
            TaskDefinitions(lambda: ecs, dynamo, table, STAGE, clock, policy),
            ContainerQuota(
                DynamoQuotaRows(dynamo, table, clock),
                clock,
                MAX_VCPU * 1_024,
                lambda: sum(row.size.cpu_units for row in rows.load_all()),
            ),
        )
        self._ports = ports
        self.handler = ContainersHandler(
            executor=self.executor,
            rows=rows,
            tasks=self.parts.tasks,
            definitions=self.parts.definitions,
            quota=self.parts.quota,
            tails=reached(LogTails(lambda: aws.clients.logs, "/logs"), "logs"),
            blobs=ports.blobs,
            clock=clock,
            log=RecordedTelemetry(),
        )

    def run_queued(self) -> None:
        """Receive messages, claim their runs, and start their containers."""
        queue = self.scene.world.memory.run_queue
        for delivery in queue.receive(10):
            claimed = self.executor.claim([delivery.message])
            if claimed.retry_later:
                ((_, retry_at),) = claimed.retry_later
                queue.change_visibility(delivery, retry_at)
                continue
            if claimed.claimed:
                (assignment,) = claimed.claimed
                if not self._extend_lease(assignment):
                    continue
                queue.acknowledge(delivery)
                self._hand_over(assignment)
            else:
                queue.acknowledge(delivery)

    def _extend_lease(self, assignment: Assignment) -> bool:
        key, run = assignment.key, assignment.run
        claim = (key, run.run_id, run.token)
        try:
            (renewal,) = self.executor.renew([claim], is_first=True, lease=DETACHED_LEASE)
        except Unavailable:
            _persist(lambda: self.executor.return_claim(*claim, False, True))
            return False
        return renewal.is_held

    def _hand_over(self, assignment: Assignment) -> None:
        key, run = assignment.key, assignment.run
        claim = (key, run.run_id, run.token)
        outcome = self._runner().run(attempt_of(assignment), _Patience(self.scene), _NoLog())
        if outcome.status == "DETACHED":
            return
        if outcome.begun:
            end = _end_of(assignment, outcome)
            _persist(lambda: self.executor.finish([end]))
        elif outcome.start_failed:
            _persist(lambda: self.executor.return_failed_start(*claim, outcome.error))
        else:
            _persist(lambda: self.executor.return_claim(*claim, False, never_started=True))

    def _runner(self) -> AttemptRunner:
        scene = self.scene
        starter = TaskStarter(
            self.parts,
            self._ports.blobs,
            lambda name: f"https://bucket.example.com/{name}",
            scene.world.clock,
            lambda: scene.world.now.timestamp(),
            self._extend_container_lease,
            BUCKET_ARN,
        )
        script = ContainerScriptTask(
            starter,
            SCRIPTS_IMAGE,
            MAX_VCPU,
            sign=scene.tokens.sign,
            api_url=lambda: "https://api.example.com/v1",
            find_artifact=_no_artifact,
        )
        container = ContainerTask(starter, lambda _attempt: b"")
        return AttemptRunner({"container": container, "script": script})

    def _extend_container_lease(self, attempt: Attempt) -> bool:
        key = JobKey(attempt.tenant, attempt.job_id)
        claim = (key, attempt.run_id, attempt.token)
        return self.executor.renew([claim], lease=CONTAINER_LEASE)[0].is_held


def _no_artifact(_tenant: str, _artifact_id: str) -> Any:
    raise AssertionError("no artifact here")


def _end_of(assignment: Assignment, outcome: Outcome) -> FinishedAttempt:
    run, status = assignment.run, RunStatus(outcome.status)
    detail = detail_of(assignment, outcome)
    return FinishedAttempt(assignment.key, run.run_id, run.token, status, outcome.retryable, detail)


def _persist(call: Callable[[], object]) -> None:
    """Repeat a call that the store does not answer, as the executor does for some seconds."""
    for _ in range(3):
        try:
            call()
        except Unavailable:
            continue
        return


class ContainerStory:
    """One job with one run in a container, until nothing is left of it."""

    def __init__(self, aws: Moto, scene: ClaimsScene, play: Play, faults: Sequence[Fault]) -> None:
        self.play = play
        self.scene = scene
        self.plan = Plan(tuple(faults), sleep=self._go_on_without)
        self.ecs = Ecs(scene.world.clock)
        for client in (aws.clients.ecs, aws.clients.logs):
            self.ecs.answer(client)
        self._aws = aws
        self._ended: dict[RunKey, Run] = {}
        self._minutes = 0
        self._stop_requests: list[dict[str, Any]] = []
        self._messages: list[dict[str, Any]] = []
        self.key = scene.submit(payload={"day": "monday"}, max_retries=0, **play.document)

    def process(self, name: str) -> _Process:
        return _Process(self._aws, self.scene, self.plan, name)

    # Time

    def run_to_end(self) -> None:
        """Let minutes pass until the run has ended, and nothing of it is left in ECS."""
        while not self.is_over:
            assert self._minutes < MAX_MINUTES, f"the run stays {self.run.status}"
            self.minute()
        self.plan.on = False
        for _ in range(2):  # late sweeps find nothing to do
            self.minute()

    @property
    def is_over(self) -> bool:
        return self.run.ended_at is not None and not self.living and not self.containers()

    def minute(self) -> None:
        """Let a minute pass. A process that breaks is followed by a fresh one."""
        self._minutes += 1
        self._try(lambda: self.process("executor").run_queued())
        self._deliver_events()
        if self._minutes == self.play.cancel_minute:
            self._cancel()
        self._deliver_events()
        self._move_tasks()
        self._deliver_events()
        self.scene.world.now += MINUTE
        self._try(lambda: self.process("sweep").handler.handle({"detail-type": "Scheduled Event"}))
        self.scene.evaluate()
        self.check()

    def _try(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except BROKEN:
            return False
        return True

    def _go_on_without(self, seconds: float) -> None:
        """Let the other processes go on while one is frozen."""
        self.plan.on = False
        for _ in range(int(seconds / MINUTE.total_seconds())):
            self.minute()
        self.plan.on = True

    def _deliver_events(self) -> None:
        """Deliver each event until a process has handled it, but not for ever."""
        while self._messages or self.ecs.events:
            self._messages += self.ecs.events
            self.ecs.events.clear()
            event = self._messages.pop(0)
            for _ in range(MAX_DELIVERIES):
                if self._try(lambda: self.process("events").handler.handle(event)):  # noqa: B023
                    break

    def _cancel(self) -> None:
        run_id = self.run.run_id
        if self.run.ended_at is None:
            self.scene.world.jobs.cancel_run(*self.key, run_id)
            self._messages.append({"detail-type": STOP_REQUESTED, "detail": {"run_ids": [run_id]}})

    def _move_tasks(self) -> None:
        """Let ECS start tasks, and end those that were stopped or have done their work."""
        for task in self.living:
            if task.stop_requests:
                self.ecs.stop_requested(task)
            elif task.status == "PROVISIONING":
                self.ecs.run(task)
                if self.is_script:
                    self._bind(task)
            else:
                self._end_work(task)

    def _end_work(self, task: FakeTask) -> None:
        code = 0
        if self.is_script:
            end = ClaimFinish(self._claim_of(task), "SUCCESS", task.arn[-8:], b"done", "text/plain")
            code = 0 if self.scene.claims.finish([end]) == [ClaimStatus.OK] else 1
        self.ecs.print(task, "done")
        self.ecs.exit(task, code)

    def _bind(self, task: FakeTask) -> None:
        """Let the runner bind its claim before the script begins, or end without it."""
        renewal = ClaimRenewal(self._claim_of(task), task.arn[-8:], has_started=True)
        (answer,) = self.scene.claims.renew([renewal])
        if answer.status is ClaimStatus.LOST:
            task.started_at = None  # the runner ended, and no script has begun
            self.ecs.exit(task, 1)

    def _claim_of(self, task: FakeTask) -> str:
        run_id, attempt, token = task.start_id.rsplit("-", 2)
        seconds = int(CONTAINER_LEASE.total_seconds())
        return self.scene.tokens.sign(
            ClaimIdentity(*self.key, run_id, int(attempt), int(token), seconds)
        )

    # What must hold

    @property
    def is_script(self) -> bool:
        return bool(self.play.document["task"]["type"] == "script")

    @property
    def run(self) -> Run:
        search = self.scene.world.search
        return search.run(*self.key, search.job(*self.key).state.latest_run_id).run

    @property
    def living(self) -> list[FakeTask]:
        return [task for task in self.ecs.tasks.values() if task.status != "STOPPED"]

    @property
    def begun(self) -> list[FakeTask]:
        """Return the tasks that have begun their work."""
        return [task for task in self.ecs.tasks.values() if task.started_at is not None]

    def containers(self) -> list[Any]:
        with self._without_faults():
            return self.process("test").parts.rows.load_all()

    @contextmanager
    def _without_faults(self) -> Iterator[None]:
        was_on, self.plan.on = self.plan.on, False
        try:
            yield
        finally:
            self.plan.on = was_on

    def check(self) -> None:
        """Check that no run ended twice, and that each attempt has one living task at most."""
        rows = {key: row.run for key, row in self.scene.world.memory.history.rows.items()}
        for key, run in self._ended.items():
            assert rows[key] == run, "a run ended twice"
        self._ended = rows
        assert len([task for task in self.living if not task.stop_requests]) <= 1
        numbers = [task.start_id.split("-")[-2] for task in self.begun]
        assert len(numbers) == len(set(numbers)), "an attempt began twice"

    def check_end(self) -> None:
        """Check that the run has ended once, that its old claims are void, and nothing is left."""
        run = self.run
        ends = {RunStatus.SUCCESS}
        if self.play.cancel_minute:
            ends.add(RunStatus.CANCELLED)
        if self.play.document.get("delivery") == "AT_MOST_ONCE":
            ends.add(RunStatus.FAILED)
            assert len(self.begun) <= 1
        assert run.status in ends, run.status
        assert self.used_cpu_units() == 0
        self._check_old_claims()

    def used_cpu_units(self) -> int:
        with self._without_faults():
            return self.process("test").parts.quota.used_cpu_units()

    def _check_old_claims(self) -> None:
        run, before = self.run, self.scene.snapshot()
        tokens = {int(task.start_id.rsplit("-", 1)[-1]) for task in self.ecs.tasks.values()}
        for token in tokens - {run.token}:
            end = FinishedAttempt(self.key, run.run_id, token, RunStatus.FAILED, True, NO_DETAIL)
            (result,) = self.scene.executor.finish([end])
            assert result.verdict is Verdict.FENCED
        assert self.run == run
        assert self.scene.snapshot()["blobs"] == before["blobs"]


@contextmanager
def container_story(play: Play, faults: Sequence[Fault] = ()) -> Iterator[ContainerStory]:
    scene = ClaimsScene(hands_over_scripts=True)
    with moto(scene.world.clock) as aws:
        yield ContainerStory(aws, scene, play, faults)
