"""A test that needs a feature of the kernel is never left out where the kernel should have it."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import kernel


def an_item(*features: str) -> Any:
    return SimpleNamespace(iter_markers=lambda _name: [SimpleNamespace(args=features)])


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "FEATURES", {"landlock": lambda: False, "there": lambda: True})


def outcome(item: Any, release: str, on: str) -> tuple[str, str]:
    """What becomes of a test, and why: a skip would end this test as well."""
    try:
        kernel.check(item, release, on)
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except pytest.fail.Exception as failed:
        return "failed", str(failed)
    return "runs", ""


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize(
    ("release", "on"), [("6.11.9", "linux"), ("5.15", "linux"), ("24.1", "darwin")]
)
def test_a_missing_feature_skips_with_the_reason(release: str, on: str) -> None:
    what, why = outcome(an_item("there", "landlock"), release, on)
    assert what == "skipped"
    assert "lacks: landlock" in why


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize("release", ["6.12", "6.18.44-fc", "7.0-rc1"])
def test_a_feature_that_should_be_there_fails(release: str) -> None:
    what, why = outcome(an_item("landlock"), release, "linux")
    assert what == "failed"
    assert "must not be left out" in why


@pytest.mark.usefixtures("no_landlock")
def test_a_test_whose_features_are_there_runs() -> None:
    assert outcome(an_item("there"), "6.12", "linux") == ("runs", "")
    assert outcome(an_item(), "5.0", "linux") == ("runs", "")
