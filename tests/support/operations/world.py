"""Operations as AWS carries them out: handlers with faults, a queue, a planner, and a person.

It runs over any adapter. A crashed handler leaves its message, which comes again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from punctual.aws.sqs.operation_queue import OperationMessage, to_body
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.operations.operation import MAX_SLICE_AGE, Operation, OperationAction
from punctual.domain.run import Run, Trigger, WaitingRun
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.commands.idempotency import IdempotencyKeys
from punctual.engine.commands.jobs import Submission
from punctual.engine.operations.actions import OperationActions
from punctual.engine.operations.commands import BulkRequest, OperationCommands
from punctual.engine.operations.matching import BulkFilter, Matcher
from punctual.engine.operations.runner import OperationRunner
from punctual.engine.ports.audit_log import Actor
from punctual.engine.ports.lists.job_index import JobFilters
from punctual.engine.ports.lists.operations import OperationKey
from punctual.engine.ports.quotas import Quotas
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import JobView
from punctual.engine.quotas.limits import NoQuotas
from punctual.lambdas.operations.handler import OperationsHandler
from tests.support.builders import ManualClock, an_id
from tests.support.deployed.drivers.telemetry import RecordedTelemetry
from tests.support.ports import Ports, a_change_applier, job_commands, job_names, job_queries
from tests.support.simulation.port_faults import Crash, Plan, port_with_faults, with_faults

TENANT = "acme"
VISIBILITY = timedelta(seconds=360)  # of a message after a crash of its handler
STALLED = timedelta(minutes=3)  # after which the planner sends a message
IDLE_STEP = timedelta(seconds=20)  # without a message, until the planner looks again
ACTOR = Actor("ada", request_id="request")
HOURLY = {"schedule_type": "CRON", "cron_expression": "0 * * * *"}


class Queued(NamedTuple):
    message: OperationMessage
    visible_at: datetime
    receives: int = 0


class MemoryOperationQueue:
    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.messages: list[Queued] = []

    def send(self, messages: Sequence[OperationMessage], delay_seconds: float = 0) -> None:
        assert 0 <= delay_seconds <= 900, "SQS delays 15 minutes"
        at = self._clock() + timedelta(seconds=delay_seconds)
        self.messages += [Queued(message, at) for message in messages]

    def receive(self) -> Queued | None:
        """Return the message that has been visible for longest, and hide it."""
        visible = [queued for queued in self.messages if queued.visible_at <= self._clock()]
        if not visible:
            return None
        queued = min(visible, key=lambda queued: queued.visible_at)
        self.messages.remove(queued)
        return queued._replace(receives=queued.receives + 1)

    def return_later(self, queued: Queued) -> None:
        self.messages.append(queued._replace(visible_at=self._clock() + VISIBILITY))


class OperationsWorld:
    """`person` is called after each invocation, and may change jobs back."""

    def __init__(
        self,
        ports: Ports,
        clock: ManualClock,
        quotas: Quotas | None = None,
        items_per_second: float = 3,
    ) -> None:
        self.ports = ports
        self.clock = clock
        self.quotas = quotas or NoQuotas()
        self.items_per_second = items_per_second
        self.queue = MemoryOperationQueue(clock)
        self.log = RecordedTelemetry()
        self.person: Callable[[], object] = lambda: None
        self.invocations = 0
        self._ids = 0
        self._moved: dict[OperationKey, tuple[int, Any]] = {}

    def new_id(self) -> str:
        self._ids += 1
        return an_id(self._ids, self.clock())

    # Processes: each has its own ports, which may fail

    def _process(self, plan: Plan, name: str) -> tuple[Ports, Any]:
        queue = port_with_faults(self.queue, plan, name, "operation_queue")
        return with_faults(self.ports, plan, name), queue

    def commands(self, plan: Plan | None = None) -> OperationCommands:
        ports, queue = self._process(plan or Plan(), "api")
        queries = job_queries(ports, self.clock, _no_monitor())

        def send_first_message(key: OperationKey) -> None:
            try:
                queue.send([OperationMessage(key, 1)])
            except Unavailable as error:
                self.log.error("operation_message_not_sent", error=error.message)

        return OperationCommands(
            ports.operations,
            Matcher(ports.job_index, ports.job_states, ports.history, queries),
            JobLabels(ports.job_states),
            IdempotencyKeys(ports.receipts),
            ports.audit_log,
            self.clock,
            self.new_id,
            send_first_message,
        )

    def handler(self, plan: Plan | None = None) -> OperationsHandler:
        ports, queue = self._process(plan or Plan(), "operations")
        applier = a_change_applier(ports, self.clock, self.clock.monotonic)
        queries = job_queries(ports, self.clock, _no_monitor())
        jobs = job_commands(ports, applier, queries, self.clock, self.new_id)
        jobs._quotas = self.quotas
        actions = OperationActions(
            jobs,
            applier,
            ports.job_states,
            Definitions(ports.job_states, ports.blobs),
            job_names(ports, self.new_id),
            self.quotas,
        )
        return OperationsHandler(
            operations=ports.operations,
            runner=OperationRunner(ports.operations, actions, MAX_SLICE_AGE),
            queue=queue,
            items_per_second=self.items_per_second,
            clock=self.clock,
            steady=self.clock.monotonic,
            pause=lambda seconds: self.clock.advance(timedelta(seconds=seconds)),
            time_limit=lambda _seconds: nullcontext(),
            log=self.log,
        )

    def with_port(self, name: str, port: Any) -> "OperationsWorld":
        """Let the handlers from now on use another port."""
        self.ports = replace(self.ports, **{name: port})
        return self

    # What people and AWS do

    def submit(self, name: str, tenant: str = TENANT, **fields: Any) -> JobKey:
        applier = a_change_applier(self.ports, self.clock, self.clock.monotonic)
        queries = job_queries(self.ports, self.clock, _no_monitor())
        jobs = job_commands(self.ports, applier, queries, self.clock, self.new_id)
        document = {"name": name, **HOURLY, "tags": {"team": "data"}, **fields}
        (view,) = jobs.submit(tenant, "ada", [Submission(document)])
        assert isinstance(view, JobView), view
        return JobKey(tenant, view.state.job_id)

    def jobs(self) -> Any:
        applier = a_change_applier(self.ports, self.clock, self.clock.monotonic)
        queries = job_queries(self.ports, self.clock, _no_monitor())
        return job_commands(self.ports, applier, queries, self.clock, self.new_id)

    def begin(
        self,
        action: OperationAction,
        bulk_filter: BulkFilter | None = None,
        plan: Plan | None = None,
        key: str | None = None,
        tenant: str = TENANT,
        **fields: Any,
    ) -> Operation:
        bulk_filter = bulk_filter or BulkFilter(JobFilters(tags=(("team", "data"),)))
        request = BulkRequest(action, bulk_filter, {"tag": ["team:data"]}, **fields)
        commands = self.commands(plan)
        return finish(commands.begin(tenant, "ada", request, ACTOR, key, "print"))

    def load(self, operation: Operation) -> Operation:
        stored = self.ports.operations.load(OperationKey(operation.tenant, operation.operation_id))
        assert stored is not None
        return stored

    def state(self, key: JobKey) -> JobState:
        return self.ports.job_states.load([key])[key].state

    def statuses(self, keys: Sequence[JobKey]) -> Counter[JobStatus]:
        stored = self.ports.job_states.load(list(keys))
        return Counter(stored[key].state.status for key in keys)

    def requested_runs(self, key: JobKey) -> list[RunKey]:
        state = self.state(key)
        live_runs: list[Run | WaitingRun] = [*state.runs, *state.wait_queue]
        return [RunKey(*key, run.run_id) for run in live_runs if run.trigger != Trigger.SCHEDULE]

    def invoke(self, queued: Queued, plan: Plan | None = None) -> None:
        """Let a handler process one message, which comes again after a crash or a failure."""
        self.invocations += 1
        record = {
            "messageId": "m",
            "body": to_body(queued.message),
            "attributes": {"ApproximateReceiveCount": str(queued.receives)},
        }
        try:
            answer = self.handler(plan).handle([record])
        except Crash:
            self.queue.return_later(queued)
            return
        if answer["batchItemFailures"]:
            self.queue.return_later(queued)

    def invoke_another(self, operation: Operation) -> None:
        """Let a second handler work at the same time, without faults, for one slice or two."""
        key = OperationKey(operation.tenant, operation.operation_id)
        message = OperationMessage(key, operation.revision)
        self.invoke(Queued(message, self.clock(), 1))

    def cancel(self, operation: Operation, plan: Plan | None = None) -> Operation:
        return self.commands(plan).cancel(operation.tenant, operation.operation_id, ACTOR)

    def run_some(self, plan: Plan | None, invocations: int) -> None:
        for _ in range(invocations):
            queued = self.queue.receive()
            if queued is not None:
                self.invoke(queued, plan)
                self.person()

    def tick(self) -> None:
        """Send messages for operations that have not moved, as the planner does."""
        for key in self.ports.operations.running(100):
            operation = self.ports.operations.load(key)
            if operation is None:
                continue
            revision, since = self._moved.get(key, (0, self.clock()))
            if revision != operation.revision:
                self._moved[key] = (operation.revision, self.clock())
            elif self.clock() - since >= STALLED:
                self.queue.send([OperationMessage(key, operation.revision)])
                self._moved[key] = (operation.revision, self.clock())

    def _time_to_next_step(self) -> timedelta:
        waits = [queued.visible_at - self.clock() for queued in self.queue.messages]
        return min([*waits, IDLE_STEP])

    def run(self, plan: Plan | None = None, max_steps: int = 600) -> None:
        """Let time pass until no operation runs and no message is left."""
        for _ in range(max_steps):
            queued = self.queue.receive()
            if queued is not None:
                self.invoke(queued, plan)
                self.person()
                continue
            if not self.queue.messages and not self.ports.operations.running(1):
                return
            self.clock.advance(self._time_to_next_step())
            self.tick()
        raise AssertionError("an operation does not end")


def _no_monitor() -> Any:
    return None
