"""The daily walk reads job states, names and job rows. Its cost depends on no other rows."""

from collections import Counter

from bench.cost.meter import Unit
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute
from punctual.aws.dynamodb.lists.keys import ListKind, list_partition
from punctual.lambdas.status.handler import build_handler
from tests.support.aws.stream_records import Stream
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch

HOURLY = {"schedule_type": "CRON", "cron_expression": "0 * * * *"}
READ = Unit.READ
PACKED_BYTES = 100_000  # of one row of runs


def put_other_rows(deployed: Dispatch, number: int) -> None:
    """Put rows of runs, of the feed and of failures, as a large tenant has them."""
    for kind in (ListKind.RUNS, ListKind.FEED, ListKind.FAILURES):
        for count in range(number):
            row_key = keys.RowKey(list_partition("acme", kind, count % 4), f"row-{count:06d}")
            item = {
                **row_key.item(),
                **keys.ROW_LAYOUT_ATTRIBUTE,
                keys.DATA_ATTR: to_attribute(b"x" * PACKED_BYTES),
            }
            deployed.world.bare.put_item(TableName=deployed.aws.settings.lists_table, Item=item)


def walk_cost(other_rows: int) -> tuple[Counter[str], float]:
    """Return the reads of a whole walk by operation, and their units."""
    with dispatch() as deployed:
        deployed.planner.tick()
        for number in range(12):
            deployed.submit(tenant="acme" if number % 2 else "other", **HOURLY)
        assert build_handler(deployed.new_runtime()).handle(Stream(deployed.aws).catch()) == []
        put_other_rows(deployed, other_rows)
        before = len(deployed.world.meter.calls)
        deployed.walk(900)
        assert dict(deployed.telemetry.events)["walked"]["over"]
        calls = deployed.world.meter.calls[before:]
        reads = [call for call in calls if call.operation in ("Scan", "Query", "BatchGetItem")]
        units = [value for call in reads for (unit, _), value in call.units.items() if unit == READ]
        scanned = {call.params["TableName"] for call in reads if call.operation == "Scan"}
        assert scanned == {deployed.aws.settings.jobs_table}
        return Counter(call.operation for call in reads), sum(units)


def test_walk_does_not_read_rows_of_runs_feed_and_failures() -> None:
    few, many = walk_cost(0), walk_cost(60)
    assert few[0] == many[0]
    assert few[1] == many[1] > 0
