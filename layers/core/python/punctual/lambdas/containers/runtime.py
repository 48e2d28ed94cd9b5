"""Builds the parts for containers, which the executor and the function `containers` share."""

from collections.abc import Mapping
from typing import NamedTuple

from punctual.aws.dynamodb.control.limits import DynamoQuotaRows
from punctual.aws.ecs.containers import ContainerRows
from punctual.aws.ecs.log_tail import LogTails
from punctual.aws.ecs.task_definitions import StageDefinition, TaskDefinitions
from punctual.aws.ecs.tasks import EcsTasks, Network
from punctual.aws.retries import RetryPolicy
from punctual.engine.quotas.container_quota import ContainerQuota
from punctual.lambdas.containers.handler import ContainersHandler
from punctual.lambdas.containers.settings import CONTAINERS_VARIABLE, ContainerSettings
from punctual.lambdas.runtime import Runtime
from punctual.settings import InvalidSettings
from punctual.tasks.container.sizes import CPU_UNITS_PER_VCPU

# Tries of one call of ECS. All tries of a start take less than `START_CALL_LIMIT`.
ECS_TRIES = 5
ECS_FIRST_WAIT_SECONDS = 0.5


class ContainerParts(NamedTuple):
    rows: ContainerRows
    tasks: EcsTasks
    definitions: TaskDefinitions
    quota: ContainerQuota


def build_parts(runtime: Runtime, settings: ContainerSettings) -> ContainerParts:
    table = runtime.settings.control_table
    retry_policy = RetryPolicy(
        runtime.pause, runtime.name, ECS_TRIES, first_wait_seconds=ECS_FIRST_WAIT_SECONDS
    )
    rows = ContainerRows(runtime.dynamo, table)
    network = Network(settings.subnets, settings.security_groups, settings.has_public_address)
    stage = StageDefinition(
        settings.family_prefix,
        settings.task_role,
        settings.execution_role,
        settings.log_group,
        settings.region,
        settings.architecture,
    )
    quota = ContainerQuota(
        DynamoQuotaRows(runtime.dynamo, table, runtime.clock),
        runtime.clock,
        settings.max_vcpu * CPU_UNITS_PER_VCPU,
        lambda: sum(container.size.cpu_units for container in rows.load_all()),
    )
    return ContainerParts(
        rows,
        EcsTasks(lambda: runtime.clients.ecs, settings.cluster, network, retry_policy),
        TaskDefinitions(
            lambda: runtime.clients.ecs, runtime.dynamo, table, stage, runtime.clock, retry_policy
        ),
        quota,
    )


def build_handler(runtime: Runtime, env: Mapping[str, str]) -> ContainersHandler:
    """Return the handler of the function `containers`."""
    settings = ContainerSettings.from_env(env)
    if settings is None:
        raise InvalidSettings(f"not set: {CONTAINERS_VARIABLE}")
    parts = build_parts(runtime, settings)
    return ContainersHandler(
        executor=runtime.executor,
        rows=parts.rows,
        tasks=parts.tasks,
        definitions=parts.definitions,
        quota=parts.quota,
        tails=LogTails(lambda: runtime.clients.logs, settings.log_group),
        blobs=runtime.ports.blobs,
        clock=runtime.clock,
        log=runtime.log,
    )
