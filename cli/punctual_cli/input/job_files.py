"""Files that hold jobs, for `apply`, `jobs create` and `jobs update`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from punctual_cli.errors import CommandError

MAX_JOB_FILE_BYTES = 64 * 1024 * 1024
MAX_JOB_FILES = 1_000
JOB_FILE_SUFFIXES = (".json", ".yaml", ".yml")


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for `-`."""
    if name == "-":
        data = sys.stdin.buffer.read(MAX_JOB_FILE_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            data = file.read(MAX_JOB_FILE_BYTES + 1)
    if len(data) > MAX_JOB_FILE_BYTES:
        raise CommandError(
            f"{display_name(name)} is larger than {MAX_JOB_FILE_BYTES:,} bytes. Split it."
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{display_name(name)} is not valid UTF-8.") from error


def expand_files(names: Sequence[str]) -> list[str]:
    """Return each file once. Folders yield the files below them, sorted by name."""
    unique_files: dict[str, str] = {}
    for name in names:
        files = _find_files(Path(name)) if name != "-" and Path(name).is_dir() else iter([name])
        for file in files:
            unique_files.setdefault(file if file == "-" else str(Path(file).resolve()), file)
            if len(unique_files) > MAX_JOB_FILES:
                raise CommandError(
                    f"There are more than {MAX_JOB_FILES:,} files. Name a smaller folder."
                )
    return list(unique_files.values())


def _find_files(folder: Path) -> Iterator[str]:
    """Yield the YAML and JSON files below a folder, without hidden ones."""
    is_empty = True
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in JOB_FILE_SUFFIXES and not is_hidden and path.is_file():
            is_empty = False
            yield str(path)
    if is_empty:
        raise CommandError(
            f"{folder} has no file with the suffix {', '.join(JOB_FILE_SUFFIXES)}.",
            advice="Name a file, or a folder with job files.",
        )


def display_name(name: str) -> str:
    return "standard input" if name == "-" else name


def read_jobs(name: str) -> list[dict[str, Any]] | dict[str, Any]:
    """Return one job, or a list of jobs."""
    from punctual_cli.apply import json_lines, yaml_lines

    try:
        documents = json_lines.parse_documents(read_text(name))
    except yaml_lines.Unreadable as error:
        faults = "\n".join(
            f"{display_name(name)}:{fault.line}: {fault.message}" for fault in error.faults
        )
        raise CommandError(faults) from error
    if len(documents) != 1:
        raise CommandError(f"{display_name(name)} must have one document; got {len(documents)}.")
    value = documents[0].value
    if isinstance(value, dict) and set(value) == {"jobs"}:
        value = value["jobs"]
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return value
    if isinstance(value, dict):
        return value
    raise CommandError(f"{display_name(name)} must be a job or a list of jobs.")


def read_job(name: str) -> dict[str, Any]:
    content = read_jobs(name)
    if isinstance(content, list):
        raise CommandError(f"{display_name(name)} must be one job; got a list.")
    return content
