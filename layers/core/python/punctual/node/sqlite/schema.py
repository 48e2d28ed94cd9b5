"""The tables of the embedded store, and the schema version in the file."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from punctual.node.files.data_folder import StoreError, check_no_former_database
from punctual.node.sqlite.lists.tables import (
    CHANGE_TABLES,
    FAILURE_TABLES,
    JOB_LIST_TABLES,
    NAME_TABLES,
    OPERATION_TABLES,
)

SCHEMA_VERSION = 17

_JOB_TABLES = (
    """CREATE TABLE heads (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        state TEXT NOT NULL,
        expires INTEGER,
        leased INTEGER NOT NULL,
        busy INTEGER NOT NULL,
        head BLOB NOT NULL,
        coming INTEGER,
        again INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE UNIQUE INDEX heads_by_job ON heads (tenant, job_id)",
    "CREATE INDEX heads_expiring ON heads (expires) WHERE expires IS NOT NULL",
    # The next occurrences over all jobs are read by time.
    """CREATE INDEX heads_coming ON heads (tenant, again, coming, job_id)
        WHERE coming IS NOT NULL""",
    "CREATE INDEX heads_of_busy ON heads (tenant) WHERE busy = 1",
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
        progress BLOB,
        PRIMARY KEY (head, run_id)
    ) WITHOUT ROWID""",
    # An index of the QUEUED runs of `heads`. The tenant comes before the priority, so that a tenant
    # at its limit costs one probe, however many of its runs wait.
    """CREATE TABLE queue (
        slot INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        priority INTEGER NOT NULL,
        due INTEGER NOT NULL,
        job_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        memory_mb INTEGER NOT NULL,
        retry_at INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (slot, tenant, priority, due, job_id, run_id)
    ) WITHOUT ROWID""",
)

# Rows of history are long, so they are appended to a plain table. The list over all jobs needs run
# ids in order. Runs of one moment share the first 48 bits of the id. An index on those bits also
# grows at its end, and a reader sorts the runs of one moment.
_HISTORY_TABLES = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        expires INTEGER NOT NULL,
        status TEXT NOT NULL,
        scheduled INTEGER NOT NULL,
        cause TEXT,
        reason TEXT,
        duration INTEGER,
        row BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX runs_of_job ON runs (tenant, job_id, run_id)",
    "CREATE INDEX runs_by_moment ON runs (tenant, substr(run_id, 1, 13))",
    # Most runs succeed, and cost these indexes nothing.
    """CREATE INDEX runs_not_succeeded ON runs (tenant, status, substr(run_id, 1, 13))
        WHERE status <> 'SUCCESS'""",
    """CREATE INDEX runs_with_reason ON runs (tenant, reason, substr(run_id, 1, 13))
        WHERE reason IS NOT NULL""",
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
)

_DISPATCH_TABLES = (
    """CREATE TABLE timers (
        bucket INTEGER NOT NULL,
        shard INTEGER NOT NULL,
        at INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (bucket, shard, at, tenant, job_id, version)
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
    """CREATE TABLE starts (
        kind TEXT NOT NULL,
        tenant TEXT NOT NULL,
        at INTEGER NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (kind, tenant, at)
    ) WITHOUT ROWID""",
)

_COUNT_TABLES = (
    """CREATE TABLE counts (
        tenant TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (tenant, kind, status)
    ) WITHOUT ROWID""",
    "CREATE TABLE minutes (minute INTEGER PRIMARY KEY, counted BLOB NOT NULL)",
)

_OTHER_TABLES = (
    """CREATE TABLE receipts (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        expires INTEGER NOT NULL,
        receipt BLOB NOT NULL,
        PRIMARY KEY (tenant, name)
    ) WITHOUT ROWID""",
    "CREATE INDEX receipts_expiring ON receipts (expires)",
    # A row holds the events that were published together.
    "CREATE TABLE feed (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, event BLOB NOT NULL)",
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
    """CREATE TABLE secrets (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        updated_by TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (tenant, name)
    ) WITHOUT ROWID""",
    """CREATE TABLE audit (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        earliest INTEGER NOT NULL,
        latest INTEGER NOT NULL,
        noted BLOB NOT NULL
    )""",
    "CREATE INDEX audit_of_tenant ON audit (tenant)",
    # Expired rows are found by time, because a clock that was ahead leaves rows out of order.
    "CREATE INDEX audit_by_end ON audit (latest)",
    """CREATE TABLE artifacts (
        tenant TEXT NOT NULL,
        artifact_id TEXT NOT NULL,
        expires INTEGER,
        artifact BLOB NOT NULL,
        PRIMARY KEY (tenant, artifact_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX artifacts_expiring ON artifacts (expires) WHERE expires IS NOT NULL",
    """CREATE TABLE artifact_uses (
        tenant TEXT NOT NULL,
        artifact_id TEXT NOT NULL,
        job_id TEXT NOT NULL,
        noted INTEGER NOT NULL,
        PRIMARY KEY (tenant, artifact_id, job_id)
    ) WITHOUT ROWID""",
)

SCHEMA_STATEMENTS: Sequence[str] = (
    *_JOB_TABLES,
    *JOB_LIST_TABLES,
    *_HISTORY_TABLES,
    *_DISPATCH_TABLES,
    *_COUNT_TABLES,
    *_OTHER_TABLES,
    *FAILURE_TABLES,
    *CHANGE_TABLES,
    *OPERATION_TABLES,
    *NAME_TABLES,
)


def connect(path: Path, statements: Sequence[str] = SCHEMA_STATEMENTS) -> sqlite3.Connection:
    """Return a connection to the file. Create the tables in a file that has none."""
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=5, cached_statements=256)
    except sqlite3.Error as error:
        raise StoreError(f"The file {path} cannot be opened: {error}.") from error
    try:
        _tune(db)
        _create_tables(db, path, statements)
    except sqlite3.Error as error:
        db.close()
        raise StoreError(f"The file {path} cannot be used: {error}.") from error
    except BaseException:
        db.close()
        raise
    return db


def _tune(db: sqlite3.Connection) -> None:
    """Make each commit sync the write-ahead log. The main file follows at checkpoints."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA wal_autocheckpoint = 16000")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA temp_store = MEMORY")


def _create_tables(db: sqlite3.Connection, path: Path, statements: Sequence[str]) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version != 0:
        release = "a newer" if version > SCHEMA_VERSION else "an unreleased"
        raise StoreError(
            f"The file {path} was written by {release} Punctual (schema {version}, this one knows "
            f"{SCHEMA_VERSION}): use that version, or set PUNCTUAL_DATA to another folder."
        )
    check_no_former_database(path.parent, "holds no tables")
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
