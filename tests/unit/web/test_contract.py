"""The calls of the contract are the declared routes."""

from pathlib import Path

from punctual.web.app import build_routes
from punctual.web.contract import API_CALLS, PUBLIC_PATHS, READ_FUNCTION, WRITE_FUNCTION
from tests.support.web_world import WebWorld

LAYER = Path(__file__).parents[3] / "layers/core/python"


def test_declared_routes_equal_the_calls_of_the_contract() -> None:
    services = WebWorld().services()
    declared = {
        (route.method, route.rule)
        for route in build_routes(services, lambda *_, **__: None).declared
    }
    assert {(call.method, call.rule) for call in API_CALLS} == declared
    assert len(API_CALLS) == len(declared)


def test_contract_assigns_reads_and_writes_to_their_functions() -> None:
    reads = {(call.method, call.path) for call in API_CALLS if call.function == READ_FUNCTION}
    computed = {"/schedules/preview", "/schedules/diff"}  # with a body, and nothing is stored
    assert all(method == "GET" for method, path in reads if path not in computed)
    writes = {(call.method, call.path) for call in API_CALLS if call.function == WRITE_FUNCTION}
    # The audit notes each read of the webhook secret, so the writing function answers it. The
    # function that stores secrets also lists them.
    gets = {path for method, path in writes if method == "GET"}
    assert gets == {"/webhook-secret", "/secrets"}
    assert {method for method, _ in writes} == {"GET", "POST", "PUT", "PATCH", "DELETE"}


def test_public_calls_equal_the_public_paths() -> None:
    assert {route.path for route in API_CALLS if route.is_public} == PUBLIC_PATHS
