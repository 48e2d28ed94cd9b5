"""An output that is too long for the memory of the node leaves it in pieces."""

import asyncio
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.engine.queries.jobs import MAX_WHOLE_OUTPUT_BYTES
from punctual.engine.queries.views import CONTENT_PIECE_BYTES
from punctual.node.http.application import CONNECTION, build_application, node_services
from tests.support.builders import ManualClock
from tests.support.claims.node import ClaimsNode, statuses
from tests.support.node.node_world import NOON

SIZE = 2 * MAX_WHOLE_OUTPUT_BYTES + 7
UNUSED_TOKENS: Any = None


class Connection:
    """A connection that closes after so many messages."""

    def __init__(self, messages: int) -> None:
        self.messages = messages

    def is_closing(self) -> bool:
        return self.messages <= 0


class RemovingConnection(Connection):
    """A connection that removes a file when its first message arrives."""

    def __init__(self, file: Path) -> None:
        super().__init__(2)
        self._file = file

    def is_closing(self) -> bool:
        if self.messages == 1:
            self._file.unlink(missing_ok=True)
        return False


class Answer:
    """Takes the answer of a request, and keeps the sizes of its messages only."""

    def __init__(self, connection: Connection | None = None) -> None:
        self._connection = connection
        self.start: dict[str, Any] = {}
        self.sizes: list[int] = []
        self.has_ended = False

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            return
        self.sizes.append(len(message["body"]))
        self.has_ended = not message.get("more_body", False)
        if self._connection is not None:
            self._connection.messages -= 1

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.start["headers"])


class LongOutput:
    """A node with a run that has a long output. Every caller is admitted."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self.claims = ClaimsNode(folder, ManualClock(NOON))
        node = self.claims.world.node
        self._application = build_application(
            node_services(
                node.jobs,
                node.search,
                UNUSED_TOKENS,
            ),
            self._turn,
            self.claims.log,
        )
        claim = self.claims.start_run()
        target = {"claim": claim, "size": size, "content_type": "text/csv"}
        ticket = self.claims.post("/v1/claims/upload", target).json
        assert self.claims.put_upload(ticket["upload_url"], b"x" * size)
        end = {"claim": claim, "status": "SUCCESS", "output_upload": ticket["output_upload"]}
        assert statuses(self.claims.finish(end)) == ["OK"]
        view = self.claims.run(claim)
        self._path = f"/v1/jobs/{view.job_id}/runs/{view.run.run_id}/output"
        self.file = self.claims.world.folder / "blobs" / view.detail.output_blob
        assert self.file.stat().st_size == size

    async def _turn(self, request: Callable[[], Any]) -> Any:
        return self.claims.world.do(request)

    def read(self, method: str = "GET", connection: Connection | None = None) -> Answer:
        scope = {
            "type": "http",
            "method": method,
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1:8080")],
            "state": {} if connection is None else {CONNECTION: connection},
        }
        answer = Answer(connection)
        asyncio.run(self._application(scope, _receive, answer.send))
        return answer


async def _receive() -> dict[str, Any]:
    return {"type": "http.disconnect"}


@pytest.fixture
def output(tmp_path: Path) -> Iterator[LongOutput]:
    output = LongOutput(tmp_path)
    yield output
    output.claims.close()


def test_long_output_is_sent_in_pieces(output: LongOutput) -> None:
    answer = output.read()
    assert answer.start["status"] == 200
    assert answer.headers[b"content-length"] == str(SIZE).encode()
    assert answer.headers[b"content-type"] == b"text/csv"
    assert answer.headers[b"x-output-truncated"] == b"false"
    assert (sum(answer.sizes), max(answer.sizes)) == (SIZE, CONTENT_PIECE_BYTES)
    assert answer.has_ended


def test_long_output_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    size = 64 * 1024 * 1024
    output = LongOutput(tmp_path, size)
    tracemalloc.start()
    try:
        answer = output.read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        output.claims.close()
    assert sum(answer.sizes) == size
    assert peak < size / 16


def test_head_of_a_long_output_reads_no_piece(output: LongOutput) -> None:
    answer = output.read("HEAD")
    assert answer.headers[b"content-length"] == str(SIZE).encode()
    assert answer.sizes == [0]


def test_closed_connection_ends_the_reading(output: LongOutput) -> None:
    answer = output.read(connection=Connection(3))
    assert (len(answer.sizes), answer.has_ended) == (3, False)


def test_output_that_is_removed_while_it_is_read_has_no_end(output: LongOutput) -> None:
    answer = output.read(connection=RemovingConnection(output.file))
    assert (len(answer.sizes), answer.has_ended) == (2, False)
    assert output.claims.logged[-1]["event"] == "request_failed"


def test_damaged_output_is_sent_as_far_as_it_goes(output: LongOutput) -> None:
    rest = MAX_WHOLE_OUTPUT_BYTES + 1
    with output.file.open("r+b") as file:
        file.truncate(rest)
    answer = output.read()
    assert answer.headers[b"x-output-truncated"] == b"true"
    assert (answer.sizes, answer.has_ended) == ([rest], True)
    output.file.unlink()
    assert output.read().start["status"] == 404
