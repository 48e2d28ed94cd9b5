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
from punctual.aws.dynamodb.audit import audit_row
from punctual.aws.dynamodb.control.limits import LIMITS_ATTR, limits_key, limits_row
from punctual.domain.tenants.limits import (
    InvalidLimits,
    effective_limits,
    limits_from,
    parse_limits,
)
from punctual.engine.commands.audit import LIMITS_CHANGE
from punctual.engine.ports.audit_log import Actor, Note
from punctual.settings import InvalidSettings, Settings

DEFAULT_LIMITS_WORD = "default"

OwnLimits = Mapping[str, int | None]


def main(arguments: Sequence[str], session: Any = None) -> int:
    try:
        if len(arguments) < 2:
            raise NotReady("the arguments are STAGE TENANT [field=number …]")
        stage, tenant, *assignments = arguments
        session = session or boto3.Session()
        account_of(session)
        settings = read_settings(session, stage)
        if settings.limits is None:
            raise NotReady(f"stage {stage!r} has no limits: set `limits` in cdk.json, and deploy")
        if assignments:
            change_limits(session, settings, tenant, assignments)
        for name, value in limits_in_force(
            settings, read_own_limits(session, settings, tenant)
        ).items():
            print(f"{name:<18}{'no limit' if value is None else value}")
    except (NotReady, InvalidLimits) as error:
        print(f"limits: {error}", file=sys.stderr)
        return 1
    return 0


def read_settings(session: Any, stage: str) -> Settings:
    """Return the settings of the deployed functions, which name restored tables too."""
    client = session.client("lambda")
    name = f"punctual-{stage}-job-service"
    try:
        configuration = client.get_function_configuration(FunctionName=name)
        settings = Settings.from_env(configuration["Environment"]["Variables"])
    except (client.exceptions.ResourceNotFoundException, KeyError, InvalidSettings) as error:
        raise NotReady(f"stage {stage!r} is not deployed in this account and region") from error
    return settings


def change_limits(
    session: Any, settings: Settings, tenant: str, assignments: Sequence[str]
) -> None:
    """Store the limits and their audit entry; fail if another change came first."""
    before, after = read_own_limits(session, settings, tenant), None
    if list(assignments) != [DEFAULT_LIMITS_WORD]:
        after = {**(before or {}), **parse_limits(" ".join(assignments))}
        limits_from(after)
    if before == after:
        return
    note = _audit_note(session, limits_in_force(settings, before), limits_in_force(settings, after))
    audit_put = {"Put": {"TableName": settings.audit_table, "Item": audit_row(tenant, note)}}
    client = session.client("dynamodb")
    try:
        client.transact_write_items(
            TransactItems=[_limits_write(settings.control_table, tenant, before, after), audit_put]
        )
    except client.exceptions.TransactionCanceledException as error:
        raise NotReady("another change of these limits came first. Show them and retry") from error


def _limits_write(
    table: str, tenant: str, before: OwnLimits | None, after: OwnLimits | None
) -> dict[str, Any]:
    condition: dict[str, Any] = {
        "TableName": table,
        "ConditionExpression": "attribute_not_exists(#limits)",
        "ExpressionAttributeNames": {"#limits": LIMITS_ATTR},
    }
    if before is not None:
        old_limits = limits_row(tenant, before)[LIMITS_ATTR]
        condition["ConditionExpression"] = "#limits = :old"
        condition["ExpressionAttributeValues"] = {":old": old_limits}
    if after is None:
        return {"Delete": {**condition, "Key": limits_key(tenant).item()}}
    return {"Put": {**condition, "Item": limits_row(tenant, after)}}


def _audit_note(session: Any, before: OwnLimits, after: OwnLimits) -> Note:
    """Return the caller's name in AWS: the user, or the name of the session."""
    arn = str(session.client("sts").get_caller_identity()["Arn"])
    changed_names = [name for name in after if before[name] != after[name]]
    return Note(
        Actor(arn.rpartition("/")[2], request_id=str(uuid4())),
        LIMITS_CHANGE,
        datetime.now(UTC),
        before={name: before[name] for name in changed_names},
        after={name: after[name] for name in changed_names},
    )


def read_own_limits(session: Any, settings: Settings, tenant: str) -> OwnLimits | None:
    key = limits_key(tenant).item()
    client = session.client("dynamodb")
    answer = client.get_item(TableName=settings.control_table, Key=key, ConsistentRead=True)
    if "Item" not in answer:
        return None
    limits: OwnLimits = json.loads(answer["Item"][LIMITS_ATTR]["S"])
    return limits


def limits_in_force(settings: Settings, own_limits: OwnLimits | None) -> OwnLimits:
    """Return the limits in force: the tenant's own, or the stage's."""
    defaults = limits_from(parse_limits(settings.limits or ""))
    return effective_limits(limits_from(own_limits or {}, defaults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
