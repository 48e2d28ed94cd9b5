"""Restored tables, which a stage uses instead of the tables of its stack.

AWS restores a backup into a new table, never into the old one (docs/runbook.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.config.cdk_json import Fields

TABLE_NAMES = ("jobs", "timers", "runs", "control", "audit", "lists")
TABLE_NAME_PATTERN = r"[A-Za-z0-9_.-]{3,255}"
STREAM_ARN_PATTERN = (
    r"arn:aws[a-z-]*:dynamodb:[a-z0-9-]+:\d{12}:table/[A-Za-z0-9_.-]+/stream/[0-9T:.-]+"
)


@dataclass(frozen=True, slots=True)
class RestoredTables:
    """Restored tables by name, and the stream of the jobs table. All have the same restore time."""

    tables: Mapping[str, str]
    stream_arn: str


def read_restored_tables(fields: Fields | None) -> RestoredTables | None:
    if fields is None:
        return None
    restored_tables = RestoredTables(
        {
            name: fields.text(name, TABLE_NAME_PATTERN, "the name of a table")
            for name in TABLE_NAMES
        },
        fields.text("stream", STREAM_ARN_PATTERN, "the ARN of the stream of the restored jobs"),
    )
    fields.finish()
    return restored_tables
