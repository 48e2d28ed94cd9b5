"""The calls of the contract are the declared routes."""

from pathlib import Path

from punctual.node.features import NODE_FEATURES
from punctual.web.app import build_routes
from punctual.web.contract import API_CALLS, PUBLIC_PATHS, READ_FUNCTION, WRITE_FUNCTION
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
        NODE_FEATURES,
        InstallationInfo("0", ()),
        engine.tokens,
    )
    declared = {
        (one.method, one.rule) for one in build_routes(services, lambda *_, **__: None).declared
    }
    assert {(call.method, call.rule) for call in API_CALLS} == declared
    assert len(API_CALLS) == len(declared)


def test_reads_and_writes_are_told_apart_by_what_they_do() -> None:
    reads = {(call.method, call.path) for call in API_CALLS if call.function == READ_FUNCTION}
    assert all(method == "GET" for method, path in reads if path != "/schedules/preview")
    writes = {(call.method, call.path) for call in API_CALLS if call.function == WRITE_FUNCTION}
    # The audit notes each read of the webhook secret, so the writing function answers it.
    assert {path for method, path in writes if method == "GET"} == {"/webhook-secret"}
    assert {method for method, _ in writes} == {"GET", "POST", "PUT", "PATCH", "DELETE"}


def test_only_what_tells_no_secret_is_open() -> None:
    assert {route.path for route in API_CALLS if route.is_public} == PUBLIC_PATHS
