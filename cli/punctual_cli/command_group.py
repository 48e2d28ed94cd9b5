"""Declare commands with common options, accepted before or after the name of a command."""

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import typer

from punctual_cli import errors, shapes
from punctual_cli.profiles import Asked
from punctual_cli.session import Session

PANEL = "Everywhere"
Command = Callable[..., None]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Where the API is; else PUNCTUAL_URL says.",
        rich_help_panel=PANEL,
        metavar="URL",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Your token, or - to read it; else PUNCTUAL_TOKEN.",
        rich_help_panel=PANEL,
        metavar="TOKEN",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="A login by its name; else PUNCTUAL_PROFILE.",
        rich_help_panel=PANEL,
        metavar="NAME",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Answer in JSON, for programs.", rich_help_panel=PANEL)
]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="No colours; so does NO_COLOR.", rich_help_panel=PANEL)
]
EVERYWHERE: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "token": (Token, None),
    "profile": (Profile, None),
    "as_json": (Json, False),
    "no_color": (NoColor, False),
}


def group(help_text: str) -> typer.Typer:
    return typer.Typer(cls=shapes.Branch, no_args_is_help=True, help=help_text)


def command(app: typer.Typer, name: str, panel: str | None = None) -> Callable[[Command], Command]:
    """Return a decorator that registers a function with a Session as its first argument.

    A parameter with a dataclass as its type stands for the options that its fields declare.
    """

    def register(function: Command) -> Command:
        own = list(inspect.signature(function).parameters.values())[1:]
        flags: dict[str, Any] = {
            one.name: one.annotation for one in own if is_dataclass(one.annotation)
        }
        named = [one for one in own if one.name not in flags]

        def invoked(ctx: typer.Context, **given: Any) -> None:
            session = _session(ctx, {name: given.pop(name) for name in EVERYWHERE})
            for name, kind in flags.items():
                given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
            _run(session, lambda: function(session, **given))

        _declare(invoked, [*named, *_expanded(flags.values())])
        invoked.__doc__ = function.__doc__
        app.command(name, cls=shapes.Leaf, rich_help_panel=panel)(invoked)
        return function

    return register


def _declare(invoked: Any, own: list[inspect.Parameter]) -> None:
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [parameter.replace(kind=keyword) for parameter in own]
    common = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in EVERYWHERE.items()
    ]
    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters = [context, *own, *common]
    invoked.__signature__ = inspect.Signature(parameters)
    invoked.__annotations__ = {each.name: each.annotation for each in parameters}


def _expanded(kinds: Iterable[Any]) -> list[inspect.Parameter]:
    return [one for kind in kinds for one in inspect.signature(kind).parameters.values()]


def _session(ctx: typer.Context, given: dict[str, Any]) -> Session:
    """Return the session of a command.

    Options after the command's name override those before it.
    """
    before: dict[str, Any] = ctx.obj if isinstance(ctx.obj, dict) else {}
    found = {name: given[name] or before.get(name) for name in EVERYWHERE}
    if found["token"] == "-":
        found["token"] = sys.stdin.readline().strip()
    if found["no_color"]:
        os.environ["NO_COLOR"] = "1"  # Typer and Rich read it for their own output
    return Session(
        Asked(found["url"], found["token"], found["profile"]),
        bool(found["as_json"]),
        bool(found["no_color"]),
    )


def _run(session: Session, action: Callable[[], None]) -> None:
    try:
        action()
        sys.stdout.flush()
    except typer.Exit:
        raise
    except BrokenPipeError:
        _give_up_writing()
        raise typer.Exit(errors.Code.PIPE_CLOSED) from None
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            _give_up_writing()
        found = errors.told(error, session.address)
        if found is None:
            raise
        errors.show(found, session.as_json)
        raise typer.Exit(int(found.exit_code)) from None


def _give_up_writing() -> None:
    """Point stdout at /dev/null. The reader is gone, and a flush at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
