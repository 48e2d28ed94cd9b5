"""A sealed cursor hides its content, belongs to one tenant, and cannot be forged."""

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.web.http.sealed_cursors import seal_cursor, unseal_cursor

KEY = bytes(range(32))
CURSORS = st.lists(st.text(max_size=60), max_size=9).map(tuple)


@given(cursor=CURSORS, key=st.binary(min_size=32, max_size=32))
def test_sealed_cursor_is_read_with_its_key(cursor: tuple[str, ...], key: bytes) -> None:
    text = seal_cursor(key, "acme", cursor)
    assert unseal_cursor(key, "acme", text) == cursor
    assert text == seal_cursor(key, "acme", cursor), "equal calls share an answer"


def test_cursors_of_following_rows_have_nothing_in_common() -> None:
    """So a client cannot count what other tenants write."""
    texts = [seal_cursor(KEY, "acme", (str(number), "0", "0")) for number in range(1_000, 1_050)]
    raw = [urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in texts]
    assert all(b"10" not in data for data in raw)
    assert len({data[:4] for data in raw}) == len({data[16:20] for data in raw}) == 50


@pytest.mark.parametrize("place", [0, 15, 16, -1])
def test_changed_cursor_is_refused(place: int) -> None:
    text = seal_cursor(KEY, "acme", ("7", "1", "2"))
    raw = bytearray(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    raw[place] ^= 1
    assert unseal_cursor(KEY, "acme", urlsafe_b64encode(raw).decode().rstrip("=")) is None


@pytest.mark.parametrize("text", ["", "a", "é", "_" * 21, "A" * 300])
def test_text_of_another_origin_is_refused(text: str) -> None:
    assert unseal_cursor(KEY, "acme", text) is None


def test_cursor_of_another_tenant_or_key_is_refused() -> None:
    text = seal_cursor(KEY, "acme", ("7", "1", "2"))
    assert unseal_cursor(KEY, "other", text) is None
    assert unseal_cursor(os.urandom(32), "acme", text) is None
