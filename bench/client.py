"""A plain HTTP client, light enough not to distort the measurement."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, cast


class _Answers(asyncio.Protocol):
    """Reads one answer at a time, its status and its body by Content-Length."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read = bytearray()
        self._begins = 0  # offset of the body; 0 until the headers are complete
        self._whole = 0
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        if self.transport is None:
            raise ConnectionResetError("the node hung up")
        assert self._answer is None, "one request at a time"
        answer = self._answer = self._loop.create_future()
        self.transport.write(request)
        return answer

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self._begins:
            self._read_head()
        if self._begins and len(self._read) >= self._whole and self._answer is not None:
            answer, self._answer = self._answer, None
            status, body = int(self._read[9:12]), bytes(self._read[self._begins : self._whole])
            del self._read[: self._whole]
            self._begins = 0
            answer.set_result((status, body))

    def _read_head(self) -> None:
        end = self._read.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = self._read[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 : head.index(b"\r\n", at)]) if at >= 0 else 0
        self._begins, self._whole = end, end + length

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.set_exception(error or ConnectionResetError("the node hung up"))


class Client:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answers: _Answers | None = None

    async def connect(self) -> "Client":
        loop = asyncio.get_running_loop()
        _, self._answers = await loop.create_connection(_Answers, "127.0.0.1", self._port)
        return self

    def close(self) -> None:
        if self._answers is not None and self._answers.transport is not None:
            self._answers.transport.close()

    async def send(self, request: bytes) -> tuple[int, bytes]:
        assert self._answers is not None
        return await self._answers.ask(request)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, data = await self.send(request(method, path, body))
        return status, json.loads(data) if data else None


def request(method: str, path: str, body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    kind = b"Content-Type: application/json\r\n" if data else b""
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + kind + b"\r\n" + data


async def rate(port: int, requests: Sequence[bytes], clients: int, good: int) -> float:
    """Return requests per second over `clients` connections.

    Each answer must have status `good`.
    """
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
