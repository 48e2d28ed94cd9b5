"""Run one hostile script as the node does, in its own process with secrets to steal.

Arguments: the data folder, the sandbox, and `is_shared` or `alone`. The script's code comes on
standard input. The result goes to standard output as JSON.
"""

import json
import os
import socket
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from punctual.tasks.contract import Attempt, StopSignal
from punctual.tasks.script.confinement import hide_process
from punctual.tasks.script.landlock import c_library
from punctual.tasks.script.sandbox import choose_sandbox
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.task import ScriptTask

KEY = b"the key of all tokens"


class Log:
    def log(self, data: bytes) -> None:
        sys.stderr.buffer.write(data)


def main() -> None:
    data, wanted, shared = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "shared"
    data.mkdir(mode=0o700, exist_ok=True)
    (data / "token.key").write_bytes(KEY)
    (data / "secrets.key").write_bytes(KEY)
    (data / "punctual.db").write_bytes(b"rows")
    other = data / "work" / "run-other"
    other.mkdir(parents=True, exist_ok=True)
    (other / "secret").write_text("of another run")
    key = (data / "token.key").open("rb")
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0punctual-test-{os.getpid()}")
    abstract.listen()
    named = socket.socket(socket.AF_UNIX)
    named.bind(str(data.parent / "bus"))
    named.listen()
    hide_process(c_library())
    sandbox = choose_sandbox(wanted, data, is_shared=shared, path=os.environ["PATH"])
    task = ScriptTask(
        data / "work",
        sandbox,
        monotonic=time.monotonic,
        grace=timedelta(0),
        children=Children(adopt=True),
    )
    attempt = Attempt(
        tenant="acme" if shared else "local",
        job_id="job-1",
        run_id=f"run-{os.getpid()}",
        name="A job",
        attempt_number=1,
        scheduled_at=datetime(2026, 12, 1, 10, tzinfo=UTC),
        task={"type": "script", "runtime": "python", "code": sys.stdin.read()},
        payload={
            "node": os.getpid(),
            "data": str(data),
            "other": str(other),
            "bus": str(data.parent / "bus"),
        },
        timeout=timedelta(seconds=60),
        token=1,
    )
    outcome = task.run(attempt, StopSignal(), Log())
    key.close()
    result = {"status": outcome.status, "error": outcome.error, "output": outcome.output.decode()}
    print(json.dumps({**result, "sandbox": sandbox.name}))


if __name__ == "__main__":
    main()
