"""A local endpoint with canned answers of DynamoDB and SQS.

It runs as a process of its own, so the measured CPU time is the caller's alone.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]


class CannedAws:
    """Canned answers.

    `rows` are the job states by sort key, and `timers` the result of one query.
    """

    def __init__(self, rows: Mapping[str, Any], timers: list[Any]) -> None:
        self._rows = rows
        self._timers = timers
        self.calls: dict[str, int] = {}
        self._answers: Mapping[str, Callable[[Values], Any]] = {
            "BatchGetItem": self._batch_get,
            "BatchWriteItem": lambda _: {"UnprocessedItems": {}},
            "Query": self._query,
            "SendMessageBatch": _accept_messages,
            "UpdateItem": lambda _: {},
            "PutItem": lambda _: {},
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request_head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                headers = dict(
                    line.split(": ", 1) for line in request_head.splitlines()[1:] if ": " in line
                )
                if headers.get("expect") == "100-continue":
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                answer = self._answer(headers["x-amz-target"].rsplit(".", 1)[-1], body)
                content_type = headers["content-type"]
                writer.write(
                    f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n"
                    f"content-length: {len(answer)}\r\n\r\n".encode()
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, operation: str, body: bytes) -> bytes:
        (name,) = [
            known_name for known_name in self._answers if known_name.lower() == operation
        ] or [""]
        if operation == "counted":
            return json.dumps(self.calls).encode()
        self.calls[name] = self.calls.get(name, 0) + 1
        return json.dumps(self._answers[name](json.loads(body))).encode()

    def _batch_get(self, request: Values) -> Any:
        ((table, keys_and_options),) = request["RequestItems"].items()
        items = [
            self._rows[name]
            for key in keys_and_options["Keys"]
            if (name := f"{key['pk']['S']} {key['sk']['S']}") in self._rows
        ]
        return {"Responses": {table: items}, "UnprocessedKeys": {}}

    def _query(self, request: Values) -> Any:
        if "ExclusiveStartKey" in request or ":low" in request["ExpressionAttributeValues"]:
            return {"Items": [], "Count": 0}
        return {"Items": self._timers, "Count": len(self._timers)}


def _accept_messages(request: Values) -> Any:
    return {
        "Successful": [
            {"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": ""}
            for entry in request["Entries"]
        ]
    }


async def _serve_until_killed(canned: CannedAws, ready: Callable[[int], None]) -> None:
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0, limit=2**22)
    ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def serve(rows: Mapping[str, Any], timers: list[Any], ready: Callable[[int], None]) -> None:
    asyncio.run(_serve_until_killed(CannedAws(rows, timers), ready))
