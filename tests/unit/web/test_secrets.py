"""The names and values of secrets, their checks, and answers that quote no value."""

from typing import Any

import msgspec
import pytest

from punctual.domain.errors import Invalid
from punctual.web.http.json_body import parse_object
from punctual.web.models.secret import check_secret_name, is_secret_name, parse_secret_value


def value_of(body: Any) -> str:
    return parse_secret_value(parse_object(msgspec.json.encode(body)))


@pytest.mark.parametrize("name", ["a", "bank.api-key_2", "A" * 64, "...", ".a", "-"])
def test_name_of_letters_digits_dots_dashes_and_underscores_is_allowed(name: str) -> None:
    check_secret_name(name)
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["", "a" * 65, "a/b", "a b", "\u00e9", "a\n", ".", "..", "a:b", "{x}"]
)
def test_other_name_is_invalid(name: str) -> None:
    assert not is_secret_name(name)
    with pytest.raises(Invalid, match="name: must be 1 to 64 letters"):
        check_secret_name(name)


@pytest.mark.parametrize(
    "value", ["x", " with spaces\n", "\u00e9" * 2_048, "{{", "}} {{", "{single}", "-----BEGIN\nA\n"]
)
def test_value_of_at_most_4_kib_is_taken_as_it_is(value: str) -> None:
    assert value_of({"value": value}) == value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "value: is required"),
        ({"value": None}, "value: must be a string"),
        ({"value": 7351902}, "value: must be a string"),
        ({"value": ["hush-hush"]}, "value: must be a string"),
        ({"value": ""}, "value: must have at least 1 character"),
        ({"value": "hush-hush" * 456}, "value: must have at most 4,096 bytes in UTF-8; got 4,104"),
        ({"value": "\u00e9" * 2_049}, "value: must have at most 4,096 bytes in UTF-8; got 4,098"),
        ({"value": "hush-hush {{ssm:x}}"}, "value: must not hold text in double braces"),
        ({"value": "hush-hush\0"}, "value: must not hold the character U\\+0000"),
        ({"value": "hush-hush", "name": "x"}, "name: is not a field of this call"),
    ],
)
def test_wrong_value_is_named_and_not_quoted(body: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message) as caught:
        value_of(body)
    said = f"{caught.value} {caught.value.errors}"
    assert "hush-hush" not in said
    assert "7351902" not in said
