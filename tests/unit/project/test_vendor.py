"""The third-party layer has the tested versions, and comes before Lambda's own packages."""

import re
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
VENDOR = ROOT / "layers/vendor"
LAMBDA = {"python_version": "3.13", "sys_platform": "linux", "platform_machine": "aarch64"}
FROM_LAMBDA = {"boto3", "botocore", "s3transfer", "urllib3"}


def pins() -> dict[str, str]:
    lines = (VENDOR / "requirements.txt").read_text().splitlines()
    return {
        canonicalize_name(name): pinned
        for name, pinned in (
            re.sub(r" \\$", "", line).split("==") for line in lines if re.match(r"[a-z0-9]", line)
        )
    }


def requirements_of(name: str) -> list[str]:
    """Return the requirements of a package on Lambda, without its extras."""
    declared = map(Requirement, distribution(name).requires or ())
    environment = {**LAMBDA, "extra": ""}
    return [
        canonicalize_name(requirement.name)
        for requirement in declared
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]


@pytest.mark.parametrize(("name", "pinned"), pins().items())
def test_vendor_layer_has_the_tested_versions(name: str, pinned: str) -> None:
    assert version(name) == pinned


@pytest.mark.parametrize("name", pins())
def test_vendor_layer_has_the_requirements_of_its_packages(name: str) -> None:
    assert [required for required in requirements_of(name) if required not in pins()] == []


def test_vendor_layer_has_the_packages_of_its_input_file() -> None:
    requested = (VENDOR / "requirements.in").read_text().split()
    assert requested
    assert {canonicalize_name(name) for name in requested} <= pins().keys()


def test_vendor_layer_has_no_aws_packages() -> None:
    assert FROM_LAMBDA.isdisjoint(pins())


def test_shadowed_packages_suit_the_aws_packages() -> None:
    """Lambda's botocore finds our jmespath and dateutil first, so they must be in its range."""
    for name in ("boto3", "botocore", "s3transfer"):
        for requirement in map(Requirement, distribution(name).requires or ()):
            pinned = pins().get(canonicalize_name(requirement.name))
            assert pinned is None or requirement.specifier.contains(pinned)
