"""`docs/cli.md` equals the help of the program, and the program has each command."""

import re
from pathlib import Path
from typing import Any

import typer

from punctual.web.models.defaults import DEFAULTS
from punctual.web.models.job import JobFields
from punctual_cli import errors, reference, shapes
from punctual_cli.apply.fields import FIELD_ORDER
from punctual_cli.program import app

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def commands() -> list[tuple[str, Any]]:
    root = typer.main.get_command(app)
    return [
        (" ".join(path), command) for path, command in reference._walk_commands(("punctual",), root)
    ]


def test_cli_page_equals_the_generated_reference() -> None:
    text = PAGE.read_text()
    assert reference.replace_reference(text) == text


def test_program_has_every_command() -> None:
    names = {name.removeprefix("punctual ") for name, _ in commands()}
    jobs = "create list show update pause resume cancel run backfill explain occurrences versions"
    jobs += " watch"
    rest = (
        "preview upcoming forecast diff apply export top stats health audit login logout whoami dev"
    )
    runs = "list show logs output cancel retry watch"
    assert names == {
        *(f"jobs {verb}" for verb in jobs.split()),
        *(f"runs {verb}" for verb in runs.split()),
        *(f"tokens {verb}" for verb in ("create", "list", "revoke")),
        *(f"secrets {verb}" for verb in ("set", "list", "delete")),
        *(f"artifacts {verb}" for verb in ("upload", "list", "get", "delete")),
        *(f"failures {verb}" for verb in ("list", "acknowledge")),
        *(f"operations {verb}" for verb in ("list", "show", "watch", "cancel")),
        *(f"claims {verb}" for verb in ("renew", "finish", "upload")),
        "webhook-secret",
        "completion",
        "status",
        *rest.split(),
    }
    assert {name.split()[0] for name in names} == set(shapes.COMMAND_ORDER)


def test_every_command_and_option_has_help() -> None:
    for name, command in commands():
        assert command.help, name
        for param in reference._visible_params(command):
            assert param.help, f"{name} {param.name}"


def test_every_command_has_the_common_options() -> None:
    for name, command in commands():
        options = {option for param in command.params for option in param.opts}
        assert {"--json", "--url", "--token", "--profile", "--no-color"} <= options, name


def test_every_exit_code_has_a_meaning() -> None:
    assert set(errors.EXIT_CODE_MEANINGS) == set(errors.ExitCode)
    listed = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.M)
    assert [int(code) for code in listed] == [int(code) for code in errors.ExitCode]


def test_job_fields_equal_those_of_the_api() -> None:
    assert set(FIELD_ORDER) == set(JobFields.model_fields)
    assert set(DEFAULTS) == set(FIELD_ORDER) - {"name", "schedule_type"}
