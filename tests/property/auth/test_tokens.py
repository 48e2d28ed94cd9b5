"""Bearer tokens, their keys, their cache, and addresses of issuers, for random input."""

import string

from hypothesis import assume, given
from hypothesis import strategies as st

from punctual.auth.authenticator import MAX_BEARER_CHARACTERS, bearer_token
from punctual.auth.cache import ExpiringCache
from punctual.auth.issuer_config import is_issuer_url, is_safe_url
from punctual.domain.tenants.tokens import (
    TOKEN_PREFIX,
    TOKEN_RANDOM_BYTES,
    has_valid_mac,
    keyed_hash,
    make_secret,
)

TOKEN_CHARACTERS = string.ascii_letters + string.digits + "._~+/=-"
KEYS = st.binary(min_size=1, max_size=64)
RANDOM_BYTES = st.binary(min_size=TOKEN_RANDOM_BYTES, max_size=TOKEN_RANDOM_BYTES)
LATIN_TEXTS = st.text(st.characters(max_codepoint=255), max_size=60)


@given(LATIN_TEXTS)
def test_any_header_yields_one_token_or_none(header: str) -> None:
    token = bearer_token(header)
    if token is not None:
        assert token
        assert set(token) <= set(TOKEN_CHARACTERS)
        scheme, _, rest = header.strip(" \t").partition(" ")
        assert (scheme.lower(), rest.strip(" ")) == ("bearer", token)


@given(
    st.text(TOKEN_CHARACTERS, min_size=1, max_size=100),
    st.sampled_from(["Bearer", "bearer", "BEARER", "bEaReR"]),
    st.integers(1, 5),
    st.sampled_from(["", " ", "\t", "  "]),
)
def test_token_is_read_with_any_spelling_of_the_scheme(
    token: str, scheme: str, spaces: int, around: str
) -> None:
    assert bearer_token(f"{around}{scheme}{' ' * spaces}{token}{around}") == token


@given(
    st.text(TOKEN_CHARACTERS, min_size=1, max_size=20),
    st.text(TOKEN_CHARACTERS, min_size=1, max_size=20),
)
def test_header_with_two_tokens_yields_none(first: str, second: str) -> None:
    for separator in (" ", ", ", ",", "\t", ", Bearer ", "\n"):
        assert bearer_token(f"Bearer {first}{separator}{second}") is None


@given(
    st.characters(max_codepoint=255).filter(
        lambda character: character not in TOKEN_CHARACTERS + " \t"
    )
)
def test_token_with_a_foreign_character_is_refused(character: str) -> None:
    assert bearer_token(f"Bearer a{character}b") is None
    assert bearer_token(f"Bearer ab{character}") is None


def test_token_over_the_length_limit_is_refused() -> None:
    assert bearer_token("Bearer " + "a" * MAX_BEARER_CHARACTERS) == "a" * MAX_BEARER_CHARACTERS
    assert bearer_token("Bearer " + "a" * (MAX_BEARER_CHARACTERS + 1)) is None


@given(KEYS, RANDOM_BYTES)
def test_secret_is_valid_for_its_key_and_fits_a_header(key: bytes, random: bytes) -> None:
    text = make_secret(key, random)
    assert text.startswith(TOKEN_PREFIX)
    assert has_valid_mac(key, text)
    assert bearer_token(f"Bearer {text}") == text


@given(KEYS, KEYS, RANDOM_BYTES)
def test_secret_of_another_key_is_invalid(key: bytes, other: bytes, random: bytes) -> None:
    assume(key.rstrip(b"\0") != other.rstrip(b"\0"))  # HMAC pads a key with zeros
    assert not has_valid_mac(other, make_secret(key, random))
    assert keyed_hash(key, "pnc_a") != keyed_hash(other, "pnc_a")


@given(KEYS, RANDOM_BYTES, st.integers(0, 59), st.sampled_from(string.ascii_letters + "-_"))
def test_secret_with_a_changed_character_is_invalid(
    key: bytes, random: bytes, index: int, character: str
) -> None:
    text = make_secret(key, random)
    changed = text[:index] + character + text[index + 1 :]
    assert has_valid_mac(key, changed) is (changed == text)


@given(KEYS, st.text(max_size=80))
def test_random_text_is_not_a_valid_secret(key: bytes, text: str) -> None:
    assert not has_valid_mac(key, text)
    assert not has_valid_mac(key, TOKEN_PREFIX + text)


def test_empty_key_validates_no_secret() -> None:
    assert not has_valid_mac(b"", make_secret(b"", bytes(TOKEN_RANDOM_BYTES)))


@given(RANDOM_BYTES, RANDOM_BYTES)
def test_secret_does_not_show_its_stored_hash(random: bytes, other_random: bytes) -> None:
    """The public part of a token does not show the stored hash."""
    text = make_secret(b"k", random)
    assert text[-14:] not in keyed_hash(b"k", text)
    assert (keyed_hash(b"k", text) == keyed_hash(b"k", make_secret(b"k", other_random))) is (
        random == other_random
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 5), st.floats(0, 50), st.floats(-20, 20)),
        max_size=60,
    )
)
def test_cache_returns_only_unexpired_values_within_its_size(
    steps: list[tuple[int, int, float, float]],
) -> None:
    now = 100.0
    cache: ExpiringCache[int] = ExpiringCache(lambda: now, 8)
    expected: dict[str, tuple[int, float, float]] = {}
    for name, value, seconds, passed_seconds in steps:
        cache.put(str(name), value, seconds)
        expected[str(name)] = value, now, now + seconds
        now += passed_seconds
        assert len(cache) <= 8
        for cached_name, (put, since, until) in expected.items():
            cached = cache.get(cached_name)
            if cached is not None:
                assert cached.value == put
                assert since <= now < until


@given(st.text(max_size=40))
def test_issuer_url_is_always_a_safe_url(text: str) -> None:
    for address in (text, f"https://{text}", f"http://{text}", f"https://a.example/{text}"):
        assert is_issuer_url(address) <= is_safe_url(address)
        if is_safe_url(address):
            assert (
                address.lower().startswith("https://")
                or "//127.0.0.1" in address
                or ("//localhost" in address.lower() or "//[::1]" in address)
            )
