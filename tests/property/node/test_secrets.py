"""Encrypted secrets: a round trip, and no changed, moved or foreign row decrypts."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from punctual.domain.errors import Unreadable
from punctual.node.files.secret_key import SECRET_KEY_FILE, SecretCipher

VALUES = st.text(min_size=1, max_size=300)
TENANTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True)


@contextmanager
def a_cipher() -> Iterator[SecretCipher]:
    with tempfile.TemporaryDirectory() as folder:
        yield SecretCipher(Path(folder))


@given(tenant=TENANTS, name=NAMES, value=VALUES)
def test_value_survives_encryption_and_a_restart(tenant: str, name: str, value: str) -> None:
    with a_cipher() as cipher:
        encrypted = cipher.encrypt(tenant, name, value)
        assert cipher.encrypt(tenant, name, value) != encrypted, "each value has a nonce of its own"
        assert SecretCipher(cipher.path.parent).decrypt(tenant, name, encrypted) == value
        assert len(value) < 4 or value.encode() not in encrypted
        assert (cipher.path.stat().st_mode & 0o777, cipher.path.stat().st_size) == (0o600, 32)


@given(data=st.data(), value=VALUES)
def test_changed_row_is_refused(data: st.DataObject, value: str) -> None:
    with a_cipher() as cipher:
        encrypted = cipher.encrypt("acme", "bank", value)
        position = data.draw(st.integers(0, len(encrypted) - 1))
        flipped = data.draw(st.integers(1, 255))
        changed = bytearray(encrypted)
        changed[position] ^= flipped
        cut = encrypted[: data.draw(st.integers(0, len(encrypted) - 1))]
        for wrong in (bytes(changed), cut, encrypted + b"\0"):
            with pytest.raises(Unreadable, match="The secret 'bank' cannot be decrypted"):
                cipher.decrypt("acme", "bank", wrong)


@given(first=st.tuples(TENANTS, NAMES), second=st.tuples(TENANTS, NAMES))
def test_row_that_is_moved_to_another_tenant_or_name_is_refused(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    assume(first != second)
    with a_cipher() as cipher:
        encrypted = cipher.encrypt(*first, "hush")
        with pytest.raises(Unreadable):
            cipher.decrypt(*second, encrypted)


@given(value=VALUES)
def test_row_of_another_key_is_refused(value: str) -> None:
    with a_cipher() as ours, a_cipher() as theirs:
        theirs.encrypt("acme", "bank", "first use creates the key")
        with pytest.raises(Unreadable, match=SECRET_KEY_FILE):
            theirs.decrypt("acme", "bank", ours.encrypt("acme", "bank", value))
