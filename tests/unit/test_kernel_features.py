"""A test that needs a feature of the kernel is never left out where the kernel should have it."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests import kernel


def an_item(*features: str) -> Any:
    return SimpleNamespace(iter_markers=lambda _name: [SimpleNamespace(args=features)])


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "FEATURES", {"landlock": lambda: False, "there": lambda: True})


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize(
    ("release", "on"), [("6.11.9", "linux"), ("5.15", "linux"), ("24.1", "darwin")]
)
def test_a_missing_feature_skips_with_the_reason(release: str, on: str) -> None:
    with pytest.raises(pytest.skip.Exception, match="lacks: landlock"):
        kernel.check(an_item("there", "landlock"), release, on)


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize("release", ["6.12", "6.18.44-fc", "7.0-rc1"])
def test_a_feature_that_should_be_there_fails(release: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="must not be left out"):
        kernel.check(an_item("landlock"), release, "linux")


@pytest.mark.usefixtures("no_landlock")
def test_a_test_whose_features_are_there_runs() -> None:
    kernel.check(an_item("there"), "6.12", "linux")
    kernel.check(an_item(), "5.0", "linux")
