"""Secrets of the program: set from a prompt or standard input, listed, deleted, completed."""

import json
from collections.abc import Iterator

import pytest

from punctual.client import Punctual
from tests.e2e.cli.program import Program
from tests.e2e.cli.test_cli_completion import in_bash

VALUE = "correct horse battery"


@pytest.fixture(autouse=True)
def no_secrets_remain(client: Punctual) -> Iterator[None]:
    """Delete the secrets of a test, because all tests share a node."""
    yield
    for name in names(client):
        client.secrets.delete(name)


def run_that_prints(program: Program, name: str) -> str:
    """Return what a run prints of a secret that it gets in its environment."""
    task = {
        "type": "script",
        "runtime": "bash",
        "code": 'printf "%s" "$VALUE" | cksum; printf "%s" "$VALUE"',
        "env": {"VALUE": f"{{{{secret:{name}}}}}"},
    }
    job = {"name": "prints", "schedule_type": "IMMEDIATE", "task": task, "max_retries": 0}
    (program.home / "job.json").write_text(json.dumps(job))
    created = program.json("jobs", "create", "-f", "job.json")["job_id"]
    program("runs", "watch", created)
    return program("runs", "output", created).out


def names(client: Punctual) -> list[str]:
    return [secret.name for secret in client.secrets.list()]


def test_secret_is_set_from_standard_input_without_its_line_end(
    program: Program, client: Punctual
) -> None:
    result = program("secrets", "set", "bank", stdin=f"{VALUE}\n")
    assert result.out == "Set bank. Tasks use it as {{secret:bank}}.\n"
    assert names(client) == ["bank"]
    shown = run_that_prints(program, "bank")
    assert "[secret]" in shown
    assert VALUE not in shown
    assert "3819474465 21" in shown, "the checksum of the value alone"


def test_secret_is_set_at_a_prompt_without_an_echo(program: Program, client: Punctual) -> None:
    with program.terminal("secrets", "set", "bank") as terminal:
        terminal.until("Value of bank: ").types(f"{VALUE}\n")
        assert terminal.ends() == 0
    assert VALUE not in terminal.shown
    assert names(client) == ["bank"]


@pytest.mark.parametrize(
    "args", [("bank", VALUE), (f"bank={VALUE}",), ("bank", "--value", VALUE), ("bank", "a", "b")]
)
def test_value_on_the_command_line_is_refused_with_the_reason(
    program: Program, client: Punctual, args: tuple[str, ...]
) -> None:
    result = program("secrets", "set", *args, code=2, stdin="x")
    assert "must not be on the command line. Other users see command lines" in result.err
    assert "punctual secrets set NAME < FILE" in result.err
    assert VALUE not in result.err + result.out
    assert names(client) == []


@pytest.mark.parametrize(
    ("stdin", "code", "message"),
    [
        ("", 2, "The value is empty."),
        ("\n", 2, "The value is empty."),
        ("x" * 5_000, 4, "must have at most 4,096 bytes"),
        ("{{other}}", 4, "must not hold text in double braces"),
    ],
)
def test_wrong_value_is_refused(
    program: Program, client: Punctual, stdin: str, code: int, message: str
) -> None:
    assert message in program("secrets", "set", "bank", code=code, stdin=stdin).err
    assert names(client) == []


def test_wrong_name_is_refused(program: Program) -> None:
    assert (
        "name: must be 1 to 64 letters" in program("secrets", "set", "a b", code=4, stdin="x").err
    )


def test_secrets_are_listed_deleted_and_completed(program: Program, client: Punctual) -> None:
    assert program("secrets", "list").out == "No secrets.\n"
    for name in ("bank", "beach", "door"):
        program("secrets", "set", name, stdin=VALUE)
    table = program("secrets", "list").out
    assert table.split()[:3] == ["NAME", "SET", "BY"]
    assert VALUE not in table
    listed = program.json("secrets", "list")
    assert [secret["name"] for secret in listed] == ["bank", "beach", "door"]
    assert set(listed[0]) == {"name", "created_at", "updated_at", "updated_by"}
    assert in_bash(program, "secrets", "delete", "b") == ["bank", "beach"]
    assert program("secrets", "delete", "bank").out == "Deleted bank.\n"
    error = program("secrets", "delete", "bank", code=3).err
    assert "There is no secret 'bank'" in error
    assert "punctual secrets list" in error
    assert names(client) == ["beach", "door"]
