"""The write half of the API. It includes reads that write audit entries."""

from functools import partial
from typing import Any

from punctual.aws.secret_store import SsmSecretStore
from punctual.engine.commands.artifacts import Artifacts
from punctual.engine.commands.failures import FailureCommands
from punctual.engine.commands.secrets import Secrets
from punctual.engine.commands.tokens import WebhookSecretReader
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.queries.artifacts import ArtifactQueries
from punctual.lambdas import quotas
from punctual.lambdas.api_runtime import (
    API_TIME_LIMIT_SECONDS,
    DEPLOYED_TASK_TYPES,
    MAX_LIST_RESPONSE_BYTES,
    installation_info,
    offered_task_types,
    read_caller,
)
from punctual.lambdas.job_commands import build_jobs, build_queries
from punctual.lambdas.job_service.operations import build_operation_commands
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.token_service import build_token_commands, read_token_key
from punctual.lambdas.webhook_keys import WebhookKeys
from punctual.settings import Settings
from punctual.tasks.http.request import url_problem
from punctual.tasks.reach import decode_targets
from punctual.tasks.script_function import MAX_FUNCTION_SCRIPT_SECONDS
from punctual.tasks.validation import task_problems
from punctual.web.features import Features
from punctual.web.gateway import RouteGroup, build_resolver
from punctual.web.routes.artifacts_write import ArtifactWriteRoutes
from punctual.web.routes.failures_write import FailureWriteRoutes
from punctual.web.routes.jobs_write import JobWriteRoutes
from punctual.web.routes.operations_write import OperationWriteRoutes
from punctual.web.routes.runs_write import RunWriteRoutes
from punctual.web.routes.secrets import SecretRoutes
from punctual.web.routes.tokens_write import TokenWriteRoutes
from punctual.web.services import Services

DEPLOYED_FEATURES = Features(
    task_types=DEPLOYED_TASK_TYPES,
    artifacts=True,
    secrets=True,
    check_task=task_problems,
    check_url=url_problem,
)


NO_SCRIPTS_IMAGE_HINT = (
    ". More runs in containers, and the stage has no image for them: set `scriptsImage` in "
    "cdk.json, or deploy from a machine with Docker"
)


def build_write_api(runtime: Runtime) -> Any:
    """Return the resolver for writes."""
    queries = build_queries(runtime)
    stage_quotas = quotas.build_api_quotas(runtime)
    artifacts = _build_artifacts(runtime, stage_quotas.limits_of)
    jobs = build_jobs(runtime, queries, stage_quotas.quotas, artifacts)
    token_commands = build_token_commands(runtime, key=lambda: read_token_key(runtime))
    read_secret = WebhookKeys(runtime).read_secret
    task_types = offered_task_types(runtime.settings)
    features = stage_features(runtime.settings)
    services = Services(
        *(jobs, queries, runtime.clock, features, installation_info(task_types), token_commands),
        max_response_bytes=MAX_LIST_RESPONSE_BYTES,
        limits_of=stage_quotas.limits_of,
        webhook_secret=WebhookSecretReader(read_secret, runtime.ports.audit_log).read,
        secrets=_build_secrets(runtime),
        artifacts=artifacts,
        failures=FailureCommands(
            runtime.ports.failures, runtime.ports.job_states, runtime.ports.audit_log
        ),
        operations=build_operation_commands(runtime, queries),
    )
    return build_resolver(
        _routes(services),
        runtime.log,
        read_caller,
        log_access=runtime.log,
        time_limit=partial(runtime.deadline.within, API_TIME_LIMIT_SECONDS),
        check_tenant=stage_quotas.admit,
    )


def _routes(services: Services) -> tuple[RouteGroup, ...]:
    return (
        JobWriteRoutes(services),
        RunWriteRoutes(services),
        TokenWriteRoutes(services),
        SecretRoutes(services),
        ArtifactWriteRoutes(services),
        FailureWriteRoutes(services),
        OperationWriteRoutes(services),
    )


def stage_features(settings: Settings) -> Features:
    """Return what this stage offers. Without an image for them, functions run all scripts."""
    features = DEPLOYED_FEATURES._replace(
        task_types=offered_task_types(settings),
        check_task=partial(
            task_problems,
            max_container_vcpu=settings.max_container_vcpu,
            container_scripts=settings.container_scripts,
        ),
        check_allowed_target=decode_targets(settings.reach).target_problems,
    )
    if settings.container_scripts:
        return features
    return features._replace(
        max_script_seconds=MAX_FUNCTION_SCRIPT_SECONDS,
        max_script_memory_mb=settings.script_memory_mb,
        script_limit_hint=NO_SCRIPTS_IMAGE_HINT if settings.max_container_vcpu else "",
    )


def _build_artifacts(runtime: Runtime, limits_of: LimitsOf) -> Artifacts:
    ports = runtime.ports
    return Artifacts(
        ports.artifacts,
        ports.blobs,
        ArtifactQueries(ports.artifacts, ports.blobs, ports.job_states),
        ports.audit_log,
        runtime.clock,
        runtime.new_id,
        limits_of,
        frozenset({runtime.settings.script_architecture}),
    )


def _build_secrets(runtime: Runtime) -> Secrets:
    store = SsmSecretStore(
        runtime.dynamo,
        runtime.settings.control_table,
        lambda: runtime.clients.ssm,
        runtime.settings.stage,
        runtime.new_id,
    )
    return Secrets(store, runtime.ports.audit_log)
