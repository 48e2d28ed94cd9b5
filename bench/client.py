"""A plain HTTP client, light enough not to be what is measured."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any


class Client:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def send(self, request: bytes) -> tuple[int, bytes]:
        assert self._reader is not None
        assert self._writer is not None
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        lowered = head.lower()
        at = lowered.find(b"content-length:")
        length = int(lowered[at + 15 : lowered.index(b"\r\n", at)]) if at >= 0 else 0
        return status, await self._reader.readexactly(length)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, data = await self.send(request(method, path, body))
        return status, json.loads(data) if data else None


def request(method: str, path: str, body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    kind = b"Content-Type: application/json\r\n" if data else b""
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + kind + b"\r\n" + data


async def rate(port: int, requests: Sequence[bytes], clients: int, good: int) -> float:
    """Requests a second, over so many connections; each must be answered with `good`."""
    connections = [await Client(port).connect() for _ in range(clients)]
    todo = iter(requests)

    async def work(client: Client) -> None:
        for one in todo:
            status, data = await client.send(one)
            if status != good:
                raise RuntimeError(f"{status}: {data[:300]!r}")

    began = time.perf_counter()
    await asyncio.gather(*(work(client) for client in connections))
    took = time.perf_counter() - began
    for client in connections:
        client.close()
    return len(requests) / took
