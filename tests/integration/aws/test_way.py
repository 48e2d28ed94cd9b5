"""The way of a job over the AWS adapter: submitted, fired, sent, claimed, finished, recorded."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest

from punctual.aws.dynamodb import keys
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.planner import Planner
from punctual.engine.dispatch.poller import Poller
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.rows import Detail
from punctual.engine.queries.jobs import RunFilters
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import JobView
from punctual.node.clock import ManualClock
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON, after
from tests.support.ports import a_change_applier, an_executor, job_commands, job_queries

WRITES = ("PutItem", "UpdateItem", "BatchWriteItem")


class Deployment:
    """The parts that run apart on AWS, side by side, each stepped by hand."""

    def __init__(self, aws: Moto, clock: ManualClock) -> None:
        numbers = count(1)
        ports = aws.ports

        def new_id() -> str:
            return sortable_id(clock(), (next(numbers) << 6).to_bytes(10, "big"))

        steps = a_change_applier(ports, clock, clock.monotonic, lambda *_, **__: None)
        self.aws = aws
        self.clock = clock
        self.search = job_queries(ports, clock, cast(Any, None))
        self.jobs = job_commands(ports, steps, self.search, clock, new_id)
        self.planner = Planner(ports.partitions, "planner")
        self.poller = Poller(ports.timers, ports.partitions, Evaluator(steps, new_id))
        self.executor = an_executor(ports, steps, new_id, "executor-1")

    def submit(self, **document: Any) -> JobView:
        (view,) = self.jobs.submit("acme", "ada", [Submission({"name": "n", **document})])
        assert isinstance(view, JobView)
        return view

    def poll(self) -> int:
        """A tick of the minute, what wake-ups would tell, and one step."""
        for lease in self.planner.tick(self.clock(), self.poller.leased_partitions).leases:
            self.poller.add_partition(lease)
        for place in self.poller.leased_partitions:
            until = place.bucket + timedelta(minutes=1)
            self.poller.add_timers(self.aws.ports.timers.due(*place, until, None, 100).timers)
        return self.poller.step(self.clock()).timer_count

    def execute(self) -> list[RunStatus]:
        handed = self.executor.claim(self.aws.delivered())
        assert not handed.retry_later
        ended = [
            FinishedAttempt(
                one.key, one.run.run_id, one.run.token, RunStatus.SUCCESS, False, Detail()
            )
            for one in handed.claimed
        ]
        self.clock.advance(timedelta(milliseconds=5))
        results = self.executor.finish(ended)
        return [one.decision.run.status for one in results if one.decision and one.decision.run]


@pytest.fixture
def aws() -> Iterator[Deployment]:
    clock = ManualClock(NOON)
    with moto(clock) as made:
        yield Deployment(made, clock)


def test_a_job_runs_at_its_second_and_is_recorded(aws: Deployment) -> None:
    view = aws.submit(schedule_type="FUTURE", schedule_time=after(30).isoformat(), payload={"a": 1})
    key = (view.state.tenant, view.state.job_id)
    aws.poll()
    assert aws.aws.delivered() == []
    aws.clock.set(after(30))
    assert aws.poll() == 1
    assert aws.execute() == [RunStatus.SUCCESS]
    assert aws.search.job(*key).state.status is JobStatus.COMPLETED
    (run,) = finish(aws.search.runs("acme", None, RunFilters(), 10, None)).items
    assert run.run.status is RunStatus.SUCCESS
    assert run.run.scheduled_at == after(30)
    assert run.run.started_at == after(30)
    assert aws.aws.rows("timers") == []


def test_a_recurring_run_costs_six_writes(aws: Deployment) -> None:
    aws.submit(schedule_type="INTERVAL", interval_seconds=60)
    aws.poll()
    spent: list[dict[str, int]] = []
    for minute in range(1, 4):
        aws.clock.set(after(60 * minute - 30))
        aws.poll()
        before = Counter(aws.aws.written)
        aws.clock.set(after(60 * minute))
        assert aws.poller.step(aws.clock()).timer_count == 1
        assert aws.execute() == [RunStatus.SUCCESS]
        spent.append(dict(aws.aws.written - before))
    for one in spent:
        one.pop(keys.CONTROL_TABLE.name)  # leases and lists, which many runs share
    # Fired, claimed, finished; the next timer put and this one deleted; the line of history.
    assert spent == [{"jobs": 3, "timers": 2, "runs": 1}] * 3


def test_submitting_is_three_writes_and_one_message_at_most(aws: Deployment) -> None:
    aws.poll()
    spent = aws.aws.spend(
        lambda: aws.submit(schedule_type="CRON", cron_expression="0 0 * * *", payload={"a": 1})
    )
    assert {name: spent.get(name, 0) for name in WRITES} == {
        "PutItem": 1,
        "BatchWriteItem": 2,
        "UpdateItem": 0,
    }
    assert "SendMessageBatch" not in spent


def test_a_cancelled_job_leaves_nothing_to_run(aws: Deployment) -> None:
    view = aws.submit(schedule_type="IMMEDIATE")
    cancelled = aws.jobs.cancel("acme", view.state.job_id)
    assert cancelled.state.status is JobStatus.CANCELLED
    handed = aws.executor.claim(aws.aws.delivered())
    assert not handed.claimed
    assert [row[keys.SK]["S"] for row in aws.aws.rows("timers")] == []
