"""Calls of a node process, and waits for their results."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.client import Client
from bench.running import RunningNode


def call(node: RunningNode, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    async def once() -> tuple[int, Any]:
        client = await Client(node.port).connect()
        try:
            return await client.call(method, path, body)
        finally:
            client.close()

    return asyncio.run(once())


def eventually(what: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def refusal(folder: Path, port: int = 0, env: Mapping[str, str] | None = None) -> str:
    """Return the one line with which a node refuses to start."""
    place = {"PUNCTUAL_PORT": str(port), "PUNCTUAL_DATA": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "punctual.node"],
        env={**os.environ, **place, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    return done.stderr
