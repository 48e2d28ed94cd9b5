"""Artifacts in every language, as the runner downloads them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.acceptance.programs import zip_of
from tests.support.runner.claims_api import ClaimsApi, a_claims_api
from tests.support.runner.runner_process import an_artifact, an_event, run_in_process

C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
    char line[100];
    if (!fgets(line, sizeof line, stdin)) return 9;
    printf("%s%s %s\\n", line, words[1], getenv("MINE"));
    fprintf(stderr, "to the log\\n");
    return count;
}
"""
EXPECTED = '{"n":1}\nword of mine\n'
SOURCES = {
    "python": (
        "main.py",
        "import os, sys\nprint(input()); print(sys.argv[1], os.environ['MINE'])\n"
        "print('to the log', file=sys.stderr); sys.exit(2)",
    ),
    "node": (
        "main.js",
        "const line = require('fs').readFileSync(0, 'utf8')\n"
        "console.log(line + process.argv[2] + ' ' + process.env.MINE)\n"
        "console.error('to the log'); process.exit(2)",
    ),
    "bash": ("main.sh", 'cat; echo "$1 $MINE"; echo "to the log" >&2; exit 2'),
}


@pytest.fixture
def api() -> Iterator[ClaimsApi]:
    with a_claims_api() as api:
        yield api


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a binary that the C compiler of this machine builds."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.c").write_text(C_PROGRAM)
    subprocess.run(["gcc", "-static", "-o", "main", "main.c"], cwd=folder, check=True)
    return (folder / "main").read_bytes()


def finish_of(api: ClaimsApi, folder: Path, runtime: str, data: bytes) -> dict[str, Any]:
    """Carry out an artifact and return its finish."""
    task = {"artifact": an_artifact(api, data), "args": ["word"], "env": {"MINE": "of mine"}}
    run_in_process(an_event(api, None, runtime, task=task), folder)
    [finish] = api.finished
    return dict(finish)


@pytest.mark.parametrize("is_zip", [False, True], ids=["file", "zip"])
@pytest.mark.parametrize("runtime", [*SOURCES, "binary"])
def test_artifact_runs_in_each_language(
    api: ClaimsApi, tmp_path: Path, runtime: str, is_zip: bool, program: bytes
) -> None:
    name, source = SOURCES.get(runtime, ("main", ""))
    data = source.encode() or program
    finish = finish_of(api, tmp_path, runtime, zip_of({name: data}) if is_zip else data)
    assert finish["output_text"] == EXPECTED
    assert sorted(finish["log"].splitlines()) == ["to the log", "word of mine", '{"n":1}']
    assert (finish["status"], finish["exit_code"]) == ("FAILED", 2)
    assert finish["error_message"] == "Exit code 2\nto the log"


@pytest.mark.parametrize("sandbox", ["landlock", "bubblewrap", "none"])
def test_binary_runs_in_each_sandbox(
    api: ClaimsApi, tmp_path: Path, program: bytes, sandbox: str
) -> None:
    task = {"artifact": an_artifact(api, program), "args": ["word"], "env": {"MINE": "x"}}
    event = an_event(api, None, "binary", task=task)
    run_in_process(event, tmp_path, PUNCTUAL_SANDBOX=sandbox)
    assert api.finished[0]["exit_code"] == 2


def test_wheels_can_be_imported(api: ClaimsApi, tmp_path: Path) -> None:
    wheel = zip_of({"greeting/__init__.py": b"TEXT = 'from a wheel'", "greeting/data.txt": b"x"})
    main = (
        b"import pkgutil, greeting; print(greeting.TEXT, pkgutil.get_data('greeting', 'data.txt'))"
    )
    data = zip_of({"main.py": main, "wheels/greeting-1-py3-none-any.whl": wheel})
    run_in_process(
        an_event(api, None, "python", task={"artifact": an_artifact(api, data)}), tmp_path
    )
    assert api.finished[0]["output_text"] == "from a wheel b'x'\n"


def test_altered_artifact_is_not_run(api: ClaimsApi, tmp_path: Path) -> None:
    artifact = an_artifact(api, b"echo good", "a") | {"size": 8}
    api.artifacts["a"] = b"echo bad"
    artifact["url"] = f"{api.url}/artifacts/a"
    event = an_event(api, None, task={"artifact": artifact}, timeout_seconds=5)
    api.artifacts["b"] = b"echo much longer than it should be"
    with_long = event | {
        "task": event["task"] | {"artifact": {**artifact, "url": f"{api.url}/artifacts/b"}}
    }
    for wrong, text in ((event, "its digest is wrong"), (with_long, "larger than it should be")):
        run_in_process(wrong, tmp_path)
        finish = api.finished.pop()
        assert (finish["status"], finish["retryable"]) == ("FAILED", True)
        assert finish["error_message"].endswith(text)


def test_missing_artifact_fails_the_attempt(api: ClaimsApi, tmp_path: Path) -> None:
    artifact = an_artifact(api, b"echo") | {"url": f"{api.url}/artifacts/none"}
    run_in_process(an_event(api, None, task={"artifact": artifact}), tmp_path)
    assert api.finished[0]["error_message"] == "The artifact could not be read: HTTP 404"


def test_oversized_artifact_is_not_downloaded(api: ClaimsApi, tmp_path: Path) -> None:
    artifact = an_artifact(api, b"echo") | {"size": 250 * 1024 * 1024 + 1}
    run_in_process(an_event(api, None, task={"artifact": artifact}), tmp_path)
    [finish] = api.finished
    assert (finish["error_message"], finish["retryable"]) == ("The artifact has over 250 MB", False)


def test_zip_that_leaves_its_folder_is_refused(api: ClaimsApi, tmp_path: Path) -> None:
    artifact = an_artifact(api, zip_of({"main.sh": b"echo", "../../../../out": b"x"}))
    run_in_process(an_event(api, None, task={"artifact": artifact}), tmp_path)
    [finish] = api.finished
    assert finish["error_message"] == (
        "The artifact has a file outside of its folder: '../../../../out'"
    )
    assert not list(tmp_path.rglob("out"))
