"""The tables of the embedded store, by version; a file of an earlier version is brought up."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from punctual.domain.schedules.upcoming import comes_again, first_coming
from punctual.node.files.data_folder import refuse_new
from punctual.node.sqlite.codec import micros
from punctual.node.sqlite.errors import StoreError
from punctual.node.sqlite.state_rows import HEAD, queued_in

Step = str | Callable[[sqlite3.Connection], None]
_FILLED = 1_000  # heads at a time

_FIRST = (
    """CREATE TABLE heads (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        state TEXT NOT NULL,
        expires INTEGER,
        leased INTEGER NOT NULL,
        busy INTEGER NOT NULL,
        queued INTEGER NOT NULL,
        queued_priority INTEGER,
        queued_due INTEGER,
        head BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX heads_by_job ON heads (tenant, job_id)",
    """CREATE INDEX heads_busy ON heads (queued_priority, queued_due, queued)
        WHERE busy = 1""",
    """CREATE TABLE bodies (
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        ref TEXT NOT NULL,
        body BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX bodies_by_job ON bodies (tenant, job_id, ref)",
    """CREATE TABLE leases (
        head INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        token INTEGER NOT NULL,
        until INTEGER NOT NULL,
        beaten INTEGER NOT NULL,
        PRIMARY KEY (head, run_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE timers (
        bucket INTEGER NOT NULL,
        shard INTEGER NOT NULL,
        at INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (bucket, shard, at, tenant, job_id, version)
    ) WITHOUT ROWID""",
    """CREATE TABLE runs (
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        expires INTEGER NOT NULL,
        status TEXT NOT NULL,
        row BLOB NOT NULL,
        PRIMARY KEY (tenant, job_id, run_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE attempts (
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        token INTEGER NOT NULL,
        lost INTEGER NOT NULL,
        expires INTEGER,
        row BLOB NOT NULL,
        PRIMARY KEY (tenant, job_id, run_id, number, token, lost)
    ) WITHOUT ROWID""",
    """CREATE TABLE counts (
        tenant TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (tenant, kind, status)
    ) WITHOUT ROWID""",
    """CREATE TABLE buckets (
        bucket INTEGER NOT NULL,
        shard INTEGER NOT NULL,
        owner TEXT NOT NULL,
        token INTEGER NOT NULL,
        look INTEGER NOT NULL,
        until INTEGER,
        done INTEGER NOT NULL,
        PRIMARY KEY (bucket, shard)
    ) WITHOUT ROWID""",
    "CREATE TABLE control (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE receipts (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        expires INTEGER NOT NULL,
        receipt BLOB NOT NULL,
        PRIMARY KEY (tenant, name)
    ) WITHOUT ROWID""",
    "CREATE TABLE feed (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, event BLOB NOT NULL)",
)

# Rows of history are long: they go to the end of a plain table, whatever their keys. A list over
# all jobs needs the order of run ids, which share their first 48 bits where many fall on one
# moment: an index on those alone grows at its end too, and one moment's runs are sorted when read.
_SECOND = (
    """CREATE TABLE appended_runs (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        expires INTEGER NOT NULL,
        status TEXT NOT NULL,
        row BLOB NOT NULL
    )""",
    """INSERT INTO appended_runs (tenant, job_id, run_id, expires, status, row)
        SELECT tenant, job_id, run_id, expires, status, row FROM runs
        ORDER BY tenant, run_id, job_id""",
    "DROP TABLE runs",
    "ALTER TABLE appended_runs RENAME TO runs",
    "CREATE UNIQUE INDEX runs_of_job ON runs (tenant, job_id, run_id)",
    "CREATE INDEX runs_by_moment ON runs (tenant, substr(run_id, 1, 13))",
    "CREATE INDEX heads_expiring ON heads (expires) WHERE expires IS NOT NULL",
    "CREATE INDEX receipts_expiring ON receipts (expires)",
)


def _fill_coming(db: sqlite3.Connection) -> None:
    """What the heads say of themselves, by number of row, some at a time."""
    last = -1
    while True:
        found = db.execute(
            "SELECT id, head FROM heads WHERE id > ? ORDER BY id LIMIT ?", (last, _FILLED)
        ).fetchall()
        if not found:
            return
        last = found[-1][0]
        heads = ((number, HEAD.decode(row)) for number, row in found)
        rows = [
            (micros(at), comes_again(head), number)
            for number, head in heads
            if (at := first_coming(head)) is not None
        ]
        db.executemany("UPDATE heads SET coming = ?, again = ? WHERE id = ?", rows)


# What comes next over all jobs is asked for by time. The index is made last: in one go.
_THIRD: Sequence[Step] = (
    "ALTER TABLE heads ADD COLUMN coming INTEGER",
    "ALTER TABLE heads ADD COLUMN again INTEGER NOT NULL DEFAULT 0",
    _fill_coming,
    """CREATE INDEX heads_coming ON heads (tenant, again, coming, job_id)
        WHERE coming IS NOT NULL""",
)

# Heads, history and attempts are packed from here on; what is JSON is read, and packed when it is
# next written. A row of events holds those that were published together. The number alone tells
# earlier programs that they cannot read this.
_FOURTH: Sequence[Step] = ()

_FIFTH: Sequence[Step] = (
    """CREATE TABLE tokens (
        hash TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        token_id TEXT NOT NULL,
        name TEXT NOT NULL,
        role INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        expires_at INTEGER,
        last_used_at INTEGER,
        revoked_at INTEGER,
        forgotten_at INTEGER
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX tokens_of_tenant ON tokens (tenant, token_id)",
    """CREATE TABLE audit (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        earliest INTEGER NOT NULL,
        latest INTEGER NOT NULL,
        noted BLOB NOT NULL
    )""",
    "CREATE INDEX audit_of_tenant ON audit (tenant)",
)

# What has expired is found by its time: a clock that was ahead has left rows out of order.
_SIXTH: Sequence[Step] = ("CREATE INDEX audit_by_end ON audit (latest)",)

_SEVENTH: Sequence[Step] = (
    """CREATE TABLE starts (
        kind TEXT NOT NULL,
        tenant TEXT NOT NULL,
        at INTEGER NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (kind, tenant, at)
    ) WITHOUT ROWID""",
)


def _fill_ranks(db: sqlite3.Connection) -> None:
    """By what the heads say, some at a time."""
    last = -1
    while True:
        found = db.execute(
            "SELECT id, head FROM heads WHERE id > ? AND busy = 1 AND queued > 0 "
            "ORDER BY id LIMIT ?",
            (last, _FILLED),
        ).fetchall()
        if not found:
            return
        last = found[-1][0]
        rows = [(*queued_in(HEAD.decode(row))[1:], number) for number, row in found]
        db.executemany("UPDATE heads SET queued_priority = ?, queued_due = ? WHERE id = ?", rows)


# `queued_priority` says the kind of slot as well: long work hides no quick work.
_EIGHTH: Sequence[Step] = (_fill_ranks,)

# A head whose queued runs are of several ranks has one of its own; and whoever looks for some
# tenants' goes along the index alone, a part at a time, also where a million are due together.
_QUEUED: Sequence[Step] = (
    _fill_ranks,
    "DROP INDEX heads_busy",
    """CREATE INDEX heads_busy ON heads (queued_priority, queued_due, tenant)
        WHERE busy = 1""",
)

_NOTICES: Sequence[Step] = (
    """CREATE TABLE notices (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        notice_id TEXT NOT NULL,
        next_at INTEGER NOT NULL,
        tries INTEGER NOT NULL DEFAULT 0,
        notice BLOB NOT NULL,
        UNIQUE (tenant, notice_id)
    )""",
    "CREATE INDEX notices_by_time ON notices (next_at)",
)

_MINUTES = ("CREATE TABLE minutes (minute INTEGER PRIMARY KEY, counted BLOB NOT NULL)",)

# A list of runs walks along the busy heads of one tenant, some at a time.
_BUSY = ("CREATE INDEX heads_of_busy ON heads (tenant) WHERE busy = 1",)

MIGRATIONS: Sequence[Sequence[Step]] = (
    *(_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH),
    *(_EIGHTH, _QUEUED, _NOTICES, _MINUTES, _BUSY),
)


def connect(path: Path, migrations: Sequence[Sequence[Step]] = MIGRATIONS) -> sqlite3.Connection:
    """Open the file, make it where there is none, and bring it to the newest schema."""
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=5, cached_statements=256)
    except sqlite3.Error as error:
        raise StoreError(f"The file {path} cannot be opened: {error}.") from error
    try:
        _tune(db)
        _migrate(db, path, migrations)
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        db.close()
        raise StoreError(f"The file {path} cannot be used: {error}.") from error
    except BaseException:
        db.close()
        raise
    return db


def _tune(db: sqlite3.Connection) -> None:
    """Each commit is on the disk when it is answered; the file itself is written behind it."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA wal_autocheckpoint = 16000")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA temp_store = MEMORY")


def _migrate(db: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[Step]]) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == 0:
        refuse_new(path.parent, "holds no tables")
    if version > len(migrations):
        raise StoreError(
            f"The file {path} was written by a newer Punctual (schema {version}, this one knows "
            f"{len(migrations)}): use that version, or set PUNCTUAL_DATA to another folder."
        )
    for number in range(version, len(migrations)):
        db.execute("BEGIN IMMEDIATE")
        try:
            for step in migrations[number]:
                if isinstance(step, str):
                    db.execute(step)
                else:
                    step(db)
            db.execute(f"PRAGMA user_version = {number + 1}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
