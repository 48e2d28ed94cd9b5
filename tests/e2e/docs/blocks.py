"""The fenced blocks of a page, in order, with the use of each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)$")
NAME = re.compile(r"^# (?P<name>[\w.-]+\.\w+)$")
FILE_INFO = re.compile(r"^file=(?P<name>[\w.-]+)$")


class Use(Enum):
    SHELL = "typed into a shell"
    NODE = "typed into another terminal: it serves until the page ends"
    STOP = "what serves is stopped, as by Ctrl-C"
    PYTHON = "run by Python"
    FILE = "written into a file"
    OUTPUT = "compared with what the block before said"
    DONE = "what other tests do, or the rehearsal with a stage of its own"
    DRAWING = "a drawing"


class UnknownBlock(ValueError):
    """A block without a known use."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def on_aws(self) -> bool:
        return self.info.split()[:1] == ["aws"]

    @property
    def file(self) -> str | None:
        """Return the file name, from the first line's comment or from the info string, or None."""
        info_match = FILE_INFO.match(self.info)
        if info_match:
            return info_match["name"]
        named = NAME.match(self.text.partition("\n")[0])
        return named["name"] if named else None

    @property
    def use(self) -> Use:
        if self.file:
            return Use.FILE
        kind = (self.language, self.info.removeprefix("aws").strip())
        if kind not in USES:
            raise UnknownBlock(
                f"{self}: nothing is known about a block `{self.language} {self.info}`"
            )
        return USES[kind]


USES = {
    ("bash", ""): Use.SHELL,
    ("bash", "node"): Use.NODE,
    ("bash", "stop"): Use.STOP,
    ("bash", "done"): Use.DONE,
    ("python", ""): Use.PYTHON,
    ("text", ""): Use.OUTPUT,
    ("mermaid", ""): Use.DRAWING,
}


def blocks(page: str, text: str) -> Iterator[Block]:
    r"""
    >>> [found] = blocks("a.md", "Say\n\n```bash aws\nls\n```\n")
    >>> found.line, found.language, found.info, found.text
    (3, 'bash', 'aws', 'ls\n')
    """
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        begin = FENCE.match(line)
        if not begin:
            continue
        language, _, info = begin["info"].strip().partition(" ")
        inner_lines: list[str] = []
        for _, inner in lines:
            if inner.strip() == begin["ticks"]:
                break
            inner_lines.append(inner.removeprefix(begin["indent"]) + "\n")
        else:
            raise UnknownBlock(f"{page}:{number}: this block has no end")
        yield Block(page, number, language, info.strip(), "".join(inner_lines))


def blocks_of(root: Path, page: str) -> list[Block]:
    return list(blocks(page, (root / page).read_text()))
