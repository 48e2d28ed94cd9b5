"""A stage's limits put together; where it has none, nothing of this is made or read."""

from punctual.aws.limits import DynamoJobCount, DynamoLimits, DynamoShares
from punctual.aws.tallies import Tallies
from punctual.domain.limits import limits_from, limits_of_text
from punctual.engine.leased_quotas import LeasedQuotas
from punctual.engine.leased_runs import RunPermits
from punctual.engine.limits import KnownLimits, LimitsOf
from punctual.serverless.runtime import Runtime


def limits_of(runtime: Runtime) -> LimitsOf | None:
    """What a tenant may, as it was read in the last minute."""
    said = runtime.settings.limits
    if said is None:
        return None
    table = runtime.settings.control_table
    defaults = limits_from(limits_of_text(said))
    overrides = DynamoLimits(runtime.dynamo, table)
    return KnownLimits(defaults, overrides, runtime.clock, runtime.tell.problem).of


def quotas(runtime: Runtime, known: LimitsOf | None) -> LeasedQuotas | None:
    """What the API asks."""
    if known is None:
        return None
    table = runtime.settings.control_table
    return LeasedQuotas(
        known,
        DynamoShares(runtime.dynamo, table, runtime.clock),
        DynamoJobCount(Tallies(runtime.dynamo, table)),
        runtime.clock,
        runtime.steady,
        runtime.tell.problem,
    )


def permits(runtime: Runtime) -> RunPermits | None:
    """What an executor asks."""
    known = limits_of(runtime)
    if known is None:
        return None
    shares = DynamoShares(runtime.dynamo, runtime.settings.control_table, runtime.clock)
    return RunPermits(
        known, shares, runtime.name, runtime.clock, runtime.steady, runtime.tell.problem
    )
