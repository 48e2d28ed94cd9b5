"""The calls of the contract are the declared routes."""

import subprocess
import sys
from pathlib import Path

from punctual.node.features import FEATURES
from punctual.web.app import build_routes
from punctual.web.contract import API_CALLS, PUBLIC_PATHS, READER, WRITER
from punctual.web.services import Services
from punctual.web.views.system import InstallationInfo
from tests.support.web_engine import MemoryEngine

LAYER = Path(__file__).parents[3] / "layers/core/python"


def test_every_declared_call_has_a_function_and_none_besides() -> None:
    engine = MemoryEngine()
    services = Services(
        engine.as_jobs,
        engine.as_search,
        engine.clock,
        FEATURES,
        InstallationInfo("0", ()),
        engine.tokens,
    )
    declared = {
        (one.method, one.rule) for one in build_routes(services, lambda *_, **__: None).declared
    }
    assert {(call.method, call.rule) for call in API_CALLS} == declared
    assert len(API_CALLS) == len(declared)


def test_reads_and_writes_are_told_apart_by_what_they_do() -> None:
    reads = {(call.method, call.path) for call in API_CALLS if call.function == READER}
    assert all(method == "GET" for method, path in reads if path != "/schedules/preview")
    writes = {(call.method, call.path) for call in API_CALLS if call.function == WRITER}
    # The audit notes each read of the webhook secret, so the writing function answers it.
    assert {path for method, path in writes if method == "GET"} == {"/webhook-secret"}
    assert {method for method, _ in writes} == {"GET", "POST", "PUT", "PATCH", "DELETE"}


def test_only_what_tells_no_secret_is_open() -> None:
    assert {route.path for route in API_CALLS if route.is_public} == PUBLIC_PATHS


def test_the_stack_may_import_it_without_anything_heavy() -> None:
    code = (
        "import sys, punctual.web.contract;"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('pydantic', 'pydantic_core', 'boto3', 'botocore', 'msgspec', 'aws_lambda_powertools')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=LAYER, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
