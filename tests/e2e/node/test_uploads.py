"""Uploads to the node over real sockets: right, wrong, too long, cut off, and slow ones."""

import hashlib
import io
import os
import re
import shutil
import socket
import subprocess
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from bench.running import RunningNode
from punctual.domain.artifacts import MAX_ARTIFACT_BYTES
from tests.support.node.node_calls import call, eventually

PATIENCE = 60.0
MEGABYTE = 1024 * 1024


class Upload(NamedTuple):
    artifact_id: str
    path: str
    headers: Mapping[str, str]


def create(node: RunningNode, content: bytes, **fields: Any) -> Upload:
    """Create the artifact of a content. `fields` replace fields of the request."""
    digest = hashlib.sha256(content).hexdigest()
    body = {"sha256": digest, "size": len(content), "name": "main.py", **fields}
    status, answer = call(node, "POST", "/artifacts", body)
    assert status == 201, answer
    url = urlsplit(answer["upload_url"])
    assert url.hostname == "127.0.0.1"
    return Upload(answer["artifact_id"], url.path, answer["upload_headers"])


def connect(node: RunningNode) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE)


def head_of(upload: Upload, length: int, **changes: str) -> bytes:
    headers = {"Host": "127.0.0.1", **upload.headers, "Content-Length": str(length), **changes}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"PUT {upload.path} HTTP/1.1\r\n{lines}\r\n".encode()


def put(node: RunningNode, upload: Upload, content: bytes) -> tuple[int, bytes]:
    """Send the content with one PUT. Return the status and the rest of the answer."""
    with connect(node) as connection:
        connection.sendall(head_of(upload, len(content)) + content)
        return answer_of(connection)


def answer_of(connection: socket.socket) -> tuple[int, bytes]:
    """Return the status and the whole answer."""
    data = b""
    while not _is_whole(data):
        piece = connection.recv(65_536)
        if not piece:
            break
        data += piece
    return int(data[9:12] or 0), data


def _is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(end) and (length is None or len(body) >= int(length.group(1)))


def status_of(node: RunningNode, upload: Upload) -> str:
    status, answer = call(node, "GET", f"/artifacts/{upload.artifact_id}")
    assert status == 200
    return str(answer["status"])


def new_files(node: RunningNode) -> list[Path]:
    return list((node.folder / "blobs" / "new").iterdir())


def test_uploaded_script_runs(node: RunningNode) -> None:
    content = b"import sys; print('from an artifact', sys.stdin.read().strip())"
    upload = create(node, content)
    assert status_of(node, upload) == "PENDING"
    assert put(node, upload, content)[0] == 200
    assert status_of(node, upload) == "STORED"
    output = run(node, upload.artifact_id, "python", payload={"a": 1})
    assert output == b'from an artifact {"a":1}\n'
    repeated = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "name": "b"}
    status, answer = call(node, "POST", "/artifacts", repeated)
    assert (status, answer["artifact_id"]) == (200, upload.artifact_id)
    assert "upload_url" not in answer


def test_zip_with_a_module_runs(node: RunningNode) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("main.py", "from greeting import text\nprint(text)")
        archive.writestr("greeting.py", "text = 'from a module'")
    upload = create(node, buffer.getvalue())
    assert put(node, upload, buffer.getvalue())[0] == 200
    assert run(node, upload.artifact_id, "python") == b"from a module\n"


def test_binary_runs_on_its_architecture_only(node: RunningNode) -> None:
    program = Path(shutil.which("true") or "/bin/true").read_bytes()
    upload = create(node, program)
    assert put(node, upload, program)[0] == 200
    run(node, upload.artifact_id, "binary")
    foreign = bytearray(program[:64])
    foreign[18:20] = (243 if program[18] != 243 else 62).to_bytes(2, "little")
    other = create(node, bytes(foreign))
    assert put(node, other, bytes(foreign))[0] == 200
    status, problem = call(node, "POST", "/jobs", a_job(other.artifact_id, "binary"))
    assert status == 422
    (error,) = problem["errors"]
    assert (error["field"], "is a binary for riscv" in error["message"]) == (
        "task.artifact_id",
        True,
    )


def test_wrong_content_is_refused(node: RunningNode) -> None:
    upload = create(node, b"print(1)")
    status, answer = put(node, upload, b"print(2)")
    assert status == 400
    assert b"The SHA-256 of the content is not" in answer
    assert status_of(node, upload) == "PENDING"
    assert new_files(node) == []
    assert put(node, upload, b"print(1)")[0] == 200


@pytest.mark.parametrize("length", [7, 9, 10 * MEGABYTE])
def test_another_length_is_refused_before_the_body(node: RunningNode, length: int) -> None:
    upload = create(node, b"print(1)")
    with connect(node) as connection:
        connection.sendall(head_of(upload, length))
        status, answer = answer_of(connection)
    assert status == 400
    assert b"Content-Length: 8" in answer
    assert new_files(node) == []


def test_chunked_body_is_refused(node: RunningNode) -> None:
    upload = create(node, b"print(1)")
    head = head_of(upload, 8).replace(b"Content-Length: 8", b"Transfer-Encoding: chunked")
    with connect(node) as connection:
        connection.sendall(head + b"8\r\nprint(1)\r\n0\r\n\r\n")
        assert answer_of(connection)[0] == 400


def test_second_upload_of_stored_content_is_refused(node: RunningNode) -> None:
    upload = create(node, b"print(1)")
    assert put(node, upload, b"print(1)")[0] == 200
    assert put(node, upload, b"print(1)")[0] == 412


def test_altered_link_is_refused(node: RunningNode) -> None:
    upload = create(node, b"print(1)")
    path = upload.path
    first = "B" if path[12] != "B" else "C"
    for altered in (path[:-1], f"{path}A", "/v1/uploads/x", f"{path[:12]}{first}{path[13:]}"):
        assert put(node, upload._replace(path=altered), b"print(1)")[0] == 403, altered
    assert status_of(node, upload) == "PENDING"


def test_upload_that_is_cut_off_leaves_nothing(node: RunningNode) -> None:
    content = os.urandom(2 * MEGABYTE)
    upload = create(node, content)
    with connect(node) as connection:
        connection.sendall(head_of(upload, len(content)) + content[:MEGABYTE])
        eventually(lambda: len(new_files(node)) == 1)
    eventually(lambda: new_files(node) == [])
    assert status_of(node, upload) == "PENDING"
    assert put(node, upload, content)[0] == 200


def test_slow_upload_is_ended(node: RunningNode) -> None:
    upload = create(node, b"print(1)")
    with connect(node) as connection:
        began = time.monotonic()
        connection.sendall(head_of(upload, 8) + b"print")
        status, _ = answer_of(connection)
    assert status == 408
    assert time.monotonic() - began > 25
    eventually(lambda: new_files(node) == [])


def test_large_upload_uses_no_memory_and_delays_nothing(node: RunningNode) -> None:
    piece = os.urandom(MEGABYTE)
    pieces = 250
    digest = hashlib.sha256()
    for _ in range(pieces):
        digest.update(piece)
    upload = create(node, b"x", sha256=digest.hexdigest(), size=pieces * MEGABYTE)
    before = node.memory_mb
    slowest = 0.0
    with connect(node) as connection:
        connection.sendall(head_of(upload, pieces * MEGABYTE))
        for number in range(pieces):
            connection.sendall(piece)
            if number % 25 == 0:
                asked = time.monotonic()
                assert call(node, "GET", "/health/live")[0] == 200
                slowest = max(slowest, time.monotonic() - asked)
        assert answer_of(connection)[0] == 200
    assert node.memory_mb - before < 60
    assert slowest < 2
    assert status_of(node, upload) == "STORED"


def test_more_uploads_than_the_node_takes_are_told_to_try_again(node: RunningNode) -> None:
    uploads = [create(node, b"%08d" % number) for number in range(9)]
    connections = [connect(node) for _ in uploads]
    try:
        for connection, upload in zip(connections[:8], uploads[:8], strict=True):
            connection.sendall(head_of(upload, 8) + b"0000")
        eventually(lambda: len(new_files(node)) == 8)
        connections[8].sendall(head_of(uploads[8], 8))
        status, answer = answer_of(connections[8])
        assert status == 503
        assert b"retry-after" in answer.lower()
        connections[0].sendall(b"0000")
        assert answer_of(connections[0])[0] == 200
    finally:
        for connection in connections:
            connection.close()


def test_curl_uploads_with_the_answer_of_the_api(node: RunningNode, tmp_path: Path) -> None:
    content = b"echo from curl\n" + b"#" * (2 * MEGABYTE)  # long enough for Expect: 100-continue
    (tmp_path / "job.sh").write_bytes(content)
    upload = create(node, content, name="job.sh")
    url = f"http://127.0.0.1:{node.port}{upload.path}"
    headers = [f"-H{name}: {value}" for name, value in upload.headers.items()]
    command = ["curl", "-sS", "--fail", "-T", str(tmp_path / "job.sh"), *headers, url]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert run(node, upload.artifact_id, "bash") == b"from curl\n"


def test_node_without_limits_limits_artifacts(node: RunningNode) -> None:
    allowed = call(node, "GET", "/whoami")[1]["limits"]
    assert (allowed["artifacts"], allowed["artifact_mb"], allowed["jobs"]) == (1_000, 20_480, None)
    largest = {"size": MAX_ARTIFACT_BYTES, "name": "large.zip"}
    for number in range(allowed["artifact_mb"] * MEGABYTE // MAX_ARTIFACT_BYTES):
        body = {**largest, "sha256": f"{number:064x}"}
        assert call(node, "POST", "/artifacts", body)[0] == 201
    status, problem = call(node, "POST", "/artifacts", {**largest, "sha256": "a" * 64})
    assert (status, problem["code"]) == (429, "LIMIT_EXCEEDED")


def test_artifact_in_use_is_not_deleted(node: RunningNode) -> None:
    upload = create(node, b"print(1)")
    assert put(node, upload, b"print(1)")[0] == 200
    job = a_job(upload.artifact_id, "python", schedule_type="CRON", cron_expression="0 0 1 1 *")
    status, made = call(node, "POST", "/jobs", job)
    assert status == 202
    status, problem = call(node, "DELETE", f"/artifacts/{upload.artifact_id}")
    assert (status, made["job_id"] in problem["detail"]) == (409, True)
    shown = call(node, "GET", f"/artifacts/{upload.artifact_id}")[1]
    assert shown["jobs"] == [{"job_id": made["job_id"], "name": "from-artifact"}]
    assert call(node, "DELETE", f"/jobs/{made['job_id']}")[0] == 200
    assert call(node, "DELETE", f"/artifacts/{upload.artifact_id}")[0] == 200
    assert call(node, "GET", f"/artifacts/{upload.artifact_id}")[0] == 404
    assert call(node, "GET", "/artifacts")[1] == {"artifacts": [], "next_token": None}


def a_job(artifact_id: str, runtime: str, **fields: Any) -> dict[str, Any]:
    task = {"type": "script", "runtime": runtime, "artifact_id": artifact_id}
    job = {"name": "from-artifact", "schedule_type": "IMMEDIATE", "task": task, "max_retries": 0}
    return {**job, **fields}


def run(node: RunningNode, artifact_id: str, runtime: str, **fields: Any) -> bytes:
    """Run a job of the artifact to its end. Return its output."""
    status, job = call(node, "POST", "/jobs", a_job(artifact_id, runtime, **fields))
    assert status == 202, job
    until = time.monotonic() + PATIENCE
    while True:
        latest = call(node, "GET", f"/jobs/{job['job_id']}")[1]["latest_run"]
        if latest is not None and latest["status"] in ("SUCCESS", "FAILED", "TIMED_OUT"):
            break
        assert time.monotonic() < until
    assert latest["status"] == "SUCCESS", latest
    if latest["output_url"] is None:
        return b""
    with connect(node) as connection:
        head = f"GET {latest['output_url']} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        connection.sendall(f"{head}\r\n".encode())
        data = b""
        while piece := connection.recv(65_536):
            data += piece
    return data.partition(b"\r\n\r\n")[2]
