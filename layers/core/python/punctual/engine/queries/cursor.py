"""Parse list cursors. A cursor is the last position of a page, which a client sends back."""

from datetime import datetime

from punctual.domain.errors import FieldError, Invalid

INVALID_CURSOR_MESSAGE = (
    "is not a token of this list and these filters: leave it out to begin again"
)


def invalid_cursor() -> Invalid:
    """Return the error for a cursor that no page of the list ended with."""
    return Invalid.of(FieldError("next_token", INVALID_CURSOR_MESSAGE))


def time_in_cursor(text: str) -> datetime:
    """Return the time in a cursor."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid_cursor() from error
    if at.tzinfo is None:
        raise invalid_cursor()
    return at


def number_in_cursor(text: str) -> int:
    """Return the number in a cursor.

    >>> number_in_cursor("17")
    17
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 2**63):
        raise invalid_cursor()
    return int(text)
