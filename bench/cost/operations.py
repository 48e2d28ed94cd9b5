"""Price operations on many jobs, and show what their rate leaves of the tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.cost.accounts import sum_amounts, sum_dollars
from bench.cost.meter import Unit
from bench.cost.prices import MILLION
from infra.config.stage import Stage
from punctual.aws.dynamodb.lists.keys import ListKind
from tests.support.operations.costs import OperationCost

TABLE_WRITES_PER_SECOND = 4_000  # of a new table on demand; it grows with its use
PARTITION_WRITES_PER_SECOND = 1_000
PRICED_JOBS = (1_000, 100_000)


class RateShare(NamedTuple):
    """The share of the write throughput that operations use at the rate of a stage."""

    table: str  # the busiest one
    table_share: float
    partition: str  # the table and the kind of rows of the busiest partition
    partition_share: float


def rate_share(stage: Stage, costs: Sequence[OperationCost]) -> RateShare:
    """Return the largest shares of any action. The measured stage has `dev`'s list slots."""
    rate = stage.operations_per_second
    tables: dict[str, float] = {}
    partitions: dict[str, float] = {}
    for cost in costs:
        for table, units in cost.units_of_tables().items():
            tables[table] = max(tables.get(table, 0), units)
        for kind, units in _units_by_kind(cost.partitions, stage.list_slots).items():
            partitions[kind] = max(partitions.get(kind, 0), units)
    table, table_units = max(tables.items(), key=lambda item: item[1])
    partition, partition_units = max(partitions.items(), key=lambda item: item[1])
    return RateShare(
        table,
        rate * table_units / TABLE_WRITES_PER_SECOND,
        partition,
        rate * partition_units / PARTITION_WRITES_PER_SECOND,
    )


def _units_by_kind(
    partitions: Mapping[tuple[str, str], float], list_slots: int
) -> Mapping[str, float]:
    """Return the units of the busiest partition of each kind of rows.

    Rows of the list of jobs and of names spread over the slots of the stage.
    """
    units: dict[str, float] = {}
    slotted: dict[str, float] = {}
    for (table, key), amount in partitions.items():
        kind = f"{table}: {key.split('#')[1] if '#' in key else key}"
        if table == "lists" and f"#{ListKind.FEED}#" not in key:
            slotted[kind] = slotted.get(kind, 0) + amount / list_slots
        else:
            units[kind] = max(units.get(kind, 0), amount)
    return {**units, **slotted}


def operations_section(stages: Sequence[Stage], costs: Sequence[OperationCost]) -> Iterator[str]:
    yield ""
    yield "## An operation"
    yield ""
    yield (
        "The units of one job, and dollars for an operation on many, all of one tenant, with "
        "requests, list rows, feed, audit and events. The runs of `run_now` are not included. "
        "A retry costs what `run_now` costs, and reads its run."
    )
    yield ""
    numbers = " | ".join(f"$ for {number:,} jobs" for number in PRICED_JOBS)
    yield f"| action | write units | read units | {numbers} |"
    yield "|---|---:|---:|---:|---:|"
    for cost in costs:
        dollars = sum_dollars(cost.lines) / MILLION
        prices = " | ".join(f"{number * dollars:.4f}" for number in PRICED_JOBS)
        writes, reads = (sum_amounts(cost.lines, unit) for unit in (Unit.WRITE, Unit.READ))
        yield f"| `{cost.action}` | {writes:.2f} | {reads:.2f} | {prices} |"
    yield ""
    yield (
        f"A new table takes {TABLE_WRITES_PER_SECOND:,} write units a second, and a partition "
        f"{PARTITION_WRITES_PER_SECOND:,}. Operations may use half of either. So "
        "`operationsPerSecond` has an upper bound, and the defaults are lower, because a state "
        "with many live runs takes several units."
    )
    yield ""
    yield "| stage | jobs a second | 100,000 jobs take | busiest table | busiest partition |"
    yield "|---|---:|---:|---|---|"
    for stage in stages:
        share = rate_share(stage, costs)
        minutes = max(PRICED_JOBS) / stage.operations_per_second / 60
        yield (
            f"| `{stage.name}` | {stage.operations_per_second} | {minutes:.0f} min | "
            f"{share.table}, {share.table_share:.0%} | "
            f"{share.partition}, {share.partition_share:.0%} |"
        )
