"""The client uploads files to a real node, synchronous and asynchronous."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.running import RunningNode
from punctual.client import Conflict, Misuse, NotFound, tasks
from tests.support.client.kinds import NO_DELAY, URL, ClientKind, Server, awaiting, blocking

KINDS = {"blocking": blocking, "async": awaiting}
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    node = RunningNode(tmp_path_factory.mktemp("node") / "data").start()
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest, node: RunningNode) -> Iterator[ClientKind]:
    with KINDS[request.param](f"http://127.0.0.1:{node.port}/v1") as kind:
        yield kind


def test_artifact_has_a_life(kind: ClientKind, tmp_path: Path) -> None:
    artifacts = kind.client.artifacts
    file = tmp_path / "main.py"
    file.write_bytes(b"print('%s')" % type(kind).__name__.encode() + b"#" * MEGABYTE)
    sent: list[int] = []
    stored = kind.do(artifacts.upload(file, on_progress=sent.append))
    assert (stored.name, stored.size, stored.status) == (
        "main.py",
        file.stat().st_size,
        "STORED",
    )
    assert stored.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert sent == sorted(sent)
    assert sent[-1] == stored.size
    sent.clear()
    again = kind.do(artifacts.upload(file, name="other.py", on_progress=sent.append))
    assert (again.artifact_id, again.name, sent) == (stored.artifact_id, "main.py", [])
    job = kind.do(
        kind.client.jobs.create(
            name="report",
            schedule_type="CRON",
            cron_expression="0 0 1 1 *",
            task=tasks.script(artifact_id=stored.artifact_id),
        )
    )
    shown = kind.do(artifacts.get(stored.artifact_id))
    assert [user.job_id for user in shown.jobs] == [job.job_id]
    with pytest.raises(Conflict, match="report"):
        kind.do(artifacts.delete(stored.artifact_id))
    kind.do(kind.client.jobs.cancel(job.job_id))
    assert stored.artifact_id in {item.artifact_id for item in kind.all(artifacts.list())}
    assert kind.do(artifacts.delete(stored.artifact_id)).artifact_id == stored.artifact_id
    with pytest.raises(NotFound):
        kind.do(artifacts.get(stored.artifact_id))


def test_missing_file_is_misuse(kind: ClientKind, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read"):
        kind.do(kind.client.artifacts.upload(tmp_path / "none.py"))


ARTIFACT: dict[str, Any] = {
    "artifact_id": "01a1f03b-abb9-8019-a650-e41c1771d654",
    "name": "a.py",
    "sha256": hashlib.sha256(b"print(1)").hexdigest(),
    "size": 8,
    "status": "PENDING",
}
UPLOAD = {"upload_url": "https://bucket.test/a?signature=x", "upload_headers": {"x-sum": "1"}}


@pytest.mark.parametrize("open_client", [blocking, awaiting])
def test_upload_is_repeated_without_the_token(open_client: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"print(1)")
    bodies: list[bytes] = []

    def put(status: int) -> Any:
        def answer(request: httpx.Request) -> httpx.Response:
            bodies.append(request.read())
            return httpx.Response(status)

        return answer

    server = Server(
        httpx.Response(201, json={**ARTIFACT, **UPLOAD}),
        put(503),
        put(412),
        httpx.Response(200, json={**ARTIFACT, "status": "STORED"}),
    )
    with open_client(URL, "secret", transport=server.transport, retries=NO_DELAY) as kind:
        stored = kind.do(kind.client.artifacts.upload(tmp_path / "a.py"))
    assert stored.status == "STORED"
    puts = [request for request in server.asked if request.method == "PUT"]
    assert [str(request.url) for request in puts] == [UPLOAD["upload_url"]] * 2
    assert [request.headers["x-sum"] for request in puts] == ["1", "1"]
    assert all("authorization" not in request.headers for request in puts)
    assert bodies == [b"print(1)"] * 2
