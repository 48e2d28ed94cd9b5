"""Check that the emulator refuses a role without rights. Otherwise `roles` proves nothing."""

import json
from typing import Any

from botocore.exceptions import ClientError

from tests.rehearsal.emulator import Account
from tests.rehearsal.progress import Failed

ROLE = "rehearsal-without-rights"
ANY_PRINCIPAL = {"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}


def check_roles(account: Account) -> None:
    iam = account.client("iam")
    role = iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(ANY_PRINCIPAL))
    try:
        _refused(_as(account, role["Role"]["Arn"]))
    finally:
        iam.delete_role(RoleName=ROLE)


def _as(account: Account, role: str) -> Any:
    session = account.client("sts").assume_role(RoleArn=role, RoleSessionName="rehearsal")
    keys = session["Credentials"]
    return account.client(
        "dynamodb", keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]
    )


def _refused(client: Any) -> None:
    try:
        client.list_tables()
    except ClientError as error:
        if "AccessDenied" in str(error):
            return
        raise
    raise Failed("the emulator allows every call to a role without rights")
