"""What an operation costs on AWS: the units of one of its jobs, by table and by partition."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from bench.cost.accounts import Line, UnitSums, priced_lines, subtract_units
from bench.cost.meter import Call, short_table_name
from bench.cost.prices import prices
from bench.cost.sizes import write_units
from tests.support.deployed.interrupted_work import without_executors
from tests.support.deployed.scenes import idle_units, open_api, spent_in, without_watermark
from tests.support.deployed.world import MINUTE, World, a_world
from tests.support.operations.deployed import Operations

MEASURED_JOBS = 100
YEARLY = {"cron_expression": "0 0 1 1 *"}
ACTIONS = ("pause", "resume", "cancel", "run_now")


class OperationCost(NamedTuple):
    """The cost of one job of an operation on `MEASURED_JOBS` jobs.

    `partitions` has the write units of a job by table and partition key.
    """

    action: str
    lines: Sequence[Line]
    partitions: Mapping[tuple[str, str], float]

    def units_of_tables(self) -> Mapping[str, float]:
        units: defaultdict[str, float] = defaultdict(float)
        for (table, _), amount in self.partitions.items():
            units[table] += amount
        return units


@cache
def operation_costs() -> Sequence[OperationCost]:
    """Return the cost of each action in `dev`. No executor takes the runs of `run_now`."""
    with a_world("dev") as world:
        operations = Operations(world, open_api(world))
        world.run(2 * MINUTE)
        idle = idle_units(world, 2)
        costs = []
        for action in ACTIONS:
            if action in (ACTIONS[0], "run_now"):  # the cancel has ended the first ones
                operations.submit_jobs(MEASURED_JOBS, **YEARLY)
            costs.append(_measure(world, operations, action, idle))
        return costs


def _measure(world: World, operations: Operations, action: str, idle: UnitSums) -> OperationCost:
    began = len(world.meter.calls)
    with without_executors(world):
        operation = operations.begin(action)
        world.run(2 * MINUTE)
        assert operations.progress(operation) == ("DONE", MEASURED_JOBS, 0)
    calls = world.meter.calls[began:]
    units = without_watermark(subtract_units(spent_in(world, calls), idle, 1))
    lines = priced_lines(units, MEASURED_JOBS, prices())
    return OperationCost(action, lines, _written_partitions(calls))


def _written_partitions(calls: Sequence[Call]) -> Mapping[tuple[str, str], float]:
    units: defaultdict[tuple[str, str], float] = defaultdict(float)
    for call in calls:
        factor = 2 if call.operation == "TransactWriteItems" else 1
        for write in call.writes:
            cost = factor * write_units(write.before, write.after)
            units[short_table_name(write.table), write.key.pk] += cost / MEASURED_JOBS
    return units
