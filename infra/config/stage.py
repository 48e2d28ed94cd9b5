"""The settings of one deployment, as cdk.json describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from constructs import Construct

from infra.build.scripts_image import finds_docker
from infra.config.cdk_json import (
    CERTIFICATE_ARN_PATTERN,
    CLAIM_PATTERN,
    DOMAIN_PATTERN,
    IMAGE_PATTERN,
    LOG_RETENTION_DAYS,
    ORIGIN_PATTERN,
    SECURITY_GROUP_PATTERN,
    SUBNET_PATTERN,
    TARGET_NAME_PATTERN,
    Fields,
)
from infra.config.concurrency import (
    MAX_CONCURRENCY_PERCENT,
    MAX_OPERATIONS_PER_SECOND,
    MAX_QUEUE_CONCURRENCY,
    MIN_CONCURRENCY_PERCENT,
    Concurrency,
    too_fast_operations,
    too_large_lanes,
    too_small_reservations,
)
from infra.config.restored_tables import RestoredTables, read_restored_tables
from infra.stacks.observability.alarm_kinds import chosen_alarms, read_alarm_email
from punctual.auth.issuer_config import ROLE_CLAIM, TENANT_CLAIM, IssuerConfig, is_issuer_url
from punctual.domain.tenants.limits import LIMIT_FIELDS, MAX_VALUE_BY_LIMIT, TenantLimits
from punctual.domain.tenants.tokens import is_valid_tenant
from punctual.settings import OPERATION_CONCURRENCY
from punctual.tasks.http.addresses import parse_private_network
from punctual.tasks.limits import SCRIPT_FUNCTIONS
from punctual.tasks.reach import ALL_OTHER_TENANTS, AllowedTargets, encode_targets

FUNCTION_NAMES = (
    "authorizer",
    "job-service",
    "job-search",
    "claims",
    "planner",
    "poller",
    "reconciler",
    "operations",
    "executor-quick",
    "executor-long",
    "dead-letters",
    "status",
)
LANE_NAMES = ("quick", "long")
SCRIPT_FUNCTION_NAMES = tuple(sorted(set(SCRIPT_FUNCTIONS.values())))
ARCHITECTURES = ("arm64", "x86_64")
EXECUTOR_FUNCTIONS = tuple(f"executor-{lane}" for lane in LANE_NAMES)
PRIORITIES = ("high", "normal", "low")
SHARED_QUEUE = "all"
"""The name of the queue in a lane with one queue for all priorities."""

LANE_QUEUES = {"quick": (PRIORITIES,), "long": ((SHARED_QUEUE,), PRIORITIES)}
"""The sets of queues that a lane may have. In the quick lane HIGH always has a queue of its own."""

STAGE_TAG = "punctual-stage"
"""The tag that separates stages in a bill. Other programs may use the tag `stage` too."""

MAX_REACH_CHARACTERS = 1_500
"""The maximum length of `tasksMayReach`. The environment of a function has 4 KB in all."""

MAX_LIST_SLOTS = 64  # a call that lists reads all slots in parallel
MAX_FEED_SLOTS = 4  # a call that reads changes reads 4 MB of all slots together
# Each of the functions that carry out operations acts on at least one job a second.
MIN_OPERATIONS_PER_SECOND = OPERATION_CONCURRENCY
MIN_POLLER_MEMORY_MB = 256  # MB
MAX_CONTAINER_VCPU = 10_000
MIN_STAGE_SCRIPT_MEMORY_MB = 128  # MB
MAX_FUNCTION_MEMORY_MB = 10_240  # MB; the maximum of Lambda
RUNNER_MEMORY_MB = 128
"""What the runner needs beside a script. So a script that uses too much ends with the message of
its limit, and Lambda does not kill the runner first."""

SCRIPT_DISK_MB = 2_048
"""A run may leave 1 GB in its folder, beside its file of up to 250 MB and the unpacked files."""

RUN_EVENT_CHOICES = ("all", "ended", "none")


class WrongStage(ValueError):
    """cdk.json has no such stage, or its settings are invalid."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Requests a second of all callers together, and the burst."""

    rate: int
    burst: int


@dataclass(frozen=True, slots=True)
class Domain:
    """A custom domain of the API. The operator creates its DNS record."""

    name: str
    certificate_arn: str


@dataclass(frozen=True, slots=True)
class Vpc:
    """Existing private subnets and security groups, with a route to the AWS services."""

    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """Functions and queues that tasks may reach, by tenant and name; a name may end with `*`.

    `networks` are private networks that `http` tasks may call."""

    functions: Mapping[str, tuple[str, ...]]
    queues: Mapping[str, tuple[str, ...]]
    networks: tuple[str, ...]

    @property
    def all_functions(self) -> tuple[str, ...]:
        """Return the functions of all tenants: a role does not know tenants."""
        return _distinct_names(self.functions)

    @property
    def all_queues(self) -> tuple[str, ...]:
        return _distinct_names(self.queues)

    @property
    def text(self) -> str:
        return encode_targets(AllowedTargets(self.functions, self.queues))


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of `cdk.json`; docs/decisions/0025-stacks-and-observability.md."""

    name: str
    protected: bool
    retention_days: int
    log_retention_days: int
    shards: int
    list_slots: int  # partitions of each list of a tenant
    feed_slots: int  # partitions of the change feed of a tenant
    operations_per_second: int  # the jobs or runs that all operations together act on
    catch_up_pace: int
    metrics: bool
    api_metrics: bool  # of each route
    tracing: bool
    run_events: str
    concurrency: Concurrency
    memory: Mapping[str, int]
    script_memory_mb: int  # the most that a script may use
    script_architecture: str
    containers: bool  # whether jobs may run containers
    max_container_vcpu: int  # of all running containers together
    scripts_image: str | None  # of scripts in containers; None: `make deploy` builds it
    reach: Reach
    throttle: Throttle
    claim_throttle: Throttle  # of the calls by claim, so that they never crowd out other calls
    limits: TenantLimits | None  # of a tenant without limits of its own; None: no tenant has limits
    cors_origins: tuple[str, ...]
    issuer: IssuerConfig | None  # the issuer of JWTs that the API accepts beside tokens
    domain: Domain | None
    vpc: Vpc | None
    restored_tables: RestoredTables | None
    alarms: tuple[str, ...]  # kinds
    alarm_email: str | None
    budget_dollars: int | None  # a month
    dashboard: bool
    unprotected_stacks: frozenset[str] = frozenset()  # stacks that do not exist yet
    has_docker: bool = False  # on the machine that deploys

    def protects(self, stack: str) -> bool:
        """Return whether the stack and its tables are protected from deletion."""
        return self.protected and stack not in self.unprotected_stacks

    @property
    def lanes(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of concurrent executors, by lane and priority."""
        return self.concurrency.lanes

    @property
    def reserved(self) -> Mapping[str, int]:
        """Return the reserved executions, by function."""
        return self.concurrency.reserved

    @property
    def builds_scripts_image(self) -> bool:
        """Return whether the deployment builds the image of scripts in containers."""
        return self.containers and self.scripts_image is None and self.has_docker

    @property
    def has_container_scripts(self) -> bool:
        """Return whether scripts that a function cannot run go to containers."""
        return self.builds_scripts_image or (self.containers and self.scripts_image is not None)

    @property
    def script_places(self) -> Mapping[str, int]:
        """Return how many scripts may run at a time, by function. Others share the account's."""
        reserved = self.reserved
        return {name: reserved[name] for name in SCRIPT_FUNCTION_NAMES if name in reserved}

    @property
    def pollers(self) -> int:
        """Return the number of concurrent pollers.

        Without a reservation each shard has one for this minute and one for the next.
        """
        return min(MAX_QUEUE_CONCURRENCY, self.reserved.get("poller", 2 * self.shards))

    @property
    def removal_policy(self) -> RemovalPolicy:
        """Return the removal policy.

        A protected stage keeps removed resources, except after a failed creation.
        """
        if self.protected:
            return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
        return RemovalPolicy.DESTROY

    @property
    def retention(self) -> Duration:
        return Duration.days(self.retention_days)

    @property
    def parameter_prefix(self) -> str:
        """Return the prefix of the names of the SSM parameters."""
        return f"/punctual/{self.name}/"

    @property
    def prefix(self) -> str:
        """Return the prefix of resource names, which is also the name of the event bus."""
        return f"punctual-{self.name}"

    def resource_name(self, name: str) -> str:
        """Return the name of a resource in AWS: `punctual-dev-planner`."""
        return f"{self.prefix}-{name}"

    def function_log_group(self, name: str) -> str:
        """Return the name of the log group of a function."""
        return f"/aws/lambda/{self.resource_name(name)}"

    @property
    def api_log_group(self) -> str:
        """Return the name of the log group of the API's access log.

        A log group with this prefix needs no statement in the account's resource policy.
        """
        return f"/aws/vendedlogs/{self.resource_name('api')}"


def stage_of(scope: Construct) -> Stage:
    """Return the stage that the context value `stage` names."""
    name = scope.node.try_get_context("stage")
    stage = read_stage(name, scope.node.try_get_context("stages"))
    unprotected_stacks = str(scope.node.try_get_context("unprotected") or "")
    return replace(
        stage,
        unprotected_stacks=frozenset(unprotected_stacks.split(",")) - {""},
        has_docker=stage.containers and stage.scripts_image is None and finds_docker(),
    )


def read_stage(name: Any, stages: Any) -> Stage:
    """Return the settings of a stage in cdk.json; raise if there are none.

    >>> read_stage("qa", {"dev": {}})
    Traceback (most recent call last):
    infra.config.stage.WrongStage: cdk.json has no stage 'qa'; it has dev
    """
    if not isinstance(stages, dict) or name not in stages:
        choices = ", ".join(sorted(stages)) if isinstance(stages, dict) else "none"
        raise WrongStage(f"cdk.json has no stage {name!r}; it has {choices}")
    fields = Fields(stages[name])
    stage = _parse_stage(str(name), fields)
    fields.finish()
    if not fields.problems:
        concurrency = stage.concurrency
        rates = {
            "throttle.rate": stage.throttle.rate,
            "claimThrottle.rate": stage.claim_throttle.rate,
        }
        fields.problems += too_small_reservations(concurrency, rates)
        fields.problems += too_large_lanes(concurrency)
        fields.problems += too_fast_operations(stage.operations_per_second, stage.list_slots)
        fields.problems += _poller_memory_problems(stage)
    if fields.problems:
        raise WrongStage(f"stage {name!r}: {'; '.join(fields.problems)}")
    return stage


def _parse_stage(name: str, fields: Fields) -> Stage:
    metrics = fields.switch("metrics")
    alarms = chosen_alarms(fields, metrics)
    concurrency = _parse_concurrency(fields)
    budget_dollars = fields.number_or_null("budgetDollars", 1, 10_000_000)
    return Stage(
        name=name,
        protected=fields.switch("protected"),
        retention_days=fields.number("retentionDays", 1, 3650),
        log_retention_days=fields.one_of("logRetentionDays", LOG_RETENTION_DAYS),
        shards=fields.number("shards", 1, 1_000),
        list_slots=fields.number("listSlots", 1, MAX_LIST_SLOTS),
        feed_slots=fields.number("feedSlots", 1, MAX_FEED_SLOTS),
        operations_per_second=fields.number(
            "operationsPerSecond", MIN_OPERATIONS_PER_SECOND, MAX_OPERATIONS_PER_SECOND
        ),
        catch_up_pace=fields.number("pace", 1, 1440),
        metrics=metrics,
        api_metrics=fields.switch("apiMetrics"),
        tracing=fields.switch("tracing"),
        run_events=fields.one_of("runEvents", RUN_EVENT_CHOICES),
        concurrency=concurrency,
        memory=fields.numbers(
            "memory", FUNCTION_NAMES, 128, MAX_FUNCTION_MEMORY_MB, all_required=True
        ),
        script_memory_mb=fields.number(
            "scriptMemoryMb", MIN_STAGE_SCRIPT_MEMORY_MB, MAX_FUNCTION_MEMORY_MB - RUNNER_MEMORY_MB
        ),
        script_architecture=fields.one_of("scriptArchitecture", ARCHITECTURES),
        containers=fields.switch("containers"),
        max_container_vcpu=fields.number("maxContainerVcpu", 1, MAX_CONTAINER_VCPU),
        scripts_image=fields.text_or_null("scriptsImage", IMAGE_PATTERN, "the name of an image"),
        reach=_parse_reach(fields.nested("tasksMayReach")),
        throttle=_parse_throttle(fields.nested("throttle"), concurrency),
        claim_throttle=_parse_throttle(fields.nested("claimThrottle"), concurrency),
        limits=_parse_limits(fields.nested_or_null("limits")),
        cors_origins=fields.texts("corsOrigins", ORIGIN_PATTERN, "a list of origins, https://host"),
        issuer=_parse_issuer(fields.nested_or_null("oidcIssuer")),
        domain=_parse_domain(fields.nested_or_null("domain")),
        vpc=_parse_vpc(fields.nested_or_null("vpc")),
        restored_tables=read_restored_tables(fields.nested_or_null("restoredTables")),
        alarms=alarms,
        alarm_email=read_alarm_email(fields, alarms, budget_dollars),
        budget_dollars=budget_dollars,
        dashboard=fields.switch("dashboard"),
    )


def _poller_memory_problems(stage: Stage) -> list[str]:
    """Return a message if pollers have too little memory to be ready in time."""
    if stage.memory["poller"] >= MIN_POLLER_MEMORY_MB:
        return []
    reason = "pollers are woken just in time for their work at this size"
    return [f"`memory.poller` must be at least {MIN_POLLER_MEMORY_MB}: {reason}"]


def _parse_concurrency(fields: Fields) -> Concurrency:
    return Concurrency(
        fields.number("concurrencyPercent", MIN_CONCURRENCY_PERCENT, MAX_CONCURRENCY_PERCENT),
        _parse_lanes(fields.nested("lanes")),
        # 0 would switch a function off.
        fields.numbers("reservedConcurrency", (*FUNCTION_NAMES, *SCRIPT_FUNCTION_NAMES), 1, 10_000),
    )


def _parse_lanes(fields: Fields) -> dict[str, dict[str, int]]:
    """Return the number of concurrent executors, by lane and queue."""
    lanes = {
        lane: fields.numbers(lane, (SHARED_QUEUE, *PRIORITIES), 2, 1_000) for lane in LANE_NAMES
    }
    for lane, queues in lanes.items():
        if set(queues) not in map(set, LANE_QUEUES[lane]):
            shared_choice = "`all`, or " if (SHARED_QUEUE,) in LANE_QUEUES[lane] else ""
            fields.problems.append(
                f"`lanes.{lane}` must have {shared_choice}`high`, `normal` and `low`"
            )
    fields.finish()
    return lanes


def _distinct_names(names_by_tenant: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(name for tenant_names in names_by_tenant.values() for name in tenant_names)
    )


def _parse_reach(fields: Fields) -> Reach:
    reach = Reach(
        _names_by_tenant(
            fields, "functions", "names of Lambda functions, with an optional * at the end"
        ),
        _names_by_tenant(fields, "queues", "names of SQS queues, with an optional * at the end"),
        tuple(
            fields.take(
                "networks", "a list of private networks, 10.1.0.0/16", _are_private_networks, ()
            )
        ),
    )
    fields.finish()
    if len(reach.text) > MAX_REACH_CHARACTERS:
        fields.problems.append(
            f"`tasksMayReach` must be at most {MAX_REACH_CHARACTERS} characters; "
            f"got {len(reach.text)}. "
            "Give names a common prefix, and write it once with a *"
        )
    return reach


def _names_by_tenant(fields: Fields, name: str, expected: str) -> dict[str, tuple[str, ...]]:
    """Return lists by tenant; `*` stands for all tenants without a list of their own."""
    tenants_field = fields.nested(name)
    names_by_tenant: dict[str, tuple[str, ...]] = {}
    for tenant in tenants_field.names:
        if tenant != ALL_OTHER_TENANTS and not is_valid_tenant(tenant):
            tenants_field.problems.append(
                f"`tasksMayReach.{name}`: {tenant!r} is not a tenant or *"
            )
        names_by_tenant[tenant] = tenants_field.texts(
            tenant, TARGET_NAME_PATTERN, f"a list of {expected}"
        )
    return names_by_tenant


def _are_private_networks(value: Any) -> bool:
    try:
        return isinstance(value, list) and all(
            parse_private_network(str(network)) for network in value
        )
    except ValueError:
        return False


def _parse_throttle(fields: Fields, concurrency: Concurrency) -> Throttle:
    rate, burst = fields.number("rate", 1, 10_000), fields.number("burst", 1, 5_000)
    fields.finish()
    return Throttle(concurrency.scaled_rate(rate), concurrency.scaled_rate(burst))


def _parse_issuer(fields: Fields | None) -> IssuerConfig | None:
    if fields is None:
        return None
    issuer = IssuerConfig(
        str(fields.take("issuer", "an https URL without query", _is_issuer_url, "")),
        fields.text("audience", CLAIM_PATTERN, "the audience of the issuer's tokens"),
        fields.text_or_null("tenantClaim", CLAIM_PATTERN, "the name of a claim") or TENANT_CLAIM,
        fields.text_or_null("roleClaim", CLAIM_PATTERN, "the name of a claim") or ROLE_CLAIM,
        fields.text_or_null("clientId", CLAIM_PATTERN, "the client id for the login of people"),
    )
    fields.finish()
    return issuer


def _is_issuer_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("https://") and is_issuer_url(value)


def _parse_limits(fields: Fields | None) -> TenantLimits | None:
    if fields is None:
        return None
    limits = TenantLimits(
        **{name: fields.number_or_null(name, 1, MAX_VALUE_BY_LIMIT[name]) for name in LIMIT_FIELDS}
    )
    fields.finish()
    return limits


def _parse_domain(fields: Fields | None) -> Domain | None:
    if fields is None:
        return None
    domain = Domain(
        fields.text("name", DOMAIN_PATTERN, "a domain name"),
        fields.text("certificateArn", CERTIFICATE_ARN_PATTERN, "the ARN of an ACM certificate"),
    )
    fields.finish()
    return domain


def _parse_vpc(fields: Fields | None) -> Vpc | None:
    if fields is None:
        return None
    vpc = Vpc(
        fields.texts("subnets", SUBNET_PATTERN, "a list of at least one subnet-…", min_count=1),
        fields.texts(
            "securityGroups", SECURITY_GROUP_PATTERN, "a list of at least one sg-…", min_count=1
        ),
    )
    fields.finish()
    return vpc
