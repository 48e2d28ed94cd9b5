"""Counts what one call by claim costs on AWS."""

from functools import cache

from bench.cost.accounts import priced_lines
from bench.cost.prices import prices
from tests.support.claims.deployed import OutsideExecutor
from tests.support.deployed.scenes import Counted, open_api, spent_in
from tests.support.deployed.world import a_world

COUNTED_CLAIMS = 10
LOG = "a line of a log\n" * 16
OUTPUT = {"text": "all is well; " * 150}  # 2 KB
CLAIM_CALLS = {
    "renewal": "a renewal",
    "logging renewal": "a renewal with 256 bytes of log",
    "finish": "a finish",
    "full finish": "a finish with a log in two parts and 2 KB of output",
    "upload": "the address of an upload",
}


@cache
def claim_call_cost(name: str) -> Counted:
    """Return the units of one call with one claim. Its runner has renewed the claim before."""
    with a_world() as world:
        outside = OutsideExecutor(world, open_api(world))
        world.ticks = False
        claims = [outside.start_run() for _ in range(COUNTED_CLAIMS)]
        started = {"runner_id": "r", "started_at": "2026-03-02T12:00:00Z", "log": LOG}
        for claim in claims:
            outside.renew({**started, "claim": claim})
        began = len(world.meter.calls)
        for claim in claims:
            _call(outside, name, {"claim": claim, "runner_id": "r"})
        units = spent_in(world, world.meter.calls[began:])
    return Counted(CLAIM_CALLS[name], priced_lines(units, COUNTED_CLAIMS, prices()), {})


def _call(outside: OutsideExecutor, name: str, held: dict[str, object]) -> None:
    match name:
        case "renewal":
            outside.renew(held)
        case "logging renewal":
            outside.renew({**held, "log": LOG, "log_offset": len(LOG)})
        case "finish":
            outside.finish({**held, "status": "SUCCESS"})
        case "full finish":
            log = {"log": LOG, "log_offset": len(LOG)}
            outside.finish({**held, "status": "SUCCESS", "output": OUTPUT, **log})
        case "upload":
            body = {"claim": held["claim"], "size": 1, "content_type": "text/csv"}
            assert outside.post("/claims/upload", body).status == 200
