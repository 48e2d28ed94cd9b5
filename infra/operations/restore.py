"""Take a stage back to one moment: `make restore STAGE=prod AT=2026-11-18T09:59:00Z`.

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

from infra.app import context
from infra.config.cdk_json import CDK_JSON
from infra.config.restored_tables import TABLE_NAMES
from infra.config.stage import EXECUTOR_FUNCTIONS, Stage, WrongStage, described
from infra.operations.account import NotReady, account_of
from infra.operations.limits import settings_of
from punctual.aws.dynamodb import keys
from punctual.settings import Settings

Say = Callable[[str], None]
RESTORE_POLL_SECONDS = 20.0
MAX_RESTORE_POLLS = 1_080  # six hours
WRITING_FUNCTION = "job-service"


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

    def check(self, at: datetime) -> None:
        """Raise unless all tables can be restored to this moment; change nothing."""
        for source in self._sources().values():
            self._check_window(source, at)

    def stop(self) -> None:
        """Stop all runs and all changes until `resume`."""
        self._dispatch("off")
        self._feeds(enabled=False)
        self._lambda.put_function_concurrency(
            FunctionName=self._stage.physical(WRITING_FUNCTION), ReservedConcurrentExecutions=0
        )
        self._say("Stopped: dispatch, the executors' feeds, and all calls that change anything.")

    def copy(self, at: datetime) -> dict[str, str]:
        """Restore all tables to one moment; configure what a restore leaves out."""
        targets = {name: self._target(name, at) for name in TABLE_NAMES}
        for name, source in self._sources().items():
            if self._described(targets[name]) is None:
                self._dynamodb.restore_table_to_point_in_time(
                    SourceTableName=source, TargetTableName=targets[name], RestoreDateTime=at
                )
                self._say(f"Restoring {source} into {targets[name]}.")
        for table in keys.TABLES:
            self._wait(targets[table.name])
            self._complete(table, targets[table.name])
        self._begin_walk_anew(targets[keys.CONTROL.name])
        return targets

    def bring_back(self, at: datetime) -> int:
        """Restore the objects that were deleted since; return their number."""
        count = 0
        pages = self._s3.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=self._settings.bucket):
            for one in page.get("DeleteMarkers", []):
                if one["IsLatest"] and one["LastModified"] >= at:
                    self._s3.delete_object(
                        Bucket=self._settings.bucket, Key=one["Key"], VersionId=one["VersionId"]
                    )
                    count += 1
        self._say(f"{count} objects brought back.")
        return count

    def stream(self, table: str) -> str:
        found = self._described(table)
        assert found is not None
        return str(found["LatestStreamArn"])

    def resume(self) -> None:
        """Start the reconciler, wait until it has checked all jobs, then allow changes and runs.

        The reconciler goes on to correct counts afterwards.
        """
        walk = {"TableName": self._settings.control_table, "Key": keys.walk().item()}
        self._lambda.invoke(FunctionName=self._stage.physical("reconciler"), InvocationType="Event")
        for _ in range(MAX_RESTORE_POLLS):
            row = self._dynamodb.get_item(ConsistentRead=True, **walk).get("Item", {})
            if row.get("cleared", {}).get("BOOL"):
                break
            self._pause(RESTORE_POLL_SECONDS)
        else:
            raise NotReady("the walk over all jobs is not over after six hours: see its log")
        self._open()
        self._feeds(enabled=True)
        self._dispatch("on")
        self._say("All jobs were walked over. Changes are let in, and runs start again.")

    def _open(self) -> None:
        name, reserved = (
            self._stage.physical(WRITING_FUNCTION),
            self._stage.reserved.get(WRITING_FUNCTION),
        )
        if reserved is None:
            self._lambda.delete_function_concurrency(FunctionName=name)
        else:
            self._lambda.put_function_concurrency(
                FunctionName=name, ReservedConcurrentExecutions=reserved
            )

    def _dispatch(self, value: str) -> None:
        self._ssm.put_parameter(
            Name=f"{self._stage.knobs}dispatch", Value=value, Type="String", Overwrite=True
        )

    def _feeds(self, enabled: bool) -> None:
        pages = self._lambda.get_paginator("list_event_source_mappings")
        for writer in EXECUTOR_FUNCTIONS:
            for page in pages.paginate(FunctionName=self._stage.physical(writer)):
                for one in page["EventSourceMappings"]:
                    self._lambda.update_event_source_mapping(UUID=one["UUID"], Enabled=enabled)

    def _sources(self) -> dict[str, str]:
        return {name: str(getattr(self._settings, f"{name}_table")) for name in TABLE_NAMES}

    def _target(self, name: str, at: datetime) -> str:
        return f"{self._stage.prefix}-{name}-{at:%Y%m%dT%H%M%SZ}"

    def _check_window(self, source: str, at: datetime) -> None:
        found = self._dynamodb.describe_continuous_backups(TableName=source)
        recovery = found["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"]
        first = recovery.get("EarliestRestorableDateTime")
        last = recovery.get("LatestRestorableDateTime")
        if first is None or last is None or not first <= at <= last:
            raise NotReady(f"{source} can be restored to a moment from {first} to {last}, not {at}")

    def _described(self, table: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self._dynamodb.describe_table(TableName=table)["Table"]
        except self._dynamodb.exceptions.ResourceNotFoundException:
            return None
        return found

    def _wait(self, table: str) -> None:
        for _ in range(MAX_RESTORE_POLLS):
            found = self._described(table)
            indexes = (found or {}).get("GlobalSecondaryIndexes", [])
            states = [(found or {}).get("TableStatus"), *(one["IndexStatus"] for one in indexes)]
            if all(state == "ACTIVE" for state in states):
                return
            self._pause(RESTORE_POLL_SECONDS)
        raise NotReady(f"{table} is not restored after six hours: repeat this command later")

    def _complete(self, table: keys.Table, name: str) -> None:
        """Set stream, expiry, recovery and protection. AWS restores none of them."""
        found = self._described(name)
        assert found is not None
        for change in self._changes(table, found):
            self._dynamodb.update_table(TableName=name, **change)
            self._wait(name)
        self._dynamodb.update_continuous_backups(
            TableName=name,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )
        expiry = self._dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        if table.expires and expiry["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
            self._dynamodb.update_time_to_live(
                TableName=name,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": keys.TTL},
            )
        self._say(f"{name} is complete.")

    def _changes(self, table: keys.Table, found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the missing changes. DynamoDB accepts one at a time."""
        if table.streamed and "LatestStreamArn" not in found:
            view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
            yield {"StreamSpecification": view}
        if self._stage.protected and not found.get("DeletionProtectionEnabled"):
            yield {"DeletionProtectionEnabled": True}
        present = {one["IndexName"] for one in found.get("GlobalSecondaryIndexes", [])}
        for index in table.schema().get("GlobalSecondaryIndexes", []):
            if index["IndexName"] not in present:
                yield {
                    "AttributeDefinitions": table.schema()["AttributeDefinitions"],
                    "GlobalSecondaryIndexUpdates": [{"Create": index}],
                }

    def _begin_walk_anew(self, control: str) -> None:
        self._dynamodb.delete_item(TableName=control, Key=keys.walk().item())


def named(text: str, stage: str, tables: Mapping[str, str], stream: str) -> str:
    """Return the text of cdk.json with `restoredTables` of the stage set."""
    value = {**tables, "stream": stream}
    start = text.index(f'"{stage}": {{', text.index('"stages"'))
    setting = re.compile(r'"restoredTables":\s*(null|\{[^{}]*\})')
    changed = text[:start] + setting.sub(
        lambda _: f'"restoredTables": {json.dumps(value)}', text[start:], count=1
    )
    wanted = json.loads(text)
    wanted["context"]["stages"][stage]["restoredTables"] = value
    if json.loads(changed) != wanted:
        raise NotReady(f"set `restoredTables` of {stage} in cdk.json to {json.dumps(value)}")
    return changed


def moment(text: str) -> datetime:
    """Return the time of an argument.

    >>> moment("2026-11-18T09:59:00Z").hour
    9
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise NotReady(f"{text!r} is no time: AT=2026-11-18T09:59:00Z") from None
    if at.tzinfo is None:
        raise NotReady(f"{text!r} has no zone: AT=2026-11-18T09:59:00Z")
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
            raise NotReady("say which stage, and which moment: make restore STAGE=… AT=…")
        name, what = arguments
        stage = described(name, context()["stages"])
        session = session or boto3.Session()
        account_of(session)
        restore = Restore(session, stage, settings_of(session, name), say, pause)
        if what == "resume":
            restore.resume()
            return 0
        at = moment(what)
        restore.check(at)
        restore.stop()
        tables = restore.copy(at)
        restore.bring_back(at)
        file.write_text(named(file.read_text(), name, tables, restore.stream(tables["jobs"])))
        say(
            f"cdk.json names the restored tables. Go on with: make deploy STAGE={name}, then "
            f"make resume STAGE={name}. Keep cdk.json so."
        )
    except (NotReady, WrongStage) as error:
        print(f"restore: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
