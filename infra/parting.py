"""Each timer of a shared row gets a row of its own, for a version that knows no others.

    python -m infra.parting STAGE

Once `writes` was set back to 1 and deployed: docs/runbook.md, roll back. It may run again, and
while jobs run: the new rows stand before the shared one goes, which is a look too many at worst.
"""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import boto3

from infra.operations.account import NotReady, account_of
from infra.operations.limits import settings_of
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.keys import FORMAT, SHARED_TIMERS, RowKey
from punctual.aws.dynamodb.timers.rows import read_rows, rows_for
from punctual.aws.ports import Clients, aws_dynamo, real_clock

SOON = timedelta(minutes=15)  # what is due by then goes by itself, and a poller may hold it
PAGE = 1_000
SHARED: Mapping[str, Any] = {
    "FilterExpression": "attribute_exists(#f)",  # a timer alone is all key
    "ExpressionAttributeNames": {"#f": FORMAT},
}


class Parted(NamedTuple):
    """Rows: those that are gone, and those that go by themselves within a quarter of an hour."""

    rows: int
    soon: int


def main(arguments: Sequence[str], session: Any = None) -> int:
    try:
        if len(arguments) != 1:
            raise NotReady("say which stage: STAGE")
        session = session or boto3.Session()
        account_of(session)
        settings = settings_of(session, arguments[0])
        if settings.writes >= SHARED_TIMERS:
            raise NotReady("rows are still shared: set `writes` to 1 in cdk.json, and deploy")
    except NotReady as error:
        print(f"parting: {error}", file=sys.stderr)
        return 1
    parted = part(aws_dynamo(Clients(session)), settings.timers_table, real_clock())
    print(f"{parted.rows} rows parted, {parted.soon} left that go by themselves in 15 minutes")
    return 0


def part(dynamo: DynamoClient, table: str, now: datetime) -> Parted:
    rows = soon = 0
    after: RowKey | None = None
    while True:
        found, after = dynamo.scan(table, after, PAGE, SHARED)
        for row in read_rows(found):
            if row.timers and row.timers[0].bucket < now + SOON:
                soon += 1
                continue
            dynamo.put(table, [one.item() for one in rows_for(row.timers, None)])
            dynamo.delete(table, [row.key])
            rows += 1
        if after is None:
            return Parted(rows, soon)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
