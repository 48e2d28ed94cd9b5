"""The live log: parts in order, whole characters, a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.runner import live_log
from punctual.runner.live_log import LiveLog


def all_parts(log: LiveLog, max_bytes: int) -> list[tuple[int, str]]:
    parts = []
    while log.pending_bytes:
        part = log.next_part(max_bytes)
        parts.append((part.offset, part.text))
        log.confirm(part)
    return parts


def test_part_is_the_same_until_it_is_confirmed() -> None:
    log = LiveLog()
    log.log(b"one")
    first = log.next_part()
    log.log(b" two")
    assert (first.text, first.offset, log.next_part().text) == ("one", 0, "one two")
    log.confirm(first)
    assert log.next_part() == (" two", 3, 4)


def test_part_is_confirmed_once() -> None:
    log = LiveLog()
    log.log(b"one two")
    part = log.next_part(3)
    log.confirm(part)
    log.confirm(part)
    assert log.next_part().text == " two"


def test_character_that_arrives_in_two_pieces_stays_whole() -> None:
    log = LiveLog()
    log.log("a€".encode()[:2])
    assert log.next_part().text == "a"
    log.log("a€".encode()[2:])
    log.end()
    assert log.next_part().text == "a€"


def test_character_that_never_ends_is_replaced() -> None:
    log = LiveLog()
    log.log(b"a\xe2\x82")
    log.end()
    assert log.next_part().text == "a\ufffd"


def test_log_is_cut_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_log, "MAX_LOG_BYTES", 5)
    log = LiveLog()
    log.log(b"abc")
    log.confirm(log.next_part())
    assert not log.is_truncated
    log.log("€€".encode())
    assert (log.next_part().text, log.is_truncated) == ("", True)
    log.log(b"de")
    assert log.next_part().text == "de"


def test_discarded_log_keeps_nothing() -> None:
    log = LiveLog(is_kept=False)
    log.log(b"x" * 100)
    assert (log.pending_bytes, log.is_truncated) == (0, False)


def test_dropped_rest_is_flagged() -> None:
    log = LiveLog()
    log.drop_rest()
    assert not log.is_truncated
    log.log(b"x")
    log.drop_rest()
    assert (log.pending_bytes, log.is_truncated) == (0, True)


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(4, 30))
def test_parts_make_up_the_log(pieces: list[bytes], max_bytes: int) -> None:
    log = LiveLog()
    for piece in pieces:
        log.log(piece)
    log.end()
    parts = all_parts(log, max_bytes)
    assert "".join(text for _, text in parts) == b"".join(pieces).decode("utf-8", "replace")
    end = 0
    for offset, text in parts:
        size = len(text.encode())
        assert (offset, 0 < size <= max_bytes) == (end, True)
        end = offset + size
