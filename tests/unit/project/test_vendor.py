"""The third-party layer holds what is tested here; it comes before Lambda's own packages."""

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


def needs(name: str) -> list[str]:
    """What a package needs on Lambda, its extras aside."""
    wanted = map(Requirement, distribution(name).requires or ())
    environment = {**LAMBDA, "extra": ""}
    return [
        canonicalize_name(r.name)
        for r in wanted
        if r.marker is None or r.marker.evaluate(environment)
    ]


@pytest.mark.parametrize(("name", "pinned"), pins().items())
def test_the_layer_holds_the_version_that_is_tested(name: str, pinned: str) -> None:
    assert version(name) == pinned


@pytest.mark.parametrize("name", pins())
def test_the_layer_holds_what_its_packages_need(name: str) -> None:
    assert [need for need in needs(name) if need not in pins()] == []


def test_the_layer_holds_what_we_ask_for() -> None:
    asked = (VENDOR / "requirements.in").read_text().split()
    assert asked
    assert {canonicalize_name(name) for name in asked} <= pins().keys()


def test_the_layer_leaves_the_aws_packages_to_lambda() -> None:
    assert FROM_LAMBDA.isdisjoint(pins())


def test_what_the_layer_shadows_suits_the_aws_packages() -> None:
    """Lambda's botocore finds our jmespath and dateutil first, so they must be in its range."""
    for name in ("boto3", "botocore", "s3transfer"):
        for requirement in map(Requirement, distribution(name).requires or ()):
            held = pins().get(canonicalize_name(requirement.name))
            assert held is None or requirement.specifier.contains(held)
