"""Restore a stage to a time: `make restore STAGE=prod AT=2026-11-18T09:59:00Z`.

    python -m infra.operations.restore STAGE AT       # stop writers, restore tables and bucket
    python -m infra.operations.restore STAGE resume   # after `make deploy`: check all jobs, go on

Each step can be repeated and skips finished work. docs/runbook.md says when to restore, and which
data is lost.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3

from infra.app import read_context
from infra.config.cdk_json import CDK_JSON
from infra.config.restored_tables import TABLE_NAMES
from infra.config.stage import EXECUTOR_FUNCTIONS, Stage, WrongStage, read_stage
from infra.operations.account import NotReady, account_of
from infra.operations.limits import read_settings
from infra.operations.output import Say
from punctual.aws.dynamodb import keys
from punctual.settings import Settings

RESTORE_POLL_SECONDS = 20.0
MAX_RESTORE_POLLS = 1_080  # six hours
WRITER_FUNCTION = "job-service"


class Restore:
    """The steps of a restore; `pause` waits between two polls."""

    def __init__(
        self,
        session: Any,
        stage: Stage,
        settings: Settings,
        say: Say,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._stage = stage
        self._settings = settings
        self._say = say
        self._pause = pause
        self._dynamodb = session.client("dynamodb")
        self._lambda = session.client("lambda")
        self._s3 = session.client("s3")
        self._ssm = session.client("ssm")

    def check(self, restore_at: datetime) -> None:
        """Raise unless all tables can be restored to this time; change nothing."""
        for source in self._source_tables().values():
            self._check_window(source, restore_at)

    def stop(self) -> None:
        """Stop all runs and all changes until `resume`."""
        self._set_dispatch("off")
        self._enable_feeds(enabled=False)
        self._lambda.put_function_concurrency(
            FunctionName=self._stage.resource_name(WRITER_FUNCTION), ReservedConcurrentExecutions=0
        )
        self._say(
            "Stopped: dispatch, the event sources of the executors, and all calls that write."
        )

    def copy(self, restore_at: datetime) -> dict[str, str]:
        """Restore all tables to one time; configure what a restore omits."""
        targets = {name: self._target_table(name, restore_at) for name in TABLE_NAMES}
        for name, source in self._source_tables().items():
            if self._describe_table(targets[name]) is None:
                self._dynamodb.restore_table_to_point_in_time(
                    SourceTableName=source,
                    TargetTableName=targets[name],
                    RestoreDateTime=restore_at,
                )
                self._say(f"Restoring {source} into {targets[name]}.")
        for table in keys.TABLES:
            self._wait_until_active(targets[table.name])
            self._configure_table(table, targets[table.name])
        self._restart_walk(targets[keys.CONTROL_TABLE.name])
        return targets

    def undelete_objects(self, restore_at: datetime) -> int:
        """Restore the objects that were deleted since; return their number."""
        count = 0
        pages = self._s3.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=self._settings.bucket):
            for marker in page.get("DeleteMarkers", []):
                if marker["IsLatest"] and marker["LastModified"] >= restore_at:
                    self._s3.delete_object(
                        Bucket=self._settings.bucket,
                        Key=marker["Key"],
                        VersionId=marker["VersionId"],
                    )
                    count += 1
        self._say(f"{count} deleted objects restored.")
        return count

    def stream_arn(self, table: str) -> str:
        description = self._describe_table(table)
        assert description is not None
        return str(description["LatestStreamArn"])

    def resume(self) -> None:
        """Start the reconciler, wait until it has checked all jobs, then allow changes and runs.

        The reconciler corrects counts afterwards.
        """
        walk_row = {"TableName": self._settings.control_table, "Key": keys.walk_key().item()}
        self._lambda.invoke(
            FunctionName=self._stage.resource_name("reconciler"), InvocationType="Event"
        )
        for _ in range(MAX_RESTORE_POLLS):
            row = self._dynamodb.get_item(ConsistentRead=True, **walk_row).get("Item", {})
            if row.get("cleared", {}).get("BOOL"):
                break
            self._pause(RESTORE_POLL_SECONDS)
        else:
            raise NotReady("the reconciler has not checked all jobs after six hours. See its log")
        self._allow_changes()
        self._enable_feeds(enabled=True)
        self._set_dispatch("on")
        self._say("All jobs are checked. Changes are allowed, and runs start again.")

    def _allow_changes(self) -> None:
        name, reserved = (
            self._stage.resource_name(WRITER_FUNCTION),
            self._stage.reserved.get(WRITER_FUNCTION),
        )
        if reserved is None:
            self._lambda.delete_function_concurrency(FunctionName=name)
        else:
            self._lambda.put_function_concurrency(
                FunctionName=name, ReservedConcurrentExecutions=reserved
            )

    def _set_dispatch(self, value: str) -> None:
        self._ssm.put_parameter(
            Name=f"{self._stage.parameter_prefix}dispatch",
            Value=value,
            Type="String",
            Overwrite=True,
        )

    def _enable_feeds(self, enabled: bool) -> None:
        pages = self._lambda.get_paginator("list_event_source_mappings")
        for function in EXECUTOR_FUNCTIONS:
            for page in pages.paginate(FunctionName=self._stage.resource_name(function)):
                for mapping in page["EventSourceMappings"]:
                    self._lambda.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)

    def _source_tables(self) -> dict[str, str]:
        return {name: str(getattr(self._settings, f"{name}_table")) for name in TABLE_NAMES}

    def _target_table(self, name: str, restore_at: datetime) -> str:
        return f"{self._stage.prefix}-{name}-{restore_at:%Y%m%dT%H%M%SZ}"

    def _check_window(self, source: str, restore_at: datetime) -> None:
        backups = self._dynamodb.describe_continuous_backups(TableName=source)
        recovery = backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
        earliest_at = recovery.get("EarliestRestorableDateTime")
        latest_at = recovery.get("LatestRestorableDateTime")
        if earliest_at is None or latest_at is None or not earliest_at <= restore_at <= latest_at:
            raise NotReady(
                f"{source} can be restored to a time from {earliest_at} to {latest_at}; "
                f"got {restore_at}"
            )

    def _describe_table(self, table: str) -> Mapping[str, Any] | None:
        try:
            description: Mapping[str, Any] = self._dynamodb.describe_table(TableName=table)["Table"]
        except self._dynamodb.exceptions.ResourceNotFoundException:
            return None
        return description

    def _wait_until_active(self, table: str) -> None:
        for _ in range(MAX_RESTORE_POLLS):
            if (self._describe_table(table) or {}).get("TableStatus") == "ACTIVE":
                return
            self._pause(RESTORE_POLL_SECONDS)
        raise NotReady(f"{table} is not restored after six hours. Repeat this command later")

    def _configure_table(self, table: keys.Table, name: str) -> None:
        """Set stream, expiry, recovery and protection. AWS restores none of them."""
        description = self._describe_table(name)
        assert description is not None
        for change in self._missing_changes(table, description):
            self._dynamodb.update_table(TableName=name, **change)
            self._wait_until_active(name)
        self._dynamodb.update_continuous_backups(
            TableName=name,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )
        expiry = self._dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        if table.has_ttl and expiry["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
            self._dynamodb.update_time_to_live(
                TableName=name,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": keys.TTL},
            )
        self._say(f"{name} is complete.")

    def _missing_changes(
        self, table: keys.Table, description: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the missing changes. DynamoDB accepts one at a time."""
        if table.has_stream and "LatestStreamArn" not in description:
            stream_view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
            yield {"StreamSpecification": stream_view}
        if self._stage.protected and not description.get("DeletionProtectionEnabled"):
            yield {"DeletionProtectionEnabled": True}

    def _restart_walk(self, control: str) -> None:
        self._dynamodb.delete_item(TableName=control, Key=keys.walk_key().item())


def set_restored_tables(text: str, stage: str, tables: Mapping[str, str], stream: str) -> str:
    """Return the text of cdk.json with `restoredTables` of the stage set."""
    value = {**tables, "stream": stream}
    start = text.index(f'"{stage}": {{', text.index('"stages"'))
    setting = re.compile(r'"restoredTables":\s*(null|\{[^{}]*\})')
    changed = text[:start] + setting.sub(
        lambda _: f'"restoredTables": {json.dumps(value)}', text[start:], count=1
    )
    expected = json.loads(text)
    expected["context"]["stages"][stage]["restoredTables"] = value
    if json.loads(changed) != expected:
        raise NotReady(f"set `restoredTables` of {stage} in cdk.json to {json.dumps(value)}")
    return changed


def parse_time(text: str) -> datetime:
    """Return the time of an argument.

    >>> parse_time("2026-11-18T09:59:00Z").hour
    9
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise NotReady(f"{text!r} is not a time. Use AT=2026-11-18T09:59:00Z") from None
    if at.tzinfo is None:
        raise NotReady(f"{text!r} has no time zone. Use AT=2026-11-18T09:59:00Z")
    return at.astimezone(UTC).replace(microsecond=0)


def main(
    arguments: Sequence[str],
    session: Any = None,
    say: Say = print,
    pause: Callable[[float], None] = time.sleep,
    file: Path = CDK_JSON,
) -> int:
    try:
        if len(arguments) != 2:
            raise NotReady("the stage or the time is missing: make restore STAGE=… AT=…")
        name, moment_or_resume = arguments
        stage = read_stage(name, read_context()["stages"])
        session = session or boto3.Session()
        account_of(session)
        restore = Restore(session, stage, read_settings(session, name), say, pause)
        if moment_or_resume == "resume":
            restore.resume()
            return 0
        restore_at = parse_time(moment_or_resume)
        restore.check(restore_at)
        restore.stop()
        tables = restore.copy(restore_at)
        restore.undelete_objects(restore_at)
        file.write_text(
            set_restored_tables(file.read_text(), name, tables, restore.stream_arn(tables["jobs"]))
        )
        say(
            f"cdk.json names the restored tables. Continue with make deploy STAGE={name}, then "
            f"make resume STAGE={name}. Keep this change of cdk.json."
        )
    except (NotReady, WrongStage) as error:
        print(f"restore: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
