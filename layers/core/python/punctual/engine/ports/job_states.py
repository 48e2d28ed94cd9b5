"""The port for job states: reads, swaps, renewals of leases, definition rows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Progress
from punctual.engine.ports.audit_log import Note
from punctual.engine.ports.lists.job_names import NameRow
from punctual.engine.ports.rows import DefinitionRow, JobKey, JobStatePage, UpcomingStates


class StoredState(NamedTuple):
    """A job state as it was read, with the leases of its held runs."""

    state: JobState
    leases: Mapping[str, Lease]


class Swap(Struct, frozen=True):
    """Write `state` if the stored version is still `expected_version` (0: no state exists yet).

    The same write sets or drops (None) `leases` and stores the audit note. It fails if a lease in
    `required_leases` has changed since it was read. The last of `state.write_ids` is the write id.
    If the answer is lost, the swap has won if the stored state contains that id.
    """

    state: JobState
    expected_version: int
    leases: Mapping[str, Lease | None] = {}
    required_leases: Mapping[str, Lease] = {}
    note: Note | None = None

    @property
    def key(self) -> JobKey:
        return JobKey(self.state.tenant, self.state.job_id)


class LeaseRenewal(NamedTuple):
    """A renewal of a lease. It succeeds only while `token` holds the lease.

    Without `progress` the lease keeps what an earlier renewal reported.
    """

    key: JobKey
    run_id: str
    token: int
    expires_at: datetime
    progress: Progress | None = None


class WalkPage(NamedTuple):
    """A page of job states and of rows of names of all tenants, in any order.

    `cursor` leads to the next page. `unreadable` lists the jobs with an unreadable state, each with
    the reason.
    """

    states: Sequence[JobState]
    cursor: str | None
    unreadable: Sequence[tuple[JobKey, str]] = ()
    names: Sequence[NameRow] = ()


class JobStates(Protocol):
    """Job states. Reads are strongly consistent."""

    def load(self, keys: Sequence[JobKey]) -> Mapping[JobKey, StoredState]:
        """Return the states that exist and are not expired, including blank ones."""

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        """Write the states. Return True for each written now or before under the same write id."""

    def renew_leases(self, renewals: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        """Renew leases. Return each job state, or None if the token has lost its lease."""

    def put_definitions(self, definitions: Sequence[DefinitionRow]) -> None: ...

    def load_definitions(
        self, refs: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        """Return definition rows by job and ref."""

    def page(self, tenant: str, before: str | None, limit: int) -> JobStatePage:
        """Return states of a tenant with `job_id < before`, newest first, without blank ones."""

    def upcoming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, max_states: int
    ) -> UpcomingStates | None:
        """Return the next `limit` states by occurrence, after `after` (time, job), before `end`.

        The result includes recurring jobs with a next occurrence at or before `after`. It is None
        if these are more than `max_states`, or if the adapter must read more states to sort them.
        """

    def scheduled_states(self, tenant: str, end: datetime) -> Iterable[JobState]:
        """Return the states with an occurrence before `end`, each as it is when it is read.

        A state that advances meanwhile may come twice. A store may read each state only when the
        caller asks for it. It raises `TooMuchWork` if the tenant has more jobs than it can read.
        """

    def walk(self, cursor: str | None, limit: int) -> WalkPage:
        """Return a page of the states and the rows of names of all tenants, for the reconciler.

        Either of both may be empty.
        """


class ActiveStates(JobStates, Protocol):
    """Job states that the store finds by their runs. The node has them."""

    def active_states(self, tenant: str) -> Iterable[JobState]:
        """Return the states with runs that are live, waiting, or recently ended.

        A store may read each state only when the caller asks for it.
        """
