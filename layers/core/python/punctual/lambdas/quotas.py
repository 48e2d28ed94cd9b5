"""Builds the quotas of a stage. Without limits nothing here is created, read or imported."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from punctual.domain.tenants.limits import limits_from, parse_limits
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.quotas import LimitsOf, Quotas
from punctual.engine.quotas.limits import LimitsCache, NoQuotas, unlimited
from punctual.lambdas.runtime import Runtime

if TYPE_CHECKING:
    from punctual.engine.quotas.run_permits import RunPermits


class StageQuotas(NamedTuple):
    """The limits and quotas of a stage. `admit` checks the tenant of a call, or is None."""

    limits_of: LimitsOf
    quotas: Quotas
    admit: Callable[[str], None] | None


def build_api_quotas(runtime: Runtime) -> StageQuotas:
    """Return the quotas that the API checks."""
    limits_of = _build_limits_of(runtime)
    if limits_of is None:
        return StageQuotas(unlimited, NoQuotas(), None)
    from punctual.aws.dynamodb.control.counters import Counters
    from punctual.aws.dynamodb.control.limits import DynamoJobCount, DynamoQuotaRows
    from punctual.engine.quotas.leased_quotas import LeasedQuotas

    table = runtime.settings.control_table
    clock = _store_clock(runtime)
    rows = DynamoQuotaRows(runtime.dynamo, table, clock)
    counted_jobs = DynamoJobCount(Counters(runtime.dynamo, table))
    quotas = LeasedQuotas(limits_of, rows, counted_jobs, clock, runtime.log.error)
    return StageQuotas(limits_of, quotas, quotas.check_call)


def build_run_permits(runtime: Runtime) -> "RunPermits | None":
    """Return the run permits that an executor checks, or None."""
    limits_of = _build_limits_of(runtime)
    if limits_of is None:
        return None
    from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
    from punctual.engine.quotas.run_permits import RunPermits

    clock = _store_clock(runtime)
    rows = DynamoQuotaRows(runtime.dynamo, runtime.settings.control_table, clock)
    executors = runtime.settings.places
    return RunPermits(limits_of, rows, runtime.name, clock, runtime.log.error, executors)


def _store_clock(runtime: Runtime) -> Clock:
    """Return a clock that follows the clock of DynamoDB, which times all shared rows."""
    from punctual.aws.server_time import ServerTime, StoreClock

    clock = StoreClock(runtime.clock)
    runtime.clients.add_observer(ServerTime(clock).attach_to)
    return clock


def _build_limits_of(runtime: Runtime) -> LimitsOf | None:
    text = runtime.settings.limits
    if text is None:
        return None
    from punctual.aws.dynamodb.control.limits import DynamoLimits

    defaults = limits_from(parse_limits(text))
    overrides = DynamoLimits(runtime.dynamo, runtime.settings.control_table)
    return LimitsCache(defaults, overrides, runtime.clock, runtime.log.error).limits_of
