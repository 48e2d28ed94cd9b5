"""The token that a start prints: once, and again where nobody could get in any more."""

import os
from pathlib import Path

import pytest

from punctual.domain.tokens import is_ours
from punctual.engine.tokens import Tokens
from punctual.identity import new_id
from punctual.local.clock import ManualClock
from punctual.local.errors import StoreError
from punctual.local.serve import show_first_token
from punctual.local.store import Store
from punctual.local.token_key import FILE, TokenKey
from tests.builders import NOON


def started(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a start prints: a token that the key then made, or nothing."""
    clock, store, key = ManualClock(NOON), Store.open(folder), TokenKey(folder)
    try:
        was_there = key.is_there
        made = new_id(clock)
        tokens = Tokens(store.tokens, key.read, clock, made, os.urandom, "local", store.audit)
        show_first_token(tokens, was_there)
        printed = capsys.readouterr().out.strip()
        assert not printed or is_ours(key.read(), printed.rsplit(" ", 1)[-1])
        return printed
    finally:
        store.close()


def test_it_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert started(tmp_path, capsys)
    assert not started(tmp_path, capsys)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_key_that_was_lost_locks_nobody_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = started(tmp_path, capsys)
    (tmp_path / FILE).unlink()
    again = started(tmp_path, capsys)
    assert again
    assert again != first
    assert not started(tmp_path, capsys)


def test_a_key_whose_rights_cannot_be_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).write_bytes(bytes(32))
    (tmp_path / FILE).chmod(0o644)

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(StoreError, match="open to others"):
        TokenKey(tmp_path).close_to_others()
