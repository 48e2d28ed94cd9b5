"""The runner detects pages with wrong content."""

import time
from pathlib import Path

import pytest

from tests.e2e.docs.blocks import blocks
from tests.e2e.docs.pages import Page
from tests.e2e.docs.sessions import Failed


def run_page(folder: Path, text: str) -> None:
    Page("a.md", folder, {"MINE": "1"}).run(list(blocks("a.md", text)), served=False)


def shell(text: str, output: str | None = None) -> str:
    return f"```bash\n{text}\n```\n" + (f"\n```text\n{output}\n```\n" if output else "")


def test_shell_state_is_kept_between_blocks(tmp_path: Path) -> None:
    run_page(tmp_path, shell("x=$MINE; f() { echo got $1; }") + shell("f $x | cat", "got 1"))


def test_failed_command_ends_the_page(tmp_path: Path) -> None:
    text = shell("true") + shell("echo before; ls /nowhere; echo after")
    with pytest.raises(Failed, match=r"(?s)a\.md:4: before\n.*nowhere(?!.*after)"):
        run_page(tmp_path, text)


def test_unset_variable_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="NOT_SET"):
        run_page(tmp_path, shell("echo $NOT_SET"))


def test_different_output_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="what was said is\ntwo"):
        run_page(tmp_path, shell("echo two", "one"))


def test_background_process_ends_with_its_page(tmp_path: Path) -> None:
    run_page(tmp_path, shell("sleep 600 & echo $! > ../pid") + shell("kill -0 $!"))
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < until


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_files_are_written_and_python_names_are_kept(tmp_path: Path) -> None:
    run_page(
        tmp_path,
        '```yaml\n# a.yaml\na: 1\n```\n```json file=b.json\n{"b": 2}\n```\n'
        '```python\nfrom pathlib import Path\nboth = Path("a.yaml").read_text()\n```\n'
        '```python\nprint(both + Path("b.json").read_text())\n```\n'
        '```text\n# a.yaml\na: 1\n{"b": 2}\n```\n',
    )


def test_python_exception_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="ZeroDivisionError"):
        run_page(tmp_path, "```python\n1 / 0\n```\n")


def test_terminal_without_a_server_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="it does not serve, and says:\nno"):
        run_page(tmp_path, "```bash node\necho no\n```\n")


def test_node_serves_the_page_at_its_address(tmp_path: Path) -> None:
    page = Page("a.md", tmp_path, {})
    text = shell("curl -s -o /dev/null -w '%{http_code} %{url}' http://127.0.0.1:8080/v1/health")
    output = "200 http://127.0.0.1:8080/v1/health"
    page.run(list(blocks("a.md", f"{text}\n```text\n{output}\n```\n")), served=True)
