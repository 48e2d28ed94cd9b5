"""Parses list cursors. A cursor is the text of a page's last place, sent back by a client."""

from datetime import datetime

from punctual.domain.errors import FieldError, Invalid

WRONG = "is not a token of this list and these filters: leave it out to begin again"


def made_up() -> Invalid:
    """Return the error for a cursor that no page of the list ended with."""
    return Invalid.of(FieldError("next_token", WRONG))


def moment_in(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise made_up() from error
    if at.tzinfo is None:
        raise made_up()
    return at


def number_in(text: str) -> int:
    """Return the number in a cursor.

    >>> number_in("17")
    17
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 2**63):
        raise made_up()
    return int(text)
