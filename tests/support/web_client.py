"""Call the ASGI application of the node without a socket."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from punctual.engine.ports.quotas import LimitsOf, Quotas
from punctual.engine.quotas.limits import unlimited
from punctual.node.http.application import Application, build_application, node_services
from punctual.node.http.parsing import API_ROOT
from tests.support import openapi_answers
from tests.support.web_world import WebWorld

Scope = dict[str, Any]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def fields(self) -> dict[str, str]:
        """Return the wrong fields that an error names."""
        return {error["field"]: error["message"] for error in self.json["errors"]}


class ApplicationClient:
    """A client of `application`. The `chunks` of a body arrive as from a socket.

    `peer` is the address that the requests come from.
    """

    def __init__(self, peer: tuple[str, int] | None = None) -> None:
        self.logged: list[dict[str, Any]] = []
        self._peer = peer

    @cached_property
    def application(self) -> Application:
        """Return the application. It is built for the first request."""
        raise NotImplementedError

    def log(self, event: str, /, **fields: Any) -> None:
        self.logged.append({"event": event, **fields})

    def get(self, target: str, **headers: str) -> Answer:
        return self.call("GET", target, headers=headers)

    def post(self, target: str, value: Any = None, **headers: str) -> Answer:
        return self.call("POST", target, _json(value), headers)

    def call(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Iterable[tuple[bytes, bytes]] = (),
    ) -> Answer:
        sent = {"host": "127.0.0.1:8080"}
        if body is not None:
            sent |= {"content-type": "application/json", "content-length": str(len(body))}
        sent |= {name.replace("_", "-"): text for name, text in (headers or {}).items()}
        pairs = [(name.encode(), text.encode("latin-1")) for name, text in sent.items() if text]
        return self.raw(method, target, [*pairs, *extra], [body or b""])

    def raw(
        self,
        method: str,
        target: str,
        headers: list[tuple[bytes, bytes]],
        chunks: list[bytes],
    ) -> Answer:
        path, _, query = target.partition("?")
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "headers": headers,
        }
        if self._peer is not None:
            scope["client"] = self._peer
        return asyncio.run(self._call(scope, list(chunks)))

    async def _call(self, scope: Scope, chunks: list[bytes]) -> Answer:
        sent_body = b"".join(chunks)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not chunks:
                return {"type": "http.disconnect"}
            chunk = chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        start, *bodies = sent
        headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        body = b"".join(message["body"] for message in bodies)
        assert headers["content-length"] == str(len(body))
        if scope["path"].startswith(f"{API_ROOT}/"):
            path = scope["path"].removeprefix(API_ROOT)
            openapi_answers.check(scope["method"], path, start["status"], headers, body)
            openapi_answers.check_sent(scope["method"], path, start["status"], sent_body)
        return Answer(start["status"], headers, body)


class Client(ApplicationClient):
    """A client of a node's application over a web world."""

    def __init__(
        self,
        world: WebWorld | None = None,
        quotas: Quotas | None = None,
        limits_of: LimitsOf = unlimited,
    ) -> None:
        super().__init__()
        self.world = world or WebWorld()
        self.turn_error: Exception | None = None
        self._quotas = quotas
        self._limits_of = limits_of

    @cached_property
    def application(self) -> Application:
        return build_application(
            node_services(
                self.world.jobs,
                self.world.search,
                self.world.tokens,
                clock=self.world.clock,
                quotas=self._quotas,
                limits_of=self._limits_of,
                artifacts=self.world.artifacts,
            ),
            self._turn,
            self.log,
            log_access=self.log,
        )

    async def _turn(self, request: Callable[[], Any]) -> Any:
        if self.turn_error is not None:
            raise self.turn_error
        return request()


def _json(value: Any) -> bytes | None:
    return None if value is None else msgspec.json.encode(value)
