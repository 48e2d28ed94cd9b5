"""The settings of one deployment, as cdk.json describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from constructs import Construct

from infra.config.cdk_json import (
    CERTIFICATE,
    CLAIM,
    DOMAIN,
    LOG_RETENTIONS,
    ORIGIN,
    SECURITY_GROUP,
    SUBNET,
    TARGET_NAME,
    Fields,
)
from infra.config.concurrency import (
    PERCENT_LEAST,
    PERCENT_MOST,
    QUEUE_MOST,
    Concurrency,
    too_few,
    too_many,
)
from infra.config.restored_tables import Restored, restored
from infra.stacks.observability.kinds import alarm_email, chosen_alarms
from punctual.auth.issuer_config import ROLE_CLAIM, TENANT_CLAIM, IssuerConfig, is_issuer_url
from punctual.domain.tenants.limits import FIELDS, MAX_LIMITS, Limits
from punctual.domain.tenants.tokens import is_tenant
from punctual.tasks import reach as tenants
from punctual.tasks.http.addresses import private_network
from punctual.tasks.reach import REST, text_of

FUNCTION_NAMES = (
    "authorizer",
    "job-service",
    "job-search",
    "planner",
    "poller",
    "reconciler",
    "executor-quick",
    "executor-long",
    "dead-letters",
    "status",
)
LANE_NAMES = ("quick", "long")
EXECUTOR_FUNCTIONS = tuple(f"executor-{lane}" for lane in LANE_NAMES)
PRIORITIES = ("high", "normal", "low")
SHARED_QUEUE = "all"
"""The name of the queue in a lane with one queue for all priorities."""

LANE_QUEUES = {"quick": (PRIORITIES,), "long": ((SHARED_QUEUE,), PRIORITIES)}
"""The sets of queues that a lane may have. In the quick lane HIGH always has a queue of its own."""

STAGE_TAG = "punctual-stage"
"""The tag that separates stages in a bill. Other programs may use the tag `stage` too."""

REACH_MOST = 1_500
"""The maximum length of `tasksMayReach`. The environment of a function has 4 KB in all."""

POLLER_LEAST = 256  # MB

RUN_EVENTS = ("all", "ended", "none")


class WrongStage(ValueError):
    """cdk.json lacks the stage, or its settings are wrong."""


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
    def every_function(self) -> tuple[str, ...]:
        """Return the functions of all tenants: a role does not know tenants."""
        return _all_of(self.functions)

    @property
    def every_queue(self) -> tuple[str, ...]:
        return _all_of(self.queues)

    @property
    def text(self) -> str:
        return text_of(tenants.Reach(self.functions, self.queues))


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of `cdk.json`; docs/decisions/0025-stacks-and-observability.md."""

    name: str
    protected: bool
    retention_days: int
    log_retention_days: int
    shards: int
    pace: int
    metrics: bool
    api_metrics: bool  # of each route
    tracing: bool
    run_events: str
    concurrency: Concurrency
    memory: Mapping[str, int]
    reach: Reach
    throttle: Throttle
    limits: Limits | None  # of a tenant without limits of its own; None: no tenant has limits
    cors_origins: tuple[str, ...]
    trust: IssuerConfig | None  # the issuer of JWTs that the API accepts beside tokens
    domain: Domain | None
    vpc: Vpc | None
    restored: Restored | None
    alarms: tuple[str, ...]  # kinds
    alarm_email: str | None
    budget_dollars: int | None  # a month
    dashboard: bool
    unprotected: frozenset[str] = frozenset()  # stacks that do not exist yet

    def protects(self, stack: str) -> bool:
        """Return whether the stack and its tables are protected from deletion."""
        return self.protected and stack not in self.unprotected

    @property
    def lanes(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of concurrent executors, by lane and priority."""
        return self.concurrency.lanes

    @property
    def reserved(self) -> Mapping[str, int]:
        """Return the reserved executions, by function."""
        return self.concurrency.reserved

    @property
    def pollers(self) -> int:
        """Return the number of concurrent pollers.

        Without a reservation each shard has one for this minute and one for the next.
        """
        return min(QUEUE_MOST, self.reserved.get("poller", 2 * self.shards))

    @property
    def removal(self) -> RemovalPolicy:
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
    def knobs(self) -> str:
        """Return the prefix of the names of the SSM parameters."""
        return f"/punctual/{self.name}/"

    @property
    def prefix(self) -> str:
        """Return the prefix of resource names, which is also the name of the event bus."""
        return f"punctual-{self.name}"

    def physical(self, name: str) -> str:
        """Return the name of a resource in AWS: `punctual-dev-planner`."""
        return f"{self.prefix}-{name}"


def stage_of(scope: Construct) -> Stage:
    """Return the stage that the context value `stage` names."""
    name = scope.node.try_get_context("stage")
    stage = described(name, scope.node.try_get_context("stages"))
    unprotected = str(scope.node.try_get_context("unprotected") or "")
    return replace(stage, unprotected=frozenset(unprotected.split(",")) - {""})


def described(name: Any, stages: Any) -> Stage:
    """Return the settings of a stage in cdk.json; raise if there are none.

    >>> described("qa", {"dev": {}})
    Traceback (most recent call last):
    infra.config.stage.WrongStage: no stage 'qa' in cdk.json; there are: dev
    """
    if not isinstance(stages, dict) or name not in stages:
        known = ", ".join(sorted(stages)) if isinstance(stages, dict) else "none"
        raise WrongStage(f"no stage {name!r} in cdk.json; there are: {known}")
    fields = Fields(stages[name])
    stage = _read(str(name), fields)
    fields.finish()
    if not fields.wrong:
        concurrency = stage.concurrency
        fields.wrong += too_few(concurrency, stage.throttle.rate) + too_many(concurrency)
        fields.wrong += _slow(stage)
    if fields.wrong:
        raise WrongStage(f"stage {name!r}: {'; '.join(fields.wrong)}")
    return stage


def _read(name: str, fields: Fields) -> Stage:
    metrics = fields.switch("metrics")
    alarms = chosen_alarms(fields, metrics)
    concurrency = _concurrency(fields)
    budget = fields.number_or_null("budgetDollars", 1, 10_000_000)
    return Stage(
        name=name,
        protected=fields.switch("protected"),
        retention_days=fields.number("retentionDays", 1, 3650),
        log_retention_days=fields.one_of("logRetentionDays", LOG_RETENTIONS),
        shards=fields.number("shards", 1, 1_000),
        pace=fields.number("pace", 1, 1440),
        metrics=metrics,
        api_metrics=fields.switch("apiMetrics"),
        tracing=fields.switch("tracing"),
        run_events=fields.one_of("runEvents", RUN_EVENTS),
        concurrency=concurrency,
        memory=fields.numbers("memory", FUNCTION_NAMES, 128, 10_240, whole=True),
        reach=_reach(fields.below("tasksMayReach")),
        throttle=_throttle(fields.below("throttle"), concurrency),
        limits=_limits(fields.below_or_null("limits")),
        cors_origins=fields.texts("corsOrigins", ORIGIN, "a list of origins, https://host"),
        trust=_trust(fields.below_or_null("oidcIssuer")),
        domain=_domain(fields.below_or_null("domain")),
        vpc=_vpc(fields.below_or_null("vpc")),
        restored=restored(fields.below_or_null("restoredTables")),
        alarms=alarms,
        alarm_email=alarm_email(fields, alarms, budget),
        budget_dollars=budget,
        dashboard=fields.switch("dashboard"),
    )


def _slow(stage: Stage) -> list[str]:
    """Return a message if pollers have too little memory to be ready in time."""
    if stage.memory["poller"] >= POLLER_LEAST:
        return []
    reason = "it is woken in time for what it does with so much, and no earlier"
    return [f"`memory.poller` must be at least {POLLER_LEAST}: {reason}"]


def _concurrency(fields: Fields) -> Concurrency:
    return Concurrency(
        fields.number("concurrencyPercent", PERCENT_LEAST, PERCENT_MOST),
        _lanes(fields.below("lanes")),
        # 0 would switch a function off.
        fields.numbers("reservedConcurrency", FUNCTION_NAMES, 1, 10_000),
    )


def _lanes(fields: Fields) -> dict[str, dict[str, int]]:
    """Return the number of concurrent executors, by lane and queue."""
    lanes = {
        lane: fields.numbers(lane, (SHARED_QUEUE, *PRIORITIES), 2, 1_000) for lane in LANE_NAMES
    }
    for lane, queues in lanes.items():
        if set(queues) not in map(set, LANE_QUEUES[lane]):
            shared = "`all`, or " if (SHARED_QUEUE,) in LANE_QUEUES[lane] else ""
            fields.wrong.append(f"`lanes.{lane}` must hold {shared}`high`, `normal` and `low`")
    fields.finish()
    return lanes


def _all_of(names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names.values() for name in some))


def _reach(fields: Fields) -> Reach:
    reach = Reach(
        _by_tenant(fields, "functions", "names of Lambda functions, perhaps with a * last"),
        _by_tenant(fields, "queues", "names of SQS queues, perhaps with a * last"),
        tuple(fields.take("networks", "a list of private networks, 10.1.0.0/16", _private, ())),
    )
    fields.finish()
    if len(reach.text) > REACH_MOST:
        fields.wrong.append(
            f"`tasksMayReach` must take at most {REACH_MOST} characters, not {len(reach.text)}: "
            "give names a common beginning, and write it once with a *"
        )
    return reach


def _by_tenant(fields: Fields, name: str, meant: str) -> dict[str, tuple[str, ...]]:
    """Return lists by tenant; `*` stands for all tenants without a list of their own."""
    below = fields.below(name)
    found: dict[str, tuple[str, ...]] = {}
    for tenant in below.names:
        if tenant != REST and not is_tenant(tenant):
            below.wrong.append(f"`tasksMayReach.{name}`: {tenant!r} is not a tenant, nor *")
        found[tenant] = below.texts(tenant, TARGET_NAME, f"a list of {meant}")
    return found


def _private(value: Any) -> bool:
    try:
        return isinstance(value, list) and all(private_network(str(one)) for one in value)
    except ValueError:
        return False


def _throttle(fields: Fields, concurrency: Concurrency) -> Throttle:
    rate, burst = fields.number("rate", 1, 10_000), fields.number("burst", 1, 5_000)
    fields.finish()
    return Throttle(concurrency.rate(rate), concurrency.rate(burst))


def _trust(fields: Fields | None) -> IssuerConfig | None:
    if fields is None:
        return None
    trust = IssuerConfig(
        str(fields.take("issuer", "an https URL without query", _is_issuer, "")),
        fields.text("audience", CLAIM, "what the issuer's tokens are meant for"),
        fields.text_or_null("tenantClaim", CLAIM, "a claim's name") or TENANT_CLAIM,
        fields.text_or_null("roleClaim", CLAIM, "a claim's name") or ROLE_CLAIM,
        fields.text_or_null("clientId", CLAIM, "the client that people log in with"),
    )
    fields.finish()
    return trust


def _is_issuer(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("https://") and is_issuer_url(value)


def _limits(fields: Fields | None) -> Limits | None:
    if fields is None:
        return None
    limits = Limits(**{name: fields.number_or_null(name, 1, MAX_LIMITS[name]) for name in FIELDS})
    fields.finish()
    return limits


def _domain(fields: Fields | None) -> Domain | None:
    if fields is None:
        return None
    domain = Domain(
        fields.text("name", DOMAIN, "a domain name"),
        fields.text("certificateArn", CERTIFICATE, "the ARN of an ACM certificate"),
    )
    fields.finish()
    return domain


def _vpc(fields: Fields | None) -> Vpc | None:
    if fields is None:
        return None
    vpc = Vpc(
        fields.texts("subnets", SUBNET, "a list of at least one subnet-…", least=1),
        fields.texts("securityGroups", SECURITY_GROUP, "a list of at least one sg-…", least=1),
    )
    fields.finish()
    return vpc
