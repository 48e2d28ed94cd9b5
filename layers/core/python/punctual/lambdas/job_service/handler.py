"""The write half of the API. It includes reads that write audit entries."""

from datetime import datetime
from functools import partial
from typing import Any, NoReturn

from punctual.engine.commands.jobs import Jobs
from punctual.engine.commands.webhook_secret import WebhookSecretReader
from punctual.engine.queries.jobs import JobQueries
from punctual.lambdas import quotas
from punctual.lambdas.api_runtime import MOST, SECONDS, TASK_TYPES, about, caller_of
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import of_engine
from punctual.lambdas.token_service import read_key, tokens
from punctual.lambdas.webhook_keys import WebhookKeys
from punctual.tasks.http.request import url_problem
from punctual.tasks.reach import reach_of
from punctual.tasks.validation import task_problems
from punctual.web.features import Features
from punctual.web.gateway import build_resolver
from punctual.web.routes.jobs_write import JobWriteRoutes
from punctual.web.routes.runs_write import RunWriteRoutes
from punctual.web.routes.tokens_write import TokenWriteRoutes
from punctual.web.services import Services

FEATURES = Features(
    task_types=TASK_TYPES, secrets=True, check_task=task_problems, check_url=url_problem
)


def writing(runtime: Runtime) -> Any:
    """Return the resolver for writes."""
    search = JobQueries(
        heads=runtime.ports.heads,
        history=runtime.ports.history,
        blobs=runtime.ports.blobs,
        audit=runtime.ports.audit,
        monitor=_NotAsked(),
        clock=runtime.clock,
        log=of_engine(runtime.tell),
    )
    limited = quotas.api(runtime)
    jobs = Jobs(
        heads=runtime.ports.heads,
        history=runtime.ports.history,
        blobs=runtime.ports.blobs,
        receipts=runtime.ports.receipts,
        wake=runtime.ports.wake,
        steps=runtime.steps,
        search=search,
        clock=runtime.clock,
        new_id=runtime.new_id,
        quotas=limited.quotas,
    )
    made = tokens(runtime, key=lambda: read_key(runtime))
    shown = WebhookKeys(runtime).shown
    features = FEATURES._replace(check_allowed_target=reach_of(runtime.settings.reach).problems)
    services = Services(
        *(jobs, search, runtime.clock, features, about(), made),
        max_response_bytes=MOST,
        limits_of=limited.limits_of,
        webhook_secret=WebhookSecretReader(shown, runtime.ports.audit).read,
    )
    groups = (JobWriteRoutes(services), RunWriteRoutes(services), TokenWriteRoutes(services))
    return build_resolver(
        groups,
        runtime.tell,
        caller_of,
        log_access=runtime.tell,
        time_limit=partial(runtime.deadline.within, SECONDS),
        admit=limited.admit,
    )


class _NotAsked:
    """A monitor for writes, which never read statistics or health."""

    def stats(self, tenant: str, now: datetime) -> NoReturn:
        raise AssertionError(f"nobody asks a writer for {tenant}'s stats at {now}")

    def health(self, now: datetime) -> NoReturn:
        raise AssertionError(f"nobody asks a writer for the health at {now}")
