"""The tables of the lists that are not job states or history themselves."""

# A short row for each job, so that a list with filters reads many of them in a millisecond.
# `search` holds the texts of the filter `text`, and `tags` the tags as a JSON object.
JOB_LIST_TABLES = (
    """CREATE TABLE job_list (
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        status TEXT NOT NULL,
        kind TEXT NOT NULL,
        created_by TEXT NOT NULL,
        name TEXT NOT NULL,
        tags TEXT NOT NULL,
        search TEXT NOT NULL,
        PRIMARY KEY (tenant, job_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX job_list_by_name ON job_list (tenant, name, job_id)",
    """CREATE TABLE job_tags (
        tenant TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        job_id TEXT NOT NULL,
        PRIMARY KEY (tenant, key, value, job_id)
    ) WITHOUT ROWID""",
)

FAILURE_TABLES = (
    """CREATE TABLE failures (
        tenant TEXT NOT NULL,
        job_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        acknowledged INTEGER NOT NULL,
        failure BLOB NOT NULL,
        PRIMARY KEY (tenant, job_id, kind)
    ) WITHOUT ROWID""",
    "CREATE INDEX failures_by_last ON failures (tenant, last, job_id, kind, acknowledged, first)",
)

# A row holds up to some hundred changes of one commit and tenant. `total` counts the bytes of all
# rows of the tenant up to this one, also of removed rows. The id holds the key of the tenant in its
# upper bits, and the number of the row in 40 lower bits. So rows need no other index, and the write
# of a commit is short.
CHANGE_TABLES = (
    """CREATE TABLE changes (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        total INTEGER NOT NULL,
        changes BLOB NOT NULL
    )""",
    "CREATE TABLE change_tenants (key INTEGER PRIMARY KEY, tenant TEXT NOT NULL UNIQUE)",
)

OPERATION_TABLES = (
    """CREATE TABLE operations (
        tenant TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        running INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        operation BLOB NOT NULL,
        request BLOB NOT NULL,
        PRIMARY KEY (tenant, operation_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX operations_running ON operations (operation_id) WHERE running = 1",
    "CREATE INDEX operations_expiring ON operations (expires)",
    """CREATE TABLE operation_items (
        tenant TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        items BLOB NOT NULL,
        PRIMARY KEY (tenant, operation_id, number)
    ) WITHOUT ROWID""",
)

NAME_TABLES = (
    """CREATE TABLE names (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        job_id TEXT NOT NULL,
        mark TEXT NOT NULL,
        PRIMARY KEY (tenant, name)
    ) WITHOUT ROWID""",
)
