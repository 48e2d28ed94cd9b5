"""Installations that require tokens: a node, and the deployed API with its authorizer."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from punctual.auth.authenticator import TokenAuthenticator, TokenSecrets
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.engine.commands.failures import FailureCommands
from punctual.engine.commands.secrets import Secrets
from punctual.lambdas.status.handler import build_handler
from punctual.node.http.application import Application, build_application, node_services
from punctual.node.http.authentication import Issuer, NodeAuthenticator
from punctual.web.contract import READ_FUNCTION
from tests.integration.web.test_http_engine import NodeClient
from tests.support.aws.gateway_server import TOKEN, Gateway
from tests.support.aws.stream_records import Stream
from tests.support.deployed.drivers.api import an_api
from tests.support.web_client import Answer

PEER = ("127.0.0.9", 50_000)


async def at_once(work: Callable[[], Any], /) -> Any:
    return work()


class GuardedNode(NodeClient):
    """A node with `PUNCTUAL_AUTH=on`. `admin` is the token that its first start prints."""

    def __init__(self, folder: Path, issuer: Issuer | None = None) -> None:
        super().__init__(folder, PEER)
        self.is_key_unreadable = False
        self._issuer = issuer
        _, self.admin = self.tokens.create("local", "first", Role.ADMIN, None, "punctual")

    @cached_property
    def application(self) -> Application:
        token_authenticator = TokenAuthenticator(
            self._secrets,
            self.store.tokens,
            self.clock,
            self.clock.monotonic,
            lambda error: self.log("token_use_not_noted", error=error),
            cache_seconds=0,
        )
        authenticator = NodeAuthenticator(token_authenticator, self._issuer, at_once, self.log)
        return build_application(
            node_services(
                self.node.jobs,
                self.node.search,
                self.tokens,
                clock=self.clock,
                secrets=Secrets(self.store.secrets, self.store.audit),
                artifacts=self.node.artifacts,
                operations=self.node.operations,
                failures=FailureCommands(
                    self.store.failures, self.store.job_states, self.store.audit
                ),
            ),
            self.perform,
            self.log,
            authenticator=authenticator,
        )

    def _secrets(self) -> TokenSecrets:
        if self.is_key_unreadable:
            raise Unavailable("The key cannot be read.")
        return TokenSecrets(self.key.read())


class Installation(NamedTuple):
    """`ask` takes a token, a method, a path below the root, a body and headers."""

    ask: Callable[..., Answer]
    admin: str  # an admin's token in the tenant `home`
    home: str
    wait: Callable[[float], None]

    def token(self, tenant: str, role: str = "admin", name: str = "ci") -> Any:
        body = {"name": name, "role": role, "tenant": tenant}
        answer = self.ask(self.admin, "POST", "/tokens", body)
        assert answer.status == 201, answer.body
        return answer.json


@contextmanager
def a_guarded_node(folder: Path) -> Iterator[Installation]:
    node = GuardedNode(folder)

    def ask(token: str, method: str, path: str, value: Any = None, **headers: str) -> Answer:
        body = None if value is None else json.dumps(value).encode()
        request_headers = {"authorization": f"Bearer {token}", **headers}
        return node.call(method, f"/v1{path}", body, request_headers)

    def wait(seconds: float) -> None:
        node.until(node.clock.now + timedelta(seconds=seconds))

    try:
        yield Installation(ask, node.admin, "local", wait)
    finally:
        node.close()


@contextmanager
def a_guarded_deployment(_folder: Path) -> Iterator[Installation]:
    with an_api() as api:
        gateway = Gateway(api)
        stream, status = Stream(api.store), build_handler(api.runtimes[READ_FUNCTION])

        def ask(token: str, method: str, path: str, value: Any = None, **headers: str) -> Answer:
            body = b"" if value is None else json.dumps(value).encode()
            request_headers: Mapping[str, str] = {
                "authorization": f"Bearer {token}",
                **({"content-type": "application/json"} if body else {}),
                **{name.replace("_", "-"): text for name, text in headers.items()},
            }
            answer = gateway.answer(method, f"/v1{path}", dict(request_headers), body)
            if method != "GET" and (records := stream.catch()):
                assert status.handle(records) == []  # lists follow the stream
            return Answer(answer.status, answer.headers, answer.body)

        def wait(seconds: float) -> None:
            api.clock.advance(timedelta(seconds=seconds))

        yield Installation(ask, TOKEN, "default", wait)
