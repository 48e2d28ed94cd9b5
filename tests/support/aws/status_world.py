"""The status function with its stream, its lists and a recorded event bus."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from punctual.aws.dynamodb.control.partitions import DynamoPartitions
from punctual.domain.run import RunStatus
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from punctual.lambdas.job_search.monitor import DeployedMonitor
from punctual.lambdas.quotas import build_job_counts
from punctual.lambdas.status.handler import StatusHandler, build_handler
from punctual.web.contract import READ_FUNCTION
from tests.support.aws.stream_records import Stream
from tests.support.builders import (
    a_run,
    after,
)
from tests.support.deployed.drivers.api import Api
from tests.support.deployed.drivers.telemetry import RecordedTelemetry

ENDED = a_run(
    status=RunStatus.SUCCESS,
    token=3,
    executor_id="e1",
    started_at=after(1),
    attempt_at=after(1),
    ended_at=after(2),
    changed_at=after(2),
)


RUNNING = replace(ENDED, status=RunStatus.RUNNING, ended_at=None, changed_at=after(1))


QUEUED = a_run()


class Bus:
    """Keeps published events. It refuses events of the run with id `refuse`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.refuse = ""

    def publish(self, events: Sequence[Any]) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        if any(event["detail"].get("run_id") == self.refuse for event in events):
            raise ValueError("this event is refused")
        self.events += [dict(event) for event in events]
        return ["id"] * len(events)

    def changes(self, kind: str) -> list[tuple[Any, Any]]:
        return [
            (event["detail"]["from"], event["detail"]["to"])
            for event in self.events
            if event["detail-type"] == f"{kind} State Change"
        ]


class World:
    def __init__(self, api: Api, run_events: str = "all") -> None:
        self.api, self.clock = api, api.clock
        self.store = api.store
        self.bus = Bus()
        self.stream = Stream(api.store)
        runtime = api.runtimes[READ_FUNCTION]
        self.telemetry: RecordedTelemetry = api.telemetry[READ_FUNCTION]
        self.status: StatusHandler = build_handler(runtime)
        self.status._run_events = run_events
        self.status._feed = self.bus

    def follow(self, *records: Any) -> list[str]:
        return self.status.handle(list(records))

    def listed(self) -> list[tuple[str, RunStatus]]:
        return [(view.run.run_id, view.run.status) for view in self.listed_views()]

    def listed_views(self) -> Sequence[RunView]:
        page = finish(self.store.lists.page("acme", RunFilters(), 50, None, self.clock.now))
        assert page.next_cursor is None
        views: Sequence[RunView] = page.items
        return views

    def stats(self, tenant: str = "acme") -> Any:
        return self.monitor().stats(tenant, self.clock.now)

    def monitor(self) -> DeployedMonitor:
        runtime = self.api.runtimes[READ_FUNCTION]
        planned = DynamoPartitions(runtime.dynamo, self.store.settings.control_table, self.clock)
        beating = self.store.ports.job_states.load_held_states
        counters, job_counts = self.status._counters, build_job_counts(runtime)
        return DeployedMonitor(planned, counters, job_counts, beating, ("event",), ("acme",))


def place(record: Any) -> str:
    sequence: str = record["dynamodb"]["SequenceNumber"]
    return sequence
