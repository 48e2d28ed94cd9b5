"""The pages, and the execution of a page's blocks in order."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.docs.blocks import Block, Use, blocks_of
from tests.e2e.docs.expected import shows
from tests.e2e.docs.sessions import Failed, Python, Shell, Terminal, answers
from tests.rehearsal.emulator import free_port

ROOT = Path(__file__).parents[3]
PAGES_WITH_TESTS = {
    "docs/runbook.md": "tests/infra/operations/test_runbook.py",
    "docs/how-to/deploy-from-github.md": "tests/infra/operations/test_deploy_workflow.py",
    "docs/how-to/use-from-the-aws-console.md": "tests/integration/lambdas/test_console_page.py",
    "docs/events.md": "tests/unit/lambdas/test_events_page.py",
    "docs/reference/api.md": "tests/unit/web/test_openapi.py",
    "docs/requirements.md": "tests/unit/project/test_requirements.py",
}
"""Pages that have a test of their own."""

PORTS = ("8080", "9000")
"""Ports of node and receiver in the pages. A test replaces them by free ports."""

TOKEN = re.compile(r"\bpnc_[A-Za-z0-9_-]{22,}")
SOME_TOKEN = "pnc_…"
"""Stands for the token that was shown last."""

SOME_ADDRESS = re.compile(r"https://…\.execute-api\.[a-z0-9-]+\.amazonaws\.com/v1\b")
"""The address of the deployment, as `make deploy` prints it."""

INHERITED = ("LANG", "PYTHONPATH", "TMPDIR")


def pages() -> list[str]:
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return [
        name
        for name in names
        if not name.startswith("docs/decisions/") and name not in PAGES_WITH_TESTS
    ]


def has_local_commands(page: str) -> bool:
    uses = {block.use for block in blocks_of(ROOT, page) if not block.on_aws}
    return bool(uses & {Use.SHELL, Use.PYTHON, Use.NODE})


def has_aws_commands(page: str) -> bool:
    return any(block.on_aws for block in blocks_of(ROOT, page))


class Page:
    """One page with its own folder and home."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._folder = folder / "page"
        self._home = folder / "home"
        self._folder.mkdir()
        self._home.mkdir()
        self._ports = {port: str(free_port()) for port in PORTS}
        self._environment = {
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self._home),
            "COLUMNS": "110",
            "NO_COLOR": "1",
            "TZ": "UTC",
            "PYTHONUNBUFFERED": "1",
            "PUNCTUAL_PORT": self._ports["8080"],
            "PUNCTUAL_DATA": str(folder / "data"),
            "PUNCTUAL_STOP_SECONDS": "2",
            "PUNCTUAL_URL": f"http://127.0.0.1:{self._ports['8080']}/v1",
            **environment,
        }
        options = f"--port {self._ports['8080']} --data {folder / 'data'}"
        self._serving = {
            "make run": f"{sys.executable} -m punctual.node",  # without `requirements/install`
            "punctual dev": f"punctual dev {options}",  # it gets options instead
        }
        self._log = folder / "node.log"
        self._token = environment.get("PUNCTUAL_TOKEN")
        self._terminal: Terminal | None = None
        self._shell: Shell | None = None
        self._python: Python | None = None

    def run(self, blocks: Sequence[Block], *, served: bool) -> None:
        """Run the blocks. With `served`, a node already runs at the page's address."""
        with ExitStack() as stack:
            stack.callback(self._stop)
            if served:
                self._serve(f"{sys.executable} -m punctual.node")
            output: str | None = None
            for block in blocks:
                try:
                    output = self._run_block(block, output, stack)
                except Failed as error:
                    raise Failed(f"{block}: {error}") from None

    def _run_block(self, block: Block, output: str | None, stack: ExitStack) -> str | None:
        text = self._to_this_run(block.text)
        match block.use:
            case Use.SHELL:
                if self._shell is None:
                    self._shell = stack.enter_context(Shell(self._environment, self._folder))
                return self._to_page(self._shell.run(text))
            case Use.PYTHON:
                if self._python is None:
                    self._python = stack.enter_context(Python(self._environment, self._folder))
                return self._to_page(self._python.run(text, str(block)))
            case Use.NODE:
                return self._to_page(self._serve(text))
            case Use.STOP:
                self._stop()
            case Use.FILE:
                assert block.file is not None
                (self._folder / block.file).write_text(text)
            case Use.OUTPUT:
                if output is None:
                    raise Failed("nothing was said before it")
                if not shows(block.text, output):
                    raise Failed(f"what was said is\n{output}")
        return None

    def _serve(self, command: str) -> str:
        self._stop()
        for typed, does in self._serving.items():
            command = re.sub(rf"{typed}(?=\s|$)", does, command)
        self._terminal = Terminal(command, self._environment, ROOT, self._log)
        return self._terminal.until(lambda: answers(self._environment["PUNCTUAL_URL"]))

    def _stop(self) -> None:
        if self._terminal is not None:
            self._terminal.stop()
            self._terminal = None

    def _to_this_run(self, text: str) -> str:
        """Replace the token, the address and the ports of the page by those of this run."""
        if self._token is not None:
            text = text.replace(SOME_TOKEN, self._token)
        text = SOME_ADDRESS.sub(self._environment["PUNCTUAL_URL"], text)
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda match: self._ports[match[1]], text)

    def _to_page(self, text: str) -> str:
        for token in TOKEN.findall(text):
            self._token = token
            text = text.replace(token, SOME_TOKEN)
        for port, free in self._ports.items():
            text = re.sub(rf"\b{free}\b", port, text)
        return text


def run_locally(name: str, folder: Path) -> None:
    """Run all blocks for the local node."""
    page_blocks = list(_selected(blocks_of(ROOT, name), aws=False))
    Page(name, folder, {}).run(
        page_blocks, served=all(block.use is not Use.NODE for block in page_blocks)
    )


def run_on_aws(name: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run all blocks for the deployment of `environment`."""
    Page(name, folder, environment).run(
        list(_selected(blocks_of(ROOT, name), aws=True)), served=False
    )


def _selected(page_blocks: list[Block], *, aws: bool) -> Iterator[Block]:
    """Select blocks. Output follows the command before it, and files are written in both cases."""
    is_selected = True
    for block in page_blocks:
        if block.use is Use.FILE:
            yield block
            continue
        is_selected = is_selected if block.use is Use.OUTPUT else block.on_aws is aws
        if is_selected:
            yield block
