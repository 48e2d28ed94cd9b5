"""What one tenant of a deployed stage may use: shown, changed, or given up for what all have.

    python -m infra.limits STAGE TENANT                         # shows it
    python -m infra.limits STAGE TENANT jobs=500 burst=null     # null: no limit
    python -m infra.limits STAGE TENANT default                 # what the stage says, again

Everybody knows within a minute.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import boto3

from infra.account import NotReady, account_of
from punctual.aws import limit_keys
from punctual.aws.limits import limits_row
from punctual.domain.limits import WrongLimits, limits_from, limits_of_text, shown
from punctual.settings import Settings, WrongSettings

DEFAULT = "default"


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
        for name, value in present(session, settings, tenant).items():
            print(f"{name:<18}{'no limit' if value is None else value}")
    except (NotReady, WrongLimits) as error:
        print(f"limits: {error}", file=sys.stderr)
        return 1
    return 0


def settings_of(session: Any, stage: str) -> Settings:
    """As the functions have them, restored tables and all."""
    client = session.client("lambda")
    name = f"punctual-{stage}-job-service"
    try:
        found = client.get_function_configuration(FunctionName=name)
        settings = Settings.from_env(found["Environment"]["Variables"])
    except (client.exceptions.ResourceNotFoundException, KeyError, WrongSettings) as error:
        raise NotReady(f"stage {stage!r} is not deployed in this account and region") from error
    return settings


def change(session: Any, settings: Settings, tenant: str, said: Sequence[str]) -> None:
    client = session.client("dynamodb")
    if list(said) == [DEFAULT]:
        key = limit_keys.limits(tenant).item()
        client.delete_item(TableName=settings.control_table, Key=key)
        return
    before = own(session, settings, tenant)
    values = {**(before or {}), **limits_of_text(" ".join(said))}
    limits_from(values)
    row, name = limits_row(tenant, values), {"#limits": limit_keys.LIMITS}
    holds: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(#limits)"}
    if before is not None:  # who changes it at the same time is not overwritten
        old = limits_row(tenant, before)[limit_keys.LIMITS]
        holds = {
            "ConditionExpression": "#limits = :old",
            "ExpressionAttributeValues": {":old": old},
        }
    try:
        client.put_item(
            TableName=settings.control_table, Item=row, ExpressionAttributeNames=name, **holds
        )
    except client.exceptions.ConditionalCheckFailedException as error:
        raise NotReady("somebody changed these limits at the same time: look again") from error


def own(session: Any, settings: Settings, tenant: str) -> dict[str, int | None] | None:
    key = limit_keys.limits(tenant).item()
    client = session.client("dynamodb")
    found = client.get_item(TableName=settings.control_table, Key=key, ConsistentRead=True)
    if "Item" not in found:
        return None
    said: dict[str, int | None] = json.loads(found["Item"][limit_keys.LIMITS]["S"])
    return said


def present(session: Any, settings: Settings, tenant: str) -> Mapping[str, int | None]:
    defaults = limits_from(limits_of_text(settings.limits or ""))
    return shown(limits_from(own(session, settings, tenant) or {}, defaults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
