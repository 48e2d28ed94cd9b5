"""The authorizer's handler: its answers, logs and imports."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.deployed.drivers.authorizer import (
    IN,
    KNOBS,
    LAYER,
    OUT,
    TOKEN,
    UNSURE,
    AuthorizerDriver,
    an_authorizer,
    an_event,
    away,
    loaded,
)


@pytest.fixture
def entrance() -> Iterator[AuthorizerDriver]:
    with an_authorizer() as entrance:
        yield entrance


def test_authorizer_handler_accepts_and_refuses_tokens(
    entrance: AuthorizerDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = loaded(monkeypatch, entrance.store)
    event = an_event(authorization=f"Bearer {TOKEN}")
    assert (handler(event, None), handler(an_event(), None)) == (IN, OUT)
    entrance.drop("token-hash")
    handler = loaded(monkeypatch, entrance.store)
    assert handler(event, None) == UNSURE
    line = json.loads(capsys.readouterr().out)
    assert (line["message"], line["level"]) == ("token_not_checked", "ERROR")
    assert f"{KNOBS}token-hash" in line["error"]
    assert TOKEN not in json.dumps(line)


def test_failed_write_of_the_last_use_is_logged(
    entrance: AuthorizerDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = entrance.make()
    handler = loaded(monkeypatch, entrance.store)
    monkeypatch.setattr(entrance.store.clients.dynamodb, "update_item", away)
    answer = handler(an_event(authorization=f"Bearer {text}"), None)
    assert answer["context"]["tenant"] == "acme"
    line = json.loads(capsys.readouterr().out)
    assert (line["message"], line["level"]) == ("token_use_not_noted", "ERROR")
    assert text not in json.dumps(line)


def test_authorizer_imports_no_heavy_modules() -> None:
    code = (
        "import sys, punctual.lambdas.authorizer.handler, "
        "punctual.lambdas.authorizer.authenticator, punctual.aws.clients; "
        "print('\\n'.join(sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=LAYER, capture_output=True, text=True, check=True
    )
    modules = set(process.stdout.split())
    heavy = {"pydantic", "pydantic_core", "msgspec", "aws_lambda_powertools", "boto3"}
    assert not modules & {*heavy, "jwt", "cryptography", "http.client.HTTPSConnection"}
    assert not {name for name in modules if name.startswith(("punctual.engine", "punctual.web"))}
