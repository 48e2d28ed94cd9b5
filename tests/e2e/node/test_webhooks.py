"""Webhooks of a node: a local receiver, and a node that is killed."""

import json
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.running import RunningNode, run_node
from punctual.client import Punctual, verify_webhook
from tests.support.signatures import is_signed

FAILS = {"type": "script", "runtime": "bash", "code": "exit 3"}


class Receiver:
    """A webhook receiver that keeps its port while it is down."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.asked = 0
        self.status = 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.asked += 1
                if receiver.status < 300:
                    receiver.calls.append((dict(self.headers.items()), body))
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    new_receiver = Receiver()
    yield new_receiver
    new_receiver.close()


def eventually(condition: Callable[[], bool], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def client(node: RunningNode) -> Punctual:
    return Punctual(f"http://127.0.0.1:{node.port}/v1", "")


def failing(node: RunningNode, receiver: Receiver, **fields: Any) -> str:
    with client(node) as api:
        return api.jobs.create(
            name="fails",
            schedule_type="IMMEDIATE",
            task=FAILS,
            notify=[{"on": ["FAILED"], "url": receiver.url}],
            **fields,
        ).job_id


def test_webhook_is_called_once_for_a_final_failure_and_never_for_success(
    tmp_path: Path, receiver: Receiver
) -> None:
    with run_node(tmp_path / "data") as node, client(node) as api:
        good = api.jobs.create(
            name="good",
            schedule_type="IMMEDIATE",
            notify=[{"on": ["FAILED"], "url": receiver.url}],
        )
        job = failing(node, receiver, max_retries=1, retry={"backoff_seconds": 0.2})
        eventually(lambda: bool(receiver.calls))
        run = api.jobs.status(job).latest_run
        assert api.jobs.status(good.job_id).latest_run is not None
        time.sleep(0.5)
        ((headers, body),) = receiver.calls
        secret = api.webhook_secret()
        event = verify_webhook(secret, headers, body)
        assert is_signed(secret, headers, body)
        assert run is not None
        assert event["type"] == "Run State Change"
        assert event["data"]["run_id"] == run.run_id
        assert (event["data"]["to"], event["data"]["attempt_number"]) == ("FAILED", 2)
        key = tmp_path / "data" / "webhook.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert secret.removeprefix("whsec_") not in key.read_text()


def test_webhook_of_a_killed_node_is_delivered_after_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.status = 503
    node = RunningNode(tmp_path / "data").start()
    job = failing(node, receiver, max_retries=0)
    eventually(lambda: receiver.asked >= 1)
    time.sleep(0.3)
    node.kill()
    receiver.status = 200
    with run_node(tmp_path / "data") as node, client(node) as api:
        eventually(lambda: bool(receiver.calls))
        ((headers, body),) = receiver.calls
        event = verify_webhook(api.webhook_secret(), headers, body)
        assert event["data"]["job_id"] == job


def test_rotated_webhook_secret_stays_valid_until_the_next_rotation(
    tmp_path: Path, receiver: Receiver
) -> None:
    with run_node(tmp_path / "data") as node, client(node) as api:
        secrets = [api.webhook_secret()]
        for number in range(2):
            subprocess.run(
                [sys.executable, "-m", "punctual.node", "rotate-webhook-key"],
                env={"PUNCTUAL_DATA": str(tmp_path / "data")},
                check=True,
                capture_output=True,
            )
            secrets.append(api.webhook_secret())
            failing(node, receiver, max_retries=0)
            eventually(lambda number=number: len(receiver.calls) > number)  # type: ignore[misc]
            headers, body = receiver.calls[-1]
            signed = [is_signed(secret, headers, body) for secret in secrets]
            assert signed == [n >= len(secrets) - 2 for n in range(len(secrets))]
        assert len(set(secrets)) == 3


def test_webhook_key_rotation_without_data_fails(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "punctual.node", "rotate-webhook-key"],
        env={"PUNCTUAL_DATA": str(tmp_path / "nothing")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("punctual: There is no node's data in ")


def test_webhook_secret_is_visible_to_admins_only(tmp_path: Path) -> None:
    with run_node(tmp_path / "data", PUNCTUAL_AUTH="on") as node:
        admin = (node.folder / "admin-token").read_text().strip()
        url = f"http://127.0.0.1:{node.port}/v1"

        def get_secret(token: str) -> httpx.Response:
            headers = {"authorization": f"Bearer {token}"}
            return httpx.get(f"{url}/webhook-secret", headers=headers, trust_env=False)

        with Punctual(url, admin) as api:
            editor = api.tokens.create(name="e", role="editor").token
            other_tenant = api.tokens.create(name="a", role="admin", tenant="acme").token
            listed = json.dumps([entry.raw for entry in api.audit.list()])
        assert get_secret(editor).status_code == 403
        secrets = {get_secret(token).json()["secret"] for token in (admin, other_tenant)}
        assert len(secrets) == 2
        assert not any(secret in listed for secret in secrets)
