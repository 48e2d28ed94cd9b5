"""The output of the operations: a function that prints a line, and errors as one line."""

from collections.abc import Callable

Say = Callable[[str], None]


def one_line(error: Exception) -> str:
    """Return the text of an error in one line.

    >>> one_line(ValueError("first\\n  second"))
    'first second'
    """
    return " ".join(str(error).split())
