"""Types of the client's page. Another test runs its code."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.e2e.docs.blocks import Use, blocks_of
from tests.e2e.docs.pages import pages

ROOT = Path(__file__).parents[3]
PAGE = "docs/client.md"

WRONG = {
    'client.jobs.create(name="a")': 'Missing named argument "schedule_type"',
    'client.jobs.create(name="a", schedule_type="DAILY")': 'expected "Literal',
    'client.jobs.create(name="a", schedule_type="CRON", cron="* * * * *")': 'argument "cron"',
    "client.jobs.update(1)": 'expected "str | Job"',
    "client.jobs.get('a').nmae": '"nmae"',
    "client.runs.list().run_id": '"run_id"',
    "awaited.jobs.get('a')": "must be used",
    'client.tokens.create(name="a", role="root")': 'expected "Literal',
}
RIGHT = {
    "client.jobs.run('a').start_time": "datetime.datetime | None",
    "client.jobs.list()": "Iterator[punctual.client.job.Job]",
    "client.jobs.create_many([{'name': 'a'}])": "punctual.client.job.Batch",
    "awaited.jobs.list()": "AsyncIterator[punctual.client.job.Job]",
    "awaited.runs.get('a', 'b')": "Coroutine[Any, Any, punctual.client.run.Run]",
}


@pytest.fixture(scope="module")
def checker_output(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the output of a strict type checker for the page and a program with mistakes."""
    folder = tmp_path_factory.mktemp("typed")
    blocks = [block for block in blocks_of(ROOT, PAGE) if block.use is Use.PYTHON]
    (folder / "page.py").write_text("".join(block.text for block in blocks))
    lines = ["from punctual.client import AsyncPunctual, Punctual"]
    lines += ["client = Punctual()", "awaited = AsyncPunctual()"]
    lines += [f"reveal_type({expression})" for expression in RIGHT]
    (folder / "program.py").write_text("\n".join([*lines, *WRONG]))
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=.cache", "."],
        cwd=folder,
        env={"MYPYPATH": str(ROOT / "layers/core/python"), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return process.stdout.splitlines()


def test_code_of_the_page_passes_strict_type_checks(checker_output: list[str]) -> None:
    assert [line for line in checker_output if line.startswith("page.py")] == []
    assert checker_output[-1].endswith("in 1 file (checked 2 source files)")


@pytest.mark.parametrize("expression", RIGHT)
def test_client_answers_have_their_types(checker_output: list[str], expression: str) -> None:
    number = 4 + list(RIGHT).index(expression)
    (line,) = [
        line for line in checker_output if line.startswith(f"program.py:{number}: note: Rev")
    ]
    assert RIGHT[expression] in line


@pytest.mark.parametrize("expression", WRONG)
def test_type_checker_finds_mistakes(checker_output: list[str], expression: str) -> None:
    number = 4 + len(RIGHT) + list(WRONG).index(expression)
    errors = [line for line in checker_output if line.startswith(f"program.py:{number}: error")]
    assert any(WRONG[expression] in line for line in errors), checker_output


def test_page_is_run_with_the_others() -> None:
    assert PAGE in pages()


def test_wheel_contains_the_types(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert {"punctual/py.typed", "punctual/client/__init__.py"} <= set(names)
