"""The reconciler repairs rows of the list of jobs, and removes those without a job."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.lists.job_rows import JobRows
from punctual.aws.dynamodb.lists.keys import list_slot_of
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.reconciler import job_list_repair
from punctual.lambdas.reconciler.job_list_repair import choose_walked_tenants
from punctual.lambdas.telemetry import Metric
from tests.support.builders import NOON
from tests.support.builders_jobs import a_job
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch

HOURLY = {"schedule_type": "CRON", "cron_expression": "0 * * * *"}
EARLIER = timedelta(minutes=10)


@pytest.fixture
def deployed() -> Iterator[Dispatch]:
    with dispatch() as deployed:
        yield deployed


def job_rows(deployed: Dispatch, slots: int = 4) -> JobRows:
    runtime = deployed.new_runtime()
    return JobRows(
        runtime.dynamo, runtime.settings.lists_table, slots, runtime.clock, runtime.new_id
    )


def items(deployed: Dispatch) -> list[dict[str, Any]]:
    """Return the rows of the list of jobs."""
    rows = deployed.aws.rows(deployed.aws.settings.lists_table)
    return [row for row in rows if "#jobs#" in row[keys.PK]["S"]]


def listed(deployed: Dispatch) -> set[str]:
    return {keys.unescape(row[keys.SK]["S"]) for row in items(deployed)}


def repaired(deployed: Dispatch) -> float:
    return deployed.telemetry.latest.get(Metric.LIST_ROWS_REPAIRED, 0)


def put_rows(deployed: Dispatch) -> None:
    deployed.job_lists.follow()


def test_missing_row_is_written_and_counted(deployed: Dispatch) -> None:
    key = deployed.submit(**HOURLY)
    deployed.clock.advance(EARLIER)
    deployed.walk(900)
    assert listed(deployed) == {key.job_id}
    assert repaired(deployed) == 1
    assert "list_rows_repaired" in deployed.telemetry.problem_names


def test_right_rows_are_left_alone(deployed: Dispatch) -> None:
    deployed.submit(**HOURLY)
    put_rows(deployed)
    deployed.clock.advance(EARLIER)
    deployed.walk(900)
    assert repaired(deployed) == 0


def test_row_of_job_that_just_changed_is_left_to_the_status_function(deployed: Dispatch) -> None:
    deployed.submit(**HOURLY)
    deployed.walk(900)
    assert (listed(deployed), repaired(deployed)) == (set(), 0)


def test_wrong_row_of_the_same_version_is_replaced(deployed: Dispatch) -> None:
    key = deployed.submit(**HOURLY)
    put_rows(deployed)
    (row,) = items(deployed)
    other = deployed.submit(**HOURLY, tags={"team": "other"})
    put_rows(deployed)
    (other_row,) = [each for each in items(deployed) if each[keys.SK]["S"] == other.job_id]
    deployed.world.bare.put_item(
        TableName=deployed.aws.settings.lists_table,
        Item={**row, keys.DATA_ATTR: other_row[keys.DATA_ATTR]},
    )
    deployed.clock.advance(EARLIER)
    deployed.walk(900)
    assert repaired(deployed) == 1
    assert job_rows(deployed).load([key])[key].row.tags == {}


def test_rows_without_job_and_in_former_slots_are_removed(deployed: Dispatch) -> None:
    key, gone = deployed.submit(**HOURLY), deployed.submit(**HOURLY)
    put_rows(deployed)
    table = deployed.aws.settings.jobs_table
    deployed.world.bare.delete_item(TableName=table, Key=keys.state_key(*gone).item())
    rows = {row[keys.SK]["S"]: row for row in items(deployed)}
    slot = list_slot_of(key.job_id, 4)
    former = {**rows[key.job_id], keys.PK: {"S": f"acme#jobs#{(slot + 1) % 4:02d}"}}
    deployed.world.bare.put_item(TableName=deployed.aws.settings.lists_table, Item=former)
    deployed.clock.advance(EARLIER)
    deployed.walk(900)
    assert [row for row in items(deployed) if keys.DATA_ATTR in row] == [rows[key.job_id]]
    emptied = [row for row in items(deployed) if keys.DATA_ATTR not in row]
    assert [int(row[keys.TTL]["N"]) for row in emptied] == [deployed.clock().timestamp()] * 2
    assert repaired(deployed) == 2
    assert job_rows(deployed).load([JobKey("acme", gone.job_id)]) == {}


def test_rows_of_many_tenants_are_compared_in_pages(
    deployed: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_list_repair, "LISTED_PAGE_SIZE", 2)
    kept: set[JobKey] = set()
    gone: set[JobKey] = set()
    for number in range(30):
        key = deployed.submit(tenant=f"tenant{number % 3}", **HOURLY)
        (gone if number % 4 == 0 else kept).add(key)
    put_rows(deployed)
    for key in gone:
        table = deployed.aws.settings.jobs_table
        deployed.world.bare.delete_item(TableName=table, Key=keys.state_key(*key).item())
    deployed.clock.advance(EARLIER)
    deployed.walk(900)
    full = {row[keys.SK]["S"] for row in items(deployed) if keys.DATA_ATTR in row}
    assert full == {key.job_id for key in kept}
    assert deployed.telemetry.latest.pop(Metric.LIST_ROWS_REPAIRED) > 0
    deployed.clock.advance(timedelta(days=1))
    deployed.walk(900)
    assert repaired(deployed) == 0, "emptied rows are left alone"


def test_walk_over_too_many_tenants_draws_others_each_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list_repair, "MAX_WALKED_TENANTS", 3)
    states = [a_job(tenant=f"tenant{n}") for n in range(10)]
    days = []
    for day in range(40):
        chosen: tuple[str, ...] = ()
        for state in states:
            chosen = choose_walked_tenants(chosen, [state], NOON + timedelta(days=day))
        assert set(chosen) == set(choose_walked_tenants((), states, NOON + timedelta(days=day)))
        assert len(chosen) == 3
        days.append(chosen)
    assert {tenant for chosen in days for tenant in chosen} == {state.tenant for state in states}
