"""Check that the emulator refuses a role without rights. Otherwise `roles` proves nothing.

`script_keys` lets a script of the acceptance suite try what the role of its function may do.
"""

import json
from typing import Any

from botocore.exceptions import ClientError

from tests.rehearsal.deployment import STAGE
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


def script_keys(account: Account) -> dict[str, str]:
    """Return a variable of the acceptance suite: credentials of the role of a script function.

    Meanwhile any caller may assume the role. Only Lambda may otherwise.
    """
    function = account.client("lambda").get_function_configuration(
        FunctionName=f"punctual-{STAGE}-script-python"
    )
    iam, name = account.client("iam"), function["Role"].rpartition("/")[2]
    only_lambda = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(ANY_PRINCIPAL))
    try:
        keys = _credentials(account, function["Role"])
    finally:
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(only_lambda))
    variables = {
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }
    return {"PUNCTUAL_SCRIPT_KEYS": json.dumps(variables)}


def _credentials(account: Account, role: str) -> Any:
    session = account.client("sts").assume_role(RoleArn=role, RoleSessionName="rehearsal")
    return session["Credentials"]


def _as(account: Account, role: str) -> Any:
    keys = _credentials(account, role)
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
