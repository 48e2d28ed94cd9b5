"""Files that hold jobs, for `apply`, `jobs create` and `jobs update`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from punctual_cli.errors import Trouble

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_FILES = 1_000
SUFFIXES = (".json", ".yaml", ".yml")


def text_of(name: str) -> str:
    """Return the text of a file, or of standard input for `-`."""
    if name == "-":
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise Trouble(f"{shown(name)} has more than {MAX_FILE_BYTES:,} bytes: split it.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Trouble(f"{shown(name)} is not valid UTF-8.") from error


def files_of(names: Sequence[str]) -> list[str]:
    """Return each file once. Folders yield the files below them, sorted by name."""
    found: dict[str, str] = {}
    for name in names:
        files = _files_in(Path(name)) if name != "-" and Path(name).is_dir() else iter([name])
        for file in files:
            found.setdefault(file if file == "-" else str(Path(file).resolve()), file)
            if len(found) > MAX_FILES:
                raise Trouble(f"There are more than {MAX_FILES:,} files: name a smaller folder.")
    return list(found.values())


def _files_in(folder: Path) -> Iterator[str]:
    """Yield the YAML and JSON files below a folder, without hidden ones."""
    is_empty = True
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in SUFFIXES and not hidden and path.is_file():
            is_empty = False
            yield str(path)
    if is_empty:
        raise Trouble(
            f"{folder} holds no file that ends with {', '.join(SUFFIXES)}.",
            advice="Name a file, or a folder that holds jobs.",
        )


def shown(name: str) -> str:
    return "standard input" if name == "-" else name


def jobs_in(name: str) -> list[dict[str, Any]] | dict[str, Any]:
    """Return one job, or a list of jobs."""
    from punctual_cli.apply import json_lines, yaml_lines

    try:
        found = json_lines.documents(text_of(name))
    except yaml_lines.Unreadable as error:
        faults = "\n".join(f"{shown(name)}:{f.line}: {f.message}" for f in error.faults)
        raise Trouble(faults) from error
    if len(found) != 1:
        raise Trouble(f"{shown(name)} must hold one document, not {len(found)}.")
    value = found[0].value
    if isinstance(value, dict) and set(value) == {"jobs"}:
        value = value["jobs"]
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return value
    if isinstance(value, dict):
        return value
    raise Trouble(f"{shown(name)} must hold a job, or a list of jobs.")


def job_in(name: str) -> dict[str, Any]:
    found = jobs_in(name)
    if isinstance(found, list):
        raise Trouble(f"{shown(name)} holds a list: one job is meant here.")
    return found
