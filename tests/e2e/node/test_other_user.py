"""Another user of the machine calls a node without tokens."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.client import request
from bench.running import RunningNode

UNPRIVILEGED_UID = 65_534
# The program imports nothing of the project, because another user cannot read its files.
CALL = """
import encodings.idna, os, socket, sys
uid, port = int(sys.argv[1]), int(sys.argv[2])
asked = sys.stdin.buffer.read()
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
    one.sendall(asked)
    while data := one.recv(65536):
        sys.stdout.buffer.write(data)
"""


def call_as(uid: int, port: int, raw_request: bytes) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", CALL, str(uid), str(port)],
        input=raw_request,
        capture_output=True,
        timeout=60,
        check=True,
        cwd="/",
    )
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


def last(raw_request: bytes) -> bytes:
    """Return the request with `Connection: close`."""
    return raw_request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names a socket's user")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")
@pytest.mark.parametrize("uid", [UNPRIVILEGED_UID, 12_345])
def test_another_user_needs_the_local_token(tmp_path: Path, uid: int) -> None:
    node = RunningNode(tmp_path / "data").start()
    try:
        task = {"type": "script", "runtime": "bash", "code": "id"}
        job = {"name": "mine", "schedule_type": "IMMEDIATE", "task": task}
        raw_request = last(request("POST", "/jobs", job))
        status, refused = call_as(uid, node.port, raw_request)
        assert (status, refused["code"]) == (401, "UNAUTHENTICATED")
        assert "local-token" in refused["detail"]
        status, _ = call_as(os.geteuid(), node.port, raw_request)
        assert status == 202
        token = (tmp_path / "data" / "local-token").read_bytes()
        with_token = raw_request.replace(
            b"\r\n", b"\r\nAuthorization: Bearer " + token + b"\r\n", 1
        )
        assert call_as(uid, node.port, with_token)[0] == 202
        assert call_as(uid, node.port, last(request("GET", "/health")))[0] == 200
    finally:
        node.stop()
