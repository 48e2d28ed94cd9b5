"""How commands and their groups show themselves in help."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

ORDER = (
    *("jobs", "runs", "preview", "upcoming", "apply", "export"),
    *("stats", "health", "audit", "tokens"),
    *("login", "logout", "whoami", "dev", "completion"),
)


def _shaped(params: list[Any]) -> list[Any]:
    for param in params:
        # A flag takes no value: that its type is <bool> helps nobody.
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        param.get_runtime_param = _Coercing(param)
    return params


class _Coercing:
    """Leaves alone what has its type already: what would look at it takes 60 ms to load."""

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
        return self._usual(self._param).coerce(value, param=param, ctx=ctx)


class Leaf(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _shaped(super().get_params(ctx))


class Branch(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _shaped(super().get_params(ctx))


class Root(Branch):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)
