"""Job states in memory: the view of the transaction, and the stored form of unwritten changes."""

from collections import OrderedDict

from punctual.domain.run import Lease
from punctual.engine.ports.job_states import StoredState
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.codec import moment
from punctual.node.sqlite.state_rows import HEAD, NO_LEASES
from punctual.node.sqlite.transaction import Transaction

# Plain tuples, because every swap creates some. A name has the hash of a `Key`. A kept state has
# the number of its row, so that a write needs no search.
Name = tuple[str, str]
Kept = tuple[int, StoredState]


class StateCache:
    """Caches job states.

    The file has one owner, so the cache stays true.

    `_cache` holds committed states. `_open` holds the changes of this transaction, and `_rows` the
    stored form of changes that are not written yet.
    """

    def __init__(self, unit: Transaction, cached: int) -> None:
        self._unit = unit
        self._cached = cached
        self._cache: OrderedDict[Name, Kept] = OrderedDict()
        self._open: dict[Name, Kept] = {}
        self._rows: dict[Name, StoredState | None] = {}
        self._behind: set[Name] = set()  # keys with uncommitted rows
        self._last: int | None = None
        self._newest: dict[str, str] = {}

    def find(self, key: Name) -> Kept | None:
        """Return the job state as the transaction sees it, expired or not.

        Raise `Unreadable` if its row is damaged.
        """
        kept = self._open.get(key)
        if kept is not None:
            return kept
        kept = self._cache.get(key)
        if kept is not None:
            self._cache.move_to_end(key)
            return kept
        if key[1] > self._newest_of(key[0]):
            return None
        kept = self._read(key)
        if kept is not None and key in self._behind:
            self._open[key] = kept
        elif kept is not None:
            self._cache[key] = kept
            self._trim()
        return kept

    def change(self, key: Name, old: Kept | None, new: StoredState) -> None:
        if key not in self._rows:
            self._rows[key] = None if old is None else old[1]
        self._open[key] = (self._next_number(key) if old is None else old[0], new)

    def take_pending(self) -> list[tuple[StoredState | None, Kept]]:
        """Return the stored state (None if new) and the new state of each changed row.

        The caller writes them now.
        """
        rows = [(old, self._open[key]) for key, old in self._rows.items()]
        self._rows.clear()
        return rows

    def forget(self, key: Name) -> None:
        """Drop a job state, because this transaction changed its rows directly.

        The next `find` reads it again.
        """
        self._open.pop(key, None)
        self._cache.pop(key, None)
        self._behind.add(key)

    def keep(self) -> None:
        cache = self._cache
        for key, kept in self._open.items():
            cache[key] = kept
            cache.move_to_end(key)
        self._trim()
        self._open.clear()
        self._behind.clear()

    def drop(self) -> None:
        self._open.clear()
        self._rows.clear()
        self._behind.clear()

    def _trim(self) -> None:
        while len(self._cache) > self._cached:
            self._cache.popitem(last=False)

    def _newest_of(self, tenant: str) -> str:
        """Return the newest job id of a tenant.

        New ids rise, so nearly all new jobs are recognized without a search.
        """
        newest = self._newest.get(tenant)
        if newest is None:
            (newest,) = self._unit.db.execute(
                "SELECT coalesce(max(job_id), '') FROM heads WHERE tenant = ?", (tenant,)
            ).fetchone()
            self._newest[tenant] = newest
        return newest

    def _next_number(self, key: Name) -> int:
        """Return the number of a new row.

        It is drawn here and not by SQLite, so that one call inserts many rows.
        """
        if self._last is None:
            (last,) = self._unit.db.execute("SELECT coalesce(max(id), 0) FROM heads").fetchone()
            self._last = int(last)
        self._last += 1
        tenant, job_id = key
        if job_id > self._newest_of(tenant):
            self._newest[tenant] = job_id
        return self._last

    def _read(self, key: Name) -> Kept | None:
        db = self._unit.db
        row = db.execute(
            "SELECT id, leased, head FROM heads WHERE tenant = ? AND job_id = ?", key
        ).fetchone()
        if row is None:
            return None
        number, leased, head = row
        found: list[tuple[str, int, int, int]] = []
        if leased:
            found = db.execute(
                "SELECT run_id, token, until, beaten FROM leases WHERE head = ?", (number,)
            ).fetchall()
        try:
            leases = {
                run_id: Lease(token=token, until=moment(until), beaten=bool(beaten))
                for run_id, token, until, beaten in found
            }
            return number, StoredState(HEAD.decode(head), leases if leased else NO_LEASES)
        except DECODING as error:
            self._unit.damage.note("heads", key, error)
            raise self._unit.damage.unreadable_job([key]) from error
