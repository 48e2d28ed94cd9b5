"""What must be so in an account before anything is deployed, each said in one line if it is not."""

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_LEAST = 6


class NotReady(RuntimeError):
    """The reason, in one line, with what to do about it."""


def account_of(session: Any) -> tuple[str, str]:
    """The account and region that the surroundings name, if their credentials work."""
    region = session.region_name
    if not region:
        raise NotReady("no region is set: AWS_REGION=eu-central-1, or `aws configure`")
    try:
        account = str(session.client("sts").get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"no working AWS credentials: {_line(error)}") from error
    return account, str(region)


def check_bootstrap(session: Any, account: str, region: str) -> None:
    """The CDK's own bucket and roles, which it puts assets into and deploys with."""
    mend = f"run: node_modules/.bin/cdk bootstrap aws://{account}/{region}"
    try:
        found = parameter(session.client("ssm"), BOOTSTRAP)
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"{BOOTSTRAP} could not be read: {_line(error)}") from error
    if found is None:
        raise NotReady(f"account {account} is not bootstrapped in {region}; {mend}")
    if int(found) < BOOTSTRAP_LEAST:
        raise NotReady(f"account {account} has an old bootstrap ({found}) in {region}; {mend}")


def parameter(ssm: Any, name: str) -> str | None:
    try:
        return str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
