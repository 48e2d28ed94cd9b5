"""Access of the program: login, tokens and the stored profiles."""

import json
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.cli.program import PROGRAM, Program


class Guarded(NamedTuple):
    url: str
    token: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Yield `punctual dev` with tokens required."""
    folder = tmp_path_factory.mktemp("guarded")
    env = {**Program(folder).env, "PUNCTUAL_AUTH": "on"}
    node = subprocess.Popen(
        [PROGRAM, "dev", "--port", "0", "--data", str(folder / "data")],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert node.stdout is not None
    output = ""
    while "ready at" not in output:
        line = node.stdout.readline()
        assert line, output
        output += line
    url = re.search(r"http://\S+/v1", output)
    assert url
    token = (folder / "data" / "admin-token").read_text().strip()
    yield Guarded(url[0], token)
    node.send_signal(signal.SIGINT)
    assert node.wait(timeout=30) == 0
    node.stdout.close()


@pytest.fixture
def home(tmp_path: Path) -> Program:
    return Program(tmp_path)


def config(program: Program) -> Path:
    return program.home / ".config" / "punctual" / "config.json"


def test_login_is_stored_privately_and_used(home: Program, guarded: Guarded) -> None:
    result = home("login", "--url", guarded.url, "--token", guarded.token)
    assert result.out == f"Logged in at {guarded.url} as first (admin).\n"
    assert stat.S_IMODE(config(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(config(home).parent.stat().st_mode) == 0o700
    identity = home.json("whoami")
    assert (identity["name"], identity["role"], identity["tenant"]) == ("first", "admin", "local")
    assert "Server" in home("whoami").out
    assert home("logout").out == "Logged out (profile default).\n"
    assert guarded.token not in config(home).read_text()


def test_login_reads_the_token_from_standard_input(home: Program, guarded: Guarded) -> None:
    home("login", "--url", guarded.url, "--token", "-", stdin=f"{guarded.token}\n")
    assert home.json("whoami")["role"] == "admin"


def test_wrong_token_is_not_stored(home: Program, guarded: Guarded) -> None:
    result = home("login", "--url", guarded.url, "--token", "pnc_" + "A" * 43, code=5)
    assert "punctual login" in result.err
    assert not config(home).exists()
    assert home("jobs", "list", "--url", guarded.url, code=5).out == ""


def test_stored_token_is_sent_to_its_own_address_only(
    home: Program, guarded: Guarded, node_url: str
) -> None:
    home("login", "--url", guarded.url, "--token", guarded.token)
    assert home.json("whoami", "--url", node_url)["token_id"] is None
    other = guarded.url.replace("127.0.0.1", "localhost")
    home("whoami", "--url", other, code=5)


def test_profiles_are_kept_separately(home: Program, guarded: Guarded, node_url: str) -> None:
    home("login", "--url", guarded.url, "--token", guarded.token, "--profile", "work")
    home("login", "--url", node_url)
    assert home.json("whoami", "--profile", "work")["name"] == "first"
    assert home.json("whoami")["name"] == "local"
    assert home.with_env(PUNCTUAL_PROFILE="work").json("whoami")["name"] == "first"
    # The environment sets the address unless the command line names a profile.
    elsewhere = home.with_env(PUNCTUAL_URL=node_url, PUNCTUAL_TOKEN="pnc_none")
    assert elsewhere.json("whoami", "--profile", "work")["name"] == "first"
    home("logout", "--profile", "work")
    home("whoami", "--profile", "work", code=2)
    assert set(json.loads(config(home).read_text())["profiles"]) == {"default"}


def test_unreachable_server_error_names_the_stored_login(home: Program, guarded: Guarded) -> None:
    home("login", "--url", guarded.url, "--token", guarded.token)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        config(home).write_text(config(home).read_text().replace(guarded.url, address))
        result = home("jobs", "list", code=6)
    assert "from the stored login 'default'" in result.err
    assert "`punctual logout --profile default`" in result.err


def test_damaged_config_error_names_the_remedy(home: Program) -> None:
    config(home).parent.mkdir(parents=True)
    config(home).write_text("{")
    error = home("jobs", "list", code=2).err
    assert "is not a valid configuration file" in error
    assert "punctual login" in error


def test_tokens_are_created_listed_and_revoked(home: Program, guarded: Guarded) -> None:
    admin = home.with_env(PUNCTUAL_URL=guarded.url, PUNCTUAL_TOKEN=guarded.token)
    result = admin("tokens", "create", "ci", "--role", "operator", "--expires", "+90d")
    secret = result.out.strip()
    assert re.fullmatch(r"pnc_[A-Za-z0-9_-]+", secret)
    assert "It is not shown again" in result.err
    ci = home.with_env(PUNCTUAL_URL=guarded.url, PUNCTUAL_TOKEN=secret)
    assert ci.json("whoami")["role"] == "operator"
    refused = ci("jobs", "create", "x", "--every", "5m", code=5).err
    assert "punctual whoami" in refused
    listed = admin("tokens", "list").out
    assert max(map(len, listed.splitlines())) <= 80
    assert secret not in listed
    (line,) = [row for row in listed.splitlines() if " ci " in row]
    assert line.endswith(("ends in 89 d", "ends in 90 d"))
    assert admin("tokens", "revoke", "ci").out.startswith("Revoked ci (")
    assert "revoked" in admin("tokens", "list").out
    admin("tokens", "revoke", "ci", code=3)
    ids = [token["token_id"] for token in admin.json("tokens", "list") if token["name"] == "ci"]
    assert admin("tokens", "revoke", ids[0]).out.startswith("Revoked ci (")


def test_audit_shows_caller_and_action(home: Program, guarded: Guarded) -> None:
    admin = home.with_env(PUNCTUAL_URL=guarded.url, PUNCTUAL_TOKEN=guarded.token)
    admin("jobs", "create", "watched", "--every", "5m")
    admin("jobs", "update", "watched", "--retries", "1")
    rows = admin("audit", "--job", "watched").out.splitlines()
    assert rows[1].split()[-4:-1] == ["first", "job.update", "max_retries"]
    assert rows[2].split()[-3:] == ["first", "job.create", "watched"]


def test_dev_reports_why_the_node_cannot_start(home: Program, guarded: Guarded) -> None:
    port = guarded.url.rsplit(":", 1)[1].split("/")[0]
    error = home("dev", "--port", port, "--data", "data", code=1).err
    assert f"Port {port} on 127.0.0.1 cannot be used" in error
