"""Job states: reads, swaps, renewals of leases, definitions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

from punctual.domain.job_state import JobState
from punctual.domain.run import Lease
from punctual.engine.commands.audit import Note
from punctual.engine.ports.rows import Coming, DefinitionRow, HeadPage, Key, Walk


class StoredState(NamedTuple):
    """A head as it was read, with the leases of its holders."""

    head: JobState
    leases: Mapping[str, Lease]


class Swap(Struct, frozen=True):
    """Write `head` if the stored version is still `expect` (0: no such head yet).

    With it, atomically: set or drop (None) leases, and note for the audit whose change it is;
    hold only if `required` leases are as they were read. `head.writers[-1]` marks the swap as its
    caller's own: one whose answer was lost has won if that mark stands in what is stored.
    """

    head: JobState
    expect: int
    leases: Mapping[str, Lease | None] = {}
    required: Mapping[str, Lease] = {}
    note: Note | None = None

    @property
    def key(self) -> Key:
        return Key(self.head.tenant, self.head.job_id)


class LeaseRenewal(NamedTuple):
    """Renew a lease if `token` still holds it."""

    key: Key
    run_id: str
    token: int
    until: datetime


class JobStates(Protocol):
    """Job states. Reads are strongly consistent."""

    def load(self, keys: Sequence[Key]) -> Mapping[Key, StoredState]:
        """Those that exist and are not expired; blank heads included."""

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        """True for each that was written, by this call or an earlier one with the same mark."""

    def beat(self, beats: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        """The head after each renewal, None where the lease is not the token's any more."""

    def put_bodies(self, bodies: Sequence[DefinitionRow]) -> None: ...

    def bodies(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], DefinitionRow]:
        """Bodies by job and ref."""

    def page(self, tenant: str, before: str | None, limit: int) -> HeadPage:
        """Heads of a tenant with `job_id < before`, newest first, blank ones left out."""

    def coming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, most: int
    ) -> Coming | None:
        """The `limit` heads that come first behind `after` (time, job) and before `end`.

        With them those that came before that place and come again. None where these are more than
        `most`, or where the adapter would have to read more than that to know the order.
        """

    def busy(self, tenant: str) -> Iterable[JobState]:
        """Return the jobs that hold runs: live, waiting, or ended last.

        A store may read each when it is asked for.
        """

    def walk(self, cursor: str | None, limit: int) -> Walk:
        """Every head there is, some at a time, for the reconciler."""
