"""A node with `PUNCTUAL_AUTH=on`: its first token, its key, and an issuer."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from bench.running import RunningNode, run_node
from punctual.node.sqlite.store import Store
from tests.support.node.issuer import AUDIENCE, an_issuer
from tests.support.node.node_calls import refusal

ROOT = Path(__file__).parents[3]
FIRST_TOKEN = re.compile(r"pnc_[\w-]{56}\n")


def first_token(node: RunningNode) -> str:
    """Take the admin token from the file that the start names."""
    path = node.folder / "admin-token"
    assert (
        node.startup_output
        == f"The admin token of the tenant local is in {path}: remove the file.\n"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert FIRST_TOKEN.fullmatch(text)
    path.unlink()
    return text.strip()


def client(node: RunningNode, token: str = "") -> httpx.Client:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    url = f"http://127.0.0.1:{node.port}/v1"
    return httpx.Client(base_url=url, headers=headers, timeout=10, trust_env=False)


def test_contract_holds_with_tokens_required(tmp_path: Path) -> None:
    files = ("test_tokens.py", "test_problems.py")
    with run_node(tmp_path / "data", PUNCTUAL_AUTH="on") as node:
        token = first_token(node)
        url = f"http://127.0.0.1:{node.port}/v1"
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"),
                *(f"tests/e2e/acceptance/access/{name}" for name in files),
            ],
            cwd=ROOT,
            env={**os.environ, "PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout[-4_000:]
    assert "asks for no tokens" not in ran.stdout


def test_only_the_first_start_creates_an_admin_token(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with run_node(folder, PUNCTUAL_AUTH="on") as node:
        token = first_token(node)
        mode = (folder / "token.key").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    stored = b"".join(path.read_bytes() for path in folder.glob("punctual.db*"))
    assert token.encode() not in stored
    with run_node(folder, PUNCTUAL_AUTH="on") as node:
        assert node.startup_output == ""
        with client(node, token) as http:
            assert http.get("/whoami").json()["tenant"] == "local"


def test_start_without_a_valid_admin_token_creates_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with run_node(folder, PUNCTUAL_AUTH="on") as node:
        token = first_token(node)
        with client(node, token) as http:
            token_id = http.get("/whoami").json()["token_id"]
            assert http.delete(f"/tokens/{token_id}").status_code == 200
            assert http.get("/whoami").status_code == 401
    with run_node(folder, PUNCTUAL_AUTH="on") as node:
        other = first_token(node)
        with client(node, other) as http:
            assert http.get("/whoami").json()["token_id"] != token_id


def test_node_without_auth_accepts_all_callers_and_creates_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with run_node(folder) as node, client(node) as http:
        assert node.startup_output == ""
        assert not (folder / "token.key").exists()
        identity = http.get("/whoami").json()
        assert (identity["tenant"], identity["name"], identity["role"]) == (
            "local",
            "local",
            "admin",
        )
        token = http.post("/tokens", json={"name": "ci", "role": "admin"}).json()
        (entry,) = http.get("/audit").json()["entries"]
        assert (entry["caller"], entry["address"]) == ("local", "127.0.0.1")
        assert http.get("/jobs", headers={"authorization": "Bearer wrong"}).status_code == 200
    with run_node(folder, PUNCTUAL_AUTH="on") as node, client(node, token["token"]) as http:
        assert node.startup_output == ""
        assert http.get("/whoami").json()["token_id"] == token["token_id"]


def test_jwt_is_accepted_and_an_unreachable_issuer_returns_503(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    with an_issuer() as issuer:
        trust = {"PUNCTUAL_OIDC_ISSUER": issuer.address, "PUNCTUAL_OIDC_AUDIENCE": AUDIENCE}
        issuer.down = True
        with run_node(tmp_path / "data", PUNCTUAL_AUTH="on", **trust) as node:
            with client(node, issuer.token(now)) as http:
                answer = http.get("/whoami")
                assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
                assert int(answer.headers["retry-after"]) >= 1
            admin_token = first_token(node)
            with client(node, admin_token) as http:
                assert http.get("/whoami").status_code == 200
        issuer.down = False
        with run_node(tmp_path / "other", PUNCTUAL_AUTH="on", **trust) as node:
            with client(node, issuer.token(now, "ES256", role="editor")) as http:
                identity = http.get("/whoami").json()
                assert (identity["tenant"], identity["name"], identity["role"]) == (
                    "acme",
                    "ada",
                    "editor",
                )
                assert identity["token_id"] is None
                job = {"name": "n", "schedule_type": "CRON", "cron_expression": "0 0 1 1 *"}
                response = http.post("/jobs", content=_pieces(job), headers=JSON)
                assert (response.status_code, response.json()["created_by"]) == (202, "ada")
                assert http.get("/tokens").status_code == 403
                auth = http.get("/health").json()["auth"]
                assert auth == {"issuer": issuer.address, "client_id": None}
            with client(node, issuer.token(now, aud="wiki")) as http:
                assert http.get("/whoami").status_code == 401


def test_health_names_the_issuer_without_a_token(tmp_path: Path) -> None:
    with an_issuer() as issuer:
        trust = {"PUNCTUAL_OIDC_ISSUER": issuer.address, "PUNCTUAL_OIDC_AUDIENCE": AUDIENCE}
        login = {**trust, "PUNCTUAL_OIDC_CLIENT_ID": "pages"}
        with run_node(tmp_path / "data", PUNCTUAL_AUTH="on", **login) as node, client(node) as http:
            auth = http.get("/health").json()["auth"]
            assert auth == {"issuer": issuer.address, "client_id": "pages"}


JSON = {"content-type": "application/json"}


def _pieces(value: object) -> Iterator[bytes]:
    """Yield a body in two chunks, which the node reads without its fast path."""
    text = json.dumps(value).encode()
    return iter((text[:10], text[10:]))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"PUNCTUAL_AUTH": "yes"}, "PUNCTUAL_AUTH must be on or off, not 'yes'."),
        (
            {"PUNCTUAL_AUTH": "on", "PUNCTUAL_OIDC_ISSUER": "http://id.example.com"},
            "PUNCTUAL_OIDC_ISSUER must be an https URL without query; PUNCTUAL_OIDC_AUDIENCE",
        ),
        (
            {"PUNCTUAL_OIDC_ISSUER": "https://id.example.com", "PUNCTUAL_OIDC_AUDIENCE": "a"},
            "PUNCTUAL_OIDC_ISSUER needs PUNCTUAL_AUTH=on.",
        ),
    ],
)
def test_contradictory_setting_is_reported_in_one_line(
    tmp_path: Path, env: dict[str, str], expected: str
) -> None:
    assert refusal(tmp_path / "data", env=env).startswith(f"punctual: {expected}")


def a_start_with_the_key(folder: Path, key: bytes, rights: int) -> subprocess.CompletedProcess[str]:
    """Start a node with an invalid token key, and return the ended process."""
    Store.open(folder).close()
    (folder / "token.key").write_bytes(key)
    (folder / "token.key").chmod(rights)
    place = {"PUNCTUAL_PORT": "0", "PUNCTUAL_DATA": str(folder), "PUNCTUAL_AUTH": "on"}
    return subprocess.run(
        [sys.executable, "-m", "punctual.node"],
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_invalid_token_key_is_reported_in_one_line(tmp_path: Path) -> None:
    done = a_start_with_the_key(tmp_path / "data", b"short", 0o600)
    assert done.returncode == 1
    assert "has 5 bytes, not 32" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("rights", [0o644, 0o640, 0o602])
def test_token_key_open_to_others_is_closed_and_reported(tmp_path: Path, rights: int) -> None:
    done = a_start_with_the_key(tmp_path / "data", b"short", rights)
    entry = json.loads(done.stderr.splitlines()[0])
    assert (entry["event"], entry["had"]) == ("was_open_to_others", f"{rights:04o}")
    assert entry["path"] == str(tmp_path / "data" / "token.key")
    assert stat.S_IMODE((tmp_path / "data" / "token.key").stat().st_mode) == 0o600
