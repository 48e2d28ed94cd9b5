"""The calls by claim: renew, finish and upload."""

from functools import partial
from typing import Any

from punctual.engine.execution.claims import Claims
from punctual.lambdas.api_runtime import API_TIME_LIMIT_SECONDS, read_caller
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import engine_log
from punctual.web.gateway import build_resolver
from punctual.web.routes.claims import ClaimRoutes


def build_claims_api(runtime: Runtime) -> Any:
    """Return the resolver for the calls by claim. They count against no tenant's limit of calls."""
    claims = Claims(
        executor=runtime.executor,
        job_states=runtime.ports.job_states,
        history=runtime.ports.history,
        blobs=runtime.ports.blobs,
        reader=runtime.claim_tokens,
        clock=runtime.clock,
        log=engine_log(runtime.log),
    )
    return build_resolver(
        (ClaimRoutes(claims),),
        runtime.log,
        read_caller,
        log_access=runtime.log,
        time_limit=partial(runtime.deadline.within, API_TIME_LIMIT_SECONDS),
    )
