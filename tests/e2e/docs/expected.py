"""Compare the output of a command with the text of a page."""

import re

WRITTEN_ON = "2026-11-18"
"""Times of this day match any time. All other times match only themselves."""

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(WRITTEN_ON + r"[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")
ANY_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?"
CLOCK = re.compile(r"^\d\d:\d\d:\d\d(?= )")
"""A time of day at the beginning of a line, for example in logs."""

ANY_CLOCK = r"\d\d:\d\d(?::\d\d)?"  # a full minute is printed without seconds
ANY_LINES = r"(?:[^\n]*\n)*?"


def shows(expected: str, output: str) -> bool:
    r"""Return True if the output matches.

    `…` matches any text in a line, or any lines if it stands alone. White space does not count.

    >>> shows("a  b\n…\nz …\n", "a b\n1\n2\nz 3\n")
    True
    >>> shows("at 2026-11-18T10:00:00Z", "at 2027-01-01T03:04:05.678Z\n")
    True
    >>> shows("…\n10:00:00 SUCCESS", "x\n11:01:02 SUCCESS"), shows("at 10:00:00", "at 11:01:02")
    (True, False)
    >>> shows("at 2026-03-29T10:00:00Z", "at 2026-03-29T10:00:01Z\n")
    False
    >>> shows("id 01a2b3c4-0000-7000-8000-000000000000", "id 99999999-9999-7999-8999-999999999999")
    True
    """
    return re.fullmatch(_pattern(expected), _plain(output)) is not None


def _plain(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line)


def _pattern(expected: str) -> str:
    return "".join(
        ANY_LINES if line == "…" else f"{_in_a_line(line)}\n"
        for line in _plain(expected).splitlines()
    )


def _in_a_line(line: str) -> str:
    known = re.compile(
        f"(?P<id>{ID.pattern})|(?P<time>{TIME.pattern})|(?P<clock>{CLOCK.pattern})|(?P<any> ?… ?)"
    )
    anything = {"id": ID.pattern, "time": ANY_TIME, "clock": ANY_CLOCK}
    parts: list[str] = []
    place = 0
    for match in known.finditer(line):
        parts.append(re.escape(line[place : match.start()]))
        parts.append(anything.get(match.lastgroup or "", ".*"))
        place = match.end()
    return "".join([*parts, re.escape(line[place:])])
