"""Every page can be reached by links from the README."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s#]+)[^)\s]*\)")


def linked_pages(page: Path) -> set[Path]:
    """Return the pages that a page links to. A link to a folder counts for its README."""
    targets = {
        (page.parent / link).resolve()
        for link in LINK.findall(page.read_text())
        if "://" not in link
    }
    return {
        target / "README.md" if target.is_dir() else target
        for target in targets
        if target.is_dir() or target.suffix == ".md"
    }


def test_every_page_is_reachable_from_the_readme() -> None:
    reached: set[Path] = set()
    pending = {ROOT / "README.md"}
    while pending:
        page = pending.pop()
        reached.add(page)
        pending |= {target for target in linked_pages(page) if target.is_file()} - reached
    pages = {*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")}
    assert len(pages) > 30
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reached) == []
