"""A plain HTTP client, light enough not to distort the measurement."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, cast


class _AnswerReader(asyncio.Protocol):
    """Reads one answer at a time, its status and its body by Content-Length."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._body_start = 0  # offset of the body; 0 until the headers are complete
        self._answer_end = 0
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        if self.transport is None:
            raise ConnectionResetError("the node closed the connection")
        assert self._answer is None, "a request is still open"
        answer = self._answer = self._loop.create_future()
        self.transport.write(request)
        return answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._body_start:
            self._parse_head()
        if (
            self._body_start
            and len(self._received) >= self._answer_end
            and self._answer is not None
        ):
            answer, self._answer = self._answer, None
            status, body = (
                int(self._received[9:12]),
                bytes(self._received[self._body_start : self._answer_end]),
            )
            del self._received[: self._answer_end]
            self._body_start = 0
            if not answer.cancelled():
                answer.set_result((status, body))

    def _parse_head(self) -> None:
        head_end = self._received.find(b"\r\n\r\n") + 4
        if head_end < 4:
            return
        head = self._received[:head_end].lower()
        length_at = head.find(b"content-length:")
        length = int(head[length_at + 15 : head.index(b"\r\n", length_at)]) if length_at >= 0 else 0
        self._body_start, self._answer_end = head_end, head_end + length

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._answer is not None:
            answer, self._answer = self._answer, None
            if answer.cancelled():
                return
            answer.set_exception(error or ConnectionResetError("the node closed the connection"))


class Client:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: _AnswerReader | None = None

    async def connect(self) -> "Client":
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_connection(_AnswerReader, "127.0.0.1", self._port)
        return self

    def close(self) -> None:
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.close()

    async def send(self, request: bytes) -> tuple[int, bytes]:
        assert self._connection is not None
        return await self._connection.send(request)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, data = await self.send(request(method, path, body))
        return status, json.loads(data) if data else None


def request(method: str, path: str, body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    content_type = b"Content-Type: application/json\r\n" if data else b""
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + content_type + b"\r\n" + data


async def measure_rate(
    port: int, requests: Sequence[bytes], clients: int, expected_status: int
) -> float:
    """Return requests per second over `clients` connections.

    Each answer must have status `expected_status`.
    """
    connections = [await Client(port).connect() for _ in range(clients)]
    remaining_requests = iter(requests)

    async def work(client: Client) -> None:
        for request_bytes in remaining_requests:
            status, data = await client.send(request_bytes)
            if status != expected_status:
                raise RuntimeError(f"{status}: {data[:300]!r}")

    started_at = time.perf_counter()
    await asyncio.gather(*(work(client) for client in connections))
    seconds = time.perf_counter() - started_at
    for client in connections:
        client.close()
    return len(requests) / seconds
