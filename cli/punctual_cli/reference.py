"""Generate the reference of the commands.

`python -m punctual_cli.reference docs/cli.md` rewrites the part below the page's marker.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from punctual_cli.command_group import COMMON_OPTIONS
from punctual_cli.errors import EXIT_CODE_MEANINGS
from punctual_cli.program import app

REFERENCE_MARKER = (
    "<!-- Generated below this line: python -m punctual_cli.reference docs/cli.md -->"
)


def render_reference() -> str:
    root = typer.main.get_command(app)
    parts = [_render_exit_codes(), _render_common_options(root)]
    parts.extend(
        _render_command(path, command) for path, command in _walk_commands((root.name or "",), root)
    )
    return "\n\n".join(parts) + "\n"


def replace_reference(page: str) -> str:
    """Return the page with a new reference below its marker."""
    preamble, marker, _ = page.partition(REFERENCE_MARKER)
    if not marker:
        raise ValueError(f"the page has no line {REFERENCE_MARKER}")
    return f"{preamble}{REFERENCE_MARKER}\n\n{render_reference()}"


def _walk_commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in command.list_commands(typer.Context(command)):
        inner = command.commands[name]
        if hasattr(inner, "commands"):
            yield from _walk_commands((*path, name), inner)
        else:
            yield (*path, name), inner


def _render_exit_codes() -> str:
    rows = "\n".join(f"| {int(code)} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items())
    return f"## Exit codes\n\n| code | meaning |\n|---|---|\n{rows}"


def _render_common_options(root: Any) -> str:
    common_params = [param for param in _visible_params(root) if param.name in COMMON_OPTIONS]
    return f"## Options of every command\n\n{_render_table(common_params)}"


def _render_command(path: tuple[str, ...], command: Any) -> str:
    own_params = [param for param in _visible_params(command) if param.name not in COMMON_OPTIONS]
    arguments = [param for param in own_params if param.param_type_name == "argument"]
    options = [param for param in own_params if param.param_type_name == "option"]
    words = [*path, *(_argument_text(param) for param in arguments)]
    if any(not param.required for param in options):
        words.append("[OPTIONS]")
    words.extend(f"{param.opts[0]} {param.metavar}" for param in options if param.required)
    help_text = " ".join(command.help.split())
    parts = [f"## {' '.join(path)}", f"`{' '.join(words)}`", help_text]
    if own_params:
        parts.append(_render_table([*arguments, *options]))
    return "\n\n".join(parts)


def _visible_params(command: Any) -> list[Any]:
    context = typer.Context(command)
    return [
        param
        for param in command.get_params(context)
        if param.name != "help" and not getattr(param, "hidden", False)
    ]


def _argument_text(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required else f"[{name}]"


def _render_table(params: list[Any]) -> str:
    rows = "\n".join(
        f"| {_escape_cell(_param_names(param))} | {_escape_cell(_help_text(param))} |"
        for param in params
    )
    return f"| | |\n|---|---|\n{rows}"


def _param_names(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{param.metavar or param.name.upper()}`"
    value = "" if param.is_flag else f" {_value_text(param)}"
    return ", ".join(f"`{name}{value}`" for name in param.opts)


def _value_text(param: Any) -> str:
    choices = param.type_descriptor.choices
    if param.metavar or choices is None:
        return str(param.metavar or param.name.upper())
    return "\\|".join(str(choice.value) for choice in choices)


def _help_text(param: Any) -> str:
    text = str(param.help or "")
    default = param.default
    shows_default = not param.is_flag if hasattr(param, "is_flag") else True
    if shows_default and default not in (None, ()) and param.show_default and not param.required:
        text += f" Default: {getattr(default, 'value', default)}."
    return text


def _escape_cell(text: str) -> str:
    return text.replace("\\|", "|").replace("|", "\\|")


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(replace_reference(page.read_text()))


if __name__ == "__main__":
    main()
