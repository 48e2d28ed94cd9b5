"""All commands of a page are run, and their output is compared with the page."""

from pathlib import Path

import pytest

from tests.e2e.docs.pages import has_local_commands, pages, run_locally


@pytest.mark.parametrize("name", [page for page in pages() if has_local_commands(page)])
def test_page_commands_work(name: str, tmp_path: Path) -> None:
    run_locally(name, tmp_path)
