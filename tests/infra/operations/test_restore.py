"""make restore and make resume against moto: six tables, a bucket, and omitted settings."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.app import read_context
from infra.config.cdk_json import CDK_JSON
from infra.config.restored_tables import TABLE_NAMES
from infra.config.stage import read_stage
from infra.operations import restore as program
from infra.operations.account import NotReady
from infra.operations.restore import (
    MAX_RESTORE_POLLS,
    Restore,
    main,
    parse_time,
    set_restored_tables,
)
from punctual.aws.dynamodb import keys
from punctual.settings import Settings

REGION = "eu-central-1"
GATE = "punctual-prod-job-service"
AT = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)


class Session:
    """An account of moto with the answers that moto lacks."""

    def __init__(self) -> None:
        self.real: Any = boto3.Session(region_name=REGION)
        self.region_name = REGION
        self.started: list[str] = []
        self.first = AT - timedelta(days=35)

    def client(self, name: str) -> Any:
        new_client = self.real.client(name)
        if name == "dynamodb":
            new_client.describe_continuous_backups = self._backups
        if name == "lambda":
            new_client.invoke = lambda **params: self.started.append(params["FunctionName"])
        return new_client

    def _backups(self, **_: Any) -> Any:
        window = {
            "EarliestRestorableDateTime": self.first,
            "LatestRestorableDateTime": datetime.now(UTC),
        }
        return {"ContinuousBackupsDescription": {"PointInTimeRecoveryDescription": window}}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        new_session = Session()
        dynamodb = new_session.client("dynamodb")
        for table in keys.TABLES:
            dynamodb.create_table(
                TableName=f"prod-{table.name}", BillingMode="PAY_PER_REQUEST", **table.schema()
            )
            dynamodb.put_item(TableName=f"prod-{table.name}", Item={**row("kept")})
        dynamodb.put_item(TableName="prod-control", Item={**keys.walk_key().item()})
        s3 = new_session.client("s3")
        place = {"LocationConstraint": REGION}
        s3.create_bucket(Bucket="prod-blobs", CreateBucketConfiguration=place)
        s3.put_bucket_versioning(Bucket="prod-blobs", VersioningConfiguration={"Status": "Enabled"})
        put_gate(new_session)
        yield new_session


def put_gate(session: Session) -> None:
    iam = session.client("iam")
    trust = json.dumps({"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]})
    role = iam.create_role(RoleName="any", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    for name in (GATE, "punctual-prod-executor-quick", "punctual-prod-executor-long"):
        session.client("lambda").create_function(
            FunctionName=name,
            Role=role,
            Runtime="python3.13",
            Handler="a.b",
            Code={"ZipFile": b"a"},
            Environment={"Variables": settings().to_env()},
        )
    queue = session.client("sqs").create_queue(QueueName="due")["QueueUrl"]
    arn = session.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    session.client("lambda").create_event_source_mapping(
        EventSourceArn=arn["Attributes"]["QueueArn"], FunctionName="punctual-prod-executor-quick"
    )


def row(name: str) -> dict[str, Any]:
    return {keys.PK: {"S": name}, keys.SK: {"S": "-"}}


def settings() -> Settings:
    return Settings(
        stage="prod",
        **{f"{name}_table": f"prod-{name}" for name in TABLE_NAMES},  # type: ignore[arg-type]
        bucket="prod-blobs",
        wake_queue="https://sqs/wake",
        operation_queue="https://sqs/operations",
        event_bus="bus",
        knobs="/punctual/prod/",
        queues={"long": "https://sqs/long"},
    )


def restoring(session: Session, printed: list[str], pauses: list[float]) -> Restore:
    stage = read_stage("prod", read_context()["stages"])
    return Restore(session, stage, settings(), printed.append, pauses.append)


def test_all_tables_are_restored_with_settings_that_a_restore_omits(session: Session) -> None:
    targets = restoring(session, [], []).copy(AT)
    dynamodb = session.client("dynamodb")
    assert set(targets) == set(TABLE_NAMES)
    for table in keys.TABLES:
        name = targets[table.name]
        description = dynamodb.describe_table(TableName=name)["Table"]
        assert description["DeletionProtectionEnabled"] is True
        stream = description.get("StreamSpecification", {}).get("StreamViewType")
        assert stream == ("NEW_AND_OLD_IMAGES" if table.has_stream else None)
        expiry = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        assert expiry.get("AttributeName") == (keys.TTL if table.has_ttl else None)
        stored = dynamodb.get_item(TableName=name, Key=row("kept"))
        assert "Item" in stored
    walk = dynamodb.get_item(TableName=targets["control"], Key=keys.walk_key().item())
    assert "Item" not in walk


def test_interrupted_restore_continues(session: Session) -> None:
    printed: list[str] = []
    first = restoring(session, printed, []).copy(AT)
    repeated: list[str] = []
    assert restoring(session, repeated, []).copy(AT) == first
    assert not [line for line in repeated if line.startswith("Restoring")]
    assert len([line for line in printed if line.startswith("Restoring")]) == len(TABLE_NAMES)


def test_time_before_the_restorable_window_is_refused_and_stops_nothing(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session.first = AT + timedelta(seconds=1)
    file = tmp_path / "cdk.json"
    assert main(["prod", AT.isoformat()], session, print, lambda _: None, file) == 1
    assert "prod-jobs can be restored to a time from" in capsys.readouterr().err
    assert len(session.client("dynamodb").list_tables()["TableNames"]) == len(TABLE_NAMES)
    gate = session.client("lambda").get_function_concurrency(FunctionName=GATE)
    assert "ReservedConcurrentExecutions" not in gate
    assert feeds(session) == ["Enabled"]


def test_only_objects_deleted_since_the_time_are_restored(
    session: Session,
) -> None:
    s3 = session.client("s3")
    s3.put_object(Bucket="prod-blobs", Key="payloads/a", Body=b"1")
    s3.delete_object(Bucket="prod-blobs", Key="payloads/a")
    future = datetime.now(UTC) + timedelta(hours=1)
    assert restoring(session, [], []).undelete_objects(future) == 0
    assert restoring(session, [], []).undelete_objects(AT) == 1
    assert s3.get_object(Bucket="prod-blobs", Key="payloads/a")["Body"].read() == b"1"


def feeds(session: Session) -> list[str]:
    listing = session.client("lambda").list_event_source_mappings(
        FunctionName="punctual-prod-executor-quick"
    )
    return [mapping["State"] for mapping in listing["EventSourceMappings"]]


def test_stage_is_stopped_first_and_resumed_after_the_reconciler_walk(
    session: Session,
) -> None:
    pauses: list[float] = []
    restore = restoring(session, [], pauses)
    restore.stop()
    lambdas, ssm = session.client("lambda"), session.client("ssm")
    gate = lambdas.get_function_concurrency(FunctionName=GATE)
    assert int(gate["ReservedConcurrentExecutions"]) == 0
    assert ssm.get_parameter(Name="/punctual/prod/dispatch")["Parameter"]["Value"] == "off"
    assert feeds(session) == ["Disabled"]
    with pytest.raises(NotReady, match="has not checked all jobs"):
        restore.resume()
    assert len(pauses) == MAX_RESTORE_POLLS
    assert feeds(session) == ["Disabled"]
    walked = {**keys.walk_key().item(), "cleared": {"BOOL": True}, "over": {"BOOL": False}}
    session.client("dynamodb").put_item(TableName="prod-control", Item=walked)
    restore.resume()
    assert session.started == ["punctual-prod-reconciler"] * 2
    gate = lambdas.get_function_concurrency(FunctionName=GATE)
    reserved = read_context()["stages"]["prod"]["reservedConcurrency"]["job-service"]
    assert int(gate["ReservedConcurrentExecutions"]) == reserved
    assert ssm.get_parameter(Name="/punctual/prod/dispatch")["Parameter"]["Value"] == "on"
    assert feeds(session) == ["Enabled"]


def test_restore_writes_the_tables_to_cdk_json_and_prints_the_next_step(
    session: Session, tmp_path: Path
) -> None:
    file = tmp_path / "cdk.json"
    file.write_text(CDK_JSON.read_text())
    printed: list[str] = []
    assert main(["prod", AT.isoformat()], session, printed.append, lambda _: None, file) == 0
    value = json.loads(file.read_text())["context"]["stages"]["prod"]["restoredTables"]
    stage = read_stage("prod", json.loads(file.read_text())["context"]["stages"])
    assert stage.restored_tables is not None
    assert value["jobs"] == f"punctual-prod-jobs-{AT:%Y%m%dT%H%M%SZ}"
    assert value["stream"].startswith("arn:aws:dynamodb:")
    assert "make deploy STAGE=prod, then make resume STAGE=prod" in printed[-1]


def test_restored_tables_change_one_setting_of_one_stage() -> None:
    text = CDK_JSON.read_text()
    tables = {name: f"again-{name}" for name in TABLE_NAMES}
    once = set_restored_tables(text, "prod", tables, "arn:a")
    second = set_restored_tables(once, "prod", tables, "arn:b")
    for changed, stream in ((once, "arn:a"), (second, "arn:b")):
        before, after = text.splitlines(), changed.splitlines()
        differing = [line for line, other in zip(before, after, strict=True) if line != other]
        assert len(differing) == 1
        stages = json.loads(changed)["context"]["stages"]
        assert stages["prod"]["restoredTables"] == {**tables, "stream": stream}
        assert stages["dev"]["restoredTables"] is None


@pytest.mark.parametrize("wrong", ["yesterday", "2026-11-18T09:59:00"])
def test_restore_time_requires_a_zone(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotReady, match="AT=2026-11-18T09:59:00Z"):
        parse_time(wrong)
    assert main(["prod"]) == 1
    assert "make restore STAGE=… AT=…" in capsys.readouterr().err


def test_unprotected_stage_restores_unprotected_tables(session: Session) -> None:
    stage = replace(read_stage("prod", read_context()["stages"]), protected=False)
    targets = Restore(session, stage, settings(), print, lambda _: None).copy(AT)
    table = session.client("dynamodb").describe_table(TableName=targets["jobs"])["Table"]
    assert not table.get("DeletionProtectionEnabled")
    assert program.RESTORE_POLL_SECONDS > 0
