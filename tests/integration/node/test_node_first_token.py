"""The first admin token: a start prints it once, and again if its key is lost."""

import os
import sys
from io import StringIO
from pathlib import Path

import pytest

from punctual.domain.tenants.tokens import has_valid_mac
from punctual.engine.commands.tokens import Tokens
from punctual.identity import new_id
from punctual.node.files.token_key import TOKEN_KEY_FILE, TokenKey
from punctual.node.http.access import FIRST_TOKEN_FILE, show_first_token
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, ManualClock


class OnTerminal(StringIO):
    def isatty(self) -> bool:
        return True


def printed_at_start(folder: Path, monkeypatch: pytest.MonkeyPatch, printed_to: StringIO) -> str:
    """Return the text that a start prints; may be empty."""
    clock, store, key = ManualClock(NOON), Store.open(folder), TokenKey(folder)
    try:
        was_there = key.exists
        make_id = new_id(clock)
        tokens = Tokens(store.tokens, key.read, clock, make_id, os.urandom, "local", store.audit)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", printed_to)
            show_first_token(tokens, was_there, folder)
        return printed_to.getvalue().strip()
    finally:
        store.close()


def token_in(folder: Path, text: str) -> str:
    """Return the token at the end of `text`. The folder's key must have signed it."""
    token = text.rsplit(" ", 1)[-1].strip()
    assert has_valid_mac(TokenKey(folder).read(), token)
    return token


def test_token_is_printed_once_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = printed_at_start(tmp_path, monkeypatch, OnTerminal())
    assert token_in(tmp_path, printed)
    assert not (tmp_path / FIRST_TOKEN_FILE).exists()
    assert not printed_at_start(tmp_path, monkeypatch, OnTerminal())
    assert (tmp_path / TOKEN_KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_token_is_written_to_a_file_if_output_is_not_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / FIRST_TOKEN_FILE
    printed = printed_at_start(tmp_path, monkeypatch, StringIO())
    assert printed == f"The admin token of the tenant local is in {path}: remove the file."
    assert token_in(tmp_path, path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    assert not printed_at_start(tmp_path, monkeypatch, StringIO())
    assert not path.exists()


def test_lost_token_key_yields_a_new_first_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = token_in(tmp_path, printed_at_start(tmp_path, monkeypatch, OnTerminal()))
    (tmp_path / TOKEN_KEY_FILE).unlink()
    second = token_in(tmp_path, printed_at_start(tmp_path, monkeypatch, OnTerminal()))
    assert second != first
    assert not printed_at_start(tmp_path, monkeypatch, OnTerminal())
