"""The pages that name files, tests and words name only those that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLACES = (ROOT, ROOT / "layers/core/python/punctual", ROOT / "docs")
PARTS = (ROOT / "docs/parts.md").read_text()
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md", "docs/parts.md")
CODE = re.compile(r"`([\w.*/-]+)(?:::(\w+))?`")
PATH = re.compile(r"(?:[\w.-]+/)+(?:[\w.-]+\.(?:py|md|json|toml|txt|yml))?|(?:[\w-]+/)+[\w-]+")
PRODUCT = {"domain", "engine", "tasks", "node", "aws", "lambdas", "web", "auth", "client"}
FOLDERS = PRODUCT | {
    "bench",
    "cli",
    "docs",
    "functions",
    "infra",
    "layers",
    "requirements",
    "tests",
}
ASKED_PARTS = (
    "HTTPS API",
    "API Gateway",
    "Lambda handlers",
    "DynamoDB",
    "Time-bucket and shard keys",
    "EventBridge",
    "Poller",
    "SQS FIFO",
    "Executor Lambdas",
    "Fargate",
    "S3",
    "Streams",
    "AWS console",
    "`cdk deploy`",
    "Local testing with moto",
)
ASKED_PACKAGES = (
    "aws-cdk-lib",
    "boto3",
    "aws-lambda-powertools",
    "croniter",
    "pydantic",
    "moto",
    "pytest",
)


def existing_files(name: str) -> list[Path]:
    return [place / name for place in PLACES if (place / name).exists()]


def named_paths(page: str) -> list[tuple[str, str]]:
    """Return each path in backticks, with the test behind it, that begins with a folder of ours."""
    quoted = CODE.findall((ROOT / page).read_text())
    return [
        (path, test)
        for path, test in quoted
        if PATH.fullmatch(path) and path.split("/")[0] in FOLDERS
    ]


def rows(title: str) -> list[list[str]]:
    section = PARTS.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in section.splitlines()]
    return [row for row in cells if len(row) == 4][1:]


def listed_words() -> list[str]:
    section = (ROOT / "docs/architecture.md").read_text().partition("### Words of ours")[2]
    return re.findall(r"^- (.+)$", section.partition("\n## ")[0], re.MULTILINE)


def glossary() -> list[str]:
    return re.findall(r"^\| \*\*(.+)\*\* \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_page_names_only_files_and_tests_that_exist(page: str) -> None:
    named = named_paths(page)
    missing = [path for path, _ in named if not existing_files(path)]
    missing += [
        f"{path}::{test}"
        for path, test in named
        if test
        and existing_files(path)
        and not re.search(rf"^def {test}\(", existing_files(path)[0].read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_architecture_and_parts_name_files() -> None:
    assert len(named_paths("docs/architecture.md")) > 40
    assert len([test for _, test in named_paths("docs/parts.md") if test]) > 25


def test_parts_table_has_every_part_that_was_asked_for() -> None:
    assert [row[0] for row in rows("Parts of the system")] == list(ASKED_PARTS)
    assert [row[0] for row in rows("Packages")] == list(ASKED_PACKAGES)


@pytest.mark.parametrize("title", ["Parts of the system", "Packages", "Folders"])
def test_parts_row_names_a_file_and_a_test(title: str) -> None:
    for name, does, file, test in rows(title):
        assert does, name
        assert CODE.search(file), name
        assert re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", test), name


def test_glossary_has_at_most_40_entries_in_order() -> None:
    words = glossary()
    assert 20 < len(words) <= 40
    assert words == sorted(set(words))


def test_words_of_ours_on_the_path_are_at_most_12_and_in_the_glossary() -> None:
    words = listed_words()
    assert 0 < len(words) <= 12
    assert set(words) <= set(glossary())
