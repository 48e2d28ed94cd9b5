"""Every block of a page is tested or marked, and all links have targets."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.docs.blocks import Block, UnknownBlock, Use, blocks, blocks_of
from tests.e2e.docs.pages import PAGES_WITH_TESTS, ROOT, pages

DONE = {
    "npm ci": "Makefile",
    "node_modules/.bin/cdk bootstrap aws://ACCOUNT/REGION": "tests/rehearsal/deployment.py",
    "node_modules/.bin/cdk diff --context stage=dev": "tests/rehearsal/deployment.py",
    "node_modules/.bin/cdk deploy Punctual-dev-Execution --exclusively --context stage=dev": (
        "tests/rehearsal/updates.py"
    ),
    "make check": ".github/workflows/ci.yml",
    "make test": ".ci/run",
    "make test-fast": "Makefile",
    "make rehearse": "tests/rehearsal/__main__.py",
    "make rehearse STAY=1": "tests/integration/rehearsal/test_rehearsal_stay.py",
    "make deploy STAGE=dev": "tests/rehearsal/deployment.py",
    "make destroy STAGE=dev YES=1": "tests/rehearsal/deployment.py",
    ".venv/bin/python -m infra.build.runner build/runner/runner.zip": (
        "tests/infra/build/test_container_images.py"
    ),
    "docker build -f containers/runner/Dockerfile -t report:punctual "
    "--build-arg BASE_IMAGE=report:1 .": "tests/infra/build/test_container_images.py",
    "punctual secrets set token < token.txt": "tests/deployed/containers/test_container_page.py",
    "punctual jobs create -f report.json": "tests/deployed/containers/test_container_page.py",
    "punctual runs watch report": "tests/deployed/containers/test_container_page.py",
    "punctual runs logs report": "tests/deployed/containers/test_container_page.py",
    "make acceptance URL=$PUNCTUAL_URL TOKEN=$PUNCTUAL_TOKEN": "tests/rehearsal/acceptance.py",
}
"""Commands of pages that another file covers, with its own stage or folder."""

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)(`{3,})[^`]*\n.*?^\1\2$", re.MULTILINE | re.DOTALL)


def every_block() -> Iterator[Block]:
    for page in pages():
        yield from blocks_of(ROOT, page)


def documents() -> list[str]:
    return [*pages(), *PAGES_WITH_TESTS]


def prose(page: str) -> str:
    return FENCED.sub("", (ROOT / page).read_text())


@pytest.mark.parametrize("page", pages())
def test_every_block_has_a_known_use(page: str) -> None:
    assert all(isinstance(block.use, Use) for block in blocks_of(ROOT, page))


@pytest.mark.parametrize("page", pages())
def test_pages_have_fenced_code_blocks_only(page: str) -> None:
    assert re.findall(r"(?:\A|\n)\n    \S.*", prose(page)) == []


def test_commands_marked_done_are_covered_elsewhere() -> None:
    commands = {
        line.partition(" #")[0].strip()
        for block in every_block()
        if block.use is Use.DONE
        for line in block.text.splitlines()
    }
    assert commands - set(DONE) == set()
    assert all((ROOT / path).is_file() for path in DONE.values())


def test_make_run_matches_the_replacement_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^run:.*\n\t@.*exec \$\(PYTHON_IN_VENV\) -m punctual.node$", makefile, re.M)


def test_only_the_architecture_page_has_drawings() -> None:
    drawn = {block.page for block in every_block() if block.use is Use.DRAWING}
    assert drawn == {"docs/architecture.md"}


def test_output_blocks_follow_a_command() -> None:
    for page in pages():
        before: Use | None = None
        for block in blocks_of(ROOT, page):
            if block.use is Use.OUTPUT:
                assert before in (Use.SHELL, Use.PYTHON, Use.NODE), str(block)
            before = block.use


def test_page_with_its_own_test_is_named_in_that_test() -> None:
    for page, test in PAGES_WITH_TESTS.items():
        assert Path(page).stem in (ROOT / test).read_text().lower(), test


def test_block_of_unknown_kind_is_refused() -> None:
    (block,) = blocks("a.md", "```zsh\nls\n```\n")
    with pytest.raises(UnknownBlock, match=r"a\.md:1"):
        assert block.use


def test_block_without_an_end_is_refused() -> None:
    with pytest.raises(UnknownBlock, match="no end"):
        list(blocks("a.md", "```bash\nls\n"))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", documents())
def test_links_have_targets(page: str) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link
