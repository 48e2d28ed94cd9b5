"""Answers of the server as typed values. `raw` keeps the fields that this client does not know."""

from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from punctual.client.errors import Unexpected
from punctual.client.wire import Answer

At = Annotated[datetime, msgspec.Meta(tz=True)]
M = TypeVar("M", bound="Model")

_HIDDEN = ("raw", "token", "secret")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of answers. `raw` is the JSON object as received."""

    raw: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the fields that differ from their defaults, without secrets."""
        shown = (
            f"{field.name}={value!r}"
            for field in msgspec.structs.fields(self)
            if field.name not in _HIDDEN
            and (value := getattr(self, field.name)) not in (field.default, {}, None)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def parsed(answer: Answer) -> Any:
    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_understood(f"no JSON, status {answer.status}", error) from error


def one(kind: type[M], answer: Answer) -> M:
    return seen(kind, parsed(answer))


def seen(kind: type[M], value: Any) -> M:
    try:
        return msgspec.convert(_with_raw(kind, value), kind)
    except msgspec.ValidationError as error:
        raise _not_understood(f"no {kind.__name__}", error) from error


def part(value: Any, name: str) -> Any:
    """Return a required field of an answer."""
    if not isinstance(value, dict) or name not in value:
        raise _not_understood(f"no {name}", None)
    return value[name]


def times(values: Any) -> tuple[datetime, ...]:
    try:
        return msgspec.convert(values, tuple[At, ...])
    except msgspec.ValidationError as error:
        raise _not_understood("no list of times", error) from error


def _not_understood(what: str, error: Exception | None) -> Unexpected:
    why = "" if error is None else f" ({error})"
    text = f"The server's answer is {what}{why}: is PUNCTUAL_URL the address of a Punctual API?"
    return Unexpected(text)


def _with_raw(kind: type[Model], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    # A null has the same meaning as a missing field, so the default applies.
    filled = {name: given for name, given in value.items() if given is not None}
    filled["raw"] = value
    for name, inner in _models_in(kind).items():
        given = filled.get(name)
        if isinstance(given, list):
            filled[name] = [_with_raw(inner, each) for each in given]
        elif given is not None:
            filled[name] = _with_raw(inner, given)
    return filled


@cache
def _models_in(kind: type[Model]) -> dict[str, type[Model]]:
    found = {name: _model_of(hint) for name, hint in get_type_hints(kind).items()}
    return {name: inner for name, inner in found.items() if inner is not None}


def _model_of(hint: Any) -> type[Model] | None:
    if isinstance(hint, type) and issubclass(hint, Model):
        return hint
    if get_origin(hint) in (tuple, list, UnionType):
        return next((m for inner in get_args(hint) if (m := _model_of(inner))), None)
    return None
