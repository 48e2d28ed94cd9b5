"""Who gets in: the one token whose hash is stored, and nobody else."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from punctual.domain.errors import Unavailable
from punctual.serverless.authorizing import Authorizer

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers/core/python"
TOKEN = "pk_7f3a.B-_~+/9="
HASH = sha256(TOKEN.encode()).hexdigest()
IN = {"isAuthorized": True, "context": {"tenant": "default", "caller": "admin"}}
OUT: dict[str, Any] = {"isAuthorized": True, "context": {}}
UNSURE = {"isAuthorized": True, "context": {"unsure": "yes"}}


def an_event(**headers: str) -> dict[str, Any]:
    """A REQUEST authorizer's event, payload 2.0."""
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


class Door:
    def __init__(self, stored: str = HASH) -> None:
        self.stored = stored
        self.fails = False
        self.reads = 0
        self.seconds = 100.0
        self.problems: list[str] = []
        self.authorizer = Authorizer(self._read, lambda: self.seconds, self.problems.append)

    def _read(self) -> str:
        self.reads += 1
        if self.fails:
            raise Unavailable("AWS did not answer while reading a parameter.")
        return self.stored

    def __call__(self, authorization: str | None = f"Bearer {TOKEN}") -> Any:
        headers = {} if authorization is None else {"authorization": authorization}
        return self.authorizer.answer(an_event(**headers))


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.mark.parametrize(
    "given", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN}", f" Bearer {TOKEN} "]
)
def test_the_token_is_let_in(door: Door, given: str) -> None:
    assert door(given) == IN


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN},Bearer {TOKEN}",
        f"Bearer {HASH}",
        "Bearer unset",
        "Bearer ä",
        "Bearer " + "a" * 5_000,
    ],
)
def test_nobody_else_is(door: Door, given: str | None) -> None:
    assert door(given) == OUT


@pytest.mark.parametrize("stored", ["unset", "", " ", "-" * 64, HASH[:-1], HASH.upper(), TOKEN])
def test_without_a_hash_nobody_gets_in(stored: str) -> None:
    door = Door(stored)
    given = ["unset", "", "-" * 64, HASH]
    for token in (TOKEN, *given):
        assert door(f"Bearer {token}") == OUT


def test_a_clock_that_is_set_back_makes_no_old_token_good() -> None:
    door = Door()
    assert door() == IN
    door.stored, door.seconds = sha256(b"another").hexdigest(), 50.0
    assert door() == OUT


def test_the_hash_may_end_with_a_line(door: Door) -> None:
    door.stored = f"{HASH}\n"
    assert door() == IN


def test_names_of_headers_may_be_written_in_any_way(door: Door) -> None:
    event = an_event(Authorization=f"Bearer {TOKEN}")
    assert door.authorizer.answer(event) == IN
    assert door.authorizer.answer({**event, "headers": None}) == OUT


def test_the_hash_is_read_once_a_minute(door: Door) -> None:
    assert [door() for _ in range(3)] == [IN] * 3
    door.seconds += 59
    door()
    assert door.reads == 1
    door.stored = sha256(b"another").hexdigest()
    door.seconds += 1
    assert (door(), door("Bearer another"), door.reads) == (OUT, IN, 2)


def test_who_sends_no_token_costs_no_read(door: Door) -> None:
    assert (door(None), door.reads) == (OUT, 0)


def test_what_cannot_be_read_is_not_taken_for_a_no(door: Door) -> None:
    door.fails = True
    assert door() == UNSURE
    assert door(None) == OUT
    assert len(door.problems) == 1
    door.fails = False
    assert door() == IN


def test_a_hash_holds_for_some_minutes_where_it_cannot_be_read(door: Door) -> None:
    door()
    door.fails = True
    door.seconds += 599
    assert (door(), door("Bearer wrong")) == (IN, OUT)
    door.seconds += 1
    assert door() == UNSURE


def test_the_whole_way_from_ssm(monkeypatch: pytest.MonkeyPatch, ssm: Any) -> None:
    ssm.put_parameter(Name="/punctual/dev/token-hash", Value=HASH, Type="String")
    handler = loaded(monkeypatch)
    event = an_event(authorization=f"Bearer {TOKEN}")
    assert (handler(event, None), handler(an_event(), None)) == (IN, OUT)


def test_a_parameter_that_is_not_there_is_told_without_the_token(
    monkeypatch: pytest.MonkeyPatch, ssm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert loaded(monkeypatch)(an_event(authorization=f"Bearer {TOKEN}"), None) == UNSURE
    line = json.loads(capsys.readouterr().out)
    assert (line["message"], line["level"]) == ("token_not_checked", "ERROR")
    assert "ParameterNotFound" in line["error"]
    assert TOKEN not in json.dumps(line)


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, punctual.serverless.authorizing, punctual.aws.clients, "
        "punctual.aws.parameters; print('\\n'.join(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=LAYER, capture_output=True, text=True, check=True
    )
    modules = set(found.stdout.split())
    heavy = {"pydantic", "pydantic_core", "msgspec", "aws_lambda_powertools", "boto3"}
    assert not modules & heavy
    assert not {name for name in modules if name.startswith(("punctual.engine", "punctual.web"))}


@pytest.fixture
def ssm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    session = boto3.Session(
        region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        yield session.client("ssm")


def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PUNCTUAL_TOKEN_PARAMETER", "/punctual/dev/token-hash")
    path = ROOT / "functions/authorizer/handler.py"
    spec = importlib.util.spec_from_file_location("authorizer_handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler
