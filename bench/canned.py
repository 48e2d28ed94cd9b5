"""A local endpoint with canned answers of DynamoDB and SQS.

It runs as a process of its own, so the measured CPU time is the caller's alone.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]


class Canned:
    """Canned answers.

    `rows` are the job states by sort key, and `timers` the result of one query.
    """

    def __init__(self, rows: Mapping[str, Any], timers: list[Any]) -> None:
        self._rows = rows
        self._timers = timers
        self.calls: dict[str, int] = {}
        self._answers: Mapping[str, Callable[[Values], Any]] = {
            "BatchGetItem": self._read,
            "BatchWriteItem": lambda _: {"UnprocessedItems": {}},
            "Query": self._query,
            "SendMessageBatch": _sent,
            "UpdateItem": lambda _: {},
            "PutItem": lambda _: {},
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
                if fields.get("expect") == "100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                answer = self._answer(fields["x-amz-target"].rsplit(".", 1)[-1], body)
                kind = fields["content-type"]
                writer.write(
                    f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n"
                    f"content-length: {len(answer)}\r\n\r\n".encode()
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, operation: str, body: bytes) -> bytes:
        (name,) = [one for one in self._answers if one.lower() == operation] or [""]
        if operation == "counted":
            return json.dumps(self.calls).encode()
        self.calls[name] = self.calls.get(name, 0) + 1
        return json.dumps(self._answers[name](json.loads(body))).encode()

    def _read(self, asked: Values) -> Any:
        ((table, wanted),) = asked["RequestItems"].items()
        found = [
            self._rows[key["sk"]["S"]] for key in wanted["Keys"] if key["sk"]["S"] in self._rows
        ]
        return {"Responses": {table: found}, "UnprocessedKeys": {}}

    def _query(self, asked: Values) -> Any:
        if "ExclusiveStartKey" in asked or ":low" in asked["ExpressionAttributeValues"]:
            return {"Items": [], "Count": 0}
        return {"Items": self._timers, "Count": len(self._timers)}


def _sent(asked: Values) -> Any:
    return {
        "Successful": [
            {"Id": one["Id"], "MessageId": "m", "MD5OfMessageBody": ""} for one in asked["Entries"]
        ]
    }


async def _serve(canned: Canned, ready: Callable[[int], None]) -> None:
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0, limit=2**22)
    ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def serve(rows: Mapping[str, Any], timers: list[Any], ready: Callable[[int], None]) -> None:
    asyncio.run(_serve(Canned(rows, timers), ready))
