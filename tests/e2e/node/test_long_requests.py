"""A node answers other calls during an expensive one."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.client import Client
from bench.running import RunningNode
from tests.support.names.own_names import own_name

BATCHES = 4
MAX_SECONDS = 60.0


def costly_jobs() -> list[dict[str, Any]]:
    """Return jobs for each second of each Monday, with 366 excluded Mondays to skip."""
    today = datetime.now(UTC).date()
    monday = today + timedelta(days=21 - today.weekday())
    return [
        {
            "name": own_name(str(number)),
            "schedule_type": "CRON",
            "cron_expression": "* * * * * MON",
            "exclude": [f"{monday + timedelta(days=7 * n)}" for n in range(366)],
            "max_runs": 1_000_000,
        }
        for number in range(500)
    ]


def test_cheap_call_is_answered_during_an_expensive_one(node: RunningNode) -> None:
    async def play() -> tuple[int, Any, int]:
        expensive, cheap = await Client(node.port).connect(), await Client(node.port).connect()
        try:
            for _ in range(BATCHES):
                status, _ = await expensive.call("POST", "/jobs/batch", {"jobs": costly_jobs()})
                assert status == 207
            start = datetime.now(UTC) + timedelta(days=28)
            path = f"/schedules/upcoming?from={start:%Y-%m-%dT%H:%M:%SZ}"
            long = asyncio.create_task(expensive.call("GET", path))
            answered = 0
            async with asyncio.timeout(MAX_SECONDS):
                while not long.done():
                    status, _ = await cheap.call("GET", "/health")
                    assert status == 200
                    answered += 1
            return *await long, answered
        finally:
            expensive.close()
            cheap.close()

    status, body, count = asyncio.run(play())
    assert (status, body["code"]) == (422, "TOO_MUCH_WORK")
    assert count >= 20  # two seconds of work are 100 slices
