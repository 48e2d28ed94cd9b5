"""The limits that a node loads when it starts."""

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
    raise AssertionError("no log event is expected")


LOG = cast(EventLog, no_log)


def test_node_without_limits_loads_none(tmp_path: Path) -> None:
    assert load_limits(options(tmp_path), LOG) is None
    assert load_limits(options(tmp_path, PUNCTUAL_LIMITS=""), LOG) is None


def test_environment_sets_default_limits_and_file_sets_tenant_limits(tmp_path: Path) -> None:
    (tmp_path / LIMITS_FILE).write_text(json.dumps({"acme": {"jobs": 9, "burst": None}}))
    limits_of = load_limits(options(tmp_path, PUNCTUAL_LIMITS="jobs=5 burst=7"), LOG)
    assert limits_of is not None
    assert limits_of("local") == TenantLimits(jobs=5, burst=7)
    assert limits_of("acme") == TenantLimits(jobs=9)
    only_file = load_limits(options(tmp_path), LOG)
    assert only_file is not None
    assert only_file("local") == TenantLimits()


def test_invalid_limits_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(NodeLimitsError, match="PUNCTUAL_LIMITS"):
        options(tmp_path, PUNCTUAL_LIMITS="jobs=many")
    (tmp_path / LIMITS_FILE).write_text("{")
    with pytest.raises(NodeLimitsError, match="not JSON"):
        load_limits(options(tmp_path), LOG)
