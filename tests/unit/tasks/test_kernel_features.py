"""A test that needs a feature of the kernel is skipped only on kernels without the feature."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import kernel


def an_item(*features: str) -> Any:
    return SimpleNamespace(iter_markers=lambda _name: [SimpleNamespace(args=features)])


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "FEATURES", {"landlock": lambda: False, "there": lambda: True})


def outcome(item: Any, release: str, platform: str) -> tuple[str, str]:
    """Return the result of a test and its reason. A skip would end this test as well."""
    try:
        kernel.check(item, release, platform)
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except pytest.fail.Exception as failed:
        return "failed", str(failed)
    return "runs", ""


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize(
    ("release", "platform"), [("6.11.9", "linux"), ("5.15", "linux"), ("24.1", "darwin")]
)
def test_missing_feature_skips_with_the_reason(release: str, platform: str) -> None:
    result, reason = outcome(an_item("there", "landlock"), release, platform)
    assert result == "skipped"
    assert "lacks: landlock" in reason


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize("release", ["6.12", "6.18.44-fc", "7.0-rc1"])
def test_missing_feature_of_a_new_kernel_fails(release: str) -> None:
    result, reason = outcome(an_item("landlock"), release, "linux")
    assert result == "failed"
    assert "must not be left out" in reason


@pytest.mark.usefixtures("no_landlock")
def test_with_present_features_runs() -> None:
    assert outcome(an_item("there"), "6.12", "linux") == ("runs", "")
    assert outcome(an_item(), "5.0", "linux") == ("runs", "")
