"""Format the help of commands and groups, and their usage errors."""

import sys
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, TyperException

from punctual_cli import errors

COMMAND_ORDER = (
    *("jobs", "runs", "operations", "failures", "preview", "upcoming", "forecast", "diff"),
    *("apply", "export", "top"),
    *("artifacts", "claims"),
    *("status", "stats", "health", "audit", "tokens", "secrets", "webhook-secret"),
    *("login", "logout", "whoami", "dev", "completion"),
)


def _prepare_params(params: list[Any]) -> list[Any]:
    for param in params:
        # A flag takes no value, so its type <bool> is not shown.
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        param.get_runtime_param = _LazyCoercion(param)
    return params


class _LazyCoercion:
    """Pass through values that have their type already.

    The library's coercion takes 60 ms to load.
    """

    def __init__(self, param: Any) -> None:
        self._param = param
        self._runtime_param = type(param).get_runtime_param

    def __call__(self) -> "_LazyCoercion":
        return self

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        annotation = param.type_descriptor.annotation
        is_default = value is None or (value == param.default and not isinstance(value, str))
        if is_default or (annotation is str and isinstance(value, str)):
            return value
        try:
            return self._runtime_param(self._param).coerce(value, param=param, ctx=ctx)
        except BadParameter as error:
            error.message = _plain_message(error.message)
            raise


def _plain_message(message: str) -> str:
    """Return a message without the wording of the validation library.

    >>> _plain_message("Value error, 'x' is not one of 'a', 'b'.")
    "'x' is not one of 'a', 'b'."
    >>> _plain_message("Input should be a valid integer, unable to parse string as an integer")
    'must be a whole number.'
    """
    message = message.removeprefix("Value error, ")
    is_integer_error = message.startswith("Input should be a valid integer")
    return (
        "must be a whole number."
        if is_integer_error
        else message.replace("Input should be", "must be")
    )


class HelpCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _prepare_params(super().get_params(ctx))


class HelpGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Fail for a missing command with --json, because the help text is not JSON."""
        if not args and ctx.parent is not None and ctx.parent.params.get("as_json"):
            ctx.fail("Missing command.")
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _prepare_params(super().get_params(ctx))


class ListGroup(HelpGroup):
    """A group that lists its items if no command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_help = bool({"--help", "-h"} & set(args[:1]))
        if not args or (args[0].startswith("-") and not is_help):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _usage_failure(error: TyperException) -> errors.Failure:
    usage_error: Any = error
    command_path = usage_error.ctx.command_path if getattr(usage_error, "ctx", None) else "punctual"
    advice = f"See `{command_path} --help`."
    return errors.Failure(errors.ExitCode(error.exit_code), error.format_message(), advice)


class RootGroup(HelpGroup):
    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the program. With --json, usage errors are printed as JSON too."""
        arguments = list(sys.argv[1:] if args is None else args)
        as_json = standalone_mode and "--json" in takewhile(
            lambda argument: argument != "--", arguments
        )
        is_standalone = standalone_mode and not as_json
        run_program = partial(
            super().main, args, prog_name, complete_var, is_standalone, windows_expand_args
        )
        if not as_json:
            return run_program(**extra)
        try:
            code = run_program(**extra)
        except TyperException as error:
            errors.print_failure(_usage_failure(error), as_json=True)
            sys.exit(error.exit_code)
        except Abort:
            errors.print_failure(errors.Failure(errors.ExitCode.FAILED, "Aborted."), as_json=True)
            sys.exit(errors.ExitCode.FAILED)
        sys.exit(code)

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=COMMAND_ORDER.index)
