"""Upload links of the node: no altered link is read, and any bytes have an architecture or none."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from punctual.domain.artifacts import architecture_of
from punctual.node.files.uploads import UPLOAD_LINK_LIFETIME, UploadLinks

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEY = b"a key of this test, of 32 bytes."
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
LINKS = UploadLinks(lambda: NOON, KEY)
LINK = LINKS.sign("artifacts/acme/" + "0" * 64, 5, "0" * 64)
TICKET = LINKS.read(LINK)


@given(st.integers(0, len(LINK) - 1), st.sampled_from(ALPHABET))
def test_link_with_another_character_is_refused_or_equal(place: int, character: str) -> None:
    altered = LINK[:place] + character + LINK[place + 1 :]
    assert LINKS.read(altered) in (None, TICKET)
    if place < len(LINK) - 1 and altered != LINK:  # the last character may have unused bits
        assert LINKS.read(altered) is None


@given(st.text(max_size=300))
def test_any_text_is_no_link(text: str) -> None:
    assert LINKS.read(text) is None
    assert LINKS.read(LINK[: len(text)]) is None or len(text) >= len(LINK) - 1


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=400)))
def test_link_ends_after_15_minutes(age: timedelta) -> None:
    later = UploadLinks(lambda: NOON + age, KEY)
    assert (later.read(LINK) == TICKET) is (age < UPLOAD_LINK_LIFETIME)


def test_link_of_another_process_is_refused() -> None:
    assert UploadLinks(lambda: NOON).read(LINK) is None


@given(st.binary(max_size=80))
def test_any_bytes_have_an_architecture_or_none(head: bytes) -> None:
    assert isinstance(architecture_of(head), str)
    assert architecture_of(b"\x7fELF\x02\x01" + head[:2].ljust(12, b"\0") + b"\x3e\0") == "x86_64"
