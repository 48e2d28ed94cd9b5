"""Answers of the server as typed values. `raw` keeps the fields that this client does not know."""

from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from punctual.client.errors import Unexpected
from punctual.client.wire import Answer

AwareDatetime = Annotated[datetime, msgspec.Meta(tz=True)]
M = TypeVar("M", bound="Model")

_FIELDS_HIDDEN_IN_REPR = ("raw", "token", "secret")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of answers. `raw` is the JSON object as received."""

    raw: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the fields that differ from their defaults, without secrets."""
        field_texts = (
            f"{field.name}={value!r}"
            for field in msgspec.structs.fields(self)
            if field.name not in _FIELDS_HIDDEN_IN_REPR
            and (value := getattr(self, field.name)) not in (field.default, {}, None)
        )
        return f"{type(self).__name__}({', '.join(field_texts)})"


def decode_json(answer: Answer) -> Any:
    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected_answer(f"not JSON, with status {answer.status}", error) from error


def decode_model(model_class: type[M], answer: Answer) -> M:
    return convert_model(model_class, decode_json(answer))


def convert_model(model_class: type[M], value: Any) -> M:
    try:
        return msgspec.convert(_with_raw(model_class, value), model_class)
    except msgspec.ValidationError as error:
        raise _unexpected_answer(f"not a {model_class.__name__}", error) from error


def required_field(value: Any, name: str) -> Any:
    """Return a required field of an answer."""
    if not isinstance(value, dict) or name not in value:
        raise _unexpected_answer(f"without {name}", None)
    return value[name]


def convert_times(values: Any) -> tuple[datetime, ...]:
    try:
        return msgspec.convert(values, tuple[AwareDatetime, ...])
    except msgspec.ValidationError as error:
        raise _unexpected_answer("not a list of times", error) from error


def _unexpected_answer(problem: str, error: Exception | None) -> Unexpected:
    cause = "" if error is None else f" ({error})"
    text = f"The server's answer is {problem}{cause}."
    return Unexpected(f"{text} PUNCTUAL_URL must be the address of a Punctual API.")


def _with_raw(model_class: type[Model], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    # A null has the same meaning as a missing field, so the default applies.
    filled = {name: field_value for name, field_value in value.items() if field_value is not None}
    filled["raw"] = value
    for name, inner in _nested_models(model_class).items():
        field_value = filled.get(name)
        if isinstance(field_value, list):
            filled[name] = [_with_raw(inner, element) for element in field_value]
        elif field_value is not None:
            filled[name] = _with_raw(inner, field_value)
    return filled


@cache
def _nested_models(model_class: type[Model]) -> dict[str, type[Model]]:
    models_by_field = {name: _model_of(hint) for name, hint in get_type_hints(model_class).items()}
    return {name: inner for name, inner in models_by_field.items() if inner is not None}


def _model_of(hint: Any) -> type[Model] | None:
    if isinstance(hint, type) and issubclass(hint, Model):
        return hint
    if get_origin(hint) in (tuple, list, UnionType):
        return next(
            (model_class for inner in get_args(hint) if (model_class := _model_of(inner))), None
        )
    return None
