"""What the routes stand on."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from uuid import UUID

from punctual.domain.errors import NotFound, PreconditionFailed, Unavailable
from punctual.engine.commands.audit import Actor
from punctual.engine.commands.tokens import Tokens
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.quotas.limits import LimitsOf
from punctual.engine.quotas.limits import unlimited as unlimited
from punctual.web.features import Features
from punctual.web.http.conditions import if_match
from punctual.web.http.paging import Pager
from punctual.web.http.request import Request
from punctual.web.views.system import InstallationInfo

if TYPE_CHECKING:  # who only reads has no use for what writes
    from punctual.engine.commands.jobs import Jobs

_ID_LENGTH = 36


ReadWebhookSecret = Callable[[str, Actor, datetime], str]


def no_webhook_secret(_tenant: str, _by: Actor, _now: datetime) -> NoReturn:
    raise Unavailable("There is no key of webhooks here.")


class ReadServices(NamedTuple):
    """What the reading calls stand on; `most` bytes an answer may have, where a gateway says so."""

    search: JobQueries
    clock: Callable[[], datetime]
    about: InstallationInfo
    tokens: Tokens
    pager: Pager = Pager()
    most: int | None = None
    limits_of: LimitsOf = unlimited
    admit: Callable[[str], None] | None = None  # asked with the tenant of each call
    lists_by_any_time: bool = True  # lists over all jobs by the time of a start or an end


class Services(NamedTuple):
    jobs: "Jobs"
    search: JobQueries
    clock: Callable[[], datetime]
    features: Features
    about: InstallationInfo
    tokens: Tokens
    pager: Pager = Pager()
    most: int | None = None
    limits_of: LimitsOf = unlimited
    admit: Callable[[str], None] | None = None  # asked with the tenant of each call
    webhook_secret: ReadWebhookSecret = no_webhook_secret  # of a tenant, as it is shown
    together: int | None = None  # jobs of a batch that are stored in one step; None is all of them
    lists_by_any_time: bool = True  # lists over all jobs by the time of a start or an end

    def max_payload_bytes(self, request: Request) -> int | None:
        """What the caller's tenant may send as a payload, in bytes; None where nothing is said."""
        return self.limits_of(request.caller.tenant).payload_bytes

    def edition(self, request: Request, job_id: str) -> int | None:
        """The one edition that If-Match allows; None where any will do."""
        match = if_match(request)
        if match is None:
            return None
        if len(match.editions) == 1:
            return next(iter(match.editions))
        present = self.search.job(request.caller.tenant, job_id).head.edition
        if present in match.editions:
            return present
        raise PreconditionFailed("The job has another version by now: read it again.")


def parse_id(text: str, what: str = "job") -> str:
    """An id in its one spelling: whatever is no UUID names nothing."""
    try:
        found = str(UUID(text)) if len(text) == _ID_LENGTH else ""
    except ValueError:
        found = ""
    if not found or found != text.lower():
        raise NotFound(f"There is no such {what}.")
    return found
