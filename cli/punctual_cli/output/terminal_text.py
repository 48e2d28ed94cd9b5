"""Make the text of jobs and runs safe for a terminal.

A terminal obeys escape sequences. They set its title, fill the clipboard, or hide text. The text of
a job is not trusted, so every control character is written as its escape (`\\x1b`).
"""

import re

# C0 and C1 controls except tab and newline, and the marks that reverse the text direction.
_ESCAPED_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COLOUR = re.compile("\x1b\\[[0-9;:]{0,64}m")
_INCOMPLETE_SEQUENCE = re.compile("(?:\x1b(?:\\[[0-9;:]{0,64})?|\r)\\Z")
_COLOUR_RESET = "\x1b[0m"
_COLOUR_OR_CONTROL = re.compile(f"{_COLOUR.pattern}|\r\n|{_ESCAPED_CHARACTERS.pattern}")


def escape_controls(value: object) -> str:
    """Return text that a terminal only prints.

    >>> escape_controls("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _ESCAPED_CHARACTERS.sub(_escape_match, str(value))


class ColouredText:
    """An escaper for a text in pieces. It escapes all control characters except colours.

    >>> text = ColouredText()
    >>> text.escape("\\x1b[31mred \\x1b]0;title\\x07") + text.finish()
    '\\x1b[31mred \\\\x1b]0;title\\\\x07\\x1b[0m'
    """

    def __init__(self) -> None:
        self._tail = ""  # may be the first part of a colour or of a line end
        self._is_coloured = False

    def escape(self, text: str) -> str:
        text = self._tail + text
        incomplete = _INCOMPLETE_SEQUENCE.search(text)
        self._tail = text[incomplete.start() :] if incomplete else ""
        return self._escape_except_colours(text[: incomplete.start()] if incomplete else text)

    def finish(self) -> str:
        """Return the rest of the text, and reset a colour that is still on."""
        remainder, self._tail = escape_controls(self._tail), ""
        return remainder + (_COLOUR_RESET if self._is_coloured else "")

    def _escape_except_colours(self, text: str) -> str:
        def escape_unless_colour(match: re.Match[str]) -> str:
            if match.group() == "\r\n":
                return "\n"
            if not _COLOUR.fullmatch(match.group()):
                return _escape_match(match)
            self._is_coloured = match.group() not in (_COLOUR_RESET, "\x1b[m")
            return match.group()

        return _COLOUR_OR_CONTROL.sub(escape_unless_colour, text)


def _escape_match(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()
