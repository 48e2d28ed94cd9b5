"""Jobs that stand in a file, for `jobs create` and `jobs update`."""

import sys
from pathlib import Path
from typing import Any

from punctual_cli.failures import Trouble


def text_of(name: str) -> str:
    """Of a file, or of standard input: -."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text()
    except UnicodeDecodeError as error:
        raise Trouble(f"{shown(name)} is no text in UTF-8.") from error


def shown(name: str) -> str:
    return "standard input" if name == "-" else name


def jobs_in(name: str) -> list[dict[str, Any]] | dict[str, Any]:
    """One job, or the list of many."""
    from punctual_cli import json_text, yaml_text

    try:
        found = json_text.documents(text_of(name))
    except yaml_text.Unreadable as error:
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
