"""Another release of the same code with another version number, for updates.

It is also protected: one update adds the protection, and the next one removes it.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from punctual.settings import PRODUCT_VERSION
from tests.rehearsal.deployment import STAGE
from tests.rehearsal.emulator import ROOT

COPIED = ("functions", "infra", "layers")
SHARED = (".venv", "node_modules", "build", "package.json", "package-lock.json")
NEXT = f"{PRODUCT_VERSION}+rehearsal"
SAYS = Path("layers/core/python/punctual/settings.py")
RUNNER = Path("layers/core/python/punctual/runner/__init__.py")  # in the zip of script functions
SET_UP = "#!/bin/sh\n# The virtualenv is another checkout's, and is set up.\n"

Described = dict[str, Any]


def checkout(tree: Path) -> Path:
    """Make a checkout with the deployed code, cdk.json and the commands of the Makefile."""
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    for name in ("cdk.json", "Makefile"):
        shutil.copy(ROOT / name, tree / name)
    for name in SHARED:
        (tree / name).symlink_to(ROOT / name)
    install = tree / "requirements/install"
    install.parent.mkdir()
    install.write_text(SET_UP)
    install.chmod(0o755)
    return tree


def describe(tree: Path, change: Callable[[Described], None]) -> None:
    """Change the settings of the stage in a checkout's cdk.json."""
    file = tree / "cdk.json"
    document = json.loads(file.read_text())
    change(document["context"]["stages"][STAGE])
    file.write_text(json.dumps(document, indent=2))


def next_release(folder: Path) -> Path:
    """Return a checkout with another version number, another runner and a protected stage."""
    tree = checkout(folder / "next")
    describe(tree, lambda stage: stage.update(protected=True))
    says = tree / SAYS
    before = says.read_text()
    after = before.replace(f'VERSION = "{PRODUCT_VERSION}"', f'VERSION = "{NEXT}"')
    assert after != before
    says.write_text(after)
    with (tree / RUNNER).open("a") as runner:
        runner.write(f'\nRELEASE = "{NEXT}"\n')
    return tree
