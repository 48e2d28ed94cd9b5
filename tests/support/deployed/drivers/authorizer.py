"""The authorizer function of a deployment, and the token calls of an admin."""

import importlib.util
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from punctual.auth.authenticator import admin_hash
from punctual.aws.dynamodb.control.tokens import DynamoTokens
from punctual.aws.ports import build_dynamo_client
from punctual.aws.retries import RetryPolicy
from punctual.domain.tenants.roles import Role
from punctual.domain.tenants.tokens import make_secret
from punctual.engine.commands.tokens import Tokens
from punctual.lambdas.authorizer.authenticator import build_authenticator
from punctual.lambdas.authorizer.handler import Authorizer
from tests.support.aws.moto_adapter import Moto
from tests.support.builders import an_id
from tests.support.deployed.drivers.direct import Direct
from tests.support.deployed.world import a_world

ROOT = Path(__file__).parents[4]
LAYER = ROOT / "layers/core/python"
KEY = bytes(range(32))
TOKEN = make_secret(KEY, b"r" * 32)
PLAIN = sha256(TOKEN.encode()).hexdigest()
ADMIN = {"tenant": "default", "caller": "admin", "role": "admin"}
IN = {"isAuthorized": True, "context": ADMIN}
OUT: dict[str, Any] = {"isAuthorized": True, "context": {}}
UNSURE = {"isAuthorized": True, "context": {"unsure": "yes"}}
KNOBS = "/punctual/dev/"


def an_event(**headers: str) -> dict[str, Any]:
    """Return the event of a REQUEST authorizer, payload 2.0."""
    return {
        "version": "2.0",
        "type": "REQUEST",
        "routeArn": "arn:aws:execute-api:eu-central-1:123456789012:x/v1/GET/jobs",
        "identitySource": None,
        "routeKey": "GET /jobs",
        "rawPath": "/v1/jobs",
        "rawQueryString": "",
        "headers": {"host": "x", **headers},
        "requestContext": {"stage": "v1", "http": {"method": "GET", "path": "/v1/jobs"}},
    }


class AuthorizerDriver:
    """The authorizer of a deployment, and the token calls of an admin."""

    def __init__(self, direct: Direct) -> None:
        store = self.store = direct.aws
        self.world = direct.world
        clock = self.clock = direct.clock
        self.problems: list[str] = []
        self.numbers = iter(range(1, 1_000))
        rows = DynamoTokens(build_dynamo_client(store.clients), store.settings.control_table)
        self.tokens = Tokens(
            rows,
            lambda: KEY,
            clock,
            lambda: an_id(next(self.numbers)),
            self._random,
            "default",
            store.ports.audit_log,
        )
        self.put("token-key", b64encode(KEY).decode(), "SecureString")
        self.put("token-hash", admin_hash(KEY, TOKEN))
        self.renew()

    def renew(self) -> None:
        """Start a new environment with empty caches."""
        env = {
            "PUNCTUAL_KNOBS": KNOBS,
            "PUNCTUAL_CONTROL_TABLE": self.store.settings.control_table,
        }
        patience = RetryPolicy(lambda _: None, "test", tries=1)
        door = build_authenticator(
            env, self.store.clients, self._seconds, patience, self.problems.append
        )
        self.authorizer = Authorizer(door, self.problems.append)

    def _seconds(self) -> float:
        return self.clock().timestamp()

    def _id(self) -> str:
        return an_id(next(self.numbers))

    def _random(self, size: int) -> bytes:
        return next(self.numbers).to_bytes(size, "big")

    def put(self, name: str, value: str, kind: str = "String") -> None:
        self.store.clients.ssm.put_parameter(
            Name=KNOBS + name, Value=value, Type=kind, Overwrite=True
        )

    def drop(self, name: str) -> None:
        self.store.clients.ssm.delete_parameter(Name=KNOBS + name)

    def __call__(self, token: str | None = TOKEN, scheme: str = "Bearer ") -> Any:
        headers = {} if token is None else {"authorization": f"{scheme}{token}"}
        return self.authorize(an_event(**headers))

    def authorize(self, event: dict[str, Any]) -> Any:
        """Invoke the authorizer, with the rights of its function."""
        with self.world.meter.as_role(self.world.name("authorizer")):
            return self.authorizer.authorize(event)

    def make(self, tenant: str = "acme", role: Role = Role.EDITOR, **more: Any) -> tuple[str, str]:
        token, text = self.tokens.create(tenant, "ci", role, more.get("until"), "me")
        return token.token_id, text


@contextmanager
def an_authorizer() -> Iterator[AuthorizerDriver]:
    with a_world() as world:
        yield AuthorizerDriver(Direct(world))


def away(**_: Any) -> Any:
    from botocore.exceptions import EndpointConnectionError

    raise EndpointConnectionError(endpoint_url="https://x.invalid")


def loaded(monkeypatch: pytest.MonkeyPatch, store: Moto) -> Any:
    clients = store.clients
    monkeypatch.setenv("PUNCTUAL_KNOBS", KNOBS)
    monkeypatch.setenv("PUNCTUAL_CONTROL_TABLE", store.settings.control_table)
    monkeypatch.setattr("punctual.aws.clients.Clients", lambda: clients)
    path = ROOT / "functions/authorizer/handler.py"
    spec = importlib.util.spec_from_file_location("authorizer_handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler
