"""Make the text of jobs and runs safe for a terminal.

A terminal obeys escape sequences. They set its title, fill the clipboard, or hide text. The text of
a job is not trusted, so every control character is written as its escape (`\\x1b`).
"""

import re

# C0 and C1 controls except tab and newline, and the marks that reverse the text direction.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COLOUR = re.compile("\x1b\\[[0-9;:]{0,64}m")
_CUT = re.compile("(?:\x1b(?:\\[[0-9;:]{0,64})?|\r)\\Z")
_RESET = "\x1b[0m"
_COLOUR_OR_CONTROL = re.compile(f"{_COLOUR.pattern}|\r\n|{_UNPRINTABLE.pattern}")


def plain(value: object) -> str:
    """Return text that a terminal only prints.

    >>> plain("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _UNPRINTABLE.sub(_escaped, str(value))


class ColouredText:
    """An escaper for a text in pieces. It escapes all control characters except colours.

    >>> text = ColouredText()
    >>> text.piece("\\x1b[31mred \\x1b]0;title\\x07") + text.end()
    '\\x1b[31mred \\\\x1b]0;title\\\\x07\\x1b[0m'
    """

    def __init__(self) -> None:
        self._tail = ""  # may be the first part of a colour or of a line end
        self._is_coloured = False

    def piece(self, text: str) -> str:
        text = self._tail + text
        cut = _CUT.search(text)
        self._tail = text[cut.start() :] if cut else ""
        return self._kept(text[: cut.start()] if cut else text)

    def end(self) -> str:
        """Return the rest of the text, and reset a colour that is still on."""
        left, self._tail = plain(self._tail), ""
        return left + (_RESET if self._is_coloured else "")

    def _kept(self, text: str) -> str:
        def kept(found: re.Match[str]) -> str:
            if found.group() == "\r\n":
                return "\n"
            if not _COLOUR.fullmatch(found.group()):
                return _escaped(found)
            self._is_coloured = found.group() not in (_RESET, "\x1b[m")
            return found.group()

        return _COLOUR_OR_CONTROL.sub(kept, text)


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()
