"""Counts what one call on artifacts costs on AWS."""

from functools import cache
from hashlib import sha256
from typing import Any

import requests

from bench.cost.accounts import priced_lines
from bench.cost.prices import prices
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import Counted, open_api, spent_in
from tests.support.deployed.world import a_world

COUNTED_ARTIFACTS = 10
ARTIFACT_CALLS = {
    "creation": "`POST /artifacts` of new content",
    "repetition": "`POST /artifacts` of stored content",
    "reading": "`GET /artifacts/{artifact_id}`",
    "list": "`GET /artifacts` with 10 artifacts",
    "deletion": "`DELETE /artifacts/{artifact_id}`",
}


@cache
def artifact_call_cost(name: str) -> Counted:
    """Return the units of one call. Its artifact is stored, except for the call that creates it."""
    with a_world() as world:
        api = open_api(world)
        world.ticks = False
        contents = [b"print(%d)" % number for number in range(COUNTED_ARTIFACTS)]
        ids = [] if name == "creation" else [_store(api, content) for content in contents]
        began = len(world.meter.calls)
        for number, content in enumerate(contents):
            match name:
                case "creation" | "repetition":
                    _create(api, content)
                case "reading":
                    assert api.get(f"/artifacts/{ids[number]}").status == 200
                case "list":
                    assert len(api.get("/artifacts").json["artifacts"]) == COUNTED_ARTIFACTS
                case "deletion":
                    assert api.call("DELETE", f"/artifacts/{ids[number]}").status == 200
        units = spent_in(world, world.meter.calls[began:])
    return Counted(ARTIFACT_CALLS[name], priced_lines(units, COUNTED_ARTIFACTS, prices()), {})


def _create(api: Gateway, content: bytes) -> Any:
    fields = {"sha256": sha256(content).hexdigest(), "size": len(content), "name": "main.py"}
    return api.post("/artifacts", fields).json


def _store(api: Gateway, content: bytes) -> str:
    created = _create(api, content)
    headers = created["upload_headers"]
    requests.put(created["upload_url"], data=content, headers=headers, timeout=5).raise_for_status()
    return str(_create(api, content)["artifact_id"])
