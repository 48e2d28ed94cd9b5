"""Each handler imports with only its folder, the layers and the packages of Lambda."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from infra.build.packaging import CORE_SOURCE, FUNCTIONS_FOLDER, UNUSED_VENDOR_FILES, VENDOR_LOCK
from punctual.lambdas.containers.settings import ContainerSettings
from tests.support.aws.settings import NO_HOST, a_settings

NAMES = sorted(path.parent.name for path in FUNCTIONS_FOLDER.glob("*/handler.py"))
FROM_LAMBDA = {"boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six"}
API = {"job_search", "job_service", "claims"}

# Only modules of the layers and of Lambda can be imported, regardless of other installed packages.
PROGRAM = """
import importlib.abc, json, sys
folder, core, absent = sys.argv[1], sys.argv[2], set(sys.argv[3].split())

class Bare(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is in no layer", name=name)

sys.path[:0] = [folder, core]
sys.meta_path.insert(0, Bare())
import handler
print(json.dumps({"callable": callable(handler.handler), "modules": sorted(sys.modules)}))
"""


def in_layers() -> set[str]:
    """Return the module names of the pinned packages."""
    pinned = {
        canonicalize_name(line.partition("==")[0])
        for line in VENDOR_LOCK.read_text().splitlines()
        if "==" in line and not line.startswith(" ")
    }
    return {
        module
        for module, owners in packages_distributions().items()
        if pinned & {canonicalize_name(owner) for owner in owners}
    }


def environment() -> dict[str, str]:
    settings = a_settings(
        queues={"quick": f"{NO_HOST}/quick", "long": f"{NO_HOST}/long"},
    )
    return {
        **settings.to_env(),
        "PATH": os.environ["PATH"],
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "POWERTOOLS_SERVICE_NAME": "cold",
        "PUNCTUAL_LANE": "quick",
        "PUNCTUAL_DEAD_LETTERS": "https://sqs.invalid/1/quick-dead.fifo",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def container_environment() -> dict[str, str]:
    """Return the settings that only the function `containers` cannot start without."""
    names = [field.name for field in fields(ContainerSettings) if field.type is str]
    return ContainerSettings(
        subnets=("subnet-1",),
        security_groups=("sg-1",),
        has_public_address=False,
        max_vcpu=4,
        **dict.fromkeys(names, "x"),
    ).to_env()


def imported(folder: Path) -> subprocess.CompletedProcess[str]:
    absent = packages_distributions().keys() - {*in_layers(), *FROM_LAMBDA, "punctual"}
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            PROGRAM,
            str(folder),
            str(CORE_SOURCE),
            " ".join(absent),
        ],
        env=environment() | (container_environment() if folder.name == "containers" else {}),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def modules(name: str) -> set[str]:
    answer = imported(FUNCTIONS_FOLDER / name)
    assert answer.returncode == 0, answer.stderr
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    assert result["callable"]
    return set(result["modules"])


def test_functions_have_handlers() -> None:
    assert {"planner", "poller", "executor"} <= set(NAMES)


# Functions that may import each expensive module (20 ms and more) or each unneeded one.
HEAVY = {
    "anyio": set(),
    "asyncio": API,  # the router of powertools imports it
    "aws_lambda_powertools": {*NAMES} - {"authorizer"},
    "aws_lambda_powertools.event_handler": API,
    "aws_xray_sdk": set(),
    "boto3": set(),  # clients are made with botocore alone
    "botocore.session": {*NAMES} - API,  # the API makes its clients later
    "croniter": set(),
    "cryptography": set(),  # imported with the first JWT
    "httpcore": set(),  # imported with the first http task or URL
    "httpx": set(),
    "jwt": set(),
    "msgspec": {*NAMES} - {"authorizer"},
    "pydantic": {"job_service", "claims"},  # the preview imports it on demand
    "pydantic_core": {"job_service", "claims"},
    "punctual.domain.schedules.cron.expression": {*NAMES} - {"authorizer"},
    "punctual.engine": {*NAMES} - {"authorizer"},
    "punctual.node": set(),
    "punctual.tasks.http.task": set(),
    "punctual.web": {*API, "status"},  # for the texts of changes
    "punctual.web.routing": API,
    "s3transfer": set(),
    "zoneinfo": {*NAMES} - {"authorizer"},
}


@pytest.mark.parametrize("name", NAMES)
def test_handler_imports_only_its_folder_and_the_layers(name: str) -> None:
    imported_modules = modules(name)
    assert not {"aws_cdk", "moto", "pytest"} & imported_modules
    assert {
        heavy for heavy, may in HEAVY.items() if heavy in imported_modules and name not in may
    } == set()
    assert [module for module in imported_modules if is_left_out(module.replace(".", "/"))] == []


def is_left_out(path: str) -> bool:
    """Return True if a module or a parent package is left out of the layer."""
    above = [path, *map(str, PurePosixPath(path).parents)]
    return any(
        fnmatch(name, pattern.removesuffix(".py"))
        for name in above
        for pattern in UNUSED_VENDOR_FILES
    )


def test_import_from_outside_the_layers_fails(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("import hypothesis\ndef handler(e, c): ...\n")
    answer = imported(tmp_path)
    assert answer.returncode != 0
    assert "hypothesis is in no layer" in answer.stderr
