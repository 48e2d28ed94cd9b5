"""Request bodies that are empty or nearly so."""

import pytest

from punctual.web.http.json_body import parse_optional
from punctual.web.http.problems import RequestRejected


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n\t "])
def test_body_of_json_whitespace_is_no_body(body: bytes) -> None:
    assert parse_optional(body).value == {}


@pytest.mark.parametrize("body", [b"\x0b", b"\x0c", b" \x0b\n"])
def test_other_whitespace_is_not_json(body: bytes) -> None:
    with pytest.raises(RequestRejected, match="not JSON"):
        parse_optional(body)
