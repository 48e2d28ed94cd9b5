"""Job states in memory: the view of the transaction, and the stored form of unwritten changes."""

from collections import OrderedDict

from punctual.domain.run import Lease
from punctual.engine.ports.job_states import StoredState
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.codec import from_micros
from punctual.node.sqlite.state_rows import NO_LEASES, STATE_CODEC
from punctual.node.sqlite.transaction import Transaction

# Plain tuples, because every swap creates some. A key has the hash of a `JobKey`. A cached state
# has the number of its row, so that a write needs no search.
StateKey = tuple[str, str]
CachedState = tuple[int, StoredState]


class StateCache:
    """Caches job states.

    The file has one owner, so the cache stays true.

    `_cache` holds committed states. `_uncommitted` holds the changes of this transaction, and
    `_stored_before` the stored form of changes that are not written yet.
    """

    def __init__(self, transaction: Transaction, max_cached: int) -> None:
        self._transaction = transaction
        self._max_cached = max_cached
        self._cache: OrderedDict[StateKey, CachedState] = OrderedDict()
        self._uncommitted: dict[StateKey, CachedState] = {}
        self._stored_before: dict[StateKey, StoredState | None] = {}
        self._reread_keys: set[StateKey] = set()  # keys with uncommitted rows
        self._last_row_number: int | None = None
        self._newest_job_ids: dict[str, str] = {}

    def find(self, key: StateKey) -> CachedState | None:
        """Return the job state as the transaction sees it, expired or not.

        Raise `Unreadable` if its row is damaged.
        """
        cached = self._uncommitted.get(key)
        if cached is not None:
            return cached
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        if key[1] > self._newest_job_id(key[0]):
            return None
        cached = self._read(key)
        if cached is not None and key in self._reread_keys:
            self._uncommitted[key] = cached
        elif cached is not None:
            self._cache[key] = cached
            self._trim()
        return cached

    def change(self, key: StateKey, old: CachedState | None, new: StoredState) -> None:
        if key not in self._stored_before:
            self._stored_before[key] = None if old is None else old[1]
        self._uncommitted[key] = (self._next_row_number(key) if old is None else old[0], new)

    def take_pending(self) -> list[tuple[StoredState | None, CachedState]]:
        """Return the stored state (None if new) and the new state of each changed row.

        The caller writes them now.
        """
        changes = [(old, self._uncommitted[key]) for key, old in self._stored_before.items()]
        self._stored_before.clear()
        return changes

    def forget(self, key: StateKey) -> None:
        """Drop a job state, because this transaction changed its rows directly.

        The next `find` reads it again.
        """
        self._uncommitted.pop(key, None)
        self._cache.pop(key, None)
        self._reread_keys.add(key)

    def on_commit(self) -> None:
        cache = self._cache
        for key, cached in self._uncommitted.items():
            cache[key] = cached
            cache.move_to_end(key)
        self._trim()
        self._uncommitted.clear()
        self._reread_keys.clear()

    def on_rollback(self) -> None:
        self._uncommitted.clear()
        self._stored_before.clear()
        self._reread_keys.clear()

    def _trim(self) -> None:
        while len(self._cache) > self._max_cached:
            self._cache.popitem(last=False)

    def _newest_job_id(self, tenant: str) -> str:
        """Return the newest job id of a tenant.

        New ids rise, so nearly all new jobs are recognized without a search.
        """
        newest = self._newest_job_ids.get(tenant)
        if newest is None:
            (newest,) = self._transaction.db.execute(
                "SELECT coalesce(max(job_id), '') FROM heads WHERE tenant = ?", (tenant,)
            ).fetchone()
            self._newest_job_ids[tenant] = newest
        return newest

    def _next_row_number(self, key: StateKey) -> int:
        """Return the number of a new row.

        It is drawn here and not by SQLite, so that one call inserts many rows.
        """
        if self._last_row_number is None:
            (max_row_number,) = self._transaction.db.execute(
                "SELECT coalesce(max(id), 0) FROM heads"
            ).fetchone()
            self._last_row_number = int(max_row_number)
        self._last_row_number += 1
        tenant, job_id = key
        if job_id > self._newest_job_id(tenant):
            self._newest_job_ids[tenant] = job_id
        return self._last_row_number

    def _read(self, key: StateKey) -> CachedState | None:
        db = self._transaction.db
        row = db.execute(
            "SELECT id, leased, head FROM heads WHERE tenant = ? AND job_id = ?", key
        ).fetchone()
        if row is None:
            return None
        row_number, lease_count, encoded = row
        lease_rows: list[tuple[str, int, int, int]] = []
        if lease_count:
            lease_rows = db.execute(
                "SELECT run_id, token, until, beaten FROM leases WHERE head = ?", (row_number,)
            ).fetchall()
        try:
            leases = {
                run_id: Lease(token=token, until=from_micros(until), is_renewed=bool(beaten))
                for run_id, token, until, beaten in lease_rows
            }
            return row_number, StoredState(
                STATE_CODEC.decode(encoded), leases if lease_count else NO_LEASES
            )
        except DECODING_ERRORS as error:
            self._transaction.damage.note("heads", key, error)
            raise self._transaction.damage.unreadable_job([key]) from error
