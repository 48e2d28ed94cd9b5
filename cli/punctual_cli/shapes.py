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
    *("jobs", "runs", "preview", "upcoming", "apply", "export"),
    *("stats", "health", "audit", "tokens", "webhook-secret"),
    *("login", "logout", "whoami", "dev", "completion"),
)


def _shaped(params: list[Any]) -> list[Any]:
    for param in params:
        # A flag takes no value, so its type <bool> is not shown.
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        param.get_runtime_param = _Coercing(param)
    return params


class _Coercing:
    """Pass through values that have their type already.

    The library's coercion takes 60 ms to load.
    """

    def __init__(self, param: Any) -> None:
        self._param = param
        self._usual = type(param).get_runtime_param

    def __call__(self) -> "_Coercing":
        return self

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor.annotation
        is_default = value is None or (value == param.default and not isinstance(value, str))
        if is_default or (kind is str and isinstance(value, str)):
            return value
        try:
            return self._usual(self._param).coerce(value, param=param, ctx=ctx)
        except BadParameter as error:
            error.message = _plain(error.message)
            raise


def _plain(message: str) -> str:
    """Return a message without the wording of the validation library.

    >>> _plain("Value error, 'x' is not one of 'a', 'b'.")
    "'x' is not one of 'a', 'b'."
    >>> _plain("Input should be a valid integer, unable to parse string as an integer")
    'must be a whole number.'
    """
    message = message.removeprefix("Value error, ")
    whole = message.startswith("Input should be a valid integer")
    return "must be a whole number." if whole else message.replace("Input should be", "must be")


class Leaf(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _shaped(super().get_params(ctx))


class Branch(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Fail for a missing command with --json, because the help text is not JSON."""
        if not args and ctx.parent is not None and ctx.parent.params.get("as_json"):
            ctx.fail("Missing command.")
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _shaped(super().get_params(ctx))


def _misunderstood(error: TyperException) -> errors.Told:
    about: Any = error
    path = about.ctx.command_path if getattr(about, "ctx", None) else "punctual"
    advice = f"`{path} --help` says what it takes."
    return errors.Told(errors.Code(error.exit_code), error.format_message(), advice)


class Root(Branch):
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
        given = list(sys.argv[1:] if args is None else args)
        as_json = standalone_mode and "--json" in takewhile(lambda one: one != "--", given)
        alone = standalone_mode and not as_json
        usual = partial(super().main, args, prog_name, complete_var, alone, windows_expand_args)
        if not as_json:
            return usual(**extra)
        try:
            code = usual(**extra)
        except TyperException as error:
            errors.show(_misunderstood(error), as_json=True)
            sys.exit(error.exit_code)
        except Abort:
            errors.show(errors.Told(errors.Code.FAILED, "Aborted."), as_json=True)
            sys.exit(errors.Code.FAILED)
        sys.exit(code)

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=COMMAND_ORDER.index)
