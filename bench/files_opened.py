"""Count the project's files that one job executes: python bench/files_opened.py

A file counts if at least one of its lines runs before the answer, or before the run's end.
"""

import asyncio
import io
import json
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

TREE = Path(__file__).resolve().parent.parent
PACKAGE = TREE / "layers" / "core" / "python" / "punctual"
QUIET_SECONDS = 2.0  # until the first walk of a started node over its jobs has ended
RUN_SECONDS = 1.0


class ExecutedFiles:
    """Records each file of the package in which a function is entered on this thread."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def __enter__(self) -> "ExecutedFiles":
        sys.settrace(self._add_file)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _add_file(self, frame: FrameType, _event: str, _value: Any) -> None:
        self.paths.add(frame.f_code.co_filename)

    def package_files(self) -> list[str]:
        root = f"{PACKAGE}/"
        return sorted(path.removeprefix(root) for path in self.paths if path.startswith(root))


async def submit_job(port: int, job: dict[str, Any]) -> str:
    """Submit a job and return its id. The client's own code is not counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(job).encode()
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    assert b" 202 " in answer.partition(b"\r\n")[0], answer
    job_id: str = json.loads(answer.partition(b"\r\n\r\n")[2])["job_id"]
    return job_id


async def count_on_node(folder: Path) -> tuple[list[str], list[str]]:
    """Return the files of one POST, and of one job from its POST to the end of its run."""
    from punctual.node import clock
    from punctual.node.logs import EventLog
    from punctual.node.main import Options, listen, serve
    from punctual.node.sqlite.store import Store

    options = Options(0, folder)
    listener = listen(0)
    store = Store.open(folder)
    log = EventLog(io.StringIO(), clock.wall, pretty=False)
    node = asyncio.create_task(serve(store, options, listener, 100, log))
    port = listener.getsockname()[1]
    await asyncio.sleep(QUIET_SECONDS)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    future_job = {"name": "later", "schedule_type": "FUTURE", "schedule_time": tomorrow}
    with ExecutedFiles() as request_files:
        await submit_job(port, future_job)
    await asyncio.sleep(0.1)
    with ExecutedFiles() as path_files:
        job_id = await submit_job(port, {"name": "now", "schedule_type": "IMMEDIATE"})
        await asyncio.sleep(RUN_SECONDS)
    run_counts = store.count_runs("local")
    assert run_counts == {"SUCCESS": 1}, (job_id, run_counts)
    os.kill(os.getpid(), 2)
    await node
    store.close()
    return request_files.package_files(), path_files.package_files()


def print_files(title: str, files: list[str]) -> None:
    print(f"{title}: {len(files)} files")
    for file in files:
        print(f"  {file}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="punctual-files-") as folder:
        request_files, path_files = asyncio.run(count_on_node(Path(folder) / "data"))
    print_files("POST /jobs on the node", request_files)
    print_files("from POST /jobs to the end of the run on the node", path_files)


if __name__ == "__main__":
    main()
