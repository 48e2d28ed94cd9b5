"""The text of code and pages: forbidden words, long sentences, full folders, constants."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CORE = "layers/core/python/punctual"
PRODUCT = (CORE, "cli/punctual_cli", "infra", "functions")
TREES = (*PRODUCT, "tests", "bench")
MAX_SENTENCE_WORDS = 25
MAX_FOLDER_FILES = 20
FORBIDDEN = ("who", "whoever", "whose", "whom", "nobody", "somebody", "everybody", "thereof")

_FORBIDDEN = re.compile(rf"\b({'|'.join(FORBIDDEN)})\b", re.IGNORECASE)
_QUOTED = re.compile(r"`[^`]*`")
_EXAMPLE = re.compile(r"(?m)^\s*(>>>|\.\.\.).*(\n(?!\s*\n|\s*>>>).*)*")
_INDENTED = re.compile(r"(?m)^ {4,}.*$")
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*[-*] |\n\s*\d+\. ")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+")


def python_files(*trees: str) -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for tree in trees for path in (ROOT / tree).rglob("*.py")
    )


def pages() -> list[str]:
    matches = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    matches += (ROOT / "docs").rglob("*.md")
    return sorted(str(path.relative_to(ROOT)) for path in matches if path.exists())


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Return the comments and strings with their first lines; a string may be an identifier."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and not token.string[1:-1].isidentifier()
        ):
            yield token.start[0], token.string


def forbidden_words(source: str) -> list[str]:
    matches = []
    for first, text in texts(source):
        for number, line in enumerate(_QUOTED.sub("", text).splitlines(), first):
            matches += [f"line {number}: {word}" for word in _FORBIDDEN.findall(line)]
    return matches


def sentences(docstring: str) -> Iterator[str]:
    """Return the sentences of a docstring, without its examples and its indented blocks."""
    prose = _INDENTED.sub("", _EXAMPLE.sub("", docstring))
    for paragraph in _PARAGRAPH.split(prose):
        yield from _SENTENCE_END.split(" ".join(paragraph.split()))


def long_sentences(source: str) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        ast.get_docstring(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, documented)
    ]
    return [
        sentence
        for docstring in docstrings
        for sentence in sentences(docstring or "")
        if len(sentence.split()) > MAX_SENTENCE_WORDS
    ]


def page_words(text: str) -> list[str]:
    """Return the forbidden words of a page outside its quoted code."""
    matches, in_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            words = _FORBIDDEN.findall(_QUOTED.sub("", line))
            matches += [f"line {number}: {word}" for word in words]
    return matches


def constants(path: str, source: str) -> Iterator[tuple[str, str, str]]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper():
                yield target.id, path, ast.unparse(value)


THIS = "tests/unit/project/test_plain_english.py"
SOURCES = [path for path in python_files(*TREES) if path != THIS]
PAGES = pages()
FOLDERS = sorted({str(Path(path).parent) for path in python_files(*TREES)})


def violations(paths: list[str], rule: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return the violations of a rule by file."""
    assert paths
    matches = {path: rule((ROOT / path).read_text()) for path in paths}
    return {path: places for path, places in matches.items() if places}


def test_source_has_no_forbidden_word() -> None:
    assert violations(SOURCES, forbidden_words) == {}


def test_docstring_sentence_has_at_most_25_words() -> None:
    assert violations(SOURCES, long_sentences) == {}


def test_page_has_no_forbidden_word() -> None:
    assert violations(PAGES, page_words) == {}


def test_folder_has_at_most_20_files() -> None:
    sizes = {
        folder: sum(path.name != "__init__.py" for path in (ROOT / folder).glob("*.py"))
        for folder in FOLDERS
    }
    assert sizes
    assert {folder: size for folder, size in sizes.items() if size > MAX_FOLDER_FILES} == {}


def test_constants_of_one_name_have_one_value() -> None:
    values: dict[str, dict[str, str]] = defaultdict(dict)
    for path in python_files(*PRODUCT):
        for name, place, value in constants(path, (ROOT / path).read_text()):
            values[name][value] = place
    assert {name: places for name, places in values.items() if len(places) > 1} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""Tell whoever asks."""', 1),
        ("# whose job this is\n", 1),
        ('print("nobody waits")', 1),
        ('"""Read the header `who`."""', 0),
        ("who = 1", 0),
        ('row["who"]', 0),
    ],
)
def test_planted_word_is_found(source: str, count: int) -> None:
    assert len(forbidden_words(source)) == count


def test_planted_long_sentence_is_found() -> None:
    words = " ".join(["word"] * (MAX_SENTENCE_WORDS + 1))
    assert len(long_sentences(f'def f():\n    """Short. {words}."""')) == 1
    assert long_sentences(f'def f():\n    """Short: {words[:-5]}."""') == []


def test_planted_word_of_a_page_is_found_outside_code() -> None:
    assert page_words("Ask whom?\n\n```\nwho\n```\n`who`") == ["line 1: whom"]
