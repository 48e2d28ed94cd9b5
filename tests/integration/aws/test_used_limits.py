"""`GET /stats` of a stage reads the rows of leased limits, and changes none."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
from punctual.aws.ports import build_dynamo_client
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.ports.log import no_log
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.leased_uses import LeasedUses
from punctual.engine.quotas.run_permits import RunPermits
from punctual.engine.quotas.used_limits import UsedLimits
from tests.support.aws.moto_adapter import moto
from tests.support.builders import NOON, ManualClock

EXECUTORS = {"quick-high": 4, "quick-normal": 10}
LIMITS = TenantLimits(
    calls_per_second=10, burst=30, jobs=5, runs_per_minute=40, concurrent_runs=8, lane_percent=50
)


class Stage:
    """Two instances that share the rows of the limits, and the reader of `GET /stats`."""

    def __init__(self, rows: DynamoQuotaRows, clock: ManualClock) -> None:
        self.clock = clock
        self.rows = rows
        self.quotas = LeasedQuotas(lambda _: LIMITS, rows, lambda _: 2, clock, no_log)
        self.permits = RunPermits(lambda _: LIMITS, rows, "0a", clock, no_log, EXECUTORS)
        uses = LeasedUses(rows, lambda _: 2, EXECUTORS)
        self._read = UsedLimits(lambda _: LIMITS, [uses])

    def used(self, tenant: str = "acme") -> dict[str, tuple[float, float]]:
        return {
            limit["limit"]: (limit["allowed"], limit["used"])
            for limit in self._read(tenant, self.clock())
        }


@pytest.fixture
def stage() -> Iterator[Stage]:
    clock = ManualClock(NOON)
    with moto(clock) as store:
        dynamo = build_dynamo_client(store.clients, ThreadPool(1))
        yield Stage(DynamoQuotaRows(dynamo, store.settings.control_table, clock), clock)


def test_leased_uses_are_shown_until_they_count_no_more(stage: Stage) -> None:
    assert stage.used() == {
        "calls_per_second": (10, 0),
        "jobs": (5, 2),
        "runs_per_minute": (40, 0),
        "concurrent_runs": (8, 0),
        "lane_percent": (50, 0),
    }
    for _ in range(6):
        stage.quotas.check_call("acme")
    assert stage.quotas.take_run_requests("acme", 12).number == 12
    assert stage.permits.request("acme", 3, "quick-high").number == 3
    used = stage.used()
    assert 0 < used["calls_per_second"][1] <= 10
    assert used["runs_per_minute"][1] >= 12
    assert 3 <= used["concurrent_runs"][1] <= 8
    assert used["lane_percent"] == (50, 25), "one of four executors of the queue"
    assert {used for _, used in stage.used("other").values()} == {0, 2}
    stage.clock.advance(timedelta(seconds=130))
    assert stage.used() == {
        "calls_per_second": (10, 0),
        "jobs": (5, 2),
        "runs_per_minute": (40, 0),
        "concurrent_runs": (8, 0),
        "lane_percent": (50, 0),
    }


def test_reading_the_uses_writes_nothing(stage: Stage) -> None:
    stage.quotas.take_run_requests("acme", 12)
    before = stage.rows.read("acme", "orders")
    stage.used()
    assert stage.rows.read("acme", "orders") == before


def test_use_that_cannot_be_read_is_left_out() -> None:
    def refuse(_tenant: str, _limits: TenantLimits, _now: datetime) -> dict[str, float]:
        raise Unavailable("The row does not answer.")

    read = UsedLimits(lambda _: TenantLimits(jobs=5), [refuse, lambda *_: {"jobs": 2}])
    assert read("acme", NOON) == [{"limit": "jobs", "allowed": 5, "used": 2}]
