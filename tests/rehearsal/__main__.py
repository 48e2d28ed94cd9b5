"""`make rehearse`: deploy to an emulator of AWS, hold the API to the contract, destroy.

A green rehearsal is necessary, not sufficient: what the emulator is lax about it cannot show.
"""

import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from tests.rehearsal.deployment import WITHIN, Deployment, Failed, run
from tests.rehearsal.emulator import REGION, ROOT, emulator, environment

STAGE = "rehearsal"
CONTEXT = {"stage": STAGE, "vendorFor": "host", "rehearsal": "true"}
FOLDER = ROOT / ".rehearsal"
PATIENCE = "4"  # the emulator, every function and the tests share the machine


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"== {what} ...", flush=True)
    yield
    print(f"== {what}: {time.monotonic() - began:.1f} s", flush=True)


def client(service: str, endpoint: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def admit(endpoint: str) -> str:
    """A token whose hash stands where the authorizer looks for it."""
    token = f"pnc_{secrets.token_urlsafe(24)}"
    client("ssm", endpoint).put_parameter(
        Name=f"/punctual/{STAGE}/token-hash",
        Value=hashlib.sha256(token.encode()).hexdigest(),
        Overwrite=True,
    )
    return token


def address(endpoint: str) -> str:
    """Where this emulator serves the HTTP API; the stack's output names AWS's own address."""
    apis = client("apigatewayv2", endpoint).get_apis()["Items"]
    (api,) = [api for api in apis if api["Name"].startswith(f"punctual-{STAGE}")]
    return f"{endpoint}/_aws/execute-api/{api['ApiId']}/v1"


def accept(url: str, token: str, wanted: Mapping[str, str], folder: Path) -> str:
    asked = [*os.environ.get("T", "").split()] or ["tests/e2e/acceptance"]
    return run(
        [sys.executable, "-m", "pytest", "-q", "-rs", f"--timeout={WITHIN:.0f}", *asked],
        {**wanted, "PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": token, "PUNCTUAL_PATIENCE": PATIENCE},
        folder / "acceptance.log",
    )


def left_behind(endpoint: str) -> list[str]:
    """What of a destroyed stage still stands."""
    tables = client("dynamodb", endpoint).list_tables()["TableNames"]
    functions = client("lambda", endpoint).list_functions()["Functions"]
    queues = client("sqs", endpoint).list_queues().get("QueueUrls", [])
    logs = client("logs", endpoint).describe_log_groups()["logGroups"]
    names = [
        *tables,
        *(function["FunctionName"] for function in functions),
        *(url.rpartition("/")[2] for url in queues),
        *(group["logGroupName"] for group in logs),
    ]
    return sorted(name for name in names if "unctual" in name)


def rehearse(folder: Path, options: Mapping[str, str], context: Mapping[str, str]) -> None:
    with emulator(folder, options) as endpoint:
        wanted = environment(endpoint)
        deployment = Deployment(folder, wanted, context)
        with step("cdk bootstrap"):
            deployment.bootstrap()
        with step("cdk deploy"):
            deployment.deploy()
        url, token = address(endpoint), admit(endpoint)
        with step(f"acceptance against {url}"):
            print(accept(url, token, wanted, folder))
        with step("cdk destroy"):
            deployment.destroy()
        left = left_behind(endpoint)
        if left:
            raise Failed(f"destroy left behind: {', '.join(left)}")


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    try:
        rehearse(FOLDER, {}, CONTEXT)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
