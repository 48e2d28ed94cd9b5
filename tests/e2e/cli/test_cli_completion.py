"""Shell completion."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cli.program import PROGRAM, WITHIN, Program

IN_BASH = """
set -e
eval "$(punctual completion bash)"
COMP_WORDS=({words})
COMP_CWORD={at}
_punctual_completion punctual
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def in_bash(program: Program, *words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in ("punctual", *words))
    path = f"{Path(PROGRAM).parent}:{program.env['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", IN_BASH.format(words=quoted, at=len(words))],
        env={**program.env, "PATH": path},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_and_words(program: Program) -> None:
    assert in_bash(program, "jo") == ["jobs"]
    assert in_bash(program, "jobs", "re") == ["resume"]
    assert "--status" in in_bash(program, "jobs", "list", "--st")
    assert in_bash(program, "jobs", "list", "--status", "PA") == ["PAUSED"]


def test_bash_completes_job_names_and_ids_of_names_with_spaces(program: Program) -> None:
    program("jobs", "create", "nightly-a", "--every", "1d")
    spaced = program.json("jobs", "create", "nightly b", "--every", "1d")["job_id"]
    program("jobs", "create", "other", "--every", "1d")
    assert in_bash(program, "jobs", "run", "night") == ["nightly-a"]
    assert set(in_bash(program, "jobs", "run", "")) == {"nightly-a", "other", spaced}


def test_completion_without_a_server_is_empty(program: Program) -> None:
    nowhere = program.with_env(PUNCTUAL_URL="http://127.0.0.1:1/v1")
    assert in_bash(nowhere, "jobs", "run", "x") == []


@pytest.mark.parametrize(
    ("shell", "env", "expected"),
    [
        (
            "zsh",
            {"_TYPER_COMPLETE_ARGS": "punctual jobs re"},
            '"resume":"Resume a paused job, or many by filters."',
        ),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "punctual jobs re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
            "resume\tResume a paused job, or many by filters.",
        ),
    ],
)
def test_zsh_and_fish_completion_works(
    program: Program, shell: str, env: dict[str, str], expected: str
) -> None:
    completion = program.with_env(**env, _PUNCTUAL_COMPLETE=f"complete_{shell}")
    assert expected in completion().out
    script = program("completion", shell).out
    assert f"_PUNCTUAL_COMPLETE=complete_{shell}" in script
    assert program.with_env(SHELL=f"/usr/bin/{shell}")("completion").out == script


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_script_is_valid_in_its_shell(program: Program, shell: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell} here")
    (program.home / "script").write_text(program("completion", shell).out)
    done = subprocess.run(
        [path, "-n", "script"], cwd=program.home, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
