"""How commands and their groups show themselves in help."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

ORDER = (
    *("jobs", "runs", "preview", "upcoming", "apply", "export"),
    *("stats", "health", "audit", "tokens"),
    *("login", "logout", "whoami", "dev", "completion"),
)


def _quiet_flags(params: list[Any]) -> list[Any]:
    """A flag takes no value: that its type is <bool> helps nobody."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Leaf(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _quiet_flags(super().get_params(ctx))


class Branch(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _quiet_flags(super().get_params(ctx))


class Root(Branch):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)
