"""Count the project's files that one job executes: python bench/files_opened.py

A file counts if at least one of its lines runs before the answer, or before the run's end.
"""

import asyncio
import io
import json
import os
import sys
import tempfile
import threading
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE))
ROOT = f"{TREE}/layers/core/python/punctual/"
# The functions that begin the work for a request: bytes arrive, the application answers, and the
# node's thread carries the request out in its transaction.
REQUEST_ENTRIES = {
    ("node/http/protocol.py", "data_received"),
    ("node/http/application.py", "__call__"),
    ("node/node.py", "perform"),
}
QUIET_SECONDS = 2.0  # until the first walk of a started node over its jobs has ended
RUN_SECONDS = 1.0


class ExecutedFiles:
    """Records each file of the package in which a function is entered.

    With `entries`, only calls below one of these functions count. The node's loop also plans and
    polls while it serves a request, and that work is not part of the request.
    """

    def __init__(self, entries: Collection[tuple[str, str]] = ()) -> None:
        self.paths: set[str] = set()
        self._entries = entries

    def __enter__(self) -> "ExecutedFiles":
        threading.settrace(self._note)
        sys.settrace(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _note(self, frame: FrameType, _event: str, _value: Any) -> None:
        path = frame.f_code.co_filename
        if path not in self.paths and path.startswith(ROOT) and self._is_counted(frame):
            self.paths.add(path)

    def _is_counted(self, frame: FrameType) -> bool:
        caller: FrameType | None = frame
        while caller is not None and self._entries:
            code = caller.f_code
            if (code.co_filename.removeprefix(ROOT), code.co_name) in self._entries:
                return True
            caller = caller.f_back
        return not self._entries

    def package_files(self) -> list[str]:
        return sorted(path.removeprefix(ROOT) for path in self.paths)


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
    with ExecutedFiles(REQUEST_ENTRIES) as request_files:
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


def count_on_aws() -> tuple[list[str], list[str]]:
    """Return the files of one POST, and of a job from its POST to the end of its run.

    The stacks are deployed in this process. The path ends before the next tick of the planner.
    """
    from tests.support.deployed.scenes import open_api
    from tests.support.deployed.world import SECOND, a_world

    with a_world() as world:
        api = open_api(world)
        task = {"type": "event", "detail_type": "Paid"}
        job = {"schedule_type": "IMMEDIATE", "task": task}
        api.post("/jobs", {"name": "first", **job})
        world.run(2 * SECOND)
        with ExecutedFiles() as request_files:
            api.post("/jobs", {"name": "second", **job})
        world.run(2 * SECOND)
        with ExecutedFiles() as path_files:
            job_id = api.post("/jobs", {"name": "third", **job}).json["job_id"]
            world.run(2 * SECOND)
        (run,) = api.get(f"/jobs/{job_id}/runs").json["runs"]
        assert run["status"] == "SUCCESS", run
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
    request, path = count_on_aws()
    print_files("POST /jobs on AWS", request)
    print_files("from POST /jobs to the end of the run on AWS", path)


if __name__ == "__main__":
    main()
