"""The name of a secret, the body of PUT /secrets/{name}, and their checks."""

import re
from typing import Annotated

from pydantic import Field

from punctual.domain.errors import FieldError, Invalid
from punctual.web.http.json_body import JsonBody
from punctual.web.models.bodies import BodyReader
from punctual.web.models.schedule import StrictModel

MAX_SECRET_BYTES = 4 * 1024  # in UTF-8; a standard parameter of SSM holds no more
SECRET_NAME_REGEX = r"[A-Za-z0-9_.-]{1,64}"
_ALLOWED_NAME = re.compile(rf"(?!\.{{1,2}}$){SECRET_NAME_REGEX}")
# SSM refuses values that look like a reference to another parameter.
_DOUBLE_BRACES = re.compile(r"\{\{.*\}\}", re.DOTALL)


class SecretFields(StrictModel):
    value: Annotated[str, Field(min_length=1)]


def is_secret_name(name: str) -> bool:
    """Return whether a secret may have this name.

    >>> is_secret_name("bank.api-key"), is_secret_name("a/b"), is_secret_name("..")
    (True, False, False)
    """
    return _ALLOWED_NAME.fullmatch(name) is not None


def check_secret_name(name: str) -> None:
    if not is_secret_name(name):
        text = "must be 1 to 64 letters, digits, dots, dashes or underscores, and not only dots"
        raise Invalid.of(FieldError("name", text))


def parse_secret_value(body: JsonBody) -> str:
    """Return the value of a secret. No error quotes it."""
    reader = BodyReader()
    value = reader.validated(SecretFields, body).get("value") or ""
    size = len(value.encode())
    if size > MAX_SECRET_BYTES:
        reader.add_error(
            "value", f"must have at most {MAX_SECRET_BYTES:,} bytes in UTF-8; got {size:,}"
        )
    elif _DOUBLE_BRACES.search(value):
        reader.add_error("value", "must not hold text in double braces, such as {{name}}")
    reader.finish()
    return value
