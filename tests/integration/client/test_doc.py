"""The page about the client as its readers' editors see it; that it runs, the pages' test shows."""

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
def checked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a strict type checker says of the page, and of a program with mistakes in it."""
    folder = tmp_path_factory.mktemp("typed")
    blocks = [block for block in blocks_of(ROOT, PAGE) if block.use is Use.PYTHON]
    (folder / "page.py").write_text("".join(block.text for block in blocks))
    lines = ["from punctual.client import AsyncPunctual, Punctual"]
    lines += ["client = Punctual()", "awaited = AsyncPunctual()"]
    lines += [f"reveal_type({asked})" for asked in RIGHT]
    (folder / "program.py").write_text("\n".join([*lines, *WRONG]))
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=.cache", "."],
        cwd=folder,
        env={"MYPYPATH": str(ROOT / "layers/core/python"), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return said.stdout.splitlines()


def test_the_pages_code_is_typed(checked: list[str]) -> None:
    assert [line for line in checked if line.startswith("page.py")] == []
    assert checked[-1].endswith("in 1 file (checked 2 source files)")


@pytest.mark.parametrize("asked", RIGHT)
def test_an_answer_has_its_type(checked: list[str], asked: str) -> None:
    number = 4 + list(RIGHT).index(asked)
    (line,) = [line for line in checked if line.startswith(f"program.py:{number}: note: Rev")]
    assert RIGHT[asked] in line


@pytest.mark.parametrize("asked", WRONG)
def test_a_mistake_is_found_before_it_runs(checked: list[str], asked: str) -> None:
    number = 4 + len(RIGHT) + list(WRONG).index(asked)
    found = [line for line in checked if line.startswith(f"program.py:{number}: error")]
    assert any(WRONG[asked] in line for line in found), checked


def test_the_page_is_run_with_the_others() -> None:
    assert PAGE in pages()


def test_the_types_are_in_what_is_installed(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert {"punctual/py.typed", "punctual/client/__init__.py"} <= set(names)
