"""Measure what clients that follow the change feed cost the runs of a node."""

import asyncio
import re
from contextlib import suppress
from typing import NamedTuple

from bench.client import Client, request
from bench.running import RunningNode
from bench.scenarios import Figure, LatenessResult, measure_steady

FOLLOWERS = 50
FOLLOWED_RATE = 200  # runs a second
_CURSOR = re.compile(rb'"next_cursor":"([A-Za-z0-9_-]+)"')
_ENTRY = b'"state_version":'


class Followed(NamedTuple):
    """What all followers received."""

    answers: int
    entries: int
    megabytes: float


async def follow(port: int, received: list[Followed]) -> None:
    """Follow the feed until the task is cancelled. Only the cursor of an answer is read."""
    client = await Client(port).connect()
    cursor = ""
    try:
        while True:
            query = f"?after={cursor}&wait_seconds=20" if cursor else ""
            status, body = await client.send(request("GET", f"/changes{query}"))
            assert status == 200, body
            match = _CURSOR.search(body)
            assert match is not None
            cursor = match[1].decode()
            received.append(Followed(1, body.count(_ENTRY), len(body) / 1_000_000))
    finally:
        client.close()


async def measure_followed(
    node: RunningNode, seconds: int, followers: int
) -> tuple[LatenessResult, Followed]:
    received: list[Followed] = []
    tasks = [asyncio.create_task(follow(node.port, received)) for _ in range(followers)]
    try:
        lateness = await measure_steady(node, FOLLOWED_RATE, seconds)
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
    sums = [sum(column) for column in zip(*received, strict=True)] or [0, 0, 0.0]
    return lateness, Followed(int(sums[0]), int(sums[1]), sums[2])


async def follower_figures(node: RunningNode, seconds: int, rounds: int = 3) -> list[Figure]:
    """Compare the lateness with and without followers, in turn, by the best round of each."""
    alone, followed = [], []
    total = Followed(0, 0, 0.0)
    for _ in range(rounds):
        alone.append((await measure_followed(node, seconds, 0))[0])
        result, total = await measure_followed(node, seconds, FOLLOWERS)
        followed.append(result)
    before = min(result.quantile(0.99) for result in alone)
    after = min(result.quantile(0.99) for result in followed)
    return [
        Figure(f"{FOLLOWED_RATE}/s alone: lateness p99", f"{before:.2f} ms", "-"),
        Figure(
            f"{FOLLOWED_RATE}/s, {FOLLOWERS} followers: lateness p99",
            f"{after:.2f} ms, {(after / before - 1) * 100:+.0f} %",
            "at most +20 %",
        ),
        Figure(
            "followers: answers, entries, MB in the last round",
            f"{total.answers:,}, {total.entries:,}, {total.megabytes:,.0f}",
            "-",
        ),
    ]
