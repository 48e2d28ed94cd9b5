"""Billed units of an operation, and the rate that leaves half of the tables for due work."""

import pytest

from bench.cost.operations import PARTITION_WRITES_PER_SECOND, TABLE_WRITES_PER_SECOND, rate_share
from infra.app import read_context
from infra.config.concurrency import MAX_OPERATIONS_PER_LIST_SLOT, MAX_OPERATIONS_PER_SECOND
from infra.config.stage import read_stage
from tests.support.operations.costs import operation_costs

# Write units of one job: its state, its rows of the lists, and its share of the rows of a slice.
MAX_UNITS = {"pause": 2.3, "resume": 2.3, "cancel": 4.3, "run_now": 2.5}


def test_operation_writes_its_state_and_its_list_row_once() -> None:
    for cost in operation_costs():
        units = cost.units_of_tables()
        # A cancel also deletes the row of the name, and closes the failure of the job.
        own_rows = 2 if cost.action == "cancel" else 1
        assert own_rows <= units["jobs"] < own_rows + 0.1, cost.action
        assert own_rows <= units["lists"] < own_rows + 0.2, cost.action
        assert sum(units.values()) <= MAX_UNITS[cost.action], cost.action


@pytest.mark.parametrize("name", ["dev", "prod", "rehearsal"])
def test_rate_of_each_stage_leaves_half_of_tables_and_partitions(name: str) -> None:
    share = rate_share(read_stage(name, read_context()["stages"]), operation_costs())
    assert 0 < share.table_share <= 0.5
    assert 0 < share.partition_share <= 0.5


def test_upper_bounds_of_the_rate_leave_half() -> None:
    """The bounds of the setting. A faster operation would take more than half."""
    table_units = max(max(cost.units_of_tables().values()) for cost in operation_costs())
    assert MAX_OPERATIONS_PER_SECOND * table_units <= TABLE_WRITES_PER_SECOND / 2
    assert 1.1 * MAX_OPERATIONS_PER_SECOND * table_units > TABLE_WRITES_PER_SECOND / 2
    row_units = 1.0  # of a job in its slot of the list, with outcomes under a kilobyte
    assert MAX_OPERATIONS_PER_LIST_SLOT * row_units <= PARTITION_WRITES_PER_SECOND / 2
