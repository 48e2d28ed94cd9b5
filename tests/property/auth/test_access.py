"""Any Authorization header yields one token or none."""

import string

from hypothesis import assume, given
from hypothesis import strategies as st

from punctual.auth.bearer import MAX_BEARER_CHARACTERS, bearer_token
from punctual.auth.cache import ExpiringCache
from punctual.auth.issuer_config import is_issuer_url, is_safe_url
from punctual.domain.tenants.tokens import (
    TOKEN_PREFIX,
    TOKEN_RANDOM_BYTES,
    has_valid_mac,
    keyed_hash,
    make_secret,
)

LETTERS = string.ascii_letters + string.digits + "._~+/=-"
KEYS = st.binary(min_size=1, max_size=64)
RANDOM = st.binary(min_size=TOKEN_RANDOM_BYTES, max_size=TOKEN_RANDOM_BYTES)
LATIN = st.text(st.characters(max_codepoint=255), max_size=60)


@given(LATIN)
def test_any_header_is_read_without_harm(header: str) -> None:
    found = bearer_token(header)
    if found is not None:
        assert found
        assert set(found) <= set(LETTERS)
        scheme, _, rest = header.strip(" \t").partition(" ")
        assert (scheme.lower(), rest.strip(" ")) == ("bearer", found)


@given(
    st.text(LETTERS, min_size=1, max_size=100),
    st.sampled_from(["Bearer", "bearer", "BEARER", "bEaReR"]),
    st.integers(1, 5),
    st.sampled_from(["", " ", "\t", "  "]),
)
def test_a_token_is_found_however_its_scheme_is_written(
    token: str, scheme: str, spaces: int, around: str
) -> None:
    assert bearer_token(f"{around}{scheme}{' ' * spaces}{token}{around}") == token


@given(st.text(LETTERS, min_size=1, max_size=20), st.text(LETTERS, min_size=1, max_size=20))
def test_two_tokens_are_none(one: str, other: str) -> None:
    for between in (" ", ", ", ",", "\t", ", Bearer ", "\n"):
        assert bearer_token(f"Bearer {one}{between}{other}") is None


@given(st.characters(max_codepoint=255).filter(lambda one: one not in LETTERS + " \t"))
def test_a_character_that_no_token_has_spoils_it(one: str) -> None:
    assert bearer_token(f"Bearer a{one}b") is None
    assert bearer_token(f"Bearer ab{one}") is None


def test_a_token_without_end_is_none() -> None:
    assert bearer_token("Bearer " + "a" * MAX_BEARER_CHARACTERS) == "a" * MAX_BEARER_CHARACTERS
    assert bearer_token("Bearer " + "a" * (MAX_BEARER_CHARACTERS + 1)) is None


@given(KEYS, RANDOM)
def test_what_a_key_made_is_known_by_it_and_fits_a_header(key: bytes, random: bytes) -> None:
    text = make_secret(key, random)
    assert text.startswith(TOKEN_PREFIX)
    assert has_valid_mac(key, text)
    assert bearer_token(f"Bearer {text}") == text


@given(KEYS, KEYS, RANDOM)
def test_what_another_key_made_is_not(key: bytes, other: bytes, random: bytes) -> None:
    assume(key.rstrip(b"\0") != other.rstrip(b"\0"))  # HMAC pads a key with zeros
    assert not has_valid_mac(other, make_secret(key, random))
    assert keyed_hash(key, "pnc_a") != keyed_hash(other, "pnc_a")


@given(KEYS, RANDOM, st.integers(0, 59), st.sampled_from(string.ascii_letters + "-_"))
def test_a_changed_letter_makes_another_token(
    key: bytes, random: bytes, place: int, letter: str
) -> None:
    text = make_secret(key, random)
    changed = text[:place] + letter + text[place + 1 :]
    assert has_valid_mac(key, changed) is (changed == text)


@given(KEYS, st.text(max_size=80))
def test_no_text_is_taken_for_a_token(key: bytes, text: str) -> None:
    assert not has_valid_mac(key, text)
    assert not has_valid_mac(key, TOKEN_PREFIX + text)


def test_without_a_key_nothing_is_ours() -> None:
    assert not has_valid_mac(b"", make_secret(b"", bytes(TOKEN_RANDOM_BYTES)))


@given(RANDOM, RANDOM)
def test_marks_and_hashes_of_one_key_have_nothing_in_common(one: bytes, other: bytes) -> None:
    """The public part of a token does not show the stored hash."""
    text = make_secret(b"k", one)
    assert text[-14:] not in keyed_hash(b"k", text)
    assert (keyed_hash(b"k", text) == keyed_hash(b"k", make_secret(b"k", other))) is (one == other)


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 5), st.floats(0, 50), st.floats(-20, 20)),
        max_size=60,
    )
)
def test_what_is_remembered_is_what_was_put_and_never_more(
    steps: list[tuple[int, int, float, float]],
) -> None:
    now = 100.0
    remembered: ExpiringCache[int] = ExpiringCache(lambda: now, 8)
    truth: dict[str, tuple[int, float, float]] = {}
    for name, value, seconds, later in steps:
        remembered.put(str(name), value, seconds)
        truth[str(name)] = value, now, now + seconds
        now += later
        assert len(remembered) <= 8
        for one, (put, since, until) in truth.items():
            found = remembered.get(one)
            if found is not None:
                assert found.value == put
                assert since <= now < until


@given(st.text(max_size=40))
def test_an_address_is_safe_or_it_is_not_and_nothing_else(text: str) -> None:
    for address in (text, f"https://{text}", f"http://{text}", f"https://a.example/{text}"):
        assert is_issuer_url(address) <= is_safe_url(address)
        if is_safe_url(address):
            assert (
                address.lower().startswith("https://")
                or "//127.0.0.1" in address
                or ("//localhost" in address.lower() or "//[::1]" in address)
            )
