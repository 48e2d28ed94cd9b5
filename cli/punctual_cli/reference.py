"""Generate the reference of the commands.

`python -m punctual_cli.reference docs/cli.md` rewrites the part below the page's marker.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from punctual_cli.command_group import EVERYWHERE
from punctual_cli.errors import MEANINGS
from punctual_cli.program import app

MARKER = "<!-- From here on the program says it: python -m punctual_cli.reference docs/cli.md -->"


def reference() -> str:
    root = typer.main.get_command(app)
    parts = [_exit_codes(), _everywhere(root)]
    parts.extend(_command(path, command) for path, command in _commands((root.name or "",), root))
    return "\n\n".join(parts) + "\n"


def with_reference(page: str) -> str:
    """Return the page with a new reference below its marker."""
    before, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError(f"the page has no line {MARKER}")
    return f"{before}{MARKER}\n\n{reference()}"


def _commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in command.list_commands(typer.Context(command)):
        inner = command.commands[name]
        if hasattr(inner, "commands"):
            yield from _commands((*path, name), inner)
        else:
            yield (*path, name), inner


def _exit_codes() -> str:
    rows = "\n".join(f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items())
    return f"## Exit codes\n\n| code | what it says |\n|---|---|\n{rows}"


def _everywhere(root: Any) -> str:
    own = [param for param in _params(root) if param.name in EVERYWHERE]
    return f"## Options of every command\n\n{_table(own)}"


def _command(path: tuple[str, ...], command: Any) -> str:
    own = [param for param in _params(command) if param.name not in EVERYWHERE]
    arguments = [param for param in own if param.param_type_name == "argument"]
    options = [param for param in own if param.param_type_name == "option"]
    words = [*path, *(_argument(param) for param in arguments)]
    if any(not param.required for param in options):
        words.append("[OPTIONS]")
    words.extend(f"{param.opts[0]} {param.metavar}" for param in options if param.required)
    said = " ".join(command.help.split())
    parts = [f"## {' '.join(path)}", f"`{' '.join(words)}`", said]
    if own:
        parts.append(_table([*arguments, *options]))
    return "\n\n".join(parts)


def _params(command: Any) -> list[Any]:
    context = typer.Context(command)
    return [param for param in command.get_params(context) if param.name != "help"]


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required else f"[{name}]"


def _table(params: list[Any]) -> str:
    rows = "\n".join(f"| {_cell(_names(param))} | {_cell(_help(param))} |" for param in params)
    return f"| | |\n|---|---|\n{rows}"


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{param.metavar or param.name.upper()}`"
    value = "" if param.is_flag else f" {_value(param)}"
    return ", ".join(f"`{name}{value}`" for name in param.opts)


def _value(param: Any) -> str:
    choices = param.type_descriptor.choices
    if param.metavar or choices is None:
        return str(param.metavar or param.name.upper())
    return "\\|".join(str(choice.value) for choice in choices)


def _help(param: Any) -> str:
    said = str(param.help or "")
    default = param.default
    shown = not param.is_flag if hasattr(param, "is_flag") else True
    if shown and default not in (None, ()) and param.show_default and not param.required:
        said += f" Default: {getattr(default, 'value', default)}."
    return said


def _cell(text: str) -> str:
    return text.replace("\\|", "|").replace("|", "\\|")


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(with_reference(page.read_text()))


if __name__ == "__main__":
    main()
