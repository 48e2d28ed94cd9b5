"""The token that a start prints: once, and again where nobody could get in any more."""

import os
import sys
from io import StringIO
from pathlib import Path

import pytest

from punctual.domain.tenants.tokens import has_valid_mac
from punctual.engine.commands.tokens import Tokens
from punctual.identity import new_id
from punctual.node.clock import ManualClock
from punctual.node.files.token_key import TOKEN_KEY_FILE, TokenKey
from punctual.node.main import FIRST_TOKEN_FILE, show_first_token
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON


class OnTerminal(StringIO):
    def isatty(self) -> bool:
        return True


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, printed_to: StringIO) -> str:
    """Return what a start prints, or nothing."""
    clock, store, key = ManualClock(NOON), Store.open(folder), TokenKey(folder)
    try:
        was_there = key.exists
        made = new_id(clock)
        tokens = Tokens(store.tokens, key.read, clock, made, os.urandom, "local", store.audit)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", printed_to)
            show_first_token(tokens, was_there, folder)
        return printed_to.getvalue().strip()
    finally:
        store.close()


def token_in(folder: Path, text: str) -> str:
    """Return the token that a text ends with, once the folder's key has proved it."""
    token = text.rsplit(" ", 1)[-1].strip()
    assert has_valid_mac(TokenKey(folder).read(), token)
    return token


def test_token_is_printed_once_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = started(tmp_path, monkeypatch, OnTerminal())
    assert token_in(tmp_path, printed)
    assert not (tmp_path / FIRST_TOKEN_FILE).exists()
    assert not started(tmp_path, monkeypatch, OnTerminal())
    assert (tmp_path / TOKEN_KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_token_goes_to_a_file_where_the_output_may_be_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / FIRST_TOKEN_FILE
    printed = started(tmp_path, monkeypatch, StringIO())
    assert printed == f"The admin token of the tenant local is in {path}: remove the file."
    assert token_in(tmp_path, path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    assert not started(tmp_path, monkeypatch, StringIO())
    assert not path.exists()


def test_a_key_that_was_lost_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = token_in(tmp_path, started(tmp_path, monkeypatch, OnTerminal()))
    (tmp_path / TOKEN_KEY_FILE).unlink()
    again = token_in(tmp_path, started(tmp_path, monkeypatch, OnTerminal()))
    assert again != first
    assert not started(tmp_path, monkeypatch, OnTerminal())
