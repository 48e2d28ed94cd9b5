"""Show or change the limits of one tenant of a deployed stage, or reset them.

    python -m infra.operations.limits STAGE TENANT                       # show them
    python -m infra.operations.limits STAGE TENANT jobs=500 burst=null   # null: no limit
    python -m infra.operations.limits STAGE TENANT default               # use the stage's limits

All functions apply the change within a minute.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import boto3

from infra.operations.account import NotReady, account_of
from punctual.aws.dynamodb.audit.audit import row_of
from punctual.aws.dynamodb.control import limit_keys
from punctual.aws.dynamodb.control.limits import limits_row
from punctual.domain.tenants.limits import WrongLimits, limits_from, limits_of_text, shown
from punctual.engine.commands.audit import LIMITS_CHANGE
from punctual.engine.ports.audit_log import Actor, Note
from punctual.settings import Settings, WrongSettings

DEFAULT_WORD = "default"

Own = Mapping[str, int | None]


def main(arguments: Sequence[str], session: Any = None) -> int:
    try:
        if len(arguments) < 2:
            raise NotReady("say which stage and which tenant: STAGE TENANT [field=number …]")
        stage, tenant, *said = arguments
        session = session or boto3.Session()
        account_of(session)
        settings = settings_of(session, stage)
        if settings.limits is None:
            raise NotReady(f"stage {stage!r} has no limits: set `limits` in cdk.json, and deploy")
        if said:
            change(session, settings, tenant, said)
        for name, value in whole(settings, own(session, settings, tenant)).items():
            print(f"{name:<18}{'no limit' if value is None else value}")
    except (NotReady, WrongLimits) as error:
        print(f"limits: {error}", file=sys.stderr)
        return 1
    return 0


def settings_of(session: Any, stage: str) -> Settings:
    """Return the settings of the deployed functions, which name restored tables too."""
    client = session.client("lambda")
    name = f"punctual-{stage}-job-service"
    try:
        found = client.get_function_configuration(FunctionName=name)
        settings = Settings.from_env(found["Environment"]["Variables"])
    except (client.exceptions.ResourceNotFoundException, KeyError, WrongSettings) as error:
        raise NotReady(f"stage {stage!r} is not deployed in this account and region") from error
    return settings


def change(session: Any, settings: Settings, tenant: str, said: Sequence[str]) -> None:
    """Store the limits and their audit entry; fail if another change came first."""
    before, after = own(session, settings, tenant), None
    if list(said) != [DEFAULT_WORD]:
        after = {**(before or {}), **limits_of_text(" ".join(said))}
        limits_from(after)
    if before == after:
        return
    note = _note(session, whole(settings, before), whole(settings, after))
    line = {"Put": {"TableName": settings.audit_table, "Item": row_of(tenant, note)}}
    client = session.client("dynamodb")
    try:
        client.transact_write_items(
            TransactItems=[_write(settings.control_table, tenant, before, after), line]
        )
    except client.exceptions.TransactionCanceledException as error:
        raise NotReady("these limits changed at the same time: look again") from error


def _write(table: str, tenant: str, before: Own | None, after: Own | None) -> dict[str, Any]:
    holds: dict[str, Any] = {
        "TableName": table,
        "ConditionExpression": "attribute_not_exists(#limits)",
        "ExpressionAttributeNames": {"#limits": limit_keys.LIMITS},
    }
    if before is not None:
        old = limits_row(tenant, before)[limit_keys.LIMITS]
        holds["ConditionExpression"] = "#limits = :old"
        holds["ExpressionAttributeValues"] = {":old": old}
    if after is None:
        return {"Delete": {**holds, "Key": limit_keys.limits(tenant).item()}}
    return {"Put": {**holds, "Item": limits_row(tenant, after)}}


def _note(session: Any, before: Own, after: Own) -> Note:
    """Return the caller's name in AWS: the user, or the name of the session."""
    arn = str(session.client("sts").get_caller_identity()["Arn"])
    changed = [name for name in after if before[name] != after[name]]
    return Note(
        Actor(arn.rpartition("/")[2], request_id=str(uuid4())),
        LIMITS_CHANGE,
        datetime.now(UTC),
        before={name: before[name] for name in changed},
        after={name: after[name] for name in changed},
    )


def own(session: Any, settings: Settings, tenant: str) -> Own | None:
    key = limit_keys.limits(tenant).item()
    client = session.client("dynamodb")
    found = client.get_item(TableName=settings.control_table, Key=key, ConsistentRead=True)
    if "Item" not in found:
        return None
    said: Own = json.loads(found["Item"][limit_keys.LIMITS]["S"])
    return said


def whole(settings: Settings, said: Own | None) -> Own:
    """Return the limits in force: the tenant's own, or the stage's."""
    defaults = limits_from(limits_of_text(settings.limits or ""))
    return shown(limits_from(said or {}, defaults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
