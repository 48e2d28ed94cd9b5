"""Declare commands with common options, accepted before or after the name of a command."""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import typer

from punctual_cli import errors, shapes
from punctual_cli.profiles import TargetOptions
from punctual_cli.session import Session

COMMON_OPTIONS_PANEL = "Common options"
Command = Callable[..., None]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Address of the API. Overrides PUNCTUAL_URL.",
        rich_help_panel=COMMON_OPTIONS_PANEL,
        metavar="URL",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Token, or - to read it from standard input. Overrides PUNCTUAL_TOKEN.",
        rich_help_panel=COMMON_OPTIONS_PANEL,
        metavar="TOKEN",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Stored login to use. Overrides PUNCTUAL_PROFILE.",
        rich_help_panel=COMMON_OPTIONS_PANEL,
        metavar="NAME",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON.", rich_help_panel=COMMON_OPTIONS_PANEL),
]
NoColor = Annotated[
    bool,
    typer.Option(
        "--no-color",
        help="Print without colours. NO_COLOR does the same.",
        rich_help_panel=COMMON_OPTIONS_PANEL,
    ),
]
COMMON_OPTIONS: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "token": (Token, None),
    "profile": (Profile, None),
    "as_json": (Json, False),
    "no_color": (NoColor, False),
}


def make_group(
    help_text: str, group_class: type[shapes.HelpGroup] = shapes.HelpGroup
) -> typer.Typer:
    return typer.Typer(cls=group_class, no_args_is_help=True, help=help_text)


def command(app: typer.Typer, name: str, panel: str | None = None) -> Callable[[Command], Command]:
    """Return a decorator that registers a function with a Session as its first argument.

    A parameter with a dataclass as its type stands for the options that its fields declare.
    """

    def register(function: Command) -> Command:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        option_classes: dict[str, Any] = {
            parameter.name: parameter.annotation
            for parameter in parameters
            if is_dataclass(parameter.annotation)
        }

        def invoke(ctx: typer.Context, **values: Any) -> None:
            session = _make_session(ctx, {name: values.pop(name) for name in COMMON_OPTIONS})
            for name, option_class in option_classes.items():
                values[name] = option_class(
                    **{option.name: values.pop(option.name) for option in fields(option_class)}
                )
            _run_action(session, lambda: function(session, **values))

        _set_signature(invoke, list(_expanded_parameters(parameters, option_classes)))
        invoke.__doc__ = function.__doc__
        app.command(name, cls=shapes.HelpCommand, rich_help_panel=panel)(invoke)
        return function

    return register


def _set_signature(invoke: Any, own_parameters: list[inspect.Parameter]) -> None:
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    own_parameters = [parameter.replace(kind=keyword_only) for parameter in own_parameters]
    common_parameters = [
        inspect.Parameter(name, keyword_only, default=default, annotation=annotation)
        for name, (annotation, default) in COMMON_OPTIONS.items()
    ]
    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters = [context, *own_parameters, *common_parameters]
    invoke.__signature__ = inspect.Signature(parameters)
    invoke.__annotations__ = {
        signature_parameter.name: signature_parameter.annotation
        for signature_parameter in parameters
    }


def _expanded_parameters(
    parameters: Iterable[inspect.Parameter], option_classes: Mapping[str, Any]
) -> Iterator[inspect.Parameter]:
    """Yield the parameters with the options of each option class in its place."""
    for parameter in parameters:
        option_class = option_classes.get(parameter.name)
        if option_class is None:
            yield parameter
        else:
            yield from inspect.signature(option_class).parameters.values()


def _make_session(ctx: typer.Context, values: dict[str, Any]) -> Session:
    """Return the session of a command.

    Options after the command's name override those before it.
    """
    earlier_values: dict[str, Any] = ctx.obj if isinstance(ctx.obj, dict) else {}
    merged_values = {name: values[name] or earlier_values.get(name) for name in COMMON_OPTIONS}
    if merged_values["token"] == "-":
        merged_values["token"] = sys.stdin.readline().strip()
    if merged_values["no_color"]:
        os.environ["NO_COLOR"] = "1"  # Typer and Rich read it for their own output
    return Session(
        TargetOptions(merged_values["url"], merged_values["token"], merged_values["profile"]),
        bool(merged_values["as_json"]),
        bool(merged_values["no_color"]),
    )


def _run_action(session: Session, action: Callable[[], None]) -> None:
    try:
        action()
        sys.stdout.flush()
    except typer.Exit:
        raise
    except BrokenPipeError:
        _discard_stdout()
        raise typer.Exit(errors.ExitCode.PIPE_CLOSED) from None
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            _discard_stdout()
        target = session.shown_target
        failure = errors.failure_of(error, target.url, target.profile)
        if failure is None:
            raise
        errors.print_failure(failure, session.as_json)
        raise typer.Exit(int(failure.exit_code)) from None


def _discard_stdout() -> None:
    """Point stdout at /dev/null. The reader is gone, and a flush at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
