"""A stage's limits put together; where it has none, nothing of this is made, read or imported."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from punctual.domain.tenants.limits import limits_from, limits_of_text
from punctual.engine.ports.clock import Clock
from punctual.engine.quotas.limits import KnownLimits, LimitsOf, NoQuotas, Quotas, unlimited
from punctual.lambdas.runtime import Runtime

if TYPE_CHECKING:
    from punctual.engine.quotas.run_permits import RunPermits


class Limited(NamedTuple):
    """`admit` is asked with the tenant of each call, where calls may be limited at all."""

    limits_of: LimitsOf
    quotas: Quotas
    admit: Callable[[str], None] | None


def api(runtime: Runtime) -> Limited:
    """What the API asks."""
    known = _limits_of(runtime)
    if known is None:
        return Limited(unlimited, NoQuotas(), None)
    from punctual.aws.dynamodb.control.counters import Counters
    from punctual.aws.dynamodb.control.limits import DynamoJobCount, DynamoShares
    from punctual.engine.quotas.leased_quotas import LeasedQuotas

    table = runtime.settings.control_table
    clock = _clock(runtime)
    quotas = LeasedQuotas(
        known,
        DynamoShares(runtime.dynamo, table, clock),
        DynamoJobCount(Counters(runtime.dynamo, table)),
        clock,
        runtime.steady,
        runtime.tell.problem,
    )
    return Limited(known, quotas, quotas.call)


def permits(runtime: Runtime) -> "RunPermits | None":
    """What an executor asks."""
    known = _limits_of(runtime)
    if known is None:
        return None
    from punctual.aws.dynamodb.control.limits import DynamoShares
    from punctual.engine.quotas.run_permits import RunPermits

    clock = _clock(runtime)
    shares = DynamoShares(runtime.dynamo, runtime.settings.control_table, clock)
    tell = runtime.tell.problem
    executors = runtime.settings.places
    return RunPermits(known, shares, runtime.name, clock, runtime.steady, tell, executors)


def _clock(runtime: Runtime) -> Clock:
    """The tables' own: what is shared in them is measured by no other."""
    from punctual.aws.server_time import ServerTime
    from punctual.engine.quotas.store_clock import StoreClock

    clock = StoreClock(runtime.clock)
    runtime.clients.watched(ServerTime(clock).watch)
    return clock


def _limits_of(runtime: Runtime) -> LimitsOf | None:
    said = runtime.settings.limits
    if said is None:
        return None
    from punctual.aws.dynamodb.control.limits import DynamoLimits

    defaults = limits_from(limits_of_text(said))
    overrides = DynamoLimits(runtime.dynamo, runtime.settings.control_table)
    return KnownLimits(defaults, overrides, runtime.clock, runtime.tell.problem).of
