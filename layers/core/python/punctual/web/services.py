"""Group the use cases and settings that the routes call."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from punctual.domain.errors import NotFound, PreconditionFailed, Unavailable
from punctual.engine.commands.tokens import Tokens
from punctual.engine.ports.audit_log import Actor
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.queries.artifacts import ArtifactQueries
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.operations import OperationQueries
from punctual.engine.queries.overview.failures import FailureQueries
from punctual.engine.quotas.limits import unlimited as unlimited
from punctual.web.features import Features
from punctual.web.http.guards import if_match
from punctual.web.http.problems import not_installed
from punctual.web.http.request import Request
from punctual.web.views.system import InstallationInfo

if TYPE_CHECKING:  # the reading function must not import the code that writes
    from punctual.engine.commands.artifacts import Artifacts
    from punctual.engine.commands.failures import FailureCommands
    from punctual.engine.commands.jobs import Jobs
    from punctual.engine.commands.secrets import Secrets
    from punctual.engine.execution.claims import Claims
    from punctual.engine.operations.commands import OperationCommands

_UUID_CHARACTERS = 36

T = TypeVar("T")


MustPause = Callable[[str], bool]  # whether a tenant's clients had changes a moment ago
ReadWebhookSecret = Callable[[str, Actor, datetime], str]


def no_webhook_secret(_tenant: str, _actor: Actor, _now: datetime) -> NoReturn:
    raise Unavailable("This server has no webhook key.")


class ReadServices(NamedTuple):
    """The use cases and settings of the reading routes."""

    queries: JobQueries
    clock: Callable[[], datetime]
    installation: InstallationInfo
    tokens: Tokens
    max_response_bytes: int | None = None  # the limit of a gateway; None without one
    limits_of: LimitsOf = unlimited
    check_tenant: Callable[[str], None] | None = None  # gets the tenant of each call
    artifact_queries: ArtifactQueries | None = None  # None where artifacts are not offered
    operation_queries: OperationQueries | None = None  # None where they are not offered
    must_pause: MustPause | None = None  # None where calls do not wait for changes
    failure_queries: FailureQueries | None = None  # None where failures are not kept


class Services(NamedTuple):
    """The use cases and settings of all routes."""

    jobs: "Jobs"
    queries: JobQueries
    clock: Callable[[], datetime]
    features: Features
    installation: InstallationInfo
    tokens: Tokens
    max_response_bytes: int | None = None  # the limit of a gateway; None without one
    limits_of: LimitsOf = unlimited
    check_tenant: Callable[[str], None] | None = None  # gets the tenant of each call
    webhook_secret: ReadWebhookSecret = no_webhook_secret
    secrets: "Secrets | None" = None
    max_jobs_per_write: int | None = None  # jobs of a batch stored in one step; None stores all
    claims: "Claims | None" = None  # None where another function serves them
    artifacts: "Artifacts | None" = None  # None where artifacts are not offered
    must_pause: MustPause | None = None  # None where calls do not wait for changes
    failures: "FailureCommands | None" = None  # None where failures are not kept
    operations: "OperationCommands | None" = None  # None where they are not offered

    @property
    def operation_queries(self) -> OperationQueries | None:
        return None if self.operations is None else self.operations.queries

    @property
    def artifact_queries(self) -> ArtifactQueries | None:
        return None if self.artifacts is None else self.artifacts.queries

    @property
    def failure_queries(self) -> FailureQueries | None:
        return None if self.failures is None else self.failures.queries

    def max_payload_bytes(self, request: Request) -> int | None:
        """Return the payload limit of the caller's tenant, or None."""
        return self.limits_of(request.caller.tenant).payload_bytes

    def required_edition(self, request: Request, job_id: str) -> int | None:
        """Return the only version that If-Match allows, or None if any version will do."""
        match = if_match(request)
        if match is None:
            return None
        if len(match.editions) == 1:
            return next(iter(match.editions))
        current = self.queries.job(request.caller.tenant, job_id).state.edition
        if current in match.editions:
            return current
        raise PreconditionFailed("The job has another version by now: read it again.")


def installed(use_cases: T | None, path: str) -> T:
    """Return the use cases. Where an installation does not offer them, the path is a 404."""
    if use_cases is None:
        raise not_installed(path)
    return use_cases


def parse_id(text: str, noun: str = "job") -> str:
    """Return a UUID in lower case. Any other text names nothing, so it is a 404."""
    try:
        uuid = str(UUID(text)) if len(text) == _UUID_CHARACTERS else ""
    except ValueError:
        uuid = ""
    if not uuid or uuid != text.lower():
        raise NotFound(f"There is no such {noun}.")
    return uuid
