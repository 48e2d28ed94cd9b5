"""What a node reads of limits when it starts."""

import json
from pathlib import Path
from typing import cast

import pytest

from punctual.domain.tenants.limits import TenantLimits
from punctual.node.limits_config import LIMITS_FILE, NodeLimitsError
from punctual.node.logs import EventLog
from punctual.node.main import Options, load_limits


def options(folder: Path, **env: str) -> Options:
    return Options.from_env({"PUNCTUAL_DATA": str(folder), **env})


def no_log(_event: str, /, **_fields: object) -> None:
    raise AssertionError("there is nothing to tell")


LOG = cast(EventLog, no_log)


def test_without_limits_nothing_is_asked(tmp_path: Path) -> None:
    assert load_limits(options(tmp_path), LOG) is None
    assert load_limits(options(tmp_path, PUNCTUAL_LIMITS=""), LOG) is None


def test_the_environments_limits_are_everybodys_and_the_files_a_tenants_own(tmp_path: Path) -> None:
    (tmp_path / LIMITS_FILE).write_text(json.dumps({"acme": {"jobs": 9, "burst": None}}))
    known = load_limits(options(tmp_path, PUNCTUAL_LIMITS="jobs=5 burst=7"), LOG)
    assert known is not None
    assert known("local") == TenantLimits(jobs=5, burst=7)
    assert known("acme") == TenantLimits(jobs=9)
    only_file = load_limits(options(tmp_path), LOG)
    assert only_file is not None
    assert only_file("local") == TenantLimits()


def test_a_slip_of_the_pen_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(NodeLimitsError, match="PUNCTUAL_LIMITS"):
        options(tmp_path, PUNCTUAL_LIMITS="jobs=many")
    (tmp_path / LIMITS_FILE).write_text("{")
    with pytest.raises(NodeLimitsError, match="not JSON"):
        load_limits(options(tmp_path), LOG)
