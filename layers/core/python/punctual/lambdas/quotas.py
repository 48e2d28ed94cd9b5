"""Builds the quotas of a stage. Without any nothing here is created, read or imported."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from punctual.domain.tenants.limits import UNLIMITED, TenantLimits, limits_from, parse_limits
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.quotas import LimitsOf, Quotas
from punctual.engine.quotas.limits import LimitsCache, NoQuotas, unlimited
from punctual.engine.quotas.used_limits import ArtifactUses, ReadUses, UsedLimits
from punctual.lambdas.runtime import Runtime
from punctual.tasks.container.sizes import CPU_UNITS_PER_VCPU

if TYPE_CHECKING:
    from punctual.aws.dynamodb.lists.job_counts import JobCounts
    from punctual.engine.quotas.claim_places import ClaimPlaces
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
    from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
    from punctual.engine.quotas.leased_quotas import LeasedQuotas

    clock = _store_clock(runtime)
    rows = DynamoQuotaRows(runtime.dynamo, runtime.settings.control_table, clock)
    live_jobs = build_job_counts(runtime).live_jobs
    quotas = LeasedQuotas(limits_of, rows, live_jobs, clock, runtime.log.error)
    return StageQuotas(limits_of, quotas, quotas.check_call)


def build_used_limits(runtime: Runtime, limits_of: LimitsOf) -> UsedLimits:
    """Return what reads the uses of a tenant's limits."""
    readers: list[ReadUses] = [ArtifactUses(runtime.ports.artifacts)]
    settings = runtime.settings
    if settings.limits is not None:
        from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
        from punctual.engine.quotas.leased_uses import LeasedUses

        rows = DynamoQuotaRows(runtime.dynamo, settings.control_table, runtime.clock)
        live_jobs = build_job_counts(runtime).live_jobs
        readers.append(LeasedUses(rows, live_jobs, settings.places))
    return UsedLimits(limits_of, readers)


def build_job_counts(runtime: Runtime) -> "JobCounts":
    from punctual.aws.dynamodb.lists.job_counts import JobCounts

    settings = runtime.settings
    return JobCounts(runtime.dynamo, settings.lists_table, settings.list_slots)


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


def build_script_permits(runtime: Runtime) -> "RunPermits | None":
    """Return the places of the script functions that have a reservation, or None."""
    script_places = runtime.settings.script_places
    if not script_places:
        return None
    from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
    from punctual.engine.quotas.claim_places import SCRIPT_PLACES_LIMIT
    from punctual.engine.quotas.run_permits import RunPermits

    clock = _store_clock(runtime)
    rows = DynamoQuotaRows(runtime.dynamo, runtime.settings.control_table, clock)
    limits_by_function = {
        function: TenantLimits(concurrent_runs=places) for function, places in script_places.items()
    }
    return RunPermits(
        lambda function: limits_by_function.get(function, UNLIMITED),
        rows,
        runtime.name,
        clock,
        runtime.log.error,
        places_limit=SCRIPT_PLACES_LIMIT,
    )


def build_claim_places(runtime: Runtime) -> "ClaimPlaces | None":
    """Return the places of claims that were handed over, or None."""
    settings = runtime.settings
    if settings.limits is None and not settings.script_places:
        return None
    from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
    from punctual.engine.quotas.claim_places import ClaimPlaces

    clock = _store_clock(runtime)
    rows = DynamoQuotaRows(runtime.dynamo, settings.control_table, clock)
    has_limits = settings.limits is not None
    return ClaimPlaces(rows, clock, settings.script_places, has_limits)


def build_shared_limits(runtime: Runtime) -> Callable[[], list[dict[str, Any]]]:
    """Return what reads the limits that all runs share, as `GET /stats` shows them."""
    settings = runtime.settings
    claim_places = build_claim_places(runtime) if settings.script_places else None

    def read() -> list[dict[str, Any]]:
        limits: list[dict[str, Any]] = []
        if claim_places is not None:
            limits += [
                {
                    "limit": function.replace("-", "_") + "_places",
                    "allowed": places,
                    "used": claim_places.used_places(function),
                }
                for function, places in settings.script_places.items()
            ]
        if settings.max_container_vcpu:
            from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
            from punctual.engine.quotas.container_quota import used_cpu_units

            rows = DynamoQuotaRows(runtime.dynamo, settings.control_table, runtime.clock)
            used = used_cpu_units(rows, runtime.clock()) / CPU_UNITS_PER_VCPU
            allowed = settings.max_container_vcpu
            limits.append({"limit": "container_vcpu", "allowed": allowed, "used": used})
        return limits

    return read


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
