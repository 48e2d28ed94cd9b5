"""`punctual claims`: the work of an external executor, as commands of a shell."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli.program import Program, ProgramResult
from tests.support.builders import ManualClock
from tests.support.claims.node import ClaimsNode
from tests.support.claims.node_server import NodeServer
from tests.support.node.node_world import NOON

LOST, CANCEL_REQUESTED = 8, 9


class Executor:
    """An executor that holds one run, and calls the program with its claim."""

    def __init__(self, home: Path) -> None:
        self.node = ClaimsNode(home / "node", ManualClock(NOON))
        self.server = NodeServer(self.node)
        self.claim = self.node.start_run(max_retries=0)
        self.home = home
        self._program = Program(home, PUNCTUAL_URL=f"{self.server.url}/v1")

    def __call__(
        self, *args: str, code: int = 0, stdin: str = "", claim: str | None = None
    ) -> ProgramResult:
        program = self._program.with_env(PUNCTUAL_CLAIM=self.claim if claim is None else claim)
        with ThreadPoolExecutor(1) as threads:
            result = threads.submit(program, "claims", *args, code=code, stdin=stdin)
            self.server.serve_while(lambda: not result.done())
        return result.result()

    def cancel_run(self) -> None:
        identity = self.node.claim_tokens.read(self.claim)
        assert identity is not None
        self.node.world.do(lambda: self.node.world.node.jobs.cancel_run(*identity[:3]))

    @property
    def ended(self) -> tuple[str, Any]:
        view = self.node.run(self.claim)
        return view.run.status, view.detail


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    executor = Executor(tmp_path)
    yield executor
    executor.server.close()
    executor.node.close()


def test_run_is_renewed_with_progress_and_log_and_then_finished(executor: Executor) -> None:
    log = executor.home / "log"
    log.write_bytes("né\n".encode() + "é".encode()[:1])
    args = ("renew", "--runner-id", "r1", "--started", "--percent", "40", "--text", "half")
    renewed = executor(*args, "--log-file", "log", "--json").json
    assert renewed == {"status": "OK", "lease_until": renewed["lease_until"], "log_offset": 4}
    view = executor.node.run(executor.claim)
    assert (view.run.status, view.run.runner_id) == ("RUNNING", "r1")
    assert view.progress is not None
    assert (view.progress.percent, view.progress.text) == (40, "half")
    log.write_bytes("né\né\n".encode() + b"\xffx" + b"y" * 200_000)
    (executor.home / "out.json").write_text('{"rows": [1]}')
    sends = ("--log-file", "log", "--log-offset", "4", "--output-file", "out.json")
    finish = ("finish", "--status", "success", "--runner-id", "r1", "--exit-code", "0")
    assert executor(*finish, *sends).out == "Status  OK\n"
    assert executor.node.log_text(executor.claim) == "né\né\n?x".encode() + b"y" * 200_000
    status, detail = executor.ended
    assert (status, detail.exit_code, detail.output_type) == ("SUCCESS", 0, "application/json")
    assert json.loads(executor.node.output(executor.claim)) == {"rows": [1]}
    assert executor(*finish, "--json").json == {"status": "OK"}


def test_failure_has_its_message_and_a_text_output(executor: Executor) -> None:
    (executor.home / "out.txt").write_text("half\n")
    failed = ("finish", "--status", "FAILED", "--error", "no table", "--no-retry")
    executor(*failed, "--output-file", "out.txt")
    status, detail = executor.ended
    assert (status, detail.error, detail.output_type) == (
        *("FAILED", "no table"),
        "text/plain; charset=utf-8",
    )
    assert executor.node.output(executor.claim) == b"half\n"


def test_uploaded_file_is_the_output(executor: Executor) -> None:
    data = bytes(range(256)) * 8_192
    (executor.home / "table.bin").write_bytes(data)
    token = executor("upload", "table.bin", "--content-type", "image/png").out.strip()
    executor("finish", "--status", "SUCCESS", "--upload", token)
    status, detail = executor.ended
    assert (status, detail.output_size, detail.output_type) == ("SUCCESS", len(data), "image/png")
    assert executor.node.output(executor.claim) == data
    assert [call.split("/v1/")[0] for call in executor.server.calls][:2] == ["POST ", "PUT "]


def test_claim_is_read_from_standard_input(executor: Executor) -> None:
    renewed = executor("renew", "--claim", "-", stdin=f"{executor.claim}\n", claim="")
    assert renewed.out.splitlines()[0].split() == ["Status", "OK"]
    error = executor("renew", claim="", code=2).err
    assert "No claim is given.\nSet PUNCTUAL_CLAIM" in error
    assert executor.server.calls == ["POST /v1/claims/renew"]


def test_cancelled_run_asks_to_stop_with_a_code_of_its_own(executor: Executor) -> None:
    executor.cancel_run()
    result = executor("renew", code=CANCEL_REQUESTED)
    assert result.out.splitlines()[0].split() == ["Status", "CANCEL"]
    assert "finish with --status CANCELLED" in result.err
    executor("finish", "--status", "CANCELLED")
    assert executor.ended[0] == "CANCELLED"


def test_lost_claim_ends_each_command_with_a_code_of_its_own(executor: Executor) -> None:
    (executor.home / "log").write_text("x" * 200_000)
    executor("finish", "--status", "RELEASED")
    for command in (("renew",), ("finish", "--status", "SUCCESS")):
        result = executor(*command, "--log-file", "log", code=LOST)
        assert result.out.splitlines()[0].split() == ["Status", "LOST"]
        assert "The claim does not hold its run. Stop the work" in result.err
        assert executor(*command, "--json", code=LOST).json == {"status": "LOST"}
    assert "The claim does not hold its run" in executor("upload", "log", code=LOST).err
    assert executor.node.run(executor.claim).run.status == "QUEUED"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("finish", "--status", "SUCCESS", "--output-file", "bad.json"), "is not JSON"),
        (("finish", "--status", "SUCCESS", "--output-file", "bytes"), "is not UTF-8 text"),
        (("finish", "--status", "SUCCESS", "--output-file", "long"), "punctual claims upload"),
        (("finish", "--status", "SUCCESS", "--output-file", "none"), "No such file"),
        (("finish", "--status", "SUCCESS", "--output-file", "x", "--upload", "y"), "together"),
        (("renew", "--log-file", "none"), "No such file"),
        (("upload", "none"), "is not a file"),
        (("upload", "empty"), "is empty"),
    ],
)
def test_wrong_file_is_refused_before_a_call(
    executor: Executor, args: tuple[str, ...], message: str
) -> None:
    for name, data in (("bad.json", b"{"), ("bytes", b"\xff"), ("empty", b"")):
        (executor.home / name).write_bytes(data)
    (executor.home / "long").write_bytes(b"x" * 300_000)
    assert message in executor(*args, code=2).err
    assert executor.server.calls == []
