"""Limits in the control table: what operators wrote, and the rows that instances lease from."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, known
from punctual.aws.dynamodb.control import limit_keys
from punctual.aws.dynamodb.control.counters import Counters
from punctual.domain.errors import LaterVersion
from punctual.domain.tenants.limits import WrongLimits
from punctual.engine.ports.clock import Clock
from punctual.engine.quotas.leased_row import Row

KEPT = timedelta(days=1)  # a row that nobody leases from any more
_ALIVE = ("job_SCHEDULED", "job_PAUSED")


class DynamoLimits:
    """What is written for one tenant: `infra.operations.limits` puts it there."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def __call__(self, tenant: str) -> Mapping[str, Any] | None:
        at = limit_keys.limits(tenant)
        row = self._dynamo.read(self._table, [at]).get(at)
        if row is None:
            return None
        try:
            said = json.loads(known(row)[limit_keys.LIMITS]["S"])
        except (KeyError, ValueError) as error:
            raise WrongLimits("the row is not one that infra.operations.limits wrote") from error
        if not isinstance(said, dict):
            raise WrongLimits("the row is not one that infra.operations.limits wrote")
        return said


def limits_row(tenant: str, said: Mapping[str, int | None]) -> dict[str, Any]:
    """The whole row, as an operator's tool puts it."""
    values = {limit_keys.LIMITS: json.dumps(dict(said)), keys.FORMAT: keys.LAYOUT}
    return {**limit_keys.limits(tenant).item(), **to_item(values)}


class DynamoShares:
    """One row for each tenant and thing that is limited; each write wins or loses whole."""

    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock

    def read(self, tenant: str, what: str) -> Row | None:
        at = limit_keys.share(tenant, what)
        row = self._dynamo.read(self._table, [at]).get(at)
        return None if row is None else _row(row)

    def swap(self, tenant: str, what: str, expect: int, text: str) -> Row | None:
        """None where it was written, else the row that stands there."""
        values = {
            keys.ROW: text,
            keys.VERSION: expect + 1,
            keys.FORMAT: keys.LAYOUT,
            keys.TTL: keys.expiry(self._clock() + KEPT),
        }
        holds = "#v = :v" if expect else "attribute_not_exists(#v)"
        refused = self._dynamo.put_if(
            self._table,
            {**limit_keys.share(tenant, what).item(), **to_item(values)},
            Condition(
                holds, names={"#v": keys.VERSION}, values=to_item({":v": expect} if expect else {})
            ),
        )
        if refused is None:
            return None
        if not refused.item:  # it expired since it was read
            return Row("", 0)
        found = _row(refused.item)
        ours = refused.ambiguous and found == Row(text, expect + 1)
        return None if ours else found


class DynamoJobCount:
    """How many jobs a tenant has, as the stream's reader has counted them."""

    def __init__(self, tallies: Counters) -> None:
        self._tallies = tallies

    def __call__(self, tenant: str) -> int:
        found = self._tallies.totals(tenant)
        return sum(max(0, found.get(name, 0)) for name in _ALIVE)


def _row(item: Mapping[str, Any]) -> Row:
    try:
        item = known(item)
    except LaterVersion:
        return Row("", int(item[keys.VERSION]["N"]))  # what is leased lives for seconds
    return Row(item.get(keys.ROW, {}).get("S", ""), int(item[keys.VERSION]["N"]))
