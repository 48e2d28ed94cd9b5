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


def eventually(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


def refusal(folder: Path, port: int = 0, env: Mapping[str, str] | None = None) -> str:
    """Return the one line with which a node refuses to start."""
    settings = {"PUNCTUAL_PORT": str(port), "PUNCTUAL_DATA": str(folder)}
    process = subprocess.run(
        [sys.executable, "-m", "punctual.node"],
        env={**os.environ, **settings, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert process.returncode == 1
    assert process.stdout == ""
    assert len(process.stderr.splitlines()) == 1
    return process.stderr
